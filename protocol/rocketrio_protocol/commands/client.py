"""Headers about clients and groups: heartbeat (34), unregister (35), group members (38, 40), expression check (46).

Answers to: RocketMQ reference, section 2.6. Bodies are in `bodies/heartbeat.py`.
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.bodies.heartbeat import ConsumerIdList
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import Header, RequestHeader, json_body


class HeartBeatResponseHeader(Header):
    """How many seconds of `static_grace` the broker grants; absent in Apache's answers, which means none."""

    static_grace: int | None = msgspec.field(name="rocketrioStaticGrace", default=None)


class HeartBeatRequestHeader(RequestHeader):
    """The body is HeartbeatData. The field is a rocketrio extension, which Apache ignores.

    `static_grace` is for how many seconds the client stays a member of its groups after its connection has ended.
    """

    code: ClassVar = RequestCode.HEART_BEAT
    answers: ClassVar = HeartBeatResponseHeader
    static_grace: int | None = msgspec.field(name="rocketrioStaticGrace", default=None)


class UnregisterClientRequestHeader(RequestHeader):
    """Remove a client from a group."""

    code: ClassVar = RequestCode.UNREGISTER_CLIENT
    client_id: str = msgspec.field(name="clientID")
    producer_group: str | None = None
    consumer_group: str | None = None


class GetConsumerListByGroupRequestHeader(RequestHeader):
    """Get the client ids of a group's members; the body of the answer is ConsumerIdList."""

    code: ClassVar = RequestCode.GET_CONSUMER_LIST_BY_GROUP
    body: ClassVar = json_body(ConsumerIdList, what="consumer list")
    consumer_group: str


class NotifyConsumerIdsChangedRequestHeader(RequestHeader):
    """Broker to client, oneway: the members of a group have changed; rebalance now."""

    code: ClassVar = RequestCode.NOTIFY_CONSUMER_IDS_CHANGED
    consumer_group: str


class CheckClientConfigRequestHeader(RequestHeader):
    """Check a subscription, which is in the body; no fields."""

    code: ClassVar = RequestCode.CHECK_CLIENT_CONFIG
