"""The errors of protocol, client and broker: what failed, where, what the peer answered, and what to do.

A class has what a caller needs to decide (`retryable`, `stale_route`, `remedy`). An instance has the place
(`broker_addr`, `topic`) and the answer of the peer (`code`, `remark`).

    Error
    ├── ProtocolError             ├── LocalProtocolError   the caller's value cannot be sent
    │                             └── RemoteProtocolError  the peer's bytes are not valid
    ├── BrokerError               a response code of failure; subclasses for the codes that callers distinguish
    ├── NotReachable              └── RequestTimeout
    ├── RouteNotFound
    ├── TooManyRequests           a local limit; nothing was sent
    ├── BodyUnreadable            a message's body is not what the reader expects
    ├── ClosedError
    └── ConfigError               a setting that cannot be used
"""

from typing import ClassVar, Final

from rocketrio_protocol.codes import ResponseCode, code_name

REMARK_SHOWN: Final = 2000
"""Characters of a peer's remark in the text of an error, enough for a Java exception; `remark` has all of it."""


class Error(Exception):
    """Base of all errors that rocketrio raises on purpose."""

    retryable: ClassVar[bool] = False
    """True if the same call may succeed a little later, or at another broker."""
    stale_route: ClassVar[bool] = False
    """True if the route of the call is out of date and must be refreshed before the next try."""
    remedy: ClassVar[str] = ""
    """One sentence that says what to do."""

    def __init__(
        self,
        what: str,
        *,
        broker_addr: str | None = None,
        topic: str | None = None,
        code: int | None = None,
        remark: str | None = None,
        remedy: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.broker_addr = broker_addr
        self.topic = topic
        self.code = code
        self.remark = remark
        self.advice = self.remedy if remedy is None else remedy

    def __str__(self) -> str:
        text = self.what
        if self.broker_addr and self.broker_addr not in text:
            text += f" at {self.broker_addr}"
        if self.topic and self.topic not in text:
            text += f" (topic {self.topic})"
        if self.code is not None:
            text += f": the peer answered {code_name(self.code, ResponseCode)}"
        if self.remark:
            remark = self.remark.strip()
            text += f": {remark[:REMARK_SHOWN]}" + ("..." if len(remark) > REMARK_SHOWN else "")
        if self.advice:
            text += f". {self.advice}"
        return text


class ProtocolError(Error):
    """Bytes or values that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """The value cannot be encoded; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The bytes of the peer cannot be decoded; its connection cannot be used any more."""

    retryable = True


class NotReachable(Error):
    """There is no connection to the peer, or it broke before the answer."""

    retryable = True
    stale_route = True
    remedy = "Check the address, that the process runs, and the network between"


class RequestTimeout(NotReachable):
    """The peer did not answer in time; it is unknown whether it carried out the request."""

    remedy = "The request may have been carried out; raise the timeout or check the peer's load"


class RouteNotFound(Error):
    """No name server knows the topic, or no broker that serves it."""

    stale_route = True
    remedy = "Create the topic, or check the name server addresses"


class NoBrokerRegistered(RouteNotFound):
    """No broker is registered with the name servers, so no topic is known: the cluster is starting, or is down."""

    remedy = "Wait until a broker has started, or start one"


class TooManyRequests(Error):
    """Too many requests or bytes wait on one connection; nothing was sent."""

    retryable = True
    remedy = "Keep fewer requests in flight, or find out why the peer does not read them"


class BodyUnreadable(Error, ValueError):
    """The body of a message is not of the expected form; the message itself is intact."""


class ClosedError(Error):
    """The object was closed, by its owner or because its connection ended."""

    remedy = "Open a new one"


class ConfigError(Error):
    """A setting is wrong; the text names it and the valid ones."""


class BrokerError(Error):
    """A peer refused a request or failed; `code` is its response code, `remark` its text."""


class BrokerSystemError(BrokerError):
    """SYSTEM_ERROR (1): the peer failed, or refused an argument."""

    retryable = True


class SystemBusy(BrokerError):
    """SYSTEM_BUSY (2), FLOW_CONTROL (215): the peer is overloaded."""

    retryable = True
    remedy = "Send slower, or add brokers"


class RequestCodeNotSupported(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED (3): the peer does not know this request."""

    remedy = "The peer is too old for it, or is a name server instead of a broker"


class MessageIllegal(BrokerError):
    """MESSAGE_ILLEGAL (13): a topic, body or property list that is too long or not allowed."""

    remedy = "Make the message smaller or its topic valid"


class ServiceNotAvailable(BrokerError):
    """SERVICE_NOT_AVAILABLE (14): a slave, a broker whose disk is nearly full, or one that is stopping."""

    retryable = True
    stale_route = True
    remedy = "Try another broker, or see the broker's log for the reason"


class NoPermission(BrokerError):
    """NO_PERMISSION (16): the topic, group or broker does not allow it."""

    stale_route = True
    remedy = "Check the permission of the topic and the broker"


class TopicNotExist(BrokerError):
    """TOPIC_NOT_EXIST (17): the peer does not know the topic."""

    retryable = True
    stale_route = True
    remedy = "Create it: `rocketrio topic create TOPIC`"


class OffsetMoved(BrokerError):
    """PULL_OFFSET_MOVED (21): the requested offset is outside the queue."""


class QueryNotFound(BrokerError):
    """QUERY_NOT_FOUND (22): nothing was found."""


class SubscriptionError(BrokerError):
    """23, 24, 25, 27, 28: the peer does not know this consumer's subscription, or cannot parse it."""


class SubscriptionParseFailed(SubscriptionError):
    """SUBSCRIPTION_PARSE_FAILED (23): the expression is wrong."""

    remedy = "Correct the expression"


class SubscriptionNotReady(SubscriptionError):
    """24, 25, 27, 28: the heartbeat that announces the subscription has not arrived yet."""

    retryable = True


class GroupNotExist(BrokerError):
    """SUBSCRIPTION_GROUP_NOT_EXIST (26): the consumer group is unknown, and automatic creation is off."""

    remedy = "Create the group, or check its name: `rocketrio group list`"


class ConsumerNotOnline(BrokerError):
    """CONSUMER_NOT_ONLINE (206): no member of the group is connected."""


_CLASS_BY_CODE: dict[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: BrokerSystemError,
    ResponseCode.SYSTEM_BUSY: SystemBusy,
    ResponseCode.FLOW_CONTROL: SystemBusy,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: RequestCodeNotSupported,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegal,
    ResponseCode.SERVICE_NOT_AVAILABLE: ServiceNotAvailable,
    ResponseCode.NO_PERMISSION: NoPermission,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotExist,
    ResponseCode.PULL_OFFSET_MOVED: OffsetMoved,
    ResponseCode.QUERY_NOT_FOUND: QueryNotFound,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionParseFailed,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionNotReady,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionNotReady,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionNotReady,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionNotReady,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotExist,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnline,
}


def broker_error(
    what: str,
    *,
    code: int,
    remark: str | None,
    broker_addr: str | None = None,
    topic: str | None = None,
) -> BrokerError:
    """Return the error for a response code of failure, of the class for this code."""
    error_class = _CLASS_BY_CODE.get(code, BrokerError)
    return error_class(what, code=code, remark=remark, broker_addr=broker_addr, topic=topic)
