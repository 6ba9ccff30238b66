"""The RocketMQ client for trio: the names that users import.

    async with open_producer(name_servers=["10.0.0.1:9876"]) as producer:
        await producer.send(Message("orders", b"..."))
    async with open_consumer("orders", group="billing", name_servers=["10.0.0.1:9876"]) as consumer:
        async for message in consumer: ...

Several of them in one process can share connections and tables by `client=`, see `open_client`.

A module is imported when a program first uses one of its names: `rocketrio --help` needs none of them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rocketrio.admin import open_admin
    from rocketrio.client import ClientInstance
    from rocketrio.cluster.api import NOT_FOUND
    from rocketrio.connect import open_client
    from rocketrio.consuming.consume import open_consumer
    from rocketrio.consuming.consumer import Consumer
    from rocketrio.consuming.consumer_options import Prefetch
    from rocketrio.consuming.offsets import CommitRefusedError
    from rocketrio.consuming.running import ConsumeLater
    from rocketrio.consuming.send_back import GIVE_UP
    from rocketrio.producing.pipeline import MessagesNotStoredError, SendPipeline
    from rocketrio.producing.produce import open_producer
    from rocketrio.producing.producer import Producer
    from rocketrio.producing.send_result import SendResult, SendStatus
    from rocketrio.producing.transaction import Transaction, TransactionNotBegunError
    from rocketrio.producing.transaction_checks import TransactionState
    from rocketrio_protocol.credentials import Credentials
    from rocketrio_protocol.errors import (
        BodyUnreadableError,
        BrokerError,
        ClosedError,
        ConfigError,
        Error,
        LocalProtocolError,
        NoBrokerRegisteredError,
        NotAuthenticatedError,
        NotAuthorizedError,
        NotReachableError,
        RequestTimeoutError,
        RouteNotFoundError,
        TlsError,
    )
    from rocketrio_protocol.message import Message, MessageExt, MessageQueue
    from rocketrio_protocol.remoting.tls_files import TlsOptions

__version__ = "0.1.0"

__all__ = [
    "GIVE_UP",
    "NOT_FOUND",
    "BodyUnreadableError",
    "BrokerError",
    "ClientInstance",
    "ClosedError",
    "CommitRefusedError",
    "ConfigError",
    "ConsumeLater",
    "Consumer",
    "Credentials",
    "Error",
    "LocalProtocolError",
    "Message",
    "MessageExt",
    "MessageQueue",
    "MessagesNotStoredError",
    "NoBrokerRegisteredError",
    "NotAuthenticatedError",
    "NotAuthorizedError",
    "NotReachableError",
    "Prefetch",
    "Producer",
    "RequestTimeoutError",
    "RouteNotFoundError",
    "SendPipeline",
    "SendResult",
    "SendStatus",
    "TlsError",
    "TlsOptions",
    "Transaction",
    "TransactionNotBegunError",
    "TransactionState",
    "open_admin",
    "open_client",
    "open_consumer",
    "open_producer",
]

_MODULES: Final = {
    "BodyUnreadableError": "rocketrio_protocol.errors",
    "BrokerError": "rocketrio_protocol.errors",
    "ClientInstance": "rocketrio.client",
    "ClosedError": "rocketrio_protocol.errors",
    "CommitRefusedError": "rocketrio.consuming.offsets",
    "ConfigError": "rocketrio_protocol.errors",
    "ConsumeLater": "rocketrio.consuming.running",
    "Consumer": "rocketrio.consuming.consumer",
    "Credentials": "rocketrio_protocol.credentials",
    "Error": "rocketrio_protocol.errors",
    "GIVE_UP": "rocketrio.consuming.send_back",
    "LocalProtocolError": "rocketrio_protocol.errors",
    "Message": "rocketrio_protocol.message",
    "MessageExt": "rocketrio_protocol.message",
    "MessageQueue": "rocketrio_protocol.message",
    "MessagesNotStoredError": "rocketrio.producing.pipeline",
    "NOT_FOUND": "rocketrio.cluster.api",
    "NoBrokerRegisteredError": "rocketrio_protocol.errors",
    "NotAuthenticatedError": "rocketrio_protocol.errors",
    "NotAuthorizedError": "rocketrio_protocol.errors",
    "NotReachableError": "rocketrio_protocol.errors",
    "Prefetch": "rocketrio.consuming.consumer_options",
    "Producer": "rocketrio.producing.producer",
    "RequestTimeoutError": "rocketrio_protocol.errors",
    "RouteNotFoundError": "rocketrio_protocol.errors",
    "SendPipeline": "rocketrio.producing.pipeline",
    "SendResult": "rocketrio.producing.send_result",
    "SendStatus": "rocketrio.producing.send_result",
    "TlsError": "rocketrio_protocol.errors",
    "TlsOptions": "rocketrio_protocol.remoting.tls_files",
    "Transaction": "rocketrio.producing.transaction",
    "TransactionNotBegunError": "rocketrio.producing.transaction",
    "TransactionState": "rocketrio.producing.transaction_checks",
    "open_admin": "rocketrio.admin",
    "open_client": "rocketrio.connect",
    "open_consumer": "rocketrio.consuming.consume",
    "open_producer": "rocketrio.producing.produce",
}
"""The module of each name."""


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """List the public names; the package's attributes also include its modules."""
    return [*__all__, "__version__"]
