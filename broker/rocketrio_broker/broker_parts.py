"""Creates the parts of one broker that live as long as its store is open, and gives each what it needs.

    config/topics.json, subscriptionGroup.json, consumerOffset.json     loaded by `load`

Answers to: the fields of BrokerController.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import trio

from rocketrio_broker.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.clients import ConsumerManager, ProducerManager
from rocketrio_broker.config import BrokerConfig, LiveConfig
from rocketrio_broker.config_file import ConfigFile
from rocketrio_broker.delayed_puts import DelayedPuts
from rocketrio_broker.groups import SubscriptionGroupManager
from rocketrio_broker.ha.absence import Absence
from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.level_clock import LevelClock
from rocketrio_broker.ha.live_slaves import LiveSlaves
from rocketrio_broker.ha.slave import SlaveStatistics
from rocketrio_broker.kept_tables import keep_tables
from rocketrio_broker.leadership import Leadership
from rocketrio_broker.long_polling import CHECK_INTERVAL, HeldPulls, PullRequestHoldService
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.offsets.deleted_topics import DeletedTopics
from rocketrio_broker.offsets.manager import ConsumerOffsetManager, count_unread
from rocketrio_broker.offsets.pulls import PullOffsets
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_broker.processors import data_processors
from rocketrio_broker.processors.admin import admin_processors
from rocketrio_broker.processors.client_manage import ClientManageProcessor
from rocketrio_broker.processors.consumer import consumer_processors
from rocketrio_broker.processors.end_transaction import EndTransactionProcessor
from rocketrio_broker.processors.leading import only_while_leading
from rocketrio_broker.processors.offsets import OffsetProcessor
from rocketrio_broker.processors.pull import PullMessageProcessor
from rocketrio_broker.processors.query import QueryMessageProcessor
from rocketrio_broker.processors.resent import ResentMessages
from rocketrio_broker.processors.send import SendMessageProcessor
from rocketrio_broker.processors.special_sends import SpecialSends
from rocketrio_broker.processors.sql_expression import SqlExpressions, load_parser
from rocketrio_broker.processors.waiting_answers import WaitingAnswers
from rocketrio_broker.queue_locks import FILE_NAME as LOCKS_FILE
from rocketrio_broker.queue_locks import QueueLocks
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.schedule import ScheduleMessageService
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import DelayLevels
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_broker.transaction.check import TransactionCheckService
from rocketrio_broker.transaction.decisions import TransactionDecisions
from rocketrio_broker.transaction.ledger import TransactionLedger
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import WallClock


class Service(Protocol):
    """A part that runs until it is cancelled."""

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None: ...


class BrokerParts:
    """The tables, processors and services of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        store: MessageStore,
        *,
        group_transfer: GroupTransferService,
        gate_keeper: GateKeeper,
        disk: Disk,
        wall_clock: WallClock,
        rng: random.Random,
        store_host: bytes,
        configured: BrokerConfig | None = None,
    ) -> None:
        self.store = store
        self._store_host = store_host
        self._group_transfer = group_transfer
        self.gate_keeper = gate_keeper
        self._disk = disk
        self.wall_clock = wall_clock
        self.config = LiveConfig(config, wall_clock=wall_clock, configured=configured)
        self.leadership = Leadership()
        directory = config.config_directory

        def file(name: str) -> ConfigFile:
            return ConfigFile(directory / name, disk=disk)

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
        )
        store.watch_unread(lambda gone: count_unread(self.consumer_offsets.table, gone))
        self.reader_epochs = ReaderEpochs(store, self.consumer_offsets)
        self.deleted_topics = DeletedTopics(store.dispatcher, self.consumer_offsets)
        self.delay_offsets = DelayOffsets(
            file("delayOffset.json"), log_end=lambda: store.max_physical_offset
        )
        self._delay_levels = DelayLevels(config.store.message_delay_level)
        self.delayed_puts = DelayedPuts(store, self._delay_levels)
        self.stats = BrokerStatsManager(lambda: self.config.broker.cluster_name)
        self.consumers = ConsumerManager()
        self.producers = ProducerManager()
        self.queue_locks = QueueLocks(file(LOCKS_FILE))
        self.held_pulls = HeldPulls()
        self.live_slaves = LiveSlaves(config.ha_slave_fallbehind_max)
        self.absence = Absence(heartbeat_interval=config.ha_send_heartbeat_interval)
        self.level_clock = LevelClock(
            file_size=config.store.mapped_file_size_commit_log,
            dispatched=lambda: store.dispatched.value,
        )
        self.waiting_answers = WaitingAnswers(
            store.flushed if config.store.flush_disk_type == "sync" else None,
            group_transfer,
            flush_timeout=config.store.sync_flush_timeout,
            slave_timeout=config.slave_timeout,
            early=store.epochs,
            put_times=store.put_times,
        )
        self._sql = SqlExpressions()
        self.clients = ClientManageProcessor(
            config=self.config,
            consumers=self.consumers,
            producers=self.producers,
            groups=self.groups,
            topics=self.topics,
            sql=self._sql,
        )
        self.send = SendMessageProcessor(
            store,
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            special=SpecialSends(store, self.delayed_puts, config=self.config, topics=self.topics),
            resent=ResentMessages(
                topics=self.topics,
                groups=self.groups,
                locks=self.queue_locks,
                at_once=config.store.flush_disk_type == "sync",
            ),
            waiting=self.waiting_answers,
            stats=self.stats,
            store_host=store_host,
            rng=rng,
        )
        self.ledger = TransactionLedger(store)
        self._decisions = TransactionDecisions(
            store,
            self.ledger,
            delayed_puts=self.delayed_puts,
            topics=self.topics,
            store_host=store_host,
            wall_clock=wall_clock,
        )
        self.pull_offsets = PullOffsets()
        self.pull = PullMessageProcessor(
            store,
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            offsets=self.consumer_offsets,
            held=self.held_pulls,
            stats=self.stats,
            live_slaves=self.live_slaves,
            level_clock=self.level_clock,
            pull_offsets=self.pull_offsets,
            leadership=self.leadership,
            epochs=self.reader_epochs,
            sql=self._sql,
        )
        self._consumer_table = consumer_processors(
            store,
            put=self.delayed_puts.put,
            config=self.config,
            topics=self.topics,
            groups=self.groups,
            consumer_offsets=self.consumer_offsets,
            consumers=self.consumers,
            producers=self.producers,
            waiting=self.waiting_answers,
            stats=self.stats,
            locks=self.queue_locks,
            store_host=store_host,
            wall_clock=wall_clock,
            rng=rng,
        )

    def load(self) -> None:
        """Load the tables from their files."""
        self.topics.load()
        self.groups.load()
        self.consumer_offsets.load()
        self.queue_locks.load()
        load_parser(self.config.broker)

    def keep_tables(self) -> AbstractAsyncContextManager[None]:
        """Keep the tables in their files around everything that changes them."""
        tables = (self.topics.table, self.groups.table)
        return keep_tables(self.consumer_offsets, self.queue_locks, tables, disk=self._disk)

    async def sync_tables(self) -> None:
        """Write topics and groups through to the disk. Raises ConfigFileError."""
        for table in (self.topics.table, self.groups.table):
            await self._disk.run(table.sync)

    def services(self) -> Sequence[Service]:
        """Return the services that run while the broker serves."""
        return (
            self.waiting_answers,
            self.deleted_topics,
            PullRequestHoldService(
                self.held_pulls,
                self.pull,
                self.store,
                leadership=self.leadership,
                check_interval=self._check_interval,
            ),
            self.clients,
            self.stats,
        )

    def delayed_messages(self) -> ScheduleMessageService:
        """Return the service that delivers delayed messages, for a master that takes writes."""
        return ScheduleMessageService(
            self.store,
            levels=self._delay_levels,
            offsets=self.delay_offsets,
            disk=self._disk,
            wall_clock=self.wall_clock,
            flush_interval=self.config.broker.flush_delay_offset_interval,
        )

    def leading_services(self) -> Sequence[Service]:
        """Return the services that a master starts before it takes writes, because writes depend on what they load."""
        return (
            self.absence,
            self.gate_keeper,
            TransactionCheckService(
                self.store,
                self.ledger,
                self._decisions,
                config=self.config,
                producers=self.producers,
                consumer_offsets=self.consumer_offsets,
                replicated=lambda: min(
                    self.store.read_gate.end.value,
                    self.live_slaves.common_offset(
                        max_physical_offset=self.store.max_physical_offset
                    ),
                ),
                wall_clock=self.wall_clock,
            ),
        )

    def processor_table(
        self,
        registration: BrokerRegistration,
        *,
        address: str,
        ha_address: str,
        slave: Callable[[], SlaveStatistics | None],
    ) -> dict[int, Processor]:
        """Return the processors of the first listener by request code; `slave` returns a slave's replication state."""
        offsets = OffsetProcessor(
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            consumers=self.consumers,
            consumer_offsets=self.consumer_offsets,
            level_clock=self.level_clock,
            absence=self.absence,
            leadership=self.leadership,
            epochs=self.reader_epochs,
        )
        end_transaction = EndTransactionProcessor(
            self.store, self._decisions, config=self.config, waiting=self.waiting_answers
        )
        admin = admin_processors(
            config=self.config,
            store=self.store,
            topics=self.topics,
            groups=self.groups,
            consumer_offsets=self.consumer_offsets,
            consumers=self.consumers,
            producers=self.producers,
            stats=self.stats,
            pull_offsets=self.pull_offsets,
            registration=registration,
            delay_offsets=self.delay_offsets,
            waiting=self.waiting_answers,
            group_transfer=self._group_transfer,
            live_slaves=self.live_slaves,
            store_host=self._store_host,
            broker_addr=address,
            ha_addr=ha_address,
            slave=slave,
            wall_clock=self.wall_clock,
            sql=self._sql,
        )
        table = {
            **data_processors(self.send, self.pull, QueryMessageProcessor(self.store)),
            **offsets.processors(),
            **self.clients.processors(),
            **self._consumer_table,
            **end_transaction.processors(),
            **admin,
        }
        return only_while_leading(table, self.leadership)

    def _check_interval(self) -> float:
        broker = self.config.broker
        return CHECK_INTERVAL if broker.long_polling_enable else broker.short_polling_time
