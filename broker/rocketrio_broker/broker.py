"""One broker: it composes store, replication, registration, processors and listeners.

They start in the order of the indentation in `open_broker`, and stop in the reverse order:

    listeners bound | store recovered | tables loaded and kept | replication | offsets of slaves taken over | serving
    | registered

Invariant: nothing is served before the tables are loaded and the role has begun (`role/service.py`).
Invariant: tables are written and the store is closed only after every connection has ended: no answer promises more.
Invariant: the broker registers, so that clients come, only once it answers requests.
Answers to: BrokerController, BrokerStartup.
Unlike Java: only processors and the role are given the whole state; every other part is given what it needs.
"""

import logging
import random
from collections.abc import AsyncGenerator, Collection, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio

from rocketrio_broker.access.control import (
    AccessControl,
    InnerCredentials,
    access_control,
)
from rocketrio_broker.access.files import acl_paths
from rocketrio_broker.addresses import BrokerAddresses, listening
from rocketrio_broker.events import EventRing
from rocketrio_broker.ha.client import HAClient, HAClientState
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.copy_progress import CopyWatch
from rocketrio_broker.ha.exchange import greeting_of
from rocketrio_broker.ha.gather_offsets import (
    SlaveOffsets,
    SlaveTables,
    TakenOver,
    ask_slaves,
    gather_slave_offsets,
)
from rocketrio_broker.ha.known_slaves import KnownSlaves
from rocketrio_broker.ha.link_files import load_link_security
from rocketrio_broker.ha.link_security import LinkSecurity, secured_dial, warned_dial
from rocketrio_broker.ha.live_slaves import SlaveListing
from rocketrio_broker.ha.log_check_service import LogCheckService
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.missing_tail import MissingTail, ReturnRule
from rocketrio_broker.ha.open_epoch import EpochOpener
from rocketrio_broker.ha.pause_detector import ASK_LIMIT
from rocketrio_broker.ha.peers import (
    PeerCaller,
    Peers,
    ask_identity,
    claim_slave_id,
    unsigned_questions,
)
from rocketrio_broker.ha.resync import HistoryRules
from rocketrio_broker.ha.second_history import SecondHistory
from rocketrio_broker.ha.service import HAService, HAStatistics
from rocketrio_broker.ha.slave import SlaveReplication, SlaveStatistics
from rocketrio_broker.ha.slave_ids import SlaveIds
from rocketrio_broker.ha.slave_synchronize import SlaveSynchronize
from rocketrio_broker.ha.survey import Survey, Surveyor
from rocketrio_broker.ha.watch import ReplicationWatch
from rocketrio_broker.metrics.counts import CountedStats
from rocketrio_broker.metrics.creations import timed_creations
from rocketrio_broker.offsets.table import QueueEnd
from rocketrio_broker.open_name_servers import warn_of_open_name_servers
from rocketrio_broker.processors import broker_handlers, processor_table
from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.processors.role import Roles
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.requests.declaration import changes_of
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.role.file import RoleFile
from rocketrio_broker.role.hand_over import HandOverService, ask_outcome
from rocketrio_broker.role.service import RoleService
from rocketrio_broker.role.shared_id import SharedId
from rocketrio_broker.role.standing import Followers
from rocketrio_broker.role.switchboard import Switchboard
from rocketrio_broker.role.take_over import TakeOver
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.state import BrokerState, Service
from rocketrio_broker.store.disk import Disk, RealDisk
from rocketrio_broker.store.message_store import open_message_store
from rocketrio_broker.store.statistics import StoreStatistics
from rocketrio_broker.tls import Tls, load_tls, peer_tls_options, warn_if_exposed
from rocketrio_broker.waiting.answers import WaitingStatistics
from rocketrio_broker.waiting.long_polling import CHECK_INTERVAL, PullRequestHoldService
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.errors import ConfigError, NotReachableError
from rocketrio_protocol.extras import how_to_install
from rocketrio_protocol.ha.exchange import Greeting
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.ports import (
    Dial,
    Listen,
    Listener,
    SystemWallClock,
    WallClock,
    split_addr,
)
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.reloaded_files import ReloadedFiles
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.server_limits import ConnectionPlaces
from rocketrio_protocol.remoting.server_tls import ServerTls
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

