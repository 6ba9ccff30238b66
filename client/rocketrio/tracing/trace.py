"""Message traces: records of sends, deliveries and decisions, sent as messages for Apache's consoles.

Records wait in a bounded queue; a separate task sends them in messages of their own. A traced message never waits for
its record.

Invariant: tracing never blocks or fails what it traces: records that find the queue full, or cannot be sent, are
counted and dropped.
Invariant: a trace is not traced.
Answers to: AsyncTraceDispatcher, SendMessageTraceHookImpl, ConsumeMessageTraceHookImpl, EndTransactionTraceHookImpl.
Unlike Java: records of one client are sent together, whatever producer or consumer they come from.
"""

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final, TypeVar

import attrs
import trio

from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.send_result import SendResult, SendStatus
from rocketrio.tracing.encoding import (
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

Given = TypeVar("Given", MessageExt, list[MessageExt])

TRACE_GROUP: Final = "_INNER_TRACE_PRODUCER"
WAITING_LIMIT: Final = 2048
"""The number of records that may wait to be sent (asyncQueue of AsyncTraceDispatcher)."""
BATCH_RECORDS: Final = 100
"""Records per message, as in Java (traceMsgBatchNum)."""
BATCH_BYTES: Final = 128_000
"""Approximate number of characters in one message's body, as in Java (maxMsgSize)."""
INTERVAL: Final = 1.0
"""Seconds that a record waits for others."""
KEYS_LIMIT: Final = MAX_PROPERTIES_SIZE // 2
"""Bytes of the keys of one message of records."""
SEND_TIMEOUT: Final = 5.0
"""Seconds for sending a message of records, as in Java."""
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)
_JAVA_STATES: Final = {"COMMIT": "COMMIT_MESSAGE", "ROLLBACK": "ROLLBACK_MESSAGE"}

logger = logging.getLogger("rocketrio.trace")


@attrs.frozen
class TraceStatistics:
    """The counts of records so far."""

    sent: int
    dropped: int
    waiting: int


class Traces:
    """The trace records of one client; made by `open_client(trace=...)`."""

    def __init__(
        self,
        topic: str,
        send: Callable[[Message], Awaitable[object]],
        *,
        next_id: Callable[[], str],
        now_ms: Callable[[], int],
    ) -> None:
        """Create the traces of a client; `send` sends a message of records, and is not traced itself."""
        self.topic = topic
        self.now_ms = now_ms
        self._send = send
        self._next_id = next_id
        self._waiting: deque[TraceRecord] = deque()
        self._sent = self._dropped = 0
        self._wakeup = Wakeup()
        self._sending = trio.Lock()

    def statistics(self) -> TraceStatistics:
        """Return the counts so far."""
        return TraceStatistics(self._sent, self._dropped, len(self._waiting))

    # ------------------------------------------------------------------------ recording, synchronously

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
        """Record that a message, or a batch of messages, was stored."""
        header = answer.header(SendMessageResponseHeader)
        if header.trace_on is False or outgoing.topic == self.topic:
            return  # The broker has switched traces off, or this is a trace.
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
                self.now_ms() - cost_ms,
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
        """Record that a transaction was committed or rolled back."""
        self.add(
            TransactionEnded(
                Traced(message.topic, message_id, message.tags, message.keys),
                self.now_ms(),
                DEFAULT_REGION,
                group,
                addr,
                transaction_id,
                _JAVA_STATES.get(state, "UNKNOW"),
                by_check,
            )
        )

    def consuming(self, group: str, messages: Sequence[MessageExt]) -> "ConsumeTrace":
        """Record that a consumer begins to handle messages; call `ended` of the result when it is done."""
        request_id = self._next_id()
        traced: list[Traced] = []
        now_ms = self.now_ms()
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
        """Wrap a handler of single messages or of lists, so that its calls are traced."""

        async def traced(given: Given) -> object:
            trace = self.consuming(group, given if isinstance(given, list) else [given])
            result = ConsumeReturn.FAILED  # Remains after a cancel.
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
        """Take a record; drop it if too many wait."""
        waiting = self._waiting
        if len(waiting) >= WAITING_LIMIT:
            if not self._dropped:
                logger.warning("traces dropped, too many wait to be sent limit=%d", WAITING_LIMIT)
            self._dropped += 1
            return
        waiting.append(record)
        if len(waiting) == BATCH_RECORDS:
            self._wakeup.wake()

    # --------------------------------------------------------------------------------------- sending

    async def run(self) -> None:
        """Send records until cancelled."""
        while True:
            await self._wakeup.wait(INTERVAL)
            await self.flush()

    async def flush(self) -> None:
        """Send the waiting records; return when they, and those under way, are sent or dropped."""
        async with self._sending:
            # Counted once: records that come during the sends must not keep this from ending.
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
            await self._send(message)
        except (Error, UnicodeEncodeError) as error:
            if not self._dropped:
                logger.warning("traces dropped, they cannot be sent error=%s", error)
            self._dropped += len(texts)
        else:
            self._sent += len(texts)


def _joined(keys: Iterable[str]) -> str:
    """Join as many keys as the properties of a message can hold; the message cannot be found by the others."""
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
    """The trace of messages that a consumer handles."""

    traces: Traces
    group: str
    request_id: str
    messages: list[Traced]
    begun_ms: int

    def ended(self, result: ConsumeReturn) -> None:
        """Record that the handler has ended."""
        now_ms = self.traces.now_ms()
        cost_ms = (now_ms - self.begun_ms) // max(len(self.messages), 1)
        for message in self.messages:
            self.traces.add(
                ConsumeEnded(message, now_ms, self.group, self.request_id, cost_ms, result)
            )
