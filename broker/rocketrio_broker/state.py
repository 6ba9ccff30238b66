"""The state of one broker: its settings, its store, its tables and its services, as plain attributes.

Every processor is given this object and takes from it what it needs. `open_broker` makes it, and adds the parts that
need the network before the first request is served.

    config/topics.json, subscriptionGroup.json, consumerOffset.json     loaded by `load`

Invariant: this module does not import `processors/`, so that they may import it.
Answers to: the fields of BrokerController.
"""

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Final, Protocol

import trio

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.access.facts import AccessFacts
from rocketrio_broker.access.fresh_proofs import FreshProofs
from rocketrio_broker.access.guard import Guard
from rocketrio_broker.addresses import BrokerAddresses
from rocketrio_broker.clients.connected import ConsumerManager, ProducerManager
from rocketrio_broker.clients.housekeeping import ClientHousekeepingService
from rocketrio_broker.clients.queue_locks import FILE_NAME as LOCKS_FILE
from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.clients.sql_expressions import SqlExpressions, load_parser
from rocketrio_broker.delay.delayed_puts import DelayedPuts
from rocketrio_broker.delay.schedule import ScheduleMessageService
from rocketrio_broker.events import EventRing
from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.known_slaves import KnownSlaves
from rocketrio_broker.ha.level_clock import LevelClock
from rocketrio_broker.ha.live_slaves import LiveSlaves
from rocketrio_broker.ha.log_check_service import LogCheckService
from rocketrio_broker.ha.pause_detector import Absence
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.ha.second_history import SecondHistory
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.ha.slave import SlaveReplication, SlaveStatistics
from rocketrio_broker.ha.slave_ids import SlaveIds
from rocketrio_broker.metrics.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.metrics.counts import CountedAnswers, CountedStats
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.offsets.deleted_topics import DeletedTopics
from rocketrio_broker.offsets.manager import ConsumerOffsetManager, count_unread
from rocketrio_broker.offsets.pulls import PullOffsets
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_broker.offsets.reader_places import ReaderPlaces
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.requests.audit import Audit
from rocketrio_broker.role.held_writes import HeldWrites
from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_broker.settings.config import BrokerConfig, LiveConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import DelayLevels
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.tables.kept_tables import keep_tables
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.transaction.check import TransactionCheckService
from rocketrio_broker.transaction.decisions import TransactionDecisions
from rocketrio_broker.transaction.ledger import TransactionLedger
from rocketrio_broker.waiting.answers import WaitingAnswers
from rocketrio_broker.waiting.long_polling import HeldPulls
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import WallClock

LONG_ANSWERS_AT_ONCE: Final = 8
"""Answers that are joined from steps at the same time, for all connections: 128 MiB if each fills a frame."""