logger = logging.getLogger("rocketrio_broker")

HAND_OVER_LIMIT: Final = 10.0
"""The most seconds that a stopping broker spends on a hand-over."""


@attrs.frozen
class BrokerStatistics:
    """What a broker is doing at the moment."""

    role: str
    connections: int
    held_pulls: int
    waiting_answers: int
    waits: WaitingStatistics
    """What sends waited for: the disk and slaves."""
    store: StoreStatistics
    ha: HAStatistics
    slave: SlaveStatistics | None
    refused_plain: int | None
    """Connections that were closed because they did not begin with TLS; None without TLS."""
    failed_handshakes: int | None
    """TLS handshakes that failed, took too long, or gave their place up; None without TLS."""
    connection_faults: int
    """Connections that a fault of this program has ended."""


class Broker:
    """A broker that serves. Created by `open_broker`."""

    def __init__(
        self,
        state: BrokerState,
        roles: Roles,
        connections: set[Channel],
        tls: Tls,
        link: LinkSecurity,
    ) -> None:
        self.state = state
        self._link = link
        self.tls = tls
        self.address = state.address
        """The address that clients use."""
        self.ha_address = state.ha_address
        """The address that slaves use."""
        self.store = state.store
        """The store of its messages."""
        self.ha_service = state.ha_service
        self.registration = state.registration
        self.roles = roles
        """What changes its role."""
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Broker {self.config.broker_name} role={self.role} address={self.address}>"

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self.state.config.broker

    @property
    def role(self) -> str:
        """The current role: a master's or `slave`."""
        return self.config.role

    @property
    def slave(self) -> SlaveReplication | None:
        """The slave's side of replication; None on a master."""
        return self.state.slave

    async def hand_over_before_stop(self) -> None:
        """Change places with a slave, if this is a synchronous master whose settings want that before a stop.

        Takes ten seconds at most, and never fails: if the hand-over was not possible, that is logged.
        """
        if not self.config.ha_hand_over_on_stop or self.config.role != "sync-master":
            return
        with trio.move_on_after(HAND_OVER_LIMIT) as limit:
            try:
                await self.roles.hand_over.run(None)
            except RefusedError as refusal:
                logger.warning("stops without a hand-over reason=%s", refusal.remark)
        if limit.cancelled_caught:
            logger.warning(
                "stops without a hand-over reason=%s", f"not done in {HAND_OVER_LIMIT:g} s"
            )

    async def reload_files(self) -> None:
        """Use certificates, keys, secrets and users as they are now, if they have changed."""
        await self.tls.reload()
        if self.state.access is not None:
            await self.state.access.reload()
        if self._link.files is not None:
            await self._link.files.look()

    def statistics(self) -> BrokerStatistics:
        server = self.tls.server
        return BrokerStatistics(
            role=self.role,
            connections=len(self._connections),
            held_pulls=len(self.state.held_pulls),
            waiting_answers=len(self.state.waiting_answers),
            waits=self.state.waiting_answers.statistics(),
            store=self.store.statistics(),
            ha=self.ha_service.statistics(),
            slave=self.state.slave_statistics(),
            refused_plain=None if server is None else server.refused_plain_count,
            failed_handshakes=None if server is None else server.failed_handshake_count,
            connection_faults=self.state.faults.count,
        )


class _Observer:
    """Tracks the connections of both listeners, and informs the parts that keep something for a connection."""

    def __init__(self, state: BrokerState) -> None:
        self.connections: set[Channel] = set()
        self._state = state

    def channel_opened(self, channel: Channel) -> None:
        self.connections.add(channel)

    def channel_closed(self, channel: Channel) -> None:
        self.connections.discard(channel)
        self._state.held_pulls.channel_closed(channel)
        self._state.client_housekeeping.channel_closed(channel)


