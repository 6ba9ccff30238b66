"""The slave's end of replication: fetches the master's log and appends it at the same addresses.

On each connect it asks from a little before its end, and compares what arrives with what it has (history.py). Only then
it appends, and reports how far its log goes. resync.py decides what to do when the logs differ.

With a rocketrio master it first exchanges which epochs both logs have (exchange.py), and never stores a byte of an
epoch before the line of that epoch is on its own disk.

One task waits for bytes, or for the time to report or to give up, whichever comes first. If the slave reports what its
disk has (`acknowledge = "disk"`), a second task reports as the log is flushed.

Invariant: only bytes that continue the log, fit its files and begin with a record are appended, so both logs are the
same up to the shorter one's end.
Invariant: what is reported was appended, or flushed with `acknowledge = "disk"`, and is equal to what the master has.
Invariant: nothing is reported of a log that turned out to be damaged.
Answers to: DefaultHAClient, HAConnectionState, HARuntimeInfo.HAClientRuntimeInfo; RocketMQ reference, section 6.4.
Unlike Java: reports immediately after connecting (4.x: after 5 s), and once per read, not once per transfer.
Unlike Java: the log's end is compared with the master's before anything is appended to it.
Unlike Java: the slave's own silence and the master's are timed separately, so a dead master is noticed and a live one
kept.
"""

import logging
from collections.abc import Callable
from enum import Enum
from math import inf
from typing import Final, Self

import attrs
import trio

from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.errors import (
    AheadOfMasterError,
    AskAgainError,
    BeyondBoundaryError,
    DivergedHistoryError,
    EqualHistoryError,
    FileSizeMismatchError,
    HistoryMismatchError,
    MissingHistoryError,
    NoRecordError,
    NoRoomError,
    NotFollowedError,
    ReplicationError,
    SilentPeerError,
    UnfinishedMasterError,
)
from rocketrio_broker.ha.exchange import KnowsEpochs, ask_welcome, greeting_of
from rocketrio_broker.ha.history import HistoryCheck
from rocketrio_broker.ha.level_clock import LevelClock
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.resync import SILENT_HEARTBEATS, HistoryRules, Resync
from rocketrio_broker.ha.sealed import answer_seal
from rocketrio_broker.ha.tail_count import Beyond
from rocketrio_broker.ha.torn_end import Damage, PeerLog, TornEnd
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.read_gate import EVERYTHING
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.ha.exchange import ASK_AGAIN
from rocketrio_protocol.ha.link import AnswerSeal
from rocketrio_protocol.ha.stream import TransferDecoder, TransferPart, encode_report
from rocketrio_protocol.record.layout import (
    MAGIC_PADDING,
    MAGICS,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    SIZE_AND_MAGIC,
)
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import Dial, Transport, WallClock
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio_broker.ha")

RECEIVE_SIZE: Final = 4 * 1024 * 1024
"""The most bytes of one read. It is large because a slave that is behind alternates between reading and building queues
and index: with 1 MiB per turn a copy took half as long again as with 4 MiB, which take about 4 ms."""

ASK_AGAIN_LIMIT: Final = 8
"""The most connections in a row without a pause, to find what both logs have in common: all windows, and one or two
corrections."""


class HAClientState(Enum):
    """What the client is doing: an id (`value`) that programs compare and that never changes, and a text for people."""

    text: str

    WAITING_FOR_ADDRESS = "waiting_for_address", "waiting for the master's address"
    CONNECTING = "connecting", "connecting"
    VERIFYING = "verifying", "comparing its log with the master's"
    FOLLOWING = "following", "following"  # Earlier brokers compare the text: it remains the id.
    AHEAD = "ahead", "ahead of the master, waiting"
    DIVERGED = "diverged", "diverged from the master, refusing"
    BEYOND = "beyond", "has what the master lacks, waiting for an operator"
    UNFINISHED = "unfinished", "waiting for the master to begin an epoch"
    MISSING_HISTORY = "missing_history", "behind the master's first byte, refusing"
    PAUSING = "pausing", "pausing before the next attempt"

    def __new__(cls, value: str, text: str) -> Self:
        """Make a member whose value is the id alone."""
        member = object.__new__(cls)
        member._value_ = value
        member.text = text
        return member


