"""Bodies with which a consumer answers operators: its state (307), and a message that it handled on request (309).

    {"mqPopTable":{},"mqTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"cachedMsgCount":0,...}},
     "properties":{"PROP_CONSUME_TYPE":"CONSUME_PASSIVELY",...},"statusTable":{"t":{"consumeFailedMsgs":0,...}},
     "subscriptionSet":[...],"userConsumerInfo":{}}

Times are milliseconds of the wall clock, rates are per second, RT is milliseconds. All properties are strings.

Answers to: ConsumerRunningInfo, ProcessQueueInfo, ConsumeStatus, ConsumeMessageDirectlyResult.
"""

from typing import Any, Final, Literal, Self

import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.queues import by_queue
from rocketrio_protocol.frame import Body
from rocketrio_protocol.message import MessageQueue

PROP_NAMESERVER_ADDR: Final = "PROP_NAMESERVER_ADDR"
PROP_THREADPOOL_CORE_SIZE: Final = "PROP_THREADPOOL_CORE_SIZE"
PROP_CONSUME_ORDERLY: Final = "PROP_CONSUMEORDERLY"
PROP_CONSUME_TYPE: Final = "PROP_CONSUME_TYPE"
PROP_CLIENT_VERSION: Final = "PROP_CLIENT_VERSION"
PROP_CONSUMER_START_TIMESTAMP: Final = "PROP_CONSUMER_START_TIMESTAMP"


class ProcessQueueInfo(msgspec.Struct, rename="camel"):
    """One queue of a consumer. `droped` is Java's spelling; `transaction_…` counts messages that an ordered one
    handles.
    """

    commit_offset: int = 0
    cached_msg_min_offset: int = 0
    cached_msg_max_offset: int = 0
    cached_msg_count: int = 0
    cached_msg_size_in_mib: int = msgspec.field(name="cachedMsgSizeInMiB", default=0)
    transaction_msg_min_offset: int = 0
    transaction_msg_max_offset: int = 0
    transaction_msg_count: int = 0
    locked: bool = False
    try_unlock_times: int = 0
    last_lock_timestamp: int = 0
    droped: bool = False
    last_pull_timestamp: int = 0
    last_consume_timestamp: int = 0
    rocketrio_dropped_commits: int | msgspec.UnsetType = msgspec.UNSET
    """The number of commits that brokers have dropped since the last one that they stored; omitted if there is none."""


class ConsumeStatus(msgspec.Struct):
    """One topic of a consumer, over the last minute; failed messages are counted over the last hour."""

    pull_rt: float = msgspec.field(name="pullRT", default=0.0)
    pull_tps: float = msgspec.field(name="pullTPS", default=0.0)
    consume_rt: float = msgspec.field(name="consumeRT", default=0.0)
    consume_ok_tps: float = msgspec.field(name="consumeOKTPS", default=0.0)
    consume_failed_tps: float = msgspec.field(name="consumeFailedTPS", default=0.0)
    consume_failed_msgs: int = msgspec.field(name="consumeFailedMsgs", default=0)


class _RawInfo(msgspec.Struct, rename="camel"):
    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[str, ProcessQueueInfo] = {}
    mq_pop_table: dict[str, Any] | None = None
    status_table: dict[str, ConsumeStatus] = {}
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None


class ConsumerRunningInfo(msgspec.Struct, rename="camel"):
    """Body of the answer to 307; `mq_pop_table` and `user_consumer_info` are from 5.x."""

    properties: dict[str, str] = {}
    subscription_set: list[SubscriptionData] = []
    mq_table: dict[MessageQueue, ProcessQueueInfo] = {}
    mq_pop_table: dict[MessageQueue, Any] | None = None
    """Only of POP consumers."""
    status_table: dict[str, ConsumeStatus] = {}
    """By topic."""
    user_consumer_info: dict[str, str] | None = None
    jstack: str | None = None
    """The stacks of all tasks and threads of the process; only on demand."""

    @classmethod
    def from_json(cls, body: Body) -> Self:
        """Decode a body. Raises RemoteProtocolError."""
        raw = fastjson.loads(body, _RawInfo, what=cls.__name__)
        pops = raw.mq_pop_table
        return cls(
            raw.properties,
            raw.subscription_set,
            by_queue(raw.mq_table),
            None if pops is None else by_queue(pops),
            raw.status_table,
            raw.user_consumer_info,
            raw.jstack,
        )

    def to_json(self) -> bytes:
        """Encode the body as fastjson writes it."""
        return fastjson.dumps(self)


ConsumeResult = Literal[
    "CR_SUCCESS", "CR_LATER", "CR_ROLLBACK", "CR_COMMIT", "CR_THROW_EXCEPTION", "CR_RETURN_NULL"
]


class ConsumeMessageDirectlyResult(msgspec.Struct, rename="camel"):
    """Body of the answer to 309; `spent_time_mills` is Java's spelling."""

    order: bool = False
    auto_commit: bool = True
    consume_result: ConsumeResult | None = None
    remark: str | None = None
    spent_time_mills: int = 0