@asynccontextmanager
async def open_broker(
    config: BrokerConfig,
    *,
    disk: Disk | None = None,
    dial: Dial = dial_tcp,
    listen: Listen = listen_tcp,
    wall_clock: WallClock | None = None,
    rng: random.Random | None = None,
    is_first: bool = False,
) -> AsyncGenerator[Broker]:
    """Serve as a broker for as long as the body runs; leaving the body is a clean stop.

    `is_first` says that there was never a broker of this name, so an empty master waits for no slave that may have its
    log.

    Raises ConfigError for an address that cannot be used or a key that cannot be read, StoreLockedError if another
    process uses the data directory. A cancel stops the broker cleanly too.
    """
    disk = RealDisk() if disk is None else disk
    wall_clock = SystemWallClock() if wall_clock is None else wall_clock
    events = EventRing(f"{wall_clock.now_ms():x}")
    security = await _link_security(config, disk, wall_clock)
    inner, access = _access(config, disk, wall_clock)
    tls = await load_tls(
        config.server_tls, peer_tls_options(config), wall_clock=wall_clock, run_blocking=disk.run
    )
    async with (
        events.attached(),
        listening(config, listen) as addresses,
        open_message_store(
            config.store_settings, config.data, disk=disk, wall_clock=wall_clock
        ) as store,
    ):
        security = attrs.evolve(security, address=addresses.ha_address)
        security.warn_if_open()
        warn_if_exposed(
            (addresses.main.addr, addresses.fast.addr),
            {
                "TLS (tls_certificate_file)": tls.server is not None,
                "access control (acl_enable)": config.is_access_controlled,
            },
        )
        role_file = RoleFile(config.config_directory, configured=config, disk=disk)
        state = BrokerState(
            role_file.apply(config),
            store,
            addresses=addresses,
            disk=disk,
            wall_clock=wall_clock,
            rng=random.Random() if rng is None else rng,
            events=events,
            configured=config,
            access=access,
        )
        state.load()
        async with (
            # Around everything below, so that it ends last: also the last request
            # of the last connection may change a table.
            state.keep_tables(),
            open_channel_pool(
                tls.dial(dial), signer=None if inner is None else inner.signer
            ) as pool,
            open_channel_pool(tls.dial(dial)) as unsigned_pool,
            background_nursery() as nursery,
        ):
            watched = access or inner
            if watched is not None:
                await nursery.start(watched.run)
            _add_connections(state, addresses, pool, unsigned_pool.call, security)
            roles = await _add_role(
                state,
                pool,
                secured_dial(dial, security),
                role_file=role_file,
                is_proved=security.is_proof_asked,
                is_first=is_first,
            )
            for service in _services(state, roles):
                await nursery.start(service.run)
            observer = _Observer(state)
            if addresses.metrics is not None:
                await nursery.start(_metrics(state, addresses.metrics, observer).run)
            await nursery.start(tls.run)
            if security.files is not None:
                nursery.start_soon(security.files.run)
            await nursery.start(_serve, state, roles, addresses, observer, tls.server)
            # Only now, as name servers send clients here from then on.
            await nursery.start(state.registration.run)
            await state.standing.served.wait_reached(1)
            if access is not None:
                name_servers = config.name_servers
                nursery.start_soon(warn_of_open_name_servers, unsigned_pool.call, name_servers)
            role = state.config.broker.role
            logger.info("serving role=%s address=%s", role, state.address)
            yield Broker(state, roles, observer.connections, tls, security)


