"""Message traces: who sent, got and decided what and when, sent on as messages for Apache's consoles.

Records wait in a queue of bounded length; a task of its own sends them in messages of their own. Nothing of a traced
message waits for it.

Invariant: tracing never waits, and never fails what it traces: what finds the queue full, or cannot be sent, is
counted and dropped.
Invariant: a trace is not traced.
Answers to: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl, EndTransactionTraceHookImpl.
Unlike Java: records of one client travel together, whatever producer or consumer they come from.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.send_result import SendResult, SendStatus
from rocketrio.trace_encoding import (
    DEFAULT_REGION,
    ConsumeBegun,
    ConsumeEnded,
    ConsumeReturn,
    MessageKind,
    Published,
    Traced,
    TraceRecord,
    TransactionEnded,
)
from rocketrio.wakeup import Wakeup
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.send import SendMessageResponseHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import Message, MessageExt
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.properties import (
    MAX_PROPERTIES_SIZE,
    PROPERTY_DELAY_TIME_LEVEL,
    PROPERTY_KEYS,
    PROPERTY_MSG_REGION,
    PROPERTY_TAGS,
    PROPERTY_TRACE_SWITCH,
    decode_properties,
)

if TYPE_CHECKING:
    from rocketrio.producing.producer import Producer

Given = TypeVar("Given", MessageExt, list[MessageExt])

TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
WAITING_LIMIT: Final = 2048
"""Records that may wait to be sent (asyncQueue of AsyncTraceDispatcher)."""
BATCH_RECORDS: Final = 100
"""Records of one message, as Java has (traceMsgBatchNum)."""
BATCH_BYTES: Final = 128_000
"""Characters of one message's body, about; as Java has (maxMsgSize)."""
INTERVAL: Final = 1.0
"""Seconds that a record waits for others."""
KEYS_LIMIT: Final = MAX_PROPERTIES_SIZE // 2
"""Bytes of the keys of one message of records."""
SEND_TIMEOUT: Final = 5.0
"""Seconds for a message of records, as Java has."""
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_JAVA_STATES: Final = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE"}

logger = logging.getLogger("rocketrio.trace")


@attrs.frozen
class TraceStatistics:
    """What became of the records so far."""

    sent: int
    dropped: int
    waiting: int


