"""The slave's end of replication: fetches the master's log and appends it at the same addresses.

One task: it waits for bytes, or for the time to report or to give up, whichever comes first. Where the master is to
hear of what the disk has (`acknowledge = "disk"`) a second one reports as the log is flushed.

Invariant: only bytes that continue the log are appended, so both logs are the same up to the shorter one's end.
Invariant: what is reported is appended, or flushed where that is asked for.
Invariant: nothing is reported of a log that turned out to be damaged.
Answers to: DefaultHAClient; RocketMQ reference, section 6.4.
Unlike Java: reports at once after connecting (4.x: after 5 s) and once a read, not once a transfer.
Unlike Java: its own silence and the master's have a clock each, so a dead master is noticed and a live one kept.
"""

import logging
import struct
from enum import Enum
from math import inf
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.errors import (
    FileSizeMismatchError,
    HistoryMismatchError,
    NoRecordError,
    SilentPeerError,
)
from rocketrio_broker.ha.level_clock import LevelClock
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.errors import Error, NotReachable
from rocketrio_protocol.ha import TransferDecoder, TransferPart, encode_report
from rocketrio_protocol.message_codec import (
    MAGIC_PADDING,
    MAGIC_V1,
    MAGIC_V2,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
)
from rocketrio_protocol.remoting.ports import Dial, Transport, WallClock
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio_broker.ha")

RECEIVE_SIZE: Final = 4 * 1024 * 1024
"""Bytes of one read at most. Large, because a slave that is behind shares its time with the building of queues and
index, a turn each: with 1 MiB a turn a copy took half as long again as with 4 MiB, in about 4 ms."""


_SIZE_AND_MAGIC: Final = struct.Struct(">ii")


class HAClientState(Enum):
    """What the client is doing."""

    WAITING_FOR_ADDRESS = "waiting for the master's address"
    CONNECTING = "connecting"
    FOLLOWING = "following"
    PAUSING = "pausing before the next attempt"


@attrs.frozen
class HAClientStatistics:
    """A slave's view of its replication."""

    state: HAClientState
    master_ha_addr: str | None
    max_physical_offset: int
    master_offset: int
    """The greatest address the master is known to have reached, from its transfers; never below our own."""
    bytes_received: int
    connection_count: int
    """How often the slave has connected since it started."""
    connected_since_ms: int | None
    local_addr: str | None
    """This end of the connection, by which the master knows this slave; None without one."""
    last_transfer_age: float | None
    """Seconds since the master last sent something, at least a heartbeat; None before it did."""
    last_report_age: float | None
    """Seconds since the last report to the master."""
    last_problem: str | None
    """Why the last connection ended or could not be made; None once transfers go on."""