def _add_connections(
    state: BrokerState,
    addresses: BrokerAddresses,
    pool: ChannelPool,
    unsigned: PeerCaller,
    security: LinkSecurity,
) -> None:
    """Add to the state what connects the broker to name servers, slaves and other brokers of its name.

    `unsigned` sends requests without a signature.
    """
    config = state.config.broker
    state.registration = registration = BrokerRegistration(
        config=state.config,
        topics=state.topics,
        pool=pool,
        broker_addr=state.address,
        ha_server_addr=state.ha_address,
    )
    state.ha_service = ha_service = HAService(
        state.store,
        addresses.ha,
        wall_clock=state.wall_clock,
        config=_ha_config(config),
        group_transfer=state.group_transfer,
        security=security,
        broker_id=lambda: state.config.broker.broker_id,
        introduce=partial(_introduce, state, is_proved=security.is_proof_asked),
        refusal=partial(_slaves_refusal, state),
        faults=state.faults,
    )
    trusted = config.plain_signature_hosts
    peers = Peers(
        call=pool.call,
        question=unsigned_questions(
            unsigned,
            pool.call,
            may_sign=lambda addr: any(each.matches(split_addr(addr)[0]) for each in trusted),
        ),
        name_servers=config.name_servers,
        broker_name=config.broker_name,
        own_addr=state.address,
    )
    state.known_slaves = known_slaves = KnownSlaves(
        config.config_directory,
        disk=state.disk,
        peers=peers,
        connections=ha_service.connections,
        changes=(ha_service.accepted, ha_service.departed, registration.master_changes),
        # A slave without a master does not forget the last one: it may have to know what became of it.
        master=lambda: (
            registration.master.addr
            or (state.known_slaves.followed if state.config.broker.is_slave else None)
        ),
    )
    state.peers = attrs.evolve(
        peers, remembered=known_slaves.addrs, connecting=known_slaves.connecting
    )
    state.live_slaves.watch(ha_service.connections)
    state.absence.watch(
        ha_service.connections,
        partial(
            gather_slave_offsets,
            peers=state.peers,
            consumer_offsets=state.consumer_offsets,
            queue_end=state.store.next_queue_offset,
            shared_ends=lambda _, epoch: state.reader_epochs.shared_ends(epoch),
            limit=ASK_LIMIT,
            level=logging.DEBUG,
        ),
    )


async def _add_role(
    state: BrokerState,
    pool: ChannelPool,
    ha_dial: Dial,
    *,
    role_file: RoleFile,
    is_proved: bool,
    is_first: bool,
) -> Roles:
    """Return what runs and changes the role, and add to the state what checks it.

    `ha_dial` connects to replication ports, and verifies the peer if `is_proved`.
    """
    store, config, peers = state.store, state.config.broker, state.peers
    ha_service, known_slaves = state.ha_service, state.known_slaves
    surveyor = Surveyor(
        peers,
        dial=ha_dial,
        greeting=partial(greeting_of, store, asks_only=True),
        is_proved=is_proved,
    )
    state.second_history = SecondHistory(
        store,
        surveyor=surveyor,
        dial=ha_dial,
        accepted=ha_service.accepted,
        known=known_slaves.addrs(),
        is_proved=is_proved,
    )
    opener = EpochOpener(
        store,
        surveyor=surveyor,
        dial=ha_dial,
        config=lambda: state.config.broker,
        connections=ha_service.connections,
        rng=state.rng,
    )
    await _begin_epochs(opener)
    configured = role_file.configured.broker_id
    claim_id = partial(claim_slave_id, peers, configured=configured)
    switchboard = Switchboard(
        state.standing,
        config=state.config,
        store=store,
        gate_keeper=state.gate_keeper,
        group_transfer=state.group_transfer,
        registration=state.registration,
        queue_locks=state.queue_locks,
        ha_service=ha_service,
    )
    role = RoleService(
        state,
        switchboard,
        follow=partial(_slave_replication, state, config, pool, ha_dial, is_proved=is_proved),
        surveyor=surveyor,
        fetch=_missing_tail(state, surveyor, ha_dial, is_first=is_first).fetch,
        opener=opener,
        gather=partial(_gather, state, peers),
        join_offsets=lambda taken: _offsets_of_slaves(state, taken).take_over_waiting(taken),
        ask_outcome=partial(ask_outcome, peers),
        claim_id=claim_id,
        role_file=role_file,
        followed=known_slaves.followed,
    )
    state.slave_ids = SlaveIds(
        peers, state.live_slaves.introduced, met=known_slaves.ids, configured=configured
    )
    shared_id = SharedId(
        config=state.config,
        registration=state.registration,
        role=role,
        role_file=role_file,
        surveyor=surveyor,
        claim_id=claim_id,
    )
    state.log_check = LogCheckService(
        store,
        config=state.config,
        disk=state.disk,
        call=pool.call,
        followed=lambda: None if state.slave is None else state.slave.followed,
        topic_exists=lambda topic: (
            state.topics.topic_config(topic) is not None or state.topics.is_system_topic(topic)
        ),
    )
    return Roles(
        role,
        HandOverService(
            state, role, switchboard, surveyor=surveyor, role_file=role_file, pool=pool
        ),
        TakeOver(state, role, role_file=role_file),
        shared_id,
    )


