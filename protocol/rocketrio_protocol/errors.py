"""The errors of protocol, client and broker: what failed, where, what the peer answered, and what to do.

A class has what a caller needs to decide (`retryable`, `stale_route`, `remedy`). An instance has the place
(`broker_addr`, `topic`) and the answer of the peer (`code`, `remark`).

    Error
    ├── ProtocolError             ├── LocalProtocolError   the caller's value cannot be sent
    │                             └── RemoteProtocolError  the peer's bytes are not valid
    ├── BrokerError               a response code of failure; subclasses for the codes that callers distinguish
    │   └── AccessRefusedError         NotAuthenticatedError, NotAuthorizedError: access control refused the request
    ├── NotReachableError              └── RequestTimeoutError
    ├── RouteNotFoundError
    ├── TooManyRequestsError           a local limit; nothing was sent
    ├── BodyUnreadableError            a message's body is not what the reader expects
    ├── ClosedError
    └── ConfigError               a setting that cannot be used
"""

import re
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
            text = f"{text.removesuffix('.')}. {self.advice}"
        return text


class ProtocolError(Error):
    """Bytes or values that the protocol does not allow."""


class LocalProtocolError(ProtocolError):
    """The value cannot be encoded; nothing was sent."""


class RemoteProtocolError(ProtocolError):
    """The bytes of the peer cannot be decoded; its connection cannot be used any more."""

    retryable = True


class NotReachableError(Error):
    """There is no connection to the peer, or it broke before the answer."""

    retryable = True
    stale_route = True
    remedy = "Check the address, that the process runs, and the network between"


class RequestTimeoutError(NotReachableError):
    """The peer did not answer in time; it is unknown whether it carried out the request."""

    remedy = "The request may have been carried out; raise the timeout or check the peer's load"


class TlsError(NotReachableError):
    """One end does not accept the other end's TLS: its certificate, the host that it names, or that it speaks none.

    Later tries fail too, until one end gets other files or settings.
    """

    retryable = False
    stale_route = False
    remedy = (
        "Both ends must use TLS or neither, and a server may ask for a certificate of its own authority; "
        "the log of the other end may say more"
    )


class RouteNotFoundError(Error):
    """No name server knows the topic, or no broker that serves it."""

    stale_route = True
    remedy = "Create the topic, or check the name server addresses"


class NoBrokerRegisteredError(RouteNotFoundError):
    """No broker is registered with the name servers, so no topic is known: the cluster is starting, or is down."""

    remedy = "Wait until a broker has started, or start one"


class TooManyRequestsError(Error):
    """Too many requests or bytes wait on one connection; nothing was sent."""

    retryable = True
    remedy = "Keep fewer requests in flight, or find out why the peer does not read them"


class BodyUnreadableError(Error, ValueError):
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


class SystemBusyError(BrokerError):
    """SYSTEM_BUSY (2), FLOW_CONTROL (215): the peer is overloaded."""

    retryable = True
    remedy = "Send slower, or add brokers"


class RequestCodeNotSupportedError(BrokerError):
    """REQUEST_CODE_NOT_SUPPORTED (3): the peer does not know this request."""

    remedy = "The peer is too old for it, or is a name server instead of a broker"


class MessageIllegalError(BrokerError):
    """MESSAGE_ILLEGAL (13): a topic, body or property list that is too long or not allowed."""

    remedy = "Make the message smaller or its topic valid"


class ServiceNotAvailableError(BrokerError):
    """SERVICE_NOT_AVAILABLE (14): a slave, a broker whose disk is nearly full, or one that is stopping."""

    retryable = True
    stale_route = True
    remedy = "Try another broker, or see the broker's log for the reason"


class NoPermissionError(BrokerError):
    """NO_PERMISSION (16): the topic, group or broker does not allow it."""

    stale_route = True
    remedy = "Check the permission of the topic and the broker"


class AccessRefusedError(BrokerError):
    """Access control refused the request: a retry with the same credentials does not help."""


class NotAuthenticatedError(AccessRefusedError):
    """The server does not accept the credentials: none were given, the account is unknown or disabled, or the secret is
    another one.
    """

    remedy = "Give the access key and the secret key of an account that this server knows"


class NotAuthorizedError(AccessRefusedError):
    """The server knows the account, and its rights do not suffice for this request."""

    remedy = "Ask the operators of the cluster for the permission, or use another account"


