"""The RocketMQ client for trio: what users import.

    async with open_producer(name_servers=["10.0.0.1:9876"]) as producer:
        await producer.send(Message("orders", b"..."))
    async with open_consumer("orders", group="billing", name_servers=["10.0.0.1:9876"]) as consumer:
        async for message in consumer: ...

Several of them in one process share connections and tables by `client=`, see `open_client`.
"""

from rocketrio.admin import Admin, open_admin
from rocketrio.allocate import (
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_sticky,
)
from rocketrio.api import NOT_FOUND
from rocketrio.connect import open_client
from rocketrio.consume import open_consumer
from rocketrio.consumer import Consumer
from rocketrio.delays import DELAY_LEVELS
from rocketrio.instance import ClientInstance
from rocketrio.live import WrongProcess
from rocketrio.pipeline import MessagesNotStored, SendPipeline
from rocketrio.produce import open_producer
from rocketrio.producer import Producer
from rocketrio.pull import PullAPIWrapper
from rocketrio.pull_result import PullResult, PullStatus
from rocketrio.queue_claim import CommitRefused
from rocketrio.rebalance_report import Rebalance
from rocketrio.routing import PullReason, ReadPolicy
from rocketrio.running import ConsumeLater
from rocketrio.send_result import SendResult, SendStatus
from rocketrio.slow_brokers import LATENCIES_4X, LATENCIES_5X, LatencyTable
from rocketrio.transaction import Transaction, TransactionNotBegun, TransactionState
from rocketrio.values import Values
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import (
    BodyUnreadable,
    BrokerError,
    ClosedError,
    ConfigError,
    Error,
    NotReachable,
    ProtocolError,
    RequestTimeout,
    RouteNotFound,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue

__all__ = [
    "DELAY_LEVELS",
    "LATENCIES_4X",
    "LATENCIES_5X",
    "MASTER_ID",
    "NOT_FOUND",
    "Admin",
    "AllocateStrategy",
    "BodyUnreadable",
    "BrokerError",
    "ClientInstance",
    "ClosedError",
    "CommitRefused",
    "ConfigError",
    "ConsumeLater",
    "Consumer",
    "Error",
    "LatencyTable",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessagesNotStored",
    "NotReachable",
    "Producer",
    "ProtocolError",
    "PullAPIWrapper",
    "PullReason",
    "PullResult",
    "PullStatus",
    "ReadPolicy",
    "Rebalance",
    "RequestTimeout",
    "RouteNotFound",
    "SendPipeline",
    "SendResult",
    "SendStatus",
    "Transaction",
    "TransactionNotBegun",
    "TransactionState",
    "Values",
    "WrongProcess",
    "allocate_averagely",
    "allocate_averagely_by_circle",
    "allocate_by_config",
    "allocate_by_consistent_hash",
    "allocate_sticky",
    "open_admin",
    "open_client",
    "open_consumer",
    "open_producer",
]