def _services(state: BrokerState, roles: Roles) -> Sequence[Service]:
    """Return the services of a broker, in the order of their start."""
    ha_service, waiting = state.ha_service, state.waiting_answers
    return (
        waiting,
        state.audit,
        state.deleted_topics,
        PullRequestHoldService(
            state.held_pulls,
            PullMessageProcessor(state),
            state.store,
            standing=state.standing,
            check_interval=partial(_check_interval, state),
        ),
        state.client_housekeeping,
        state.stats,
        ha_service,
        SlaveListing(state.live_slaves, accepted=ha_service.accepted, peers=state.peers),
        state.known_slaves,
        state.held_writes,
        roles.service,
        roles.shared_id,
        ReplicationWatch(ha_service.statistics, lambda: waiting.statistics().answered),
        state.log_check,
    )


def _introduce(
    state: BrokerState, greeting: Greeting, stream_addr: str, *, is_proved: bool
) -> None:
    """Note which slave is at the other end of a stream.

    A master may ask it for messages only if it has proved who it is (`is_proved`): a stranger could send false ones.
    """
    state.live_slaves.introduce(greeting.broker_id, stream_addr)
    if is_proved:
        state.known_slaves.note_connection(greeting.address, stream_addr)


def _slaves_refusal(state: BrokerState) -> str:
    """Return why no slave may follow this broker's log now; empty if one may.

    The log of a former master may end differently from its successor's until it has been compared with that.
    """
    standing, slave = state.standing, state.slave
    followers = standing.now.followers
    if followers is Followers.IF_FOLLOWING:
        may_follow = slave is not None and slave.client.state is HAClientState.FOLLOWING
    else:
        may_follow = followers is Followers.ANY
    return "" if may_follow else f"No slave may follow this broker now: {standing.reason}"


def _check_interval(state: BrokerState) -> float:
    broker = state.config.broker
    return CHECK_INTERVAL if broker.long_polling_enable else broker.short_polling_time


def _slave_replication(
    state: BrokerState,
    config: BrokerConfig,
    pool: ChannelPool,
    ha_dial: Dial,
    *,
    is_proved: bool,
) -> SlaveReplication:
    """Create a slave's side of replication, for as long as the broker stays a slave.

    `ha_dial` connects to replication ports, and verifies the peer if `is_proved`.
    """
    master, ha_master = MasterAddress(), MasterAddress(config.ha_master_address)
    # The tables are copied from there too, signed.
    question = unsigned_questions(state.peers.question, pool.call, may_sign=lambda addr: True)

    async def knows_epochs() -> bool:
        if is_proved:
            # Only rocketrio brokers are verified; an answer at the ordinary port would prove nothing.
            return True
        addr = master.value
        if addr is not None:
            return (await ask_identity(question, addr)).is_rocketrio
        if config.name_servers:
            raise NotReachableError("No name server has reported the master yet", remedy="")
        return False

    client = HAClient(
        state.store,
        address=ha_master,
        dial=ha_dial if is_proved else warned_dial(ha_dial),
        wall_clock=state.wall_clock,
        config=_ha_config(config),
        level_clock=state.level_clock,
        rules=lambda: HistoryRules(
            divergent_tail=state.config.broker.ha_divergent_tail,
            missing_history=state.config.broker.ha_missing_history,
        ),
        knows_epochs=knows_epochs,
        broker_id=lambda: state.config.broker.broker_id,
        own_addr=state.address,
        faults=state.faults,
    )
    state.level_clock.forget()
    synchronize = SlaveSynchronize(
        call=pool.call,
        master=master,
        topics=state.topics,
        groups=state.groups,
        consumer_offsets=state.consumer_offsets,
        delay_offset_file=state.delay_offsets.file,
        flushed=state.store.flushed,
        gate=state.store.read_gate,
        followed=client.followed,
        is_following=lambda: client.state is HAClientState.FOLLOWING,
        own_name=lambda: (state.config.broker.broker_id, client.local_addr),
        access=state.access,
        answers=lambda: client.answers,
        epoch=lambda: state.reader_epochs.current,
        period=config.slave_sync_period,
    )
    return SlaveReplication(
        client,
        synchronize,
        CopyWatch(client, state.store, call=pool.call, master=master),
        registration=state.registration,
        master=master,
        ha_master=ha_master,
        ha_master_is_fixed=config.ha_master_address is not None,
    )


