"""One broker: it composes store, replication, registration, processors and listeners.

They start in the order of the indentation in `open_broker`, and stop in the reverse order:

    listeners bound | store recovered | tables loaded and kept | replication | offsets of slaves taken over | serving
    | registered

Invariant: nothing is served before the tables are loaded and the role has begun (`role.py`).
Invariant: tables are written and the store is closed only after every connection has ended: no answer promises more.
Invariant: the broker registers, so that clients come, only once it answers requests.
Answers to: BrokerController, BrokerStartup.
Unlike Java: no part reaches another through this class; each part is given what it needs.
"""

import logging
import random
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Final

import attrs
import trio

from rocketrio_broker.addresses import BrokerAddresses, listening
from rocketrio_broker.broker_parts import BrokerParts
from rocketrio_broker.config import BrokerConfig
from rocketrio_broker.ha import HAService, HAStatistics
from rocketrio_broker.ha.absence import ASK_LIMIT
from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.ha.gather_offsets import GATHER_LIMIT, gather_slave_offsets
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.known_slaves import KnownSlaves
from rocketrio_broker.ha.link_files import load_link_security
from rocketrio_broker.ha.link_security import LinkSecurity, secured_dial
from rocketrio_broker.ha.live_slaves import SlaveListing
from rocketrio_broker.ha.missing_tail import MissingTail, ReturnRule
from rocketrio_broker.ha.open_epoch import EpochOpener
from rocketrio_broker.ha.other_master import find_other_masters
from rocketrio_broker.ha.peers import Peers, claim_slave_id
from rocketrio_broker.ha.second_history import SecondHistory
from rocketrio_broker.ha.slave import SlaveReplication, SlaveStatistics
from rocketrio_broker.ha.slave_ids import SlaveIds
from rocketrio_broker.ha.slave_tables import SlaveTables
from rocketrio_broker.ha.successor import find_successor
from rocketrio_broker.ha.watch import ReplicationWatch
from rocketrio_broker.hand_over import HandOver, TakeOver, ask_outcome
from rocketrio_broker.log_check_service import LogCheckService
from rocketrio_broker.processors import PULL_CODES
from rocketrio_broker.processors.ha_status import HAStatusProcessor
from rocketrio_broker.processors.held_writes import HeldWrites
from rocketrio_broker.processors.log_check import LogCheckProcessor
from rocketrio_broker.processors.refusal import Refused
from rocketrio_broker.processors.role import RoleProcessor
from rocketrio_broker.processors.waiting_answers import WaitingStatistics
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.role import RoleService
from rocketrio_broker.role_file import RoleFile
from rocketrio_broker.slave_parts import ha_config, slave_replication
from rocketrio_broker.store.disk import Disk, RealDisk
from rocketrio_broker.store.message_store import MessageStore, open_message_store
from rocketrio_broker.store.statistics import StoreStatistics
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import (
    Dial,
    Listen,
    Listener,
    SystemWallClock,
    WallClock,
)
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.server_limits import ServerLimits
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

logger = logging.getLogger("rocketrio_broker")

HAND_OVER_LIMIT: Final = 10.0
"""The most seconds that a stopping broker spends on a hand-over."""
HANDED_OVER_GATHER_LIMIT: Final = 0.5
"""Seconds for the tables of a master that has just handed over: they were copied a moment before."""


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


