"""The master's end of the connection to one slave: sends the log, receives what the slave has.

Two tasks in one nursery, one for each direction, each with its own clock; the first to end ends the other.

A rocketrio slave first sends who it is and which epochs its log has (`exchange.py`), and receives the epochs of this
log; its connection ends when these change. All other slaves are served exactly as Apache serves them, byte for byte.

Invariant: the next transfer starts where the last one ended, from the offset the slave asked for.
Invariant: slave_ack_offset never passes what was sent on this connection, and never goes back: a slave that takes back
what it acknowledged is dropped.
Invariant: no byte that is known to be damaged is sent.
Invariant: a rocketrio slave receives a byte of an epoch only after this connection has announced that epoch to it.
Invariant: a slave's name is in the epoch's line before its first report counts, and each report is noted before that.
Invariant: no transfer crosses the end of a commit-log file (`read_log` ensures it).
Answers to: DefaultHAConnection (with ReadSocketService and WriteSocketService); RocketMQ reference, section 6.3.
Unlike Java: any append wakes it, where an asynchronous master checks every 100 ms.
Unlike Java: a slave that asks for deleted bytes, or has more than the master, is detected and dropped, after a
heartbeat with the address where the log begins or ends. Java sends it heartbeats for ever, or counts it as having bytes
that it never got.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.epochs import common_boundary
from rocketrio_broker.ha.errors import (
    AskedOnlyError,
    DamagedSourceError,
    EpochEndedError,
    HistoryMismatchError,
    NotFollowedError,
    ReplicationError,
    SilentPeerError,
    SlaveAheadError,
    SlaveTooFarBehindError,
)
from rocketrio_broker.ha.exchange import receive_greeting, welcome
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.sealed import answer_seal
from rocketrio_broker.store.epochs import ANONYMOUS
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.ha.exchange import (
    ASK_AGAIN,
    EXCHANGE_MAGIC,
    Greeting,
    Welcome,
    encode_exchange,
)
from rocketrio_protocol.ha.stream import (
    REPORT_SIZE,
    ReportDecoder,
    encode_confirming_header,
    encode_transfer_header,
)
from rocketrio_protocol.remoting.ports import Transport, WallClock

logger = logging.getLogger("rocketrio_broker.ha")

_REPORT_BUFFER_SIZE: Final = 4096  # 512 reports; only the last one in a read counts
_JOINED_SIZE_LIMIT: Final = 64 * 1024  # up to here a copy is cheaper than a packet for the header
_PIECE_SIZE: Final = 128 * 1024  # bytes per write; a link of 52 kbit/s takes this much in 20 s
_NOTHING_REPORTED: Final = -1
_GATE_PAUSE: Final = 0.005  # seconds; transfers of messages contain the gate's position anyway
_LAST_WORD_LIMIT: Final = 1.0  # seconds; for 12 bytes on a connection that has sent nothing yet


@attrs.frozen
class HAConnectionStatistics:
    """One connected slave, as its master sees it."""

    addr: str
    member: str
    """The name of the slave's data directory; empty for slaves that do not identify themselves."""
    slave_request_offset: int | None
    """Where the slave asked to begin; None before its first report."""
    slave_ack_offset: int
    """The slave has everything before this address."""
    bytes_behind: int
    transfer_offset: int
    """Where the next transfer starts."""
    bytes_sent: int
    connected_since_ms: int
    last_report_age: float
    """Seconds since the slave last reported."""


