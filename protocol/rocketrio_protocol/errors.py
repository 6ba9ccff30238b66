"""One family of errors for protocol, client and broker: what failed, where, what the peer said, what to do.

A class carries what a caller decides by (`retryable`, `stale_route`, `remedy`); an instance carries where it happened
(`broker_addr`, `topic`) and what the peer said (`code`, `remark`).

    Error
    ├── ProtocolError             ├── LocalProtocolError   you sent nonsense
    │                             └── RemoteProtocolError  the peer did
    ├── BrokerError               a response code of failure; one class a code that callers tell apart
    ├── NotReachable              └── RequestTimeout
    ├── RouteNotFound
    ├── TooManyRequests           a limit of our own: nothing was sent
    ├── BodyUnreadable            a message's body is not what the reader expects
    ├── ClosedError
    └── ConfigError               a setting that cannot be used
"""

from typing import ClassVar, Final

from rocketrio_protocol.codes import ResponseCode, code_name

REMARK_SHOWN: Final = 2000
"""Characters of a peer's remark in an error's text, room for what Java says of a fault; `remark` has all of it."""


class Error(Exception):
    """Base of everything rocketrio raises on purpose."""

    retryable: ClassVar[bool] = False
    """The same call may succeed a little later, or at another broker."""
    stale_route: ClassVar[bool] = False
    """The route this call was based on is out of date: refresh it before trying again."""
    remedy: ClassVar[str] = ""
    """One sentence that tells the reader what to do."""

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
    """What the caller wants to send cannot be put on the wire; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """What the peer sent cannot be understood; its connection is of no more use."""

    retryable = True


class NotReachable(Error):
    """No connection to the peer, or it broke before the answer."""

    retryable = True
    stale_route = True
    remedy = "Check the address, that the process runs, and the network between"


class RequestTimeout(NotReachable):
    """The peer did not answer in time; whether it acted on the request is not known."""

    remedy = "The request may have been carried out; raise the timeout or check the peer's load"


class RouteNotFound(Error):
    """No name server knows the topic, or no broker that serves it."""

    stale_route = True
    remedy = "Create the topic, or check the name server addresses"


class NoBrokerRegistered(RouteNotFound):
    """No broker is registered with the name servers, so no topic is known: the cluster is starting, or is down."""

    remedy = "Wait until a broker has started, or start one"


class TooManyRequests(Error):
    """More requests or bytes wait on one connection than its limit allows; nothing was sent."""

    retryable = True
    remedy = "Keep fewer requests in flight, or look at why the peer does not take them"


class BodyUnreadable(Error, ValueError):
    """A message's body cannot be read as what its reader expects; the message itself is whole."""


class ClosedError(Error):
    """The object was closed, by its owner or because its connection ended."""

    remedy = "Open a new one"


class ConfigError(Error):
    """A setting that cannot be used; the text names it and the ones that can."""


class BrokerError(Error):
    """A peer refused or failed a request; `code` is its response code, `remark` its own words."""


class BrokerSystemError(BrokerError):
    """SYSTEM_ERROR (1): the peer failed inside, or disliked an argument."""

    retryable = True


class SystemBusy(BrokerError):
    """SYSTEM_BUSY (2), FLOW_CONTROL (215): the peer sheds load."""

    retryable = True
    remedy = "Send slower, or add brokers"


class RequestCodeNotSupported(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED (3): the peer does not know this request."""

    remedy = "The peer is too old for it, or is a name server where a broker is wanted"


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
    """PULL_OFFSET_MOVED (21): the offset asked for lies outside what the queue holds."""


class QueryNotFound(BrokerError):
    """QUERY_NOT_FOUND (22): nothing is stored under what was asked for."""


class SubscriptionError(BrokerError):
    """23, 24, 25, 27, 28: the peer lacks this consumer's subscription, or it cannot be parsed."""


class SubscriptionParseFailed(SubscriptionError):
    """SUBSCRIPTION_PARSE_FAILED (23): the expression is wrong."""

    remedy = "Correct the expression"


class SubscriptionNotReady(SubscriptionError):
    """24, 25, 27, 28: the heartbeat that announces the subscription has not arrived yet."""

    retryable = True


class GroupNotExist(BrokerError):
    """SUBSCRIPTION_GROUP_NOT_EXIST (26): the consumer group is unknown and not created by itself."""

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
    """The error for a response code of failure, of the class that callers can tell apart."""
    error_class = _CLASS_BY_CODE.get(code, BrokerError)
    return error_class(what, code=code, remark=remark, broker_addr=broker_addr, topic=topic)