class Broker:
    """A broker that serves. Created by `open_broker`."""

    def __init__(
        self,
        parts: BrokerParts,
        *,
        ha_service: HAService,
        role_service: RoleService,
        hand_over: HandOver,
        address: str,
        ha_address: str,
        registration: BrokerRegistration,
        connections: set[Channel],
    ) -> None:
        self.parts = parts
        self.ha_service = ha_service
        self.role_service = role_service
        """Runs the current role, and changes it."""
        self.hand_over = hand_over
        """Makes the broker change places with a slave."""
        self.address = address
        """The address that clients use."""
        self.ha_address = ha_address
        """The address that slaves use."""
        self.registration = registration
        self._connections = connections

    def __repr__(self) -> str:
        return f"<Broker {self.config.broker_name} role={self.role} address={self.address}>"

    @property
    def config(self) -> BrokerConfig:
        """The current settings."""
        return self.parts.config.broker

    @property
    def role(self) -> str:
        """The current role: a master's or `slave`."""
        return self.config.role

    @property
    def slave(self) -> SlaveReplication | None:
        """The slave's side of replication; None on a master."""
        return self.role_service.slave

    @property
    def store(self) -> MessageStore:
        """The store of its messages."""
        return self.parts.store

    async def hand_over_before_stop(self) -> None:
        """Change places with a slave, if this is a synchronous master whose settings want that before a stop.

        Takes ten seconds at most, and never fails: if the hand-over was not possible, that is logged.
        """
        if not self.config.ha_hand_over_on_stop or self.config.role != "sync-master":
            return
        with trio.move_on_after(HAND_OVER_LIMIT) as limit:
            try:
                await self.hand_over.run(None)
            except Refused as refusal:
                logger.warning("stops without a hand-over reason=%s", refusal.words)
        if limit.cancelled_caught:
            logger.warning("stops without a hand-over reason=not done in %g s", HAND_OVER_LIMIT)

    def statistics(self) -> BrokerStatistics:
        return BrokerStatistics(
            role=self.role,
            connections=len(self._connections),
            held_pulls=len(self.parts.held_pulls),
            waiting_answers=len(self.parts.waiting_answers),
            waits=self.parts.waiting_answers.statistics(),
            store=self.store.statistics(),
            ha=self.ha_service.statistics(),
            slave=self.role_service.slave_statistics(),
        )