class Service(Protocol):
    """A part that runs until it is cancelled."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class BrokerState:
    """What one broker knows and has, for as long as its store is open."""

    registration: BrokerRegistration
    ha_service: HAService
    peers: Peers
    """The other brokers of its name."""
    known_slaves: KnownSlaves
    slave_ids: SlaveIds
    log_check: LogCheckService
    second_history: SecondHistory

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        addresses: BrokerAddresses,
        disk: Disk,
        wall_clock: WallClock,
        rng: random.Random,
        configured: BrokerConfig | None = None,
        access: AccessControl | None = None,
        events: EventRing,
    ) -> None:
        """Create it without the parts above, which `open_broker` sets before it serves.

        `configured` are the settings before the role file changed them. Without `access` every request is permitted.
        """
        self.store = store
        self.audit = Audit(
            addresses.address, wall_clock=wall_clock, disk=disk, path=config.audit_log
        )
        self.events = events
        """The last events, for operators."""
        self.faults = ConnectionFaults()
        """Connections, also of slaves and to the master, that a fault of this program has ended."""
        self.disk = disk
        self.wall_clock = wall_clock
        self.rng = rng
        self.address = addresses.address
        """The address that clients use."""
        self.long_answers = trio.Semaphore(LONG_ANSWERS_AT_ONCE)
        """The places of requests whose answers are joined from steps."""
        self.ha_address = addresses.ha_address
        """The address that slaves use."""
        self.store_host = addresses.store_host
        """`address` in the form that stored messages and their ids contain."""
        self.config = LiveConfig(config, wall_clock=wall_clock, configured=configured)
        self.standing = CurrentStanding()
        """What this broker is among those of its name."""
        self.slave: SlaveReplication | None = None
        """The slave's side of replication; None on a master."""
        self.held_writes = HeldWrites()

        def file(name: str) -> ConfigFile:
            return ConfigFile(config.config_directory / name, disk=disk)

        # ------------------------------------------------------------------------ topics, groups, offsets
        self.topics = TopicConfigManager(
            config=self.config, file=file("topics.json"), wall_clock=wall_clock
        )
        self.groups = SubscriptionGroupManager(
            config=self.config, file=file("subscriptionGroup.json"), wall_clock=wall_clock
        )
        self.consumer_offsets = ConsumerOffsetManager(
            file=file("consumerOffset.json"),
            disk=disk,
            flush_interval=config.flush_consumer_offset_interval,
            log_end=lambda: store.max_physical_offset,
            log_epoch=lambda: self.reader_epochs.current,
            ends_of_epoch=lambda epoch: self.reader_epochs.own_ends(epoch),
            now=trio.current_time,
        )
        store.watch_unread(lambda gone: count_unread(self.consumer_offsets.table, gone))
        self.reader_epochs = ReaderEpochs(store, self.consumer_offsets)
        self.reader_places = ReaderPlaces(self.reader_epochs, self.consumer_offsets)
        self.deleted_topics = DeletedTopics(store.dispatcher, self.consumer_offsets)
        self.pull_offsets = PullOffsets()
        counts = CountedStats if config.metrics_listen else BrokerStatsManager
        self.stats = counts(lambda: self.config.broker.cluster_name)

        # ------------------------------------------------------------------------ access control
        self.access = access
        """The users; None while access control is off."""
        self.guard: Guard | None = None
        """Guards the processors; None while access control is off."""
        if access is not None:
            facts = AccessFacts(self.config, self.topics, self.consumer_offsets, store)
            proofs = FreshProofs(
                wall_clock,
                own_addrs=[addresses.address],
                plain_from=config.plain_signature_hosts,
            )
            self.guard = Guard(lambda: access.table, facts, proofs)

        # ------------------------------------------------------------------------ clients and what they wait for
        self.consumers = ConsumerManager()
        self.producers = ProducerManager()
        self.client_housekeeping = ClientHousekeepingService(
            config=self.config,
            consumers=self.consumers,
            producers=self.producers,
            groups=self.groups,
        )
        self.sql_expressions = SqlExpressions()
        self.queue_locks = QueueLocks(file(LOCKS_FILE))
        self.held_pulls = HeldPulls()

        # ------------------------------------------------------------------------ replication
        self.gate_keeper = GateKeeper(
            store.read_gate,
            store.appended,
            store.flushed,
            timeout=config.slave_timeout,
            in_sync_slaves=config.in_sync_slaves,
            serves_unconfirmed=lambda: self.config.broker.ha_unconfirmed_reads == "serve",
        )
        self.group_transfer = GroupTransferService(
            is_required=config.role == "sync-master",
            in_sync_slaves=config.in_sync_slaves,
            slave_fallbehind_max=config.ha_slave_fallbehind_max,
            max_physical_offset=store.max_physical_offset,
            gate_keeper=self.gate_keeper,
        )
        self.live_slaves = LiveSlaves(config.ha_slave_fallbehind_max)
        self.absence = Absence(heartbeat_interval=config.ha_send_heartbeat_interval)
        self.level_clock = LevelClock(
            file_size=config.store.mapped_file_size_commit_log,
            dispatched=lambda: store.dispatched.value,
        )

        # ------------------------------------------------------------------------ puts
        self.waits_for_flush = config.store.flush_disk_type == "sync"
        """Whether a message, or a new topic, must be on the disk before its sender is answered."""
        answers = CountedAnswers if config.metrics_listen else WaitingAnswers
        self.waiting_answers = answers(
            store.flushed if self.waits_for_flush else None,
            self.group_transfer,
            flush_timeout=config.store.sync_flush_timeout,
            slave_timeout=config.slave_timeout,
            early=store.epochs,
            put_times=store.put_times,
        )
        self.delay_offsets = DelayOffsets(
            file("delayOffset.json"), log_end=lambda: store.max_physical_offset
        )
        self._delay_levels = DelayLevels(config.store.message_delay_level)
        self.delayed_puts = DelayedPuts(store, self._delay_levels)
        self.schedule: ScheduleMessageService | None = None
        """Delivers delayed messages, or has done so while the broker led."""
        self.transaction_check: TransactionCheckService | None = None
        self.ledger = TransactionLedger(store)
        self.transaction_decisions = TransactionDecisions(
            store,
            self.ledger,
            delayed_puts=self.delayed_puts,
            topics=self.topics,
            store_host=self.store_host,
            wall_clock=wall_clock,
        )

    def __repr__(self) -> str:
        return f"<BrokerState of {self.address}>"

    def slave_statistics(self) -> SlaveStatistics | None:
        """Return a slave's replication state, or None on a master."""
        return None if self.slave is None else self.slave.statistics()

    def load(self) -> None:
        """Load the tables from their files."""
        self.topics.load()
        self.groups.load()
        self.consumer_offsets.load()
        self.delay_offsets.load()
        self.queue_locks.load()
        load_parser(self.config.broker)

    def unreadable_tables(self, *, but_offsets: bool = False) -> list[str]:
        """Return why tables could not be loaded, if no other broker's have replaced them since.

        `but_offsets` leaves those of consumers out: others wait to replace them.
        """
        problems = (
            self.topics.table.unreadable,
            self.groups.table.unreadable,
            "" if but_offsets else self.consumer_offsets.unreadable,
            self.delay_offsets.file.unreadable,
        )
        return [problem for problem in problems if problem]

    def drop_unreadable_tables(self) -> None:
        """Write these tables as they are now. Raises ConfigFileError."""
        for table in (self.topics.table, self.groups.table):
            if table.unreadable:
                table.touch()
        self.consumer_offsets.drop_unreadable()
        if self.delay_offsets.file.unreadable:
            self.delay_offsets.file.write(DelayOffsetWrapper())

    def keep_tables(self) -> AbstractAsyncContextManager[None]:
        """Keep the tables in their files around everything that changes them."""
        tables = (self.topics.table, self.groups.table)
        return keep_tables(self.consumer_offsets, self.queue_locks, tables, disk=self.disk)

    async def sync_tables(self) -> None:
        """Write topics and groups through to the disk. Raises ConfigFileError."""
        for table in (self.topics.table, self.groups.table):
            await self.disk.run(table.sync)

    def delayed_messages(self) -> ScheduleMessageService:
        """Return the service that delivers delayed messages, for a master that takes writes."""
        self.schedule = ScheduleMessageService(
            self.store,
            levels=self._delay_levels,
            offsets=self.delay_offsets,
            disk=self.disk,
            wall_clock=self.wall_clock,
            flush_interval=self.config.broker.flush_delay_offset_interval,
        )
        return self.schedule

    def leading_services(self) -> Sequence[Service]:
        """Return the services that a master starts before it takes writes, because writes depend on what they load."""
        self.transaction_check = TransactionCheckService(
            self.store,
            self.ledger,
            self.transaction_decisions,
            config=self.config,
            producers=self.producers,
            consumer_offsets=self.consumer_offsets,
            replicated=lambda: min(
                self.store.read_gate.end.value,
                self.live_slaves.common_offset(max_physical_offset=self.store.max_physical_offset),
            ),
            wall_clock=self.wall_clock,
            **({} if self.guard is None else {"may_decide": self.guard.may_publish}),
        )
        return self.absence, self.gate_keeper, self.transaction_check