_PROBLEM_STATES: Final[dict[type[object], HAClientState]] = {
    AheadOfMasterError: HAClientState.AHEAD,
    DivergedHistoryError: HAClientState.DIVERGED,
    BeyondBoundaryError: HAClientState.BEYOND,
    UnfinishedMasterError: HAClientState.UNFINISHED,
    MissingHistoryError: HAClientState.MISSING_HISTORY,
}
"""The state of the client while it pauses after each of these problems."""


@attrs.frozen
class HAClientStatistics:
    """A slave's view of its replication."""

    state: HAClientState
    master_ha_addr: str | None
    max_physical_offset: int
    master_offset: int
    """The greatest address that the master is known to have reached, from its transfers; never below this slave's own
    end."""
    bytes_received: int
    connection_count: int
    """How often the slave has connected since it started."""
    connected_since_ms: int | None
    local_addr: str | None
    """The address of this end of the connection, by which the master knows this slave; None without a connection."""
    last_transfer_age: float | None
    """Seconds since the master last sent something, at least a heartbeat; None before its first transfer."""
    last_report_age: float | None
    """Seconds since the last report to the master."""
    last_problem: str | None
    """Why the last connection ended or could not be made; None once transfers continue."""
    verified_offset: int | None
    """The address up to which the log is equal to the connected master's; None without a connection."""
    beyond: Beyond | None
    """What this log has, the master lacks, and only an operator's setting may cut off; None if there is nothing."""


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
        rules: Callable[[], HistoryRules] = HistoryRules,
        knows_epochs: KnowsEpochs | None = None,
        broker_id: Callable[[], int] = lambda: -1,
        own_addr: str = "",
        faults: ConnectionFaults | None = None,
    ) -> None:
        """`level_clock` is notified of every transfer, so that it knows when this slave has all that the master has.

        `rules` returns what may be given up to follow a master, and is called each time. `knows_epochs` asks whether
        the master is a rocketrio broker, before each connection; without it no master counts as one.
        `own_addr` is where this broker answers requests.
        """
        self.state = HAClientState.WAITING_FOR_ADDRESS
        self.connected = Watermark()
        """Counts connections to a master; parts that act on a new connection wait on it."""
        self.followed = Watermark()
        """Counts the connections on which this log turned out to be a part of the master's."""
        self.failures = Watermark()
        """Counts connections that ended, or could not be made."""
        self.problem: Error | OSError | None = None
        """Why the last connection ended; None once transfers continue."""
        self.greeted_end: int | None = None
        """Where the master's log ended when this connection began; None if the master is not a rocketrio broker."""
        self.answers: AnswerSeal | None = None
        """Opens what the master sealed for this end; None without a connection on which both ends proved a secret."""
        self._store = store
        self._address = address
        self._dial = dial
        self._wall_clock = wall_clock
        self._config = config or HAConfig()
        self._level_clock = level_clock
        self._buffer = memoryview(bytearray(RECEIVE_SIZE))
        self._reports_flushed = self._config.acknowledge == "disk"
        self._torn_end = TornEnd(store, dial=dial, wall_clock=wall_clock)
        self._compared: tuple[tuple[str, int], Damage] | None = None
        self._resync = Resync(store, rules=rules, wall_clock=wall_clock)
        self._knows_epochs = knows_epochs
        self._broker_id = broker_id
        self._own_addr = own_addr
        self._faults = ConnectionFaults() if faults is None else faults
        self._promises: int | None = None
        self._check: HistoryCheck | None = None
        self._verified = trio.Event()
        self._has_taken = False
        self._report_error: Error | None = None
        self._reported = 0
        self._last_report_time = 0.0
        self._last_read_time: float | None = None
        self._local_addr: str | None = None
        self._master_offset = 0
        self._bytes_received = 0
        self._transfers_taken = 0
        self._connected_since_ms: int | None = None

    def __repr__(self) -> str:
        return f"<HAClient {self.state.text} {self._address.value or ''}>"

    @property
    def local_addr(self) -> str | None:
        """The address of this end of the stream, by which the master knows this slave; None without a connection."""
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
            last_problem=None if self.problem is None else str(self.problem),
            verified_offset=None if self._connected_since_ms is None else self._position(),
            beyond=self._resync.beyond,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the master that is known at the time, until cancelled."""
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
        """Connect repeatedly, with pauses that grow while no transfer arrives, unless the master refuses slaves."""
        pause = self._config.reconnect_pause
        asked_again = 0
        while True:
            taken_before = self._transfers_taken
            if not isinstance(self.problem, DivergedHistoryError | MissingHistoryError):
                self.state = HAClientState.CONNECTING
            try:
                await self._connect_and_adopt(addr)
            except AskAgainError as error:
                logger.debug("asking again master=%s reason=%s", addr, error)
                asked_again += 1
            except (Error, OSError) as error:
                asked_again = ASK_AGAIN_LIMIT if not await self._resolve(addr, error) else 0
            except Exception as fault:
                self._faults.note(addr, fault)
                self._log_problem(
                    addr, ReplicationError("A fault of this program, which the log describes")
                )
                self.failures.advance(self.failures.value + 1)
                asked_again = ASK_AGAIN_LIMIT
            self._connected_since_ms = None
            # A master that refuses slaves because it looks for other masters may lead in a moment.
            if self._transfers_taken > taken_before or isinstance(self.problem, NotFollowedError):
                pause = self._config.reconnect_pause
            if asked_again < ASK_AGAIN_LIMIT:
                continue
            asked_again = 0
            self.state = _PROBLEM_STATES.get(type(self.problem), HAClientState.PAUSING)
            await trio.sleep(pause)
            pause = min(pause * 2, self._config.longest_reconnect_pause)

    async def _resolve(self, addr: str, error: Error | OSError) -> bool:
        """Return whether the problem that ended a connection is solved now."""
        self._log_problem(addr, error)
        is_resolved = False
        try:
            damage = await self._find_damage(addr, error)
            is_resolved = damage is Damage.OWN
            # No rule allows giving up an intact end for a damaged one.
            if isinstance(error, Error) and damage not in (Damage.OWN, Damage.PEER):
                is_resolved = await self._resync.resolve(error)
        except OSError as disk_error:
            self._log_problem(addr, disk_error)
        if not is_resolved:
            self.failures.advance(self.failures.value + 1)
        return is_resolved

    async def _find_damage(self, addr: str, error: Error | OSError) -> Damage:
        """Return whether two logs only differ because the end of one is damaged; compare once per master and end."""
        if not isinstance(error, DivergedHistoryError) or isinstance(error, BeyondBoundaryError):
            return Damage.NONE
        key = addr, self._store.max_physical_offset
        if self._compared is None or self._compared[0] != key:
            self._compared = (
                key,
                await self._torn_end.compare([PeerLog(addr, key[1], self._promises is not None)]),
            )
            return self._compared[1]
        # This end was repaired before: if it differs again, the reason is not damage.
        return Damage.NONE if self._compared[1] is Damage.OWN else self._compared[1]

    async def _connect_and_adopt(self, addr: str) -> None:
        try:
            await self._connect(addr)
        except EqualHistoryError:
            await self._resync.adopt()
            raise

    async def _connect(self, addr: str) -> None:
        # Checked before this slave asks the master for more than its log can take, or reports a damaged end.
        self._store.health.check()
        knows_epochs = self._knows_epochs is not None and await self._knows_epochs()
        transport = await self._dial(addr)
        try:
            await self._exchange_epochs(transport, addr if knows_epochs else None)
            await self._begin_check()
            self._connected_since_ms = self._wall_clock.now_ms()
            self._local_addr = transport.local_addr
            self.answers = answer_seal(transport)
            if self._level_clock is not None:
                self._level_clock.begin()
            self.connected.advance(self.connected.value + 1)
            logger.info(
                "connected master=%s offset=%d ask_from=%d",
                addr, self._store.max_physical_offset, self._position(),
            )  # fmt: skip
            await self._replicate(transport)
        finally:
            self._local_addr = self.answers = None
            await transport.aclose()

    async def _exchange_epochs(self, transport: Transport, addr: str | None) -> None:
        store = self._store
        if addr is None or not store.epochs.member:
            # The bytes that follow belong to no known epoch.
            self._promises = self.greeted_end = None
            await store.epochs.forget()
            store.read_gate.set_reported(EVERYTHING)
            return
        # Before the greeting: a later promise to another broker is not in
        # it, and ends this connection at the next report.
        self._promises = store.epochs.promises
        greeting = greeting_of(store, broker_id=self._broker_id(), address=self._own_addr)
        welcome = await ask_welcome(transport, greeting)
        self.greeted_end = welcome.end
        await self._resync.take_welcome(welcome, addr)

    async def _begin_check(self) -> None:
        self._has_taken = False
        self._verified = trio.Event()
        self._check = check = self._resync.begin()
        # Now, while no byte has come: a byte of an epoch is not stored before the line of that epoch is on this disk.
        if check.is_complete:
            await self._resync.adopt()
            self._end_check()
        elif self.state is HAClientState.CONNECTING:
            self.state = HAClientState.VERIFYING

    def _end_check(self) -> None:
        # From here on the end of the log is reported; until then only what was compared.
        self._check = None
        self._verified.set()
        self.state = HAClientState.FOLLOWING
        self.followed.advance(self.followed.value + 1)

    async def _replicate(self, transport: Transport) -> None:
        if not self._reports_flushed:
            await self._report(transport)
            await self._transfer(transport)
            return
        # The first report after the comparison covers the whole log, so all of it must be on the disk.
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
        """Report whenever the disk has more, and send heartbeats with the last value while the disk is busy."""
        try:
            while True:
                with trio.move_on_at(self._last_report_time + self._config.send_heartbeat_interval):
                    await self._verified.wait()
                    await self._store.flushed.wait_past(self._reported)
                await self._report(transport)
        except Error as error:
            self._report_error = error
            scope.cancel()

    async def _transfer(self, transport: Transport) -> None:
        config, store = self._config, self._store
        decoder = TransferDecoder(confirms=self._promises is not None)
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
                raise NotReachableError(
                    "The master closed the connection",
                    broker_addr=transport.remote_addr,
                    remedy="If this repeats, the master's log says why",
                )
            last_read_time = self._last_read_time = trio.current_time()
            for part in decoder.feed(self._buffer[:received]):
                self._take(part, transport.remote_addr)
            has_more = self._check is None and self._position() > self._reported
            if self._reports_flushed:
                store.flush_soon()
            elif has_more or last_read_time >= report_time:
                await self._report(transport)

    def _take(self, part: TransferPart, master: str) -> None:
        """Compare a part of a transfer, append it, or compare its beginning and append the rest."""
        if part.confirmed == ASK_AGAIN:
            raise AskAgainError("The master has other epochs now")
        check = self._check
        if check is None:
            self._append(part, master)
            self._follow_gate(part)
            return
        if part.physical_offset != check.position:
            raise self._resync.misplaced(check, part.physical_offset, master)
        if part.is_heartbeat:
            check.heartbeats += 1
            if check.heartbeats == SILENT_HEARTBEATS:
                self._wait_for_more(check, master)
            return
        check.heartbeats = 0
        _check_fits_file(part, self._store.config.mapped_file_size_commit_log, master)
        taken = check.compare(part.body)
        if check.difference is not None:
            raise self._resync.diverged(check, master)
        if check.is_complete:
            # The rest of this part may be of an epoch whose line is not on this disk
            # yet. The next connection begins with the line.
            if self._resync.must_adopt:
                raise EqualHistoryError(
                    "Both logs are equal: this slave adopts the master's epochs"
                )
            self._end_check()
            rest = attrs.evolve(part, physical_offset=check.position, body=part.body[taken:])
            self._append(rest, master)
            self._follow_gate(part)

    def _follow_gate(self, part: TransferPart) -> None:
        """Move this slave's read gate to where the master's is."""
        if part.confirmed is not None and part.confirmed != self._store.read_gate.end.value:
            self._store.read_gate.set_reported(part.confirmed)

    def _wait_for_more(self, check: HistoryCheck, master: str) -> None:
        problem = self._resync.nothing_more(check, master)
        if not isinstance(problem, AheadOfMasterError):
            raise problem
        # The master may get its end back, or write something else: then the next bytes differ.
        self._log_problem(master, problem, "waiting for the master")
        self.state = HAClientState.AHEAD

    def _append(self, part: TransferPart, master: str) -> None:
        store = self._store
        # A service may have found damage since the last part: nothing is appended behind it.
        store.health.check()
        end = store.max_physical_offset
        # An empty log may begin at any address; after that each byte has one place.
        if end and part.physical_offset != end:
            if not self._has_taken:
                check = HistoryCheck(store.commit_log, end)
                raise self._resync.misplaced(check, part.physical_offset, master)
            raise HistoryMismatchError(
                f"The master sends from {part.physical_offset}, this slave's log ends at {end}",
                broker_addr=master,
            )
        size = len(part.body)
        if size:
            _check_fits_file(part, store.config.mapped_file_size_commit_log, master)
            # Only there a record must begin: a transfer ends anywhere, and the
            # next one continues in the middle of a record.
            if store.dispatched.value == end or not end:
                _check_is_record(part, master)
            try:
                store.append_raw(part.physical_offset, part.body)
            except OSError as error:
                raise NoRoomError(
                    f"The log in {store.directory.root} cannot take what the master sends: {error}",
                    broker_addr=master,
                ) from error
            self._bytes_received += size
        self._master_offset = part.transfer_end
        self._has_taken = True
        if self._level_clock is not None and part.physical_offset + size == part.transfer_end:
            self._level_clock.took(part.transfer_end - part.transfer_start, part.transfer_end)
        # A complete comparison does not show that the bytes after it can be appended.
        if size or part.is_heartbeat or isinstance(self.problem, NotReachableError | None):
            self._transfers_taken += 1
            if self.problem is not None:
                logger.info(
                    "replication continues master=%s offset=%d", master, part.physical_offset
                )
                self.problem = None

    def _position(self) -> int:
        """Return the offset that may be reported.

        That is what was compared so far, then the end of the log, or of what the disk has of it.
        """
        store, check = self._store, self._check
        end = store.flushed.value if self._reports_flushed else store.max_physical_offset
        return end if check is None else min(end, check.position)

    async def _report(self, transport: Transport) -> None:
        """Report how far the log goes, and wait until the report is sent."""
        store = self._store
        # A report tells the master that it may answer producers: none for a log that turned out to be damaged.
        store.health.check()
        if self._promises is not None and self._promises != store.epochs.promises:
            raise AskAgainError("Another broker opens an epoch: the master must be informed first")
        self._reported = self._position()
        report = encode_report(self._reported)
        # Send without waiting if possible: a producer may wait for this report, and a wait lets queues be built first.
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

    def _log_problem(
        self, addr: str, error: Error | OSError, what: str = "replication interrupted, will retry"
    ) -> None:
        """Log the first of several equal problems in a row as a warning, and the others at debug level."""
        is_new = self.problem is None or str(self.problem) != str(error)
        self.problem = error
        logger.log(
            logging.WARNING if is_new else logging.DEBUG,
            "replication waits what=%s master=%s offset=%d reason=%s",
            what, addr, self._store.max_physical_offset, error,
        )  # fmt: skip


def _age(time: float | None) -> float | None:
    return None if time is None else trio.current_time() - time


def _check_fits_file(part: TransferPart, file_size: int, master: str) -> None:
    """Check that a transfer lies within one file of this size. Raises FileSizeMismatchError.

    It lies within one file of the master's, so it does if the sizes are equal.
    """
    if part.transfer_start // file_size != (part.transfer_end - 1) // file_size:
        raise FileSizeMismatchError(
            f"A transfer from {part.transfer_start} to {part.transfer_end} crosses the end of"
            f" a commit-log file of {file_size} bytes",
            broker_addr=master,
        )


def _check_is_record(part: TransferPart, master: str) -> None:
    """Check that the first bytes, where a record must begin, begin one or the padding at a file's end.

    Raises NoRecordError.
    """
    if len(part.body) < SIZE_AND_MAGIC.size:
        return
    size, magic = SIZE_AND_MAGIC.unpack_from(part.body)
    smallest = PADDING_HEAD_SIZE if magic == MAGIC_PADDING else RECORD_OVERHEAD
    if magic not in (*MAGICS, MAGIC_PADDING) or size < smallest:
        raise NoRecordError(
            f"The master sends no record for {part.physical_offset}, but one of size {size}"
            f" and magic {magic & 0xFFFFFFFF:#x}",
            broker_addr=master,
        )