class _Observer:
    """Tracks the connections of both listeners, and informs the parts."""

    def __init__(self, parts: BrokerParts) -> None:
        self.connections: set[Channel] = set()
        self._parts = parts

    def channel_opened(self, channel: Channel) -> None:
        self.connections.add(channel)
        self._parts.clients.channel_opened(channel)

    def channel_closed(self, channel: Channel) -> None:
        self.connections.discard(channel)
        self._parts.held_pulls.channel_closed(channel)
        self._parts.clients.channel_closed(channel)


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
    rng = random.Random() if rng is None else rng
    security = _link_security(config)
    async with (
        listening(config, listen) as bound,
        open_message_store(
            config.store_settings, config.data, disk=disk, wall_clock=wall_clock
        ) as store,
    ):
        security = attrs.evolve(security, address=bound.ha_address)
        security.warn_if_open()
        configured = config
        role_file = RoleFile(config.config_directory, configured=configured, disk=disk)
        config = role_file.apply(configured)
        gate_keeper = GateKeeper(
            store.read_gate,
            store.appended,
            store.flushed,
            timeout=config.slave_timeout,
            in_sync_slaves=config.in_sync_slaves,
            serves_unconfirmed=lambda: parts.config.broker.ha_unconfirmed_reads == "serve",
        )
        group_transfer = GroupTransferService(
            is_required=config.role == "sync-master",
            in_sync_slaves=config.in_sync_slaves,
            slave_fallbehind_max=config.ha_slave_fallbehind_max,
            max_physical_offset=store.max_physical_offset,
            gate_keeper=gate_keeper,
        )
        parts = BrokerParts(
            config,
            store,
            group_transfer=group_transfer,
            gate_keeper=gate_keeper,
            disk=disk,
            wall_clock=wall_clock,
            rng=rng,
            store_host=bound.store_host,
            configured=configured,
        )
        parts.load()
        async with (
            parts.keep_tables(),
            open_channel_pool(dial) as pool,
            background_nursery() as nursery,
        ):
            registration = BrokerRegistration(
                config=parts.config,
                topics=parts.topics,
                pool=pool,
                broker_addr=bound.address,
                ha_server_addr=bound.ha_address,
            )
            observer = _Observer(parts)
            ha_service = HAService(
                store,
                bound.ha,
                wall_clock=wall_clock,
                config=ha_config(config),
                group_transfer=group_transfer,
                security=security,
                broker_id=lambda: parts.config.broker.broker_id,
                introduce=parts.live_slaves.introduce,
            )
            peers = Peers(
                call=pool.call,
                name_servers=config.name_servers,
                broker_name=config.broker_name,
                own_addr=bound.address,
            )
            known_slaves = KnownSlaves(
                config.config_directory,
                disk=disk,
                peers=peers,
                connections=ha_service.connections,
                changes=(
                    ha_service.accepted,
                    ha_service.departed,
                    registration.master_changes,
                ),
                master=lambda: registration.master.addr,
            )
            peers = attrs.evolve(peers, remembered=known_slaves.addrs)
            parts.live_slaves.watch(ha_service.connections)
            parts.absence.watch(
                ha_service.connections,
                partial(
                    gather_slave_offsets,
                    peers=peers,
                    consumer_offsets=parts.consumer_offsets,
                    queue_end=store.next_queue_offset,
                    shared_ends=parts.reader_epochs.shared_ends,
                    limit=ASK_LIMIT,
                    level=logging.DEBUG,
                ),
            )
            listing = SlaveListing(parts.live_slaves, accepted=ha_service.accepted, peers=peers)
            ha_dial = secured_dial(dial, security)
            second_history = SecondHistory(
                store,
                peers=peers,
                dial=ha_dial,
                accepted=ha_service.accepted,
                known=known_slaves.addrs(),
                is_proved=security.is_proof_asked,
            )
            opener = EpochOpener(
                store,
                peers=peers,
                dial=ha_dial,
                config=lambda: parts.config.broker,
                connections=ha_service.connections,
                rng=rng,
            )
            await _begin_epochs(opener)
            role = RoleService(
                parts,
                registration=registration,
                group_transfer=group_transfer,
                follow=partial(
                    slave_replication,
                    config,
                    parts,
                    registration,
                    pool,
                    ha_dial,
                    is_proved=security.is_proof_asked,
                ),
                fetch=_missing_tail(parts, peers, ha_dial, is_first=is_first).fetch,
                opener=opener,
                gather=partial(_gather, parts, peers),
                ask_outcome=partial(ask_outcome, peers),
                find_masters=partial(find_other_masters, peers),
                find_successor=partial(
                    find_successor,
                    store=store,
                    peers=peers,
                    known=known_slaves.met,
                    dial=ha_dial,
                    is_proved=security.is_proof_asked,
                ),
                claim_id=partial(claim_slave_id, peers),
                role_file=role_file,
                followed=known_slaves.followed,
                watch_new_log=second_history.watch,
            )
            held = HeldWrites()
            hand_over = HandOver(
                parts,
                role=role,
                role_file=role_file,
                ha_service=ha_service,
                peers=peers,
                pool=pool,
                held=held,
                rng=rng,
            )
            role_processor = RoleProcessor(
                role.change,
                config=parts.config,
                leads=lambda: parts.leadership.leads,
                give_id=SlaveIds(peers, parts.live_slaves.introduced).give,
                hand_over=hand_over.run,
                take_over=TakeOver(
                    parts, role=role, role_file=role_file, registration=registration
                ).step,
            )
            for service in (*parts.services(), ha_service, listing, known_slaves, held, role):
                await nursery.start(service.run)
            watch = ReplicationWatch(
                ha_service.statistics, lambda: parts.waiting_answers.statistics().answered
            )
            await nursery.start(watch.run)
            log_check = LogCheckService(
                store,
                config=parts.config,
                disk=disk,
                call=pool.call,
                followed=lambda: None if role.slave is None else role.slave.followed,
            )
            await nursery.start(log_check.run)
            table = _processor_table(
                parts, registration, ha_service, role, log_check, second_history, bound
            )
            table |= role_processor.processors()
            await nursery.start(
                _serve, (bound.main, bound.fast), table, held, observer, config.server_limits
            )
            await nursery.start(registration.run)
            await role.ready.wait_reached(1)
            logger.info("serving role=%s address=%s", parts.config.broker.role, bound.address)
            yield Broker(
                parts,
                ha_service=ha_service,
                role_service=role,
                hand_over=hand_over,
                address=bound.address,
                ha_address=bound.ha_address,
                registration=registration,
                connections=observer.connections,
            )