class TopicNotExistError(BrokerError):
    """TOPIC_NOT_EXIST (17): the peer does not know the topic."""

    retryable = True
    stale_route = True
    remedy = "Create it: `rocketrio topic create TOPIC`"


class OffsetMovedError(BrokerError):
    """PULL_OFFSET_MOVED (21): the requested offset is outside the queue."""


class QueryNotFoundError(BrokerError):
    """QUERY_NOT_FOUND (22): nothing was found."""


class SubscriptionError(BrokerError):
    """23, 24, 25, 27, 28: the peer does not know this consumer's subscription, or cannot parse it."""


class SubscriptionParseFailedError(SubscriptionError):
    """SUBSCRIPTION_PARSE_FAILED (23): the expression is wrong."""

    remedy = "Correct the expression"


class SubscriptionNotReadyError(SubscriptionError):
    """24, 25, 27, 28: the heartbeat that announces the subscription has not arrived yet."""

    retryable = True


class GroupNotExistError(BrokerError):
    """SUBSCRIPTION_GROUP_NOT_EXIST (26): the consumer group is unknown, and automatic creation is off."""

    remedy = "Create the group, or check its name: `rocketrio group list`"


class ConsumerNotOnlineError(BrokerError):
    """CONSUMER_NOT_ONLINE (206): no member of the group is connected."""


_CLASS_BY_CODE: dict[int, type[BrokerError]] = {
    ResponseCode.SYSTEM_ERROR: BrokerSystemError,
    ResponseCode.SYSTEM_BUSY: SystemBusyError,
    ResponseCode.FLOW_CONTROL: SystemBusyError,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: RequestCodeNotSupportedError,
    ResponseCode.MESSAGE_ILLEGAL: MessageIllegalError,
    ResponseCode.SERVICE_NOT_AVAILABLE: ServiceNotAvailableError,
    ResponseCode.NO_PERMISSION: NoPermissionError,
    ResponseCode.TOPIC_NOT_EXIST: TopicNotExistError,
    ResponseCode.PULL_OFFSET_MOVED: OffsetMovedError,
    ResponseCode.QUERY_NOT_FOUND: QueryNotFoundError,
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: SubscriptionParseFailedError,
    ResponseCode.SUBSCRIPTION_NOT_EXIST: SubscriptionNotReadyError,
    ResponseCode.SUBSCRIPTION_NOT_LATEST: SubscriptionNotReadyError,
    ResponseCode.FILTER_DATA_NOT_EXIST: SubscriptionNotReadyError,
    ResponseCode.FILTER_DATA_NOT_LATEST: SubscriptionNotReadyError,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: GroupNotExistError,
    ResponseCode.CONSUMER_NOT_ONLINE: ConsumerNotOnlineError,
}


def broker_error(
    what: str,
    *,
    code: int,
    remark: str | None,
    broker_addr: str | None = None,
    topic: str | None = None,
) -> BrokerError:
    """Return the error for a response code of failure, of the class for this code.

    Access control has no code of its own: 4.x answers SYSTEM_ERROR with a Java exception as remark, and 5.x
    NO_PERMISSION, which also means that a topic is read-only.
    """
    error_class = refusal_class(code, remark) or _CLASS_BY_CODE.get(code, BrokerError)
    return error_class(what, code=code, remark=remark, broker_addr=broker_addr, topic=topic)


_ACL_EXCEPTION: Final = "org.apache.rocketmq.acl.common.AclException"
_UNKNOWN_ACCOUNT: Final = re.compile(
    r"No accessKey is configured|No acl config for |Check signature failed"  # 4.x
    r"|username cannot be null|User:\S* is (?:not found|disabled)|check signature failed"  # 5.x
)
_NO_RIGHT: Final = re.compile(r"has no permission to access |parse authorization context error")


def refusal_class(code: int, remark: str | None) -> type[AccessRefusedError] | None:
    """Return which error of access control an answer means, if any (AclException, AuthenticationException)."""
    shown = (remark or "")[:REMARK_SHOWN]
    if code == ResponseCode.SYSTEM_ERROR and _ACL_EXCEPTION in shown:
        return NotAuthenticatedError if _UNKNOWN_ACCOUNT.search(shown) else NotAuthorizedError
    if code == ResponseCode.NO_PERMISSION and _UNKNOWN_ACCOUNT.search(shown):
        return NotAuthenticatedError
    if code == ResponseCode.NO_PERMISSION and _NO_RIGHT.search(shown):
        return NotAuthorizedError
    return None