class HAConnection:
    """The master's end of the connection to one slave."""

    def __init__(
        self,
        transport: Transport,
        store: MessageStore,
        *,
        config: HAConfig,
        wall_clock: WallClock,
        group_transfer: GroupTransferService,
        broker_id: int = -1,
        introduced: Callable[["HAConnection"], None] = lambda _: None,
        refusal: Callable[[], str] = lambda: "",
        asks_for_log: Callable[[], None] = lambda: None,
    ) -> None:
        """`introduced` is called once the slave has identified itself, before it counts.

        `refusal` returns why no rocketrio slave may follow this log now, or an empty string.
        `asks_for_log` is called with the first report, and may raise an Error: then the slave is not served.
        """
        self.addr = transport.remote_addr
        self.answers = answer_seal(transport)
        """Seals answers for this slave alone; None if it has proved no secret."""
        self.greeting: Greeting | None = None
        """The greeting of a rocketrio slave; None before it arrives, and for slaves that send none."""
        self.is_anonymous = False
        """Whether the slave has sent no greeting; its reports may count all the same."""
        self.is_inquiry = False
        """Whether another broker has connected to ask about this log or to read a part of it, and does not follow."""
        self.acknowledged = Watermark()
        """Grows with the slave's reports; tasks that need the slave to have something wait on it."""
        self.ended_by: Error | None = None
        """Why the connection ended; None while it is open, or if its owner cancelled it."""
        self._transport = transport
        self._store = store
        self._config = config
        self._group_transfer = group_transfer
        self._broker_id = broker_id
        self._introduced = introduced
        self._refusal = refusal
        self._asks_for_log = asks_for_log
        self._scope = trio.CancelScope()
        self._waiting = trio.CancelScope()
        self._boundary: int | None = None
        self._epoch_changes = store.epochs.changes.value
        self._connected_since_ms = wall_clock.now_ms()
        self._requested = Watermark(_NOTHING_REPORTED)
        self._sent_to = 0
        self._bytes_sent = 0
        self._limit: int | None = None
        self._is_sending = False
        self._last_report_time = trio.current_time()

    def __repr__(self) -> str:
        return f"<HAConnection {self.addr} acknowledged={self.slave_ack_offset}>"

    @property
    def slave_request_offset(self) -> int | None:
        """The offset in the slave's first report; None before it."""
        value = self._requested.value
        return None if value == _NOTHING_REPORTED else value

    @property
    def slave_ack_offset(self) -> int:
        """The slave has everything before this address."""
        return self.acknowledged.value

    @property
    def last_report_age(self) -> float:
        """Seconds since the slave last reported."""
        return trio.current_time() - self._last_report_time

    @property
    def member(self) -> str:
        """The name of the slave's data directory; empty if the slave does not identify itself."""
        return ANONYMOUS if self.greeting is None else self.greeting.member

    @property
    def is_follower(self) -> bool:
        """Whether the other end is a rocketrio slave, and not a broker that only compares logs or fetches messages."""
        return self.greeting is not None and self.greeting.is_follower

    @property
    def log_level(self) -> int:
        """The level of log lines about this connection: brokers ask each other every half minute."""
        return logging.DEBUG if self.is_inquiry else logging.INFO

    def statistics(self) -> HAConnectionStatistics:
        return HAConnectionStatistics(
            addr=self.addr,
            member=self.member,
            slave_request_offset=self.slave_request_offset,
            slave_ack_offset=self.slave_ack_offset,
            bytes_behind=self._store.max_physical_offset - self.slave_ack_offset,
            transfer_offset=self._sent_to,
            bytes_sent=self._bytes_sent,
            connected_since_ms=self._connected_since_ms,
            last_report_age=self.last_report_age,
        )

    async def run(self) -> None:
        """Serve the slave until either end closes the connection; `ended_by` then says why."""
        try:
            async with trio.open_nursery() as nursery:
                self._scope = nursery.cancel_scope
                nursery.start_soon(self._read, nursery.cancel_scope)
                nursery.start_soon(self._write, nursery.cancel_scope)
            await self._send_limit()
        finally:
            await self._transport.aclose()

    async def _send_limit(self) -> None:
        """Send a last header with where the log begins or ends, or with the note that there are other epochs now.

        The former answers a slave that asked for something else; an Apache slave reconnects after it. It is sent only
        between transfers, where the slave expects a header.
        """
        if self._limit is not None:
            last_word = self._header(self._limit, 0)
        elif isinstance(self.ended_by, EpochEndedError) and self.greeting and not self._is_sending:
            last_word = encode_confirming_header(self._sent_to, 0, ASK_AGAIN)
        else:
            return
        with trio.move_on_after(_LAST_WORD_LIMIT), suppress(Error):
            await self._transport.send_all(last_word)

    def end(self, error: Error) -> None:
        """End the connection from outside: the slave has another connection, or must receive other epochs."""
        self._end(error, self._scope)

    def send_gate(self) -> None:
        """Send a rocketrio slave the new position of the read gate, with the next bytes or alone after a pause."""
        if self.greeting is not None:
            soon = trio.current_time() + _GATE_PAUSE
            self._waiting.deadline = min(self._waiting.deadline, soon)

    # --- the slave's reports -----------------------------------------------------------------

    async def _read(self, connection_scope: trio.CancelScope) -> None:
        try:
            await self._take_reports()
        except OSError as error:
            self._end(
                ReplicationError(
                    f"The epoch file could not be written: {error}",
                    broker_addr=self.addr,
                ),
                connection_scope,
            )
        except Error as error:
            self._end(error, connection_scope)

    async def _take_reports(self) -> None:
        buffer = memoryview(bytearray(_REPORT_BUFFER_SIZE))
        decoder = ReportDecoder()
        silence_limit = self._config.housekeeping_interval
        first: bytes | None = b""
        while True:
            # Only a complete report counts as a sign of life.
            deadline = self._last_report_time + silence_limit
            with trio.CancelScope(deadline=deadline) as waiting:
                received = await self._transport.receive_into(buffer)
            if waiting.cancelled_caught:
                raise SilentPeerError(
                    f"The slave has reported nothing for {silence_limit:g} s", broker_addr=self.addr
                )
            if not received:
                raise NotReachableError(
                    "The slave closed the connection", broker_addr=self.addr, remedy=""
                )
            data = bytes(buffer[:received])
            if first is not None:
                first += data
                if len(first) < REPORT_SIZE:
                    continue
                data, first = await self._begin(first), None
            offset = decoder.feed(data)
            if offset is not None:
                self._last_report_time = trio.current_time()
                self._take_report(offset)

    async def _begin(self, first: bytes) -> bytes:
        """Receive and answer the slave's greeting, if it sends one; return the bytes that follow it."""
        store = self._store
        if not first.startswith(EXCHANGE_MAGIC):
            self.is_anonymous = True
            logger.info("slave connected slave=%s", self.addr)
            await store.epochs.join(ANONYMOUS, 0)
            store.acknowledged.join(ANONYMOUS, "")
            return first
        greeting, rest = await receive_greeting(self._transport, first)
        answer = await welcome(store, greeting, broker_id=self._broker_id)
        if greeting.opens or greeting.asks_only:
            self.is_inquiry = True
            await self._send_welcome(answer)
            raise AskedOnlyError("Another broker has asked how far this log goes")
        if greeting.is_follower and (reason := self._refusal()):
            # A new master may lack messages that this slave has, and asks it for them.
            self.greeting = greeting
            self._introduced(self)
            answer.refusal = reason
            await self._send_welcome(answer)
            raise NotFollowedError(reason, broker_addr=self.addr)
        self.is_inquiry = greeting.is_reader
        logger.log(self.log_level, "slave connected slave=%s", self.addr)
        # No await since `answer` was made. A change during those below ends this connection before it sends a byte of
        # an epoch that the slave has not received.
        self._epoch_changes = store.epochs.changes.value
        if not greeting.is_reader:
            # On the disk before a report of it counts: an epoch that does not name the slave could be given up although
            # producers were answered for what the slave has.
            await store.epochs.join(greeting.member, greeting.highest)
            store.acknowledged.join(greeting.member, greeting.address)
        boundary = common_boundary(answer.epochs, answer.end, greeting.epochs, greeting.end)
        self._boundary = None if boundary is None else boundary.address
        self.greeting = greeting
        self._introduced(self)
        await self._send_welcome(answer)
        self._last_report_time = trio.current_time()
        return rest

    async def _send_welcome(self, welcome: Welcome) -> None:
        """Answer the greeting at once: if the connection ends now, its last word must not come before this answer."""
        self._is_sending = True
        await self._send_piece(memoryview(encode_exchange(welcome)))
        self._is_sending = False

    def _take_report(self, offset: int) -> None:
        # `end` was called from outside, perhaps because the slave is back on another connection: it would count twice.
        if self.ended_by is not None:
            raise self.ended_by
        self._check_epochs()
        end = self._store.max_physical_offset
        if (
            self.slave_request_offset is None
            and self._boundary is not None
            and offset > self._boundary
        ):
            raise SlaveAheadError(
                f"The slave continues from {offset}, and both logs are the same up to {self._boundary}",
                broker_addr=self.addr,
            )
        if offset > end:
            if self.slave_request_offset is None:
                self._limit = end
            raise SlaveAheadError(
                f"The slave has bytes up to {offset}, this master's log ends at {end}",
                broker_addr=self.addr,
            )
        if self.slave_request_offset is None:
            self._asks_for_log()
            self._sent_to = self._start_offset(offset)
            logger.log(
                self.log_level,
                "slave follows slave=%s request_offset=%d start_offset=%d behind=%d",
                self.addr, offset, self._sent_to, end - self._sent_to,
            )  # fmt: skip
            self.acknowledged.advance(offset)
            self._requested.advance(offset)
        # Producers are answered by this number: a slave that reports what it was not sent, or takes back what it
        # reported, is dropped, and counts by its first report when it returns.
        elif offset > self._sent_to:
            raise SlaveAheadError(
                f"The slave has bytes up to {offset}, but was sent none beyond {self._sent_to}",
                broker_addr=self.addr,
            )
        elif offset < self.slave_ack_offset:
            raise HistoryMismatchError(
                f"The slave reported {offset} after {self.slave_ack_offset}: its log was cut",
                broker_addr=self.addr,
                remedy="It will report its offset when it reconnects",
            )
        self.acknowledged.advance(offset)
        if self.greeting is None or not self.greeting.is_reader:
            if self._group_transfer.is_required:
                # Before it counts: if this process dies after the answers, its next
                # run must know that the slave has the messages.
                self._store.acknowledged.note(self.member, self.slave_ack_offset)
            self._group_transfer.slave_reported(
                self.addr,
                self.slave_ack_offset,
                is_first=self.slave_ack_offset == self.slave_request_offset,
                is_named=bool(self.member),
            )

    def _start_offset(self, request_offset: int) -> int:
        """Return where to begin for a slave whose log ends at `request_offset`; 0 means that its log is empty."""
        first, end = self._store.min_physical_offset, self._store.max_physical_offset
        if request_offset:
            self._check_still_there(request_offset)
            return request_offset
        if self._config.full_history_start:
            return first
        # The last file alone, as Apache's WriteSocketService sends it to an empty slave.
        return max(first, end - end % self._store.config.mapped_file_size_commit_log)

    def _check_still_there(self, offset: int) -> None:
        first = self._store.min_physical_offset
        if offset < first:
            self._limit = first
            raise SlaveTooFarBehindError(
                f"The slave needs the log from {offset} on, this master's begins at {first}",
                broker_addr=self.addr,
            )

    def _check_epochs(self) -> None:
        if self.greeting is not None and self._epoch_changes != self._store.epochs.changes.value:
            raise EpochEndedError(
                "This log has other epochs than the slave received", broker_addr=self.addr
            )

    def _check_whole(self) -> None:
        damage = self._store.health.damage
        if damage is not None and self._sent_to == damage.physical_offset:
            # The limit lies past the damage: a slave that is further can ask for what follows its end.
            self._limit = self._store.max_physical_offset
            raise DamagedSourceError(
                f"The slave needs the log from {self._sent_to} on, where it is damaged here"
                f" ({damage.problem})",
                broker_addr=self.addr,
            )

    # --- the log's bytes ---------------------------------------------------------------------

    async def _write(self, connection_scope: trio.CancelScope) -> None:
        try:
            await self._requested.wait_past(_NOTHING_REPORTED)
            await self._send_log()
        except Error as error:
            self._end(error, connection_scope)

    async def _send_log(self) -> None:
        store, config = self._store, self._config
        last_write_time = trio.current_time()
        truncations = store.commit_log.truncations
        while True:
            # In one step with the read below, at each turn: bytes of a new epoch
            # must not follow those of an announced one.
            self._check_epochs()
            if truncations != store.commit_log.truncations:
                raise HistoryMismatchError(
                    f"This broker's log was cut, to {store.max_physical_offset}",
                    broker_addr=self.addr,
                    remedy="The slave compares its log again when it reconnects",
                )
            block = store.read_log(self._sent_to, config.transfer_batch_size)
            if block is None:
                self._check_still_there(self._sent_to)
                self._check_whole()
                with trio.CancelScope(
                    deadline=last_write_time + config.send_heartbeat_interval
                ) as self._waiting:
                    await store.appended.wait_past(self._sent_to)
                if not self._waiting.cancelled_caught:
                    continue
                block = memoryview(b"")
            await self._send(block)
            last_write_time = trio.current_time()
            if self._sent_to < store.max_physical_offset:
                await trio.lowlevel.checkpoint()  # There is more to send; other tasks must run too.
            elif not self._is_waited_for:
                await trio.sleep(config.transfer_pause)

    @property
    def _is_waited_for(self) -> bool:
        """Whether puts, or readers behind the gate, wait for this slave's reports: every pause delays them too."""
        return self._group_transfer.is_required or self._store.read_gate.is_gating

    async def _send(self, block: memoryview) -> None:
        """Send one transfer."""
        size = len(block)
        self._is_sending = True
        header = self._header(self._sent_to, size)
        # Counted first: the slave may acknowledge the bytes before `send_all` returns here.
        self._sent_to += size
        self._group_transfer.transfer_sent(self._sent_to)
        if size <= _JOINED_SIZE_LIMIT:
            header, block = header + block, memoryview(b"")
        await self._send_piece(memoryview(header))
        for start in range(0, len(block), _PIECE_SIZE):
            await self._send_piece(block[start : start + _PIECE_SIZE])
        self._is_sending = False
        self._bytes_sent += size

    def _header(self, offset: int, size: int) -> bytes:
        if self.greeting is None:
            return encode_transfer_header(offset, size)
        return encode_confirming_header(offset, size, self._store.read_gate.end.value)

    async def _send_piece(self, piece: memoryview) -> None:
        """Send a piece of a transfer within `housekeeping_interval`.

        The limit applies to each piece: over a slow link a whole transfer may take longer, although the slave is not
        silent.
        """
        # Send without waiting if possible: producers may wait for these bytes.
        sent = self._transport.send_nowait(piece)
        if sent == len(piece):
            return
        with trio.move_on_after(self._config.housekeeping_interval) as sending:
            await self._transport.send_all(piece[sent:])
        if sending.cancelled_caught:
            raise SilentPeerError(
                f"The slave has not taken {len(piece)} bytes"
                f" for {self._config.housekeeping_interval:g} s",
                broker_addr=self.addr,
            )

    def _end(self, error: Error, connection_scope: trio.CancelScope) -> None:
        if self.ended_by is None:
            self.ended_by = error
        connection_scope.cancel()