class HAClient:
    """Follows one master at a time."""

    def __init__(
        self,
        store: MessageStore,
        *,
        address: MasterAddress,
        dial: Dial,
        wall_clock: WallClock,
        config: HAConfig | None = None,
        level_clock: LevelClock | None = None,
    ) -> None:
        """`level_clock` is told whenever all that the master had is here."""
        self.state = HAClientState.WAITING_FOR_ADDRESS
        self.connected = Watermark()
        """Counts connections to a master: whoever has to act on a new one waits on it."""
        self._store = store
        self._address = address
        self._dial = dial
        self._wall_clock = wall_clock
        self._config = config or HAConfig()
        self._level_clock = level_clock
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._reports_flushed = self._config.acknowledge == "disk"
        self._report_error: Error | None = None
        self._reported = 0
        self._last_report_time = 0.0
        self._last_read_time: float | None = None
        self._local_addr: str | None = None
        self._master_offset = 0
        self._bytes_received = 0
        self._transfers_taken = 0
        self._connected_since_ms: int | None = None
        self._problem: Error | OSError | None = None

    def __repr__(self) -> str:
        return f"<HAClient {self.state.value} {self._address.value or ''}>"

    @property
    def local_addr(self) -> str | None:
        """Our end of the stream, by which the master knows this slave; None without one."""
        return self._local_addr

    def statistics(self) -> HAClientStatistics:
        end = self._store.max_physical_offset
        return HAClientStatistics(
            state=self.state,
            master_ha_addr=self._address.value,
            max_physical_offset=end,
            master_offset=max(end, self._master_offset),
            bytes_received=self._bytes_received,
            connection_count=self.connected.value,
            connected_since_ms=self._connected_since_ms,
            local_addr=self._local_addr,
            last_transfer_age=_age(self._last_read_time),
            last_report_age=_age(self._last_report_time or None),
            last_problem=None if self._problem is None else str(self._problem),
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow whatever master is known, until cancelled."""
        task_status.started()
        while True:
            self.state = HAClientState.WAITING_FOR_ADDRESS
            addr = await self._address.wait_known()
            logger.info(
                "replication source master=%s offset=%d", addr, self._store.max_physical_offset
            )
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._follow, addr)
                await self._address.wait_other_than(addr)
                nursery.cancel_scope.cancel()
            self._connected_since_ms = None

    async def _follow(self, addr: str) -> None:
        """Connect again and again, with pauses that grow while nothing comes of it."""
        pause = self._config.reconnect_pause
        while True:
            taken_before = self._transfers_taken
            self.state = HAClientState.CONNECTING
            try:
                await self._connect(addr)
            except (Error, OSError) as error:
                self._log_end(addr, error)
            if self._transfers_taken > taken_before:
                pause = self._config.reconnect_pause
            self._connected_since_ms = None
            self.state = HAClientState.PAUSING
            await trio.sleep(pause)
            pause = min(pause * 2, self._config.longest_reconnect_pause)

    async def _connect(self, addr: str) -> None:
        # Before the master is asked for more than this log can take, and told that its damaged end is here.
        self._store.health.check()
        transport = await self._dial(addr)
        try:
            self.state = HAClientState.FOLLOWING
            self._connected_since_ms = self._wall_clock.now_ms()
            self._local_addr = transport.local_addr
            if self._level_clock is not None:
                self._level_clock.begin()
            self.connected.advance(self.connected.value + 1)
            logger.info("connected master=%s offset=%d", addr, self._store.max_physical_offset)
            await self._exchange(transport)
        finally:
            self._local_addr = None
            await transport.aclose()

    async def _exchange(self, transport: Transport) -> None:
        if not self._reports_flushed:
            await self._report(transport)
            await self._transfer(transport)
            return
        # The first report is where the master goes on: the disk must have all there is.
        self._store.flush_soon()
        await self._store.wait_flushed(self._store.max_physical_offset)
        await self._report(transport)
        self._report_error = None
        async with background_nursery() as nursery:
            nursery.start_soon(self._report_flushes, transport, nursery.cancel_scope)
            await self._transfer(transport)
        if self._report_error is not None:
            raise self._report_error

    async def _report_flushes(self, transport: Transport, scope: trio.CancelScope) -> None:
        """Report whenever the disk has more, and while it is busy what it had: we are alive."""
        try:
            while True:
                with trio.move_on_at(self._last_report_time + self._config.send_heartbeat_interval):
                    await self._store.flushed.wait_past(self._reported)
                await self._report(transport)
        except Error as error:
            self._report_error = error
            scope.cancel()

    async def _transfer(self, transport: Transport) -> None:
        config, store = self._config, self._store
        decoder = TransferDecoder()
        last_read_time = trio.current_time()
        while True:
            report_time = (
                inf
                if self._reports_flushed
                else self._last_report_time + config.send_heartbeat_interval
            )
            silence_end = last_read_time + config.housekeeping_interval
            with trio.CancelScope(deadline=min(report_time, silence_end)) as waiting:
                received = await transport.receive_into(self._buffer)
            if waiting.cancelled_caught:
                if trio.current_time() >= silence_end:
                    raise SilentPeerError(
                        f"The master has sent nothing for {config.housekeeping_interval:g} s",
                        broker_addr=transport.remote_addr,
                    )
                await self._report(transport)
                continue
            if not received:
                raise NotReachable(
                    "The master closed the connection",
                    broker_addr=transport.remote_addr,
                    remedy="If it does so again and again its log says why",
                )
            last_read_time = self._last_read_time = trio.current_time()
            for part in decoder.feed(self._buffer[:received]):
                self._append(part, transport.remote_addr)
            if self._reports_flushed:
                store.flush_soon()
            elif store.max_physical_offset > self._reported or last_read_time >= report_time:
                await self._report(transport)

    def _append(self, part: TransferPart, master: str) -> None:
        store = self._store
        store.health.check()
        end = store.max_physical_offset
        # An empty log may begin anywhere; after that each byte has one place.
        if end and part.physical_offset != end:
            raise HistoryMismatchError(
                f"The master sends from {part.physical_offset}, this slave's log ends at {end}",
                broker_addr=master,
            )
        size = len(part.body)
        if size:
            file_size = store.config.mapped_file_size_commit_log
            if part.transfer_start // file_size != (part.transfer_end - 1) // file_size:
                raise FileSizeMismatchError(
                    f"A transfer from {part.transfer_start} to {part.transfer_end} crosses the end of"
                    f" a commit-log file of {file_size} bytes",
                    broker_addr=master,
                )
            if store.dispatched.value == end or not end:
                _check_is_record(part, master)
            store.append_raw(part.physical_offset, part.body)
            self._bytes_received += size
        self._master_offset = part.transfer_end
        self._transfers_taken += 1
        if self._level_clock is not None and part.physical_offset + size == part.transfer_end:
            self._level_clock.took(part.transfer_end - part.transfer_start, part.transfer_end)
        if self._problem is not None:
            logger.info("replication goes on master=%s offset=%d", master, part.physical_offset)
            self._problem = None

    async def _report(self, transport: Transport) -> None:
        """Say how far the log goes, and wait until that is on its way."""
        store = self._store
        store.health.check()
        self._reported = store.flushed.value if self._reports_flushed else store.max_physical_offset
        report = encode_report(self._reported)
        # Without a wait where that goes: a send may hang on it, and the queues are built during a wait.
        sent = transport.send_nowait(report)
        if sent < len(report):
            limit = self._config.housekeeping_interval
            with trio.move_on_after(limit) as sending:
                await transport.send_all(report[sent:])
            if sending.cancelled_caught:
                raise SilentPeerError(
                    f"The master has taken no report for {limit:g} s",
                    broker_addr=transport.remote_addr,
                )
        self._last_report_time = trio.current_time()

    def _log_end(self, addr: str, error: Error | OSError) -> None:
        """The first of a row of equal problems is a warning, the others are for those who look closer."""
        is_new = self._problem is None or str(self._problem) != str(error)
        self._problem = error
        logger.log(
            logging.WARNING if is_new else logging.DEBUG,
            "replication interrupted, will retry master=%s offset=%d reason=%s",
            addr, self._store.max_physical_offset, error,
        )  # fmt: skip


def _age(time: float | None) -> float | None:
    return None if time is None else trio.current_time() - time


def _check_is_record(part: TransferPart, master: str) -> None:
    """Where a record must begin: the first thing received is one, or the padding at the end of a file."""
    if len(part.body) < _SIZE_AND_MAGIC.size:
        return
    size, magic = _SIZE_AND_MAGIC.unpack_from(part.body)
    smallest = PADDING_HEAD_SIZE if magic == MAGIC_PADDING else RECORD_OVERHEAD
    if magic not in (MAGIC_V1, MAGIC_V2, MAGIC_PADDING) or size < smallest:
        raise NoRecordError(
            f"The master sends no record for {part.physical_offset}, but one of size {size}"
            f" and magic {magic & 0xFFFFFFFF:#x}",
            broker_addr=master,
        )
