"""Checks the whole log, and the queues against it, in pieces, to find what a disk changed before it is needed.

    log      each record: its lengths, magic and stored address, and the checksum of its body
    queues   each entry points to the beginning of a record with the same topic, queue and queue offset, and an entry
             points to each record that consumers should see

Both are read side by side, in the order of the log. After a record with wrong lengths the check continues at the next
address where a record begins. Records without an entry are counted for each queue and reported at the end: if the
topic's deletion follows, or its queue begins again at 0, they belong to a topic that is gone.

Invariant: a piece is read in a worker thread; its entries are checked between two turns of the event loop.
Invariant: only what is dispatched is checked, and nothing is changed.
Invariant: memory is one number for each queue, one piece, and `MISSING_LIMIT` queues that lack entries.
Answers to: nothing in Java, which checks bodies only when it recovers after a crash.
"""

import heapq
from collections.abc import Callable
from hashlib import blake2b
from typing import Final

import attrs
import trio

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import can_have_folder
from rocketrio_broker.store.deletion import deletion_in
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import has_queue_entry
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.record.decode import RecordStatus, possible_records, scan_record

PIECE: Final = 256 << 10
"""Bytes of the log that are checked at a time: some milliseconds of a worker thread."""

TURN_ENTRIES: Final = 256
"""Entries, or queues, that are checked before other tasks get a turn."""


MISSING_LIMIT: Final = 1_000
"""The most queues for which records without an entry are counted; those of further queues are one problem."""


@attrs.frozen
class LogFault:
    """A problem that was found, and its address."""

    physical_offset: int
    problem: str


Record = tuple[int, str, int, int]
"""(size, topic, queue id, queue offset)"""


@attrs.frozen
class Piece:
    """The records and problems in a piece of the log."""

    records: dict[int, Record]
    hidden: dict[int, str]
    """Records without an entry, by address: the topic that such a record deletes, or an empty text."""
    findings: list[LogFault]
    end: int
    """The address at which the next piece begins."""


def read_piece(log: CommitLog, start: int, stop: int) -> Piece | None:
    """Read the records from `start` to at most `stop`; return None if that part is deleted. May run in a thread."""
    file = log.files.file_at(start)
    if file is None or start < log.min_offset:
        return None
    limit = min(stop, file.end_offset) - file.start_offset
    at, until = start - file.start_offset, min(limit, start - file.start_offset + PIECE)
    records: dict[int, Record] = {}
    hidden: dict[int, str] = {}
    findings: list[LogFault] = []
    while at < until:
        address = file.start_offset + at
        record = scan_record(file.view, at, limit, check_crc=False)
        if record.status is RecordStatus.PADDING and at + record.size == file.size:
            at = file.size
            continue
        if record.status is RecordStatus.RECORD and record.physical_offset == address:
            records[address] = record.size, record.topic, record.queue_id, record.queue_offset
            if not has_queue_entry(record.sys_flag):
                deletion = deletion_in(record.topic.encode(), record.properties)
                hidden[address] = "" if deletion is None else deletion.topic
            checked = scan_record(file.view, at, limit)
            if checked.status is not RecordStatus.RECORD:
                findings.append(LogFault(address, checked.problem))
            at += record.size
            continue
        if record.status is RecordStatus.RECORD:
            problem = f"the record there says it lies at {record.physical_offset}"
        else:
            problem = record.problem or "no record begins there"
        findings.append(LogFault(address, problem))
        at = _next_record(file, at + 1, limit)
    return Piece(records, hidden, findings, file.start_offset + at)


def _next_record(file: MappedFile, at: int, limit: int) -> int:
    """Return where the next record begins after one that cannot be read, or the end if none does."""
    for place in possible_records(file.mapping, at, limit):
        record = scan_record(file.view, place, limit, check_crc=False)
        is_whole = record.status is RecordStatus.RECORD
        if is_whole and record.physical_offset == file.start_offset + place:
            return place
    return limit


