"""Typed calls to one broker: a header is sent, and the answer is returned as a value or raised as a rocketrio error.

Every call is given its address; `instance` and `pull` choose it. No call is retried.
Answers to: MQClientAPIImpl.
Unlike Java: "no offset" is an answer of its own (`NOT_FOUND`), and only code 22 means it.
"""

from enum import Enum
from typing import Final, Literal, TypeAlias, TypeVar, cast

import attrs

from rocketrio.cluster.connections import Caller
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio.limits import API_TIMEOUT
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    HeartbeatData,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.client import (
    GetConsumerListByGroupRequestHeader,
    HeartBeatRequestHeader,
)
from rocketrio_protocol.commands.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetMaxOffsetRequestHeader,
    GetMinOffsetRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
    UpdateConsumerOffsetResponseHeader,
)
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import AnsweredBy, AnsweredWith, Header, RequestHeader
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import check

OFFSET_TIMEOUT: Final = 3.0
"""Seconds that an offset request may take (Java's: 5): a consumer's last commit then has time for another replica."""
LOWER_BOUNDARY: Final = "LOWER"


T = TypeVar("T")
HeaderT = TypeVar("HeaderT", bound=Header)


class NotFound(Enum):
    """The type of `NOT_FOUND`."""

    NOT_FOUND = "not found"


NOT_FOUND: Final = NotFound.NOT_FOUND
"""The broker answered that it has no such offset, which is neither zero nor unreachable."""

Offset: TypeAlias = int | Literal[NotFound.NOT_FOUND]


@attrs.frozen
class ClaimedOffset:
    """The answer to a claim."""

    offset: Offset
    ownership: str | None
    """None from a broker without claims, such as Apache's."""
    generation: str | None
    epoch: str | None = None
    """The epoch of the log that the offset belongs to."""


@attrs.frozen
class QueueEnd:
    """Where a replica's queue ends."""

    max_offset: int
    level_age: float | None
    """Seconds since the replica had everything that its master had; None from masters and from slaves that do not
    report it."""
    stored_offset: int
    """Where it ends in the log: a rocketrio broker shows the last messages only when enough slaves have them."""
    incarnation: int | None = None
    """Which of several topics of that name it is, if that was asked for; None from brokers that do not report it."""


_PULL_STATUS: Final = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


