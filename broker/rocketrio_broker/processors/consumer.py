"""The table of requests that consumers send besides pulls, and of requests that are sent to consumers.

    send_back 36 | queue_locks 41 42 | client_calls 222 223 307 309 | reply 324 325

Answers to: ConsumerManageProcessor and others' tables.
"""

import random
from collections.abc import Callable

from rocketrio_broker.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.clients import ConsumerManager, ProducerManager
from rocketrio_broker.config import LiveConfig
from rocketrio_broker.groups import SubscriptionGroupManager
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.processors.client_calls import ClientCallProcessor
from rocketrio_broker.processors.queue_locks import QueueLockProcessor
from rocketrio_broker.processors.reply import ReplyMessageProcessor
from rocketrio_broker.processors.send_back import SendBackProcessor
from rocketrio_broker.processors.waiting_answers import WaitingAnswers
from rocketrio_broker.queue_locks import QueueLocks
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import AppendResult, PutMessage
from rocketrio_broker.topics import TopicConfigManager
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.ports import WallClock


def consumer_processors(
    store: MessageStore,
    *,
    put: Callable[[PutMessage], AppendResult],
    config: LiveConfig,
    topics: TopicConfigManager,
    groups: SubscriptionGroupManager,
    consumer_offsets: ConsumerOffsetManager,
    consumers: ConsumerManager,
    producers: ProducerManager,
    waiting: WaitingAnswers,
    stats: BrokerStatsManager,
    locks: QueueLocks,
    store_host: bytes,
    wall_clock: WallClock,
    rng: random.Random,
) -> dict[int, Processor]:
    """Return the processors by request code; `put` stores a message, delayed if its properties say so."""
    send_back = SendBackProcessor(
        store,
        put=put,
        config=config,
        topics=topics,
        groups=groups,
        waiting=waiting,
        stats=stats,
        store_host=store_host,
        rng=rng,
    )
    client_calls = ClientCallProcessor(
        store,
        config=config,
        topics=topics,
        consumers=consumers,
        offsets=consumer_offsets,
        groups=groups,
    )
    reply = ReplyMessageProcessor(
        store,
        config=config,
        topics=topics,
        producers=producers,
        stats=stats,
        store_host=store_host,
        wall_clock=wall_clock,
        rng=rng,
    )
    return {
        **send_back.processors(),
        **QueueLockProcessor(locks, config=config, consumers=consumers).processors(),
        **client_calls.processors(),
        **reply.processors(),
    }