def digest(log: CommitLog, start: int, end: int) -> str | None:
    """Return a digest of the log between two addresses; None if a part is missing. May run in a thread."""
    hashed = blake2b(digest_size=16)
    while start < end:
        block = log.read(start, end - start)
        if block is None:
            return None
        hashed.update(block)
        start += len(block)
    return hashed.hexdigest()


@attrs.define
class _Missing:
    """The records of one queue that no entry points to."""

    address: int
    """The address of the first one."""
    first: int
    last: int
    count: int = 0

    def finding(self, queue_name: str) -> LogFault:
        what = (
            f"message {self.first} of {queue_name} has"
            if self.count == 1
            else f"{self.count:,} messages of {queue_name}, from {self.first} to {self.last}, have"
        )
        return LogFault(self.address, f"{what} no entry, so consumers do not get them")


class LogCheck:
    """One pass over the log, from its first record to the end that it had when the pass began."""

    def __init__(
        self,
        store: MessageStore,
        *,
        disk: Disk,
        topic_exists: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Begin at the log's first record; records of a topic that does not exist need no entry."""
        self.begin = store.min_physical_offset
        # What is not dispatched yet has no entries, which would be reported as lost.
        self.end = store.dispatched.value
        self.position = self.begin
        """Everything before it is checked."""
        self.is_cut = False
        """Whether the log was cut meanwhile, which ends the pass."""
        self._store = store
        self._disk = disk
        self._truncations = store.commit_log.truncations
        # (address of the next entry, its number, topic, queue id): one for each queue, the entry to check next.
        self._next: list[tuple[int, int, str, int]] = []
        self._topic_exists = topic_exists
        self._generation = store.queue_table.generation
        self._missing: dict[tuple[str, int], _Missing] = {}
        self._further: _Missing | None = None
        # Of the current piece: addresses that entries point to, and messages whose entry is reported.
        self._pointed: set[int] = set()
        self._reported: set[tuple[str, int, int]] = set()

    def __repr__(self) -> str:
        return f"<LogCheck {self.begin}..{self.position}..{self.end}>"

    async def start(self) -> None:
        """Find the first entry of each queue."""
        for number, queue in enumerate(list(self._store.queue_table), start=1):
            self._push(queue, queue.min_offset)
            if number % TURN_ENTRIES == 0:
                await trio.lowlevel.checkpoint()

    async def step(self) -> list[LogFault]:
        """Check the next piece; return the problems in it, in order of address."""
        log = self._store.commit_log
        start = max(self.position, log.min_offset)
        piece = await self._disk.run(read_piece, log, start, self.end)
        # The piece was read in a thread: its bytes may be gone, or be those of another record.
        if self._truncations != log.truncations:
            self.is_cut = True
            return []
        if piece is None:  # Deleted meanwhile.
            self.position = max(start, log.min_offset)
            return []
        findings = piece.findings
        self._pointed.clear()
        self._reported.clear()
        while self._next and self._next[0][0] < piece.end:
            _, offset, topic, queue_id = heapq.heappop(self._next)
            queue = self._store.queue_table.by_key.get((topic, queue_id))
            if queue is not None and offset < queue.max_offset:
                findings += self._check_entries(queue, offset, piece)
            await trio.lowlevel.checkpoint()
        self._count_missing(piece)
        self.position = max(self.position, piece.end)
        return sorted(findings, key=lambda finding: finding.physical_offset)

    def finish(self) -> list[LogFault]:
        """Return the queues that lack entries, at the end of a pass, in order of address."""
        queues = self._store.queue_table
        found = []
        for key, missing in self._missing.items():
            queue = queues.by_key.get(key)
            first = None if queue is None else queue.entry(queue.min_offset)
            is_new = first is not None and first[0] >= self.end
            is_deleted = queues.generation != self._generation and (queue is None or is_new)
            if not is_deleted and self._topic_exists(key[0]):
                found.append(missing.finding(_name(key)))
        if self._further is not None:
            found.append(self._further.finding("further queues"))
        return sorted(found, key=lambda finding: finding.physical_offset)

    def _count_missing(self, piece: Piece) -> None:
        """Count the records of a piece that no entry points to."""
        for address, (_, topic, queue_id, queue_offset) in piece.records.items():
            key = (topic, queue_id)
            if address in piece.hidden:
                if deleted := piece.hidden[address]:
                    self._forget(deleted)
            elif address in self._pointed:
                if queue_offset == 0:
                    self._missing.pop(key, None)  # The topic was created again.
            elif (
                address >= self._store.min_physical_offset
                and (*key, queue_offset) not in self._reported
                and can_have_folder(*key)
                and self._topic_exists(topic)
            ):
                self._note_missing(key, address, queue_offset)

    def _note_missing(self, key: tuple[str, int], address: int, queue_offset: int) -> None:
        missing = self._missing.get(key)
        if missing is None:
            missing = _Missing(address, queue_offset, queue_offset)
            if len(self._missing) < MISSING_LIMIT:
                self._missing[key] = missing
            else:
                missing = self._further = self._further or missing
        missing.last = max(missing.last, queue_offset)
        missing.count += 1

    def _forget(self, topic: str) -> None:
        for key in [key for key in self._missing if key[0] == topic]:
            del self._missing[key]

    def _push(self, queue: ConsumeQueue, number: int) -> None:
        # The entries after a lost or short file are checked all the same.
        while (entry := queue.entry(number)) is None:
            number = queue.next_file_offset(number)
            if number >= queue.max_offset:
                return
        # An entry that points too far is reported with the next piece, where the entries after it point.
        address = 0 if self._is_misplaced(queue, number, entry[0]) else entry[0]
        if address < self.end:
            heapq.heappush(self._next, (address, number, *queue.key))

    def _is_misplaced(self, queue: ConsumeQueue, number: int, address: int) -> bool:
        """Return whether an entry points after the one that follows it, or after everything."""
        following = queue.entry(number + 1)
        return address >= self._store.dispatched.value or (
            following is not None and following[1] > 0 and following[0] < address
        )

    def _check_entries(self, queue: ConsumeQueue, number: int, piece: Piece) -> list[LogFault]:
        """Check a queue's entries that point into a piece, in one turn."""
        findings: list[LogFault] = []
        data = queue.entries(number, TURN_ENTRIES)
        for address, size, _ in ENTRY.iter_unpack(data[: len(data) // ENTRY.size * ENTRY.size]):
            is_misplaced = address >= piece.end and self._is_misplaced(queue, number, address)
            if address >= piece.end and not is_misplaced:
                break
            if number >= queue.min_offset and (
                problem := self._problem(queue, number, address, size, piece)
            ):
                findings.append(LogFault(min(address, self.end), problem))
                self._reported.add((*queue.key, number))
            if 0 < size < FILLER_SIZE:
                self._pointed.add(address)
            number += 1
        self._push(queue, number)
        return findings

    def _problem(
        self, queue: ConsumeQueue, number: int, address: int, size: int, piece: Piece
    ) -> str:
        """Return what is wrong with an entry; empty if nothing is, or if zeros are in its place."""
        if size == 0:
            return ""  # Its record has no entry, and is counted with the others of its queue.
        if size == FILLER_SIZE:
            # Fillers before a queue's first message do not stand for messages.
            return f"{_name(queue.key)} lacks its message {number}" if address else ""
        if address < self._store.min_physical_offset:
            return ""
        record = piece.records.get(address)
        if record is None:
            return f"message {number} of {_name(queue.key)} is to lie at {address}, and no record begins there"
        if record[1:] != (*queue.key, number):
            _, topic, queue_id, queue_offset = record
            return (
                f"the record says it is message {queue_offset} of queue {queue_id} of {topic}, and is"
                f" message {number} of {_name(queue.key)}"
            )
        if record[0] != size:
            return f"the record of {_name(queue.key)} has {record[0]} bytes, its entry says {size}"
        return ""


def _name(key: tuple[str, int]) -> str:
    return f"queue {key[1]} of {key[0]}"