@attrs.define
class ClientAPI:
    """The requests of a client. All raise NotReachableError, RequestTimeoutError, BrokerError, RemoteProtocolError."""

    pool: Caller

    async def call(
        self,
        addr: str,
        header: RequestHeader,
        body: Body = b"",
        *,
        what: str,
        topic: str | None = None,
        timeout: float = API_TIMEOUT,
    ) -> RemotingCommand:
        """Send any request; an answer of failure is raised as the error of its code, which says `what` failed."""
        answer = await self.pool.call(addr, header, body, timeout=timeout)
        return check(answer, what, broker_addr=addr, topic=topic)

    async def ask(
        self,
        addr: str,
        header: AnsweredBy[HeaderT],
        what: str,
        body: Body = b"",
        *,
        timeout: float = API_TIMEOUT,
    ) -> HeaderT:
        """Return the header of a request's answer; an answer of failure is raised as `call` does."""
        answer = await self._answer(addr, header, what, body, timeout)
        return answer.header(header.answers)

    async def read(
        self,
        addr: str,
        header: AnsweredWith[T],
        what: str,
        body: Body = b"",
        *,
        timeout: float = API_TIMEOUT,
    ) -> T:
        """Return the body of a request's answer; an answer of failure is raised as `call` does."""
        return header.body.read((await self._answer(addr, header, what, body, timeout)).body)

    async def _answer(
        self, addr: str, header: object, what: str, body: Body, timeout: float
    ) -> RemotingCommand:
        # Types cannot say "a request, and answered by that": what has an answer is a request.
        topic = getattr(header, "topic", None)
        request = cast(RequestHeader, header)
        return await self.call(addr, request, body, what=what, topic=topic, timeout=timeout)

    # ------------------------------------------------------------------------------------- reading

    async def pull_message(
        self, addr: str, header: PullMessageRequestHeader, *, timeout: float
    ) -> PullResult:
        """Pull once. The broker may hold the request for `header.suspend_timeout_millis`: use a longer timeout."""
        answer = await self.pool.call(addr, header, timeout=timeout)
        status = _PULL_STATUS.get(answer.code)  # type: ignore[call-overload]
        if status is None:
            what = f"pull of queue {header.queue_id} failed"
            raise answer.error(what, broker_addr=addr, topic=header.topic)
        fields = answer.header(PullMessageResponseHeader)
        if fields.next_begin_offset < 0:
            raise RemoteProtocolError(
                f"a pull of queue {header.queue_id} is to go on at {fields.next_begin_offset}",
                broker_addr=addr,
                topic=header.topic,
            )
        return PullResult(
            status,
            fields.next_begin_offset,
            fields.min_offset,
            fields.max_offset,
            fields.suggest_which_broker_id,
            answer.body,
            addr,
            level_age=None if fields.level_millis is None else fields.level_millis / 1000,
            epoch=fields.epoch,
        )

    async def min_offset(
        self, addr: str, queue: MessageQueue, *, timeout: float = API_TIMEOUT
    ) -> int:
        """Return the offset of the oldest message; if the queue is empty, that of the next message."""
        header = GetMinOffsetRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        answer = await self.ask(addr, header, f"min offset of {queue} failed", timeout=timeout)
        return max(0, answer.offset)  # -1 stands for a queue that has no messages yet.

    async def max_offset(
        self, addr: str, queue: MessageQueue, *, timeout: float = API_TIMEOUT
    ) -> int:
        """Return the offset that the next message will get."""
        header = max_offset_header(queue)
        answer = await self.ask(addr, header, f"max offset of {queue} failed", timeout=timeout)
        return max(0, answer.offset)

    async def queue_end(
        self,
        addr: str,
        queue: MessageQueue,
        *,
        with_incarnation: bool = False,
        timeout: float = API_TIMEOUT,
    ) -> QueueEnd:
        """Return the end of a queue as `max_offset` does, and what rocketrio brokers report beside it."""
        header = max_offset_header(queue)
        header.with_incarnation = with_incarnation or None
        result = await self.ask(addr, header, f"end of {queue} failed", timeout=timeout)
        end = max(0, result.offset)
        return QueueEnd(
            end,
            None if result.level_millis is None else result.level_millis / 1000,
            end if result.stored_offset is None else max(end, result.stored_offset),
            result.incarnation,
        )

    async def search_offset(
        self, addr: str, queue: MessageQueue, timestamp_ms: int, *, timeout: float = API_TIMEOUT
    ) -> int:
        """Return the offset of the first message stored at `timestamp_ms` or later, or that of the next message.

        Brokers before 5.0 may answer with the message before that.
        """
        header = SearchOffsetRequestHeader(
            topic=queue.topic,
            queue_id=queue.queue_id,
            timestamp=timestamp_ms,
            boundary_type=LOWER_BOUNDARY,
            broker_name=queue.broker_name,
        )
        answer = await self.ask(
            addr, header, f"search for an offset of {queue} failed", timeout=timeout
        )
        return max(0, answer.offset)

    async def earliest_store_time(
        self, addr: str, queue: MessageQueue, *, timeout: float = API_TIMEOUT
    ) -> int:
        """Return the store time of the oldest message in epoch ms; -1 without messages."""
        header = GetEarliestMsgStoretimeRequestHeader(
            topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
        )
        answer = await self.ask(addr, header, f"earliest store time of {queue}", timeout=timeout)
        return answer.timestamp

    # --------------------------------------------------------------------------- a group's progress

    async def query_consumer_offset(
        self,
        addr: str,
        group: str,
        queue: MessageQueue,
        *,
        zero_if_young: bool = True,
        timeout: float = OFFSET_TIMEOUT,
    ) -> Offset:
        """Return the group's committed offset, or NOT_FOUND.

        A broker answers 0 for a group that never committed on a queue whose first messages are still in memory;
        `zero_if_young=False` asks for NOT_FOUND instead, which brokers before 5.0 do not support.
        """
        claimed = await self.claim_queue(
            addr, group, queue, None, zero_if_young=zero_if_young, timeout=timeout
        )
        return claimed.offset

    async def claim_queue(
        self,
        addr: str,
        group: str,
        queue: MessageQueue,
        client_id: str | None,
        *,
        zero_if_young: bool = True,
        with_epoch: bool = False,
        timeout: float = OFFSET_TIMEOUT,
    ) -> ClaimedOffset:
        """Query the offset as `query_consumer_offset`; a rocketrio broker also makes `client_id` the owner."""
        header = QueryConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            set_zero_if_not_found=None if zero_if_young else False,
            claim=client_id,
            with_epoch=with_epoch or None,
            broker_name=queue.broker_name,
        )
        answer = await self.pool.call(addr, header, timeout=timeout)
        if answer.code not in (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND):
            what = f"committed offset of group {group} on {queue} cannot be read"
            raise answer.error(what, broker_addr=addr, topic=queue.topic)
        result = answer.header(QueryConsumerOffsetResponseHeader)
        offset: Offset = NOT_FOUND
        if answer.code == ResponseCode.SUCCESS:
            found = answer.header(OffsetResponseHeader).offset
            offset = found if found >= 0 else NOT_FOUND
        return ClaimedOffset(offset, result.ownership, result.generation, result.epoch)

    async def update_consumer_offset(
        self,
        addr: str,
        group: str,
        queue: MessageQueue,
        offset: int,
        *,
        generation: str | None = None,
        ownership: str | None = None,
        epoch: str | None = None,
        seek: bool = False,
        reset: bool = False,
        timeout: float = OFFSET_TIMEOUT,
    ) -> UpdateConsumerOffsetResponseHeader:
        """Commit an offset and wait for the broker's confirmation; return the outcome if a generation was sent."""
        header = UpdateConsumerOffsetRequestHeader(
            consumer_group=group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            commit_offset=offset,
            generation=generation,
            ownership=ownership,
            epoch=epoch,
            seek=seek or None,
            reset=reset or None,
            broker_name=queue.broker_name,
        )
        what = f"commit of offset {offset} for group {group} on {queue} failed"
        return await self.ask(addr, header, what, timeout=timeout)

    # --------------------------------------------------------------------------- groups and members

    async def heartbeat(
        self,
        addr: str,
        data: HeartbeatData,
        *,
        static_grace: int | None = None,
        timeout: float = API_TIMEOUT,
    ) -> int:
        """Register this client's groups; return the granted seconds of `static_grace`, 0 from an Apache broker."""
        header = HeartBeatRequestHeader(static_grace)
        answer = await self.ask(addr, header, "heartbeat", fastjson.dumps(data), timeout=timeout)
        return answer.static_grace or 0

    async def consumer_ids(
        self, addr: str, group: str, *, timeout: float = API_TIMEOUT
    ) -> list[str]:
        """Return the client ids of a group's members as this broker knows them."""
        header = GetConsumerListByGroupRequestHeader(group)
        what = f"members of group {group} cannot be read"
        return (await self.read(addr, header, what, timeout=timeout)).consumer_id_list


def max_offset_header(queue: MessageQueue) -> GetMaxOffsetRequestHeader:
    """Return the request for the end of a queue."""
    return GetMaxOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
