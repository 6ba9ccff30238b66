"""The RocketMQ client for trio: the names that users import.

    async with open_producer(name_servers=["10.0.0.1:9876"]) as producer:
        await producer.send(Message("orders", b"..."))
    async with open_consumer("orders", group="billing", name_servers=["10.0.0.1:9876"]) as consumer:
        async for message in consumer: ...

Several of them in one process can share connections and tables by `client=`, see `open_client`.
"""

from rocketrio.admin import open_admin
from rocketrio.client import ClientInstance
from rocketrio.cluster.api import NOT_FOUND
from rocketrio.connect import open_client
from rocketrio.consuming.allocate import (
    allocate_averagely,
    allocate_averagely_by_circle,
    allocate_by_config,
    allocate_by_consistent_hash,
    allocate_sticky,
)
from rocketrio.consuming.consume import open_consumer
from rocketrio.consuming.consumer import Consumer
from rocketrio.consuming.consumer_options import Prefetch
from rocketrio.consuming.offsets import CommitRefused
from rocketrio.consuming.running import ConsumeLater
from rocketrio.consuming.send_back import GIVE_UP
from rocketrio.producing.pipeline import MessagesNotStored, SendPipeline
from rocketrio.producing.produce import open_producer
from rocketrio.producing.producer import Producer
from rocketrio.producing.send_result import SendResult, SendStatus
from rocketrio.producing.slow_brokers import LATENCIES_4X, LatencyTable
from rocketrio.producing.transaction import Transaction, TransactionNotBegun
from rocketrio.producing.transaction_checks import TransactionState
from rocketrio_protocol.errors import (
    BodyUnreadable,
    BrokerError,
    ClosedError,
    ConfigError,
    Error,
    NoBrokerRegistered,
    NotReachable,
    RequestTimeout,
    RouteNotFound,
)
from rocketrio_protocol.message import Message, MessageExt, MessageQueue

__version__ = "0.1.0"

__all__ = [
    "GIVE_UP",
    "LATENCIES_4X",
    "NOT_FOUND",
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
    "NoBrokerRegistered",
    "NotReachable",
    "Prefetch",
    "Producer",
    "RequestTimeout",
    "RouteNotFound",
    "SendPipeline",
    "SendResult",
    "SendStatus",
    "Transaction",
    "TransactionNotBegun",
    "TransactionState",
    "__version__",
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


def __dir__() -> list[str]:
    """List the public names; the package's attributes also include its modules."""
    return __all__
