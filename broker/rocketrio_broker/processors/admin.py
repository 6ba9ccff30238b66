"""The table of all requests that consoles, command-line tools and slaves send to a broker.

    topic_admin    17 18 21 215 305 316 351        group_admin   43 45 200 201 203 204 207 225 308 314 352
    consume_stats  202 208 300 303 315 317          broker_admin  25 26 28 306 329
    looking        321 328 343 345
    client_manage (34 35 38 46) and offsets (14 15 29-32) have tables of their own

Answers to: AdminBrokerProcessor.
"""

from collections.abc import Callable

from rocketrio_broker.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.clients import ConsumerManager, ProducerManager
from rocketrio_broker.config import LiveConfig
from rocketrio_broker.groups import SubscriptionGroupManager
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.live_slaves import LiveSlaves
from rocketrio_broker.ha.slave import SlaveStatistics
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.pulls import PullOffsets
from rocketrio_broker.processors.broker_admin import BrokerAdminProcessor
from rocketrio_broker.processors.consume_stats import ConsumeStatsProcessor
from rocketrio_broker.processors.group_admin import GroupAdminProcessor
from rocketrio_broker.processors.inspection import LookingProcessor
from rocketrio_broker.processors.sql_expression import SqlExpressions
from rocketrio_broker.processors.topic_admin import TopicAdminProcessor
from rocketrio_broker.processors.waiting_answers import WaitingAnswers
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import WallClock


def admin_processors(
    *,
    config: LiveConfig,
    store: MessageStore,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    consumer_offsets: ConsumerOffsetManager,
    consumers: ConsumerManager,
    producers: ProducerManager,
    stats: BrokerStatsManager,
    pull_offsets: PullOffsets,
    registration: BrokerRegistration,
    delay_offsets: DelayOffsets,
    waiting: WaitingAnswers,
    group_transfer: GroupTransferService,
    live_slaves: LiveSlaves,
    store_host: bytes,
    broker_addr: str,
    ha_addr: str,
    slave: Callable[[], SlaveStatistics | None],
    wall_clock: WallClock,
    sql: SqlExpressions,
) -> dict[int, Processor]:
    """Return the processors by request code."""
    topic_admin = TopicAdminProcessor(
        config=config,
        store=store,
        topics=topics,
        consumer_offsets=consumer_offsets,
        registration=registration,
        waiting=waiting,
        store_host=store_host,
        wall_clock=wall_clock,
    )
    group_admin = GroupAdminProcessor(
        config=config,
        store=store,
        topics=topics,
        groups=groups,
        consumer_offsets=consumer_offsets,
        consumers=consumers,
        producers=producers,
        delay_offsets=delay_offsets,
        live_slaves=live_slaves,
    )
    consume_stats = ConsumeStatsProcessor(
        config=config,
        store=store,
        topics=topics,
        groups=groups,
        consumer_offsets=consumer_offsets,
        consumers=consumers,
        stats=stats,
        pull_offsets=pull_offsets,
        broker_addr=broker_addr,
        wall_clock=wall_clock,
    )
    broker_admin = BrokerAdminProcessor(
        config=config,
        store=store,
        topics=topics,
        delay_offsets=delay_offsets,
        consumer_offsets=consumer_offsets,
        waiting=waiting,
        group_transfer=group_transfer,
        broker_addr=broker_addr,
        ha_addr=ha_addr,
        slave=slave,
    )
    looking = LookingProcessor(
        store,
        config=config,
        consumers=consumers,
        producers=producers,
        offsets=consumer_offsets,
        broker_addr=broker_addr,
        wall_clock=wall_clock,
        sql=sql,
    )
    return {
        **topic_admin.processors(),
        **group_admin.processors(),
        **consume_stats.processors(),
        **broker_admin.processors(),
        **looking.processors(),
    }