class Traces:
    """The records of one client; made by `open_client(trace=...)`."""

    def __init__(self, topic: str, producer: "Producer") -> None:
        """`producer` sends the records, and is not traced itself."""
        self.topic = topic
        self._producer = producer
        self._waiting: deque[TraceRecord] = deque()
        self._sent = self._dropped = 0
        self._wakeup = Wakeup()
        self._sending = trio.Lock()

    def statistics(self) -> TraceStatistics:
        """Counts so far."""
        return TraceStatistics(self._sent, self._dropped, len(self._waiting))

    # -------------------------------------------------------------------- what happened, synchronously

    def sent(
        self,
        outgoing: Outgoing,
        result: SendResult,
        answer: RemotingCommand,
        *,
        group: str,
        addr: str,
        seconds: float,
    ) -> None:
        """A message, or a batch of them, was stored."""
        header = answer.header(SendMessageResponseHeader)
        if header.trace_on is False or outgoing.topic == self.topic:
            return  # The broker wants no traces of it.
        properties = decode_properties(outgoing.properties)
        cost_ms = int(seconds * 1000)
        kind = MessageKind.NORMAL
        if outgoing.sys_flag & _PREPARED:
            kind = MessageKind.TRANSACTION_HALF
        elif PROPERTY_DELAY_TIME_LEVEL in properties:
            kind = MessageKind.DELAY
        self.add(
            Published(
                Traced(
                    outgoing.topic,
                    ",".join(result.message_ids),
                    properties.get(PROPERTY_TAGS),
                    properties.get(PROPERTY_KEYS, ""),
                ),
                self._now_ms() - cost_ms,
                header.region_id or DEFAULT_REGION,
                group,
                addr,
                len(outgoing.body),
                cost_ms,
                kind,
                ",".join(result.offset_message_ids),
                result.status is SendStatus.SEND_OK,
            )
        )

    def decided(
        self,
        message: Message | MessageExt,
        message_id: str,
        *,
        group: str,
        addr: str,
        transaction_id: str,
        state: str,
        by_check: bool,
    ) -> None:
        """A transaction was committed or rolled back."""
        self.add(
            TransactionEnded(
                Traced(message.topic, message_id, message.tags, message.keys),
                self._now_ms(),
                DEFAULT_REGION,
                group,
                addr,
                transaction_id,
                _JAVA_STATES.get(state, "UNKNOW"),
                by_check,
            )
        )

    def consuming(self, group: str, messages: Sequence[MessageExt]) -> "ConsumeTrace":
        """A consumer begins to work on messages; call `ended` of what comes back when it is done."""
        request_id = self._producer.client.unique_ids.next()
        traced: list[Traced] = []
        now_ms = self._now_ms()
        for message in messages:
            properties = message.properties
            if properties.get(PROPERTY_TRACE_SWITCH) == "false":
                continue
            keys, tags = properties.get(PROPERTY_KEYS, ""), properties.get(PROPERTY_TAGS)
            record = Traced(message.topic, message.message_id, tags, keys)
            traced.append(record)
            region = properties.get(PROPERTY_MSG_REGION, DEFAULT_REGION)
            self.add(
                ConsumeBegun(record, now_ms, region, group, request_id, message.reconsume_times)
            )
        return ConsumeTrace(self, group, request_id, traced, now_ms)

    def handler(
        self, group: str, handler: Callable[[Given], Awaitable[object]]
    ) -> Callable[[Given], Awaitable[object]]:
        """The same handler, of single messages or of lists, traced."""

        async def traced(given: Given) -> object:
            trace = self.consuming(group, given if isinstance(given, list) else [given])
            result = ConsumeReturn.FAILED  # A cancel too.
            try:
                outcome = await handler(given)
                result = ConsumeReturn.SUCCESS
            except Exception:
                result = ConsumeReturn.EXCEPTION
                raise
            finally:
                trace.ended(result)
            return outcome

        return traced

    def add(self, record: TraceRecord) -> None:
        """Take a record; drops it when too many wait."""
        waiting = self._waiting
        if len(waiting) >= WAITING_LIMIT:
            if not self._dropped:
                logger.warning("traces dropped, %d wait to be sent", WAITING_LIMIT)
            self._dropped += 1
            return
        waiting.append(record)
        if len(waiting) == BATCH_RECORDS:
            self._wakeup.wake()

    def _now_ms(self) -> int:
        return self._producer.client.wall_clock.now_ms()

    # ------------------------------------------------------------------------------- sending them on

    async def run(self) -> None:
        """Send for as long as the client lives."""
        while True:
            await self._wakeup.wait(INTERVAL)
            await self.flush()

    async def flush(self) -> None:
        """Send what waits now; returns when that, and what was on its way, is sent or dropped."""
        async with self._sending:
            for _ in range(-(-len(self._waiting) // BATCH_RECORDS)):
                await self._send_some()

    async def _send_some(self) -> None:
        texts: list[str] = []
        keys: dict[str, None] = {}
        size = 0
        while self._waiting and len(texts) < BATCH_RECORDS and size < BATCH_BYTES:
            record = self._waiting.popleft()
            texts.append(text := record.text)
            size += len(text)
            keys.update(dict.fromkeys(record.message.search_keys))
        if not texts:
            return
        try:
            body = "".join(texts).encode()
            message = Message(self.topic, body, keys=_joined(keys))
            await self._producer.send(message, timeout=SEND_TIMEOUT)
        except (Error, UnicodeEncodeError) as error:
            if not self._dropped:
                logger.warning("traces dropped, they cannot be sent error=%s", error)
            self._dropped += len(texts)
        else:
            self._sent += len(texts)


def _joined(keys: Iterable[str]) -> str:
    """As many keys as the properties of a message hold; by the others it cannot be found."""
    kept: list[str] = []
    size = 0
    for key in keys:
        size += len(key.encode()) + 1
        if size > KEYS_LIMIT:
            break
        kept.append(key)
    return " ".join(kept)


@attrs.define
class ConsumeTrace:
    """Messages that a consumer works on."""

    traces: Traces
    group: str
    request_id: str
    messages: list[Traced]
    begun_ms: int

    def ended(self, result: ConsumeReturn) -> None:
        """The work is over."""
        now_ms = self.traces._now_ms()
        cost_ms = (now_ms - self.begun_ms) // max(len(self.messages), 1)
        for message in self.messages:
            self.traces.add(
                ConsumeEnded(message, now_ms, self.group, self.request_id, cost_ms, result)
            )