async def _gather(
    parts: BrokerParts, peers: Peers, only: str | None, silent: Collection[str] = ()
) -> None:
    """Collect tables and offsets from the slaves, or only from the broker that has just been the master."""
    limit = GATHER_LIMIT
    if only is not None:
        peers = attrs.evolve(peers, name_servers=(), remembered=lambda: (only,))
        limit = HANDED_OVER_GATHER_LIMIT
    await gather_slave_offsets(
        peers=peers,
        consumer_offsets=parts.consumer_offsets,
        tables=SlaveTables(parts.topics, parts.groups),
        queue_end=parts.store.next_queue_offset,
        shared_ends=parts.reader_epochs.shared_ends,
        silent=silent,
        limit=limit,
    )


async def _begin_epochs(opener: EpochOpener) -> None:
    """Open the epoch file; a broker whose disk is full still serves reads, and replicates as Apache's do."""
    try:
        await opener.begin()
    except OSError as error:
        logger.error("the epoch file cannot be written reason=%s", error)


def _missing_tail(
    parts: BrokerParts, peers: Peers, ha_dial: Dial, *, is_first: bool
) -> MissingTail:
    return MissingTail(
        parts.store,
        peers=peers,
        dial=ha_dial,
        wall_clock=parts.wall_clock,
        config=ha_config(parts.config.broker),
        rule=lambda: ReturnRule(
            serves_without=parts.config.broker.ha_return == "serve",
            wait=parts.config.broker.ha_return_wait,
            expects_slaves=not is_first and parts.config.broker.role == "sync-master",
        ),
    )


def _processor_table(
    parts: BrokerParts,
    registration: BrokerRegistration,
    ha_service: HAService,
    role: RoleService,
    log_check: LogCheckService,
    second_history: SecondHistory,
    bound: BrokerAddresses,
) -> dict[int, Processor]:
    """Return the processors of all requests that a broker answers."""
    table = parts.processor_table(
        registration,
        address=bound.address,
        ha_address=bound.ha_address,
        slave=role.slave_statistics,
    )
    table |= HAStatusProcessor(
        config=parts.config,
        store=parts.store,
        ha_service=ha_service,
        gate=parts.gate_keeper.statistics,
        waiting=parts.waiting_answers,
        live_slaves=parts.live_slaves,
        slave=role.slave_statistics,
        level_clock=parts.level_clock,
        wall_clock=parts.wall_clock,
        leadership=parts.leadership,
        claims=lambda: role.claims,
        role_problem=lambda: role.problem,
        log_problems=lambda: [*log_check.problems(), *second_history.problems(), *role.problems()],
    ).processors()
    table |= LogCheckProcessor(
        start=log_check.start, status=log_check.status, digest=log_check.digest
    ).processors()
    return table


async def _serve(
    listeners: Sequence[Listener],
    table: Mapping[int, Processor],
    held: HeldWrites,
    observer: _Observer,
    limits: ServerLimits,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    """Answer all requests on the first listener, and all except pulls on the one two ports below."""
    fast_table = {code: processor for code, processor in table.items() if code not in PULL_CODES}
    async with trio.open_nursery() as nursery:
        for listener, processors in zip(listeners, (table, fast_table), strict=False):
            serve = partial(
                serve_remoting, [listener], held.over(processors), observer=observer, limits=limits
            )
            await nursery.start(serve)
        task_status.started()


def _link_security(config: BrokerConfig) -> LinkSecurity:
    security = load_link_security(
        secret_file=config.ha_secret_file,
        certificate_file=config.ha_tls_certificate_file,
        key_file=config.ha_tls_key_file,
        authority_file=config.ha_tls_authority_file,
    )
    return attrs.evolve(
        security, broker_name=config.broker_name, fixed_address=config.ha_master_address
    )