def _ha_config(config: BrokerConfig) -> HAConfig:
    """Return the settings of replication, for a master or a slave."""
    return HAConfig(
        send_heartbeat_interval=config.ha_send_heartbeat_interval,
        housekeeping_interval=config.ha_housekeeping_interval,
        transfer_batch_size=config.ha_transfer_batch_size,
        full_history_start=config.ha_full_history_start,
        acknowledge=config.ha_acknowledge,
    )


async def _gather(
    state: BrokerState,
    peers: Peers,
    found: Survey | None,
    silent: Collection[str],
    limit: float,
    taken: TakenOver,
) -> None:
    """Collect tables and offsets from the slaves that were found, or that name servers list now.

    Those that were `silent` are asked once more, and those whose tables were `taken` over already for offsets alone.
    Until this log is whole the offsets wait in `taken`.
    """
    # No name server may list these as slaves yet. They answered a moment ago: asking them once is enough.
    also = frozenset(peers.connecting())
    slaves, name_servers = frozenset(peers.remembered()), peers.name_servers
    if found is not None:
        also |= found.also.intersection(view.addr for view in found.answered)
        slaves, name_servers = found.expected, tuple(found.silent_servers)
    known = *sorted(slaves), *sorted(also - slaves)
    ours = _offsets_of_slaves(state, taken)

    def take(addr: str, offsets: VersionedConsumerOffsets) -> int:
        if taken.is_whole:
            return ours.take_over(addr, offsets)
        taken.offsets[addr] = offsets
        return 0

    await ask_slaves(
        peers=attrs.evolve(peers, name_servers=name_servers, remembered=lambda: known),
        take=take,
        tables=SlaveTables(state.topics, state.groups, state.delay_offsets, taken.tables_of),
        silent={*silent, *(also - slaves)},
        limit=limit,
    )


def _offsets_of_slaves(state: BrokerState, taken: TakenOver) -> SlaveOffsets:
    epochs, queue_end = state.reader_epochs, state.store.next_queue_offset

    def shared_ends(slave: str, epoch: str) -> QueueEnd | None:
        if slave == taken.log_of:
            return epochs.own_ends(epoch) or queue_end
        return epochs.shared_ends(epoch)

    return SlaveOffsets(state.consumer_offsets, queue_end, shared_ends)


async def _begin_epochs(opener: EpochOpener) -> None:
    """Open the epoch file; a broker whose disk is full still serves reads, and replicates as Apache's do."""
    try:
        await opener.begin()
    except OSError as error:
        logger.error("the epoch file cannot be written reason=%s", error)


def _missing_tail(
    state: BrokerState, surveyor: Surveyor, ha_dial: Dial, *, is_first: bool
) -> MissingTail:
    return MissingTail(
        state.store,
        surveyor=surveyor,
        dial=ha_dial,
        wall_clock=state.wall_clock,
        config=_ha_config(state.config.broker),
        rule=lambda: ReturnRule(
            serves_without=state.config.broker.ha_return == "serve",
            wait=state.config.broker.ha_return_wait,
            expects_slaves=not is_first and state.config.broker.role == "sync-master",
        ),
    )


async def _serve(
    state: BrokerState,
    roles: Roles,
    addresses: BrokerAddresses,
    observer: _Observer,
    tls: ServerTls | None,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Answer all requests on the first listener, and all except pulls on the one two ports below.

    With access control the guard sees every request first, also those of codes that no processor answers.
    """
    handlers = broker_handlers(state, roles)
    table = processor_table(state, handlers)
    if isinstance(state.stats, CountedStats):
        table = timed_creations(table, state.stats)
    table = state.audit.over(table, changes_of(handlers))
    only_main = {code for code, one in handlers.items() if not one.declared.on_fast_port}
    fast_table = {code: processor for code, processor in table.items() if code not in only_main}
    limits = state.config.broker.server_limits
    places = ConnectionPlaces(limits, RareLog())
    async with trio.open_nursery() as nursery:
        for listener, processors in ((addresses.main, table), (addresses.fast, fast_table)):
            # Around the audit, which notes the state before a change when the request runs, not when it begins to wait;
            # and within the guard, so that only those wait who may make the change.
            held = state.held_writes.over(processors, handlers)
            guarded = None if state.guard is None else state.guard.over(held, handlers)
            serve = partial(
                serve_remoting,
                [listener],
                held if guarded is None else {},
                default=guarded,
                observer=observer,
                limits=limits,
                places=places,
                tls=tls,
                faults=state.faults,
            )
            await nursery.start(serve)
        task_status.started()


def _access(
    config: BrokerConfig, disk: Disk, wall_clock: WallClock
) -> tuple[InnerCredentials | None, AccessControl | None]:
    """Load the account that signs this broker's requests, and the users; None for what is not set."""
    inner = None
    if config.inner_credentials_file is not None:
        inner = InnerCredentials(config.inner_credentials_file, disk=disk, wall_clock=wall_clock)
    if not config.is_access_controlled:
        return inner, None
    return inner, access_control(
        acl_paths=acl_paths(config.acl_file),
        inner=inner,
        white_addresses=config.acl_white_addresses,
        config_directory=config.config_directory,
        disk=disk,
    )


def _metrics(state: BrokerState, listener: Listener, observer: _Observer) -> Service:
    """Return the service for Prometheus. Raises ConfigError if its packages are not installed."""
    try:
        from rocketrio_broker.metrics.service import MetricsService
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"metrics_listen is set, and the package {error.name} is not installed",
            remedy=how_to_install("metrics"),
        ) from error
    return MetricsService(state, listener, connections=lambda: len(observer.connections))


async def _link_security(config: BrokerConfig, disk: Disk, wall_clock: WallClock) -> LinkSecurity:
    load = partial(
        load_link_security,
        secret_file=config.ha_secret_file,
        certificate_file=config.ha_tls_certificate_file,
        key_file=config.ha_tls_key_file,
        authority_file=config.ha_tls_authority_file,
    )
    given = (
        config.ha_secret_file,
        config.ha_tls_certificate_file,
        config.ha_tls_key_file,
        config.ha_tls_authority_file,
    )
    paths = [path for path in given if path is not None]
    names = frozenset(
        name for part in config.ha_tls_peer_names.split(";") if (name := part.strip())
    )
    own = LinkSecurity(
        broker_name=config.broker_name, fixed_address=config.ha_master_address, peer_names=names
    )
    if not paths:
        return own
    certificate = config.ha_tls_certificate_file
    files = await disk.run(
        partial(
            ReloadedFiles,
            load,
            paths,
            what="replication",
            certificates=[] if certificate is None else [certificate],
            wall_clock=wall_clock,
            run_blocking=disk.run,
        )
    )
    return own.with_files(files)
