"""Records which broker wrote which part of the log: one line per epoch, in a small file that Apache's brokers ignore.

    rocketrioEpochs     <crc32> {"member": "9f...", "highest": 3, "whole_above": 0, ...}       this directory
                        <crc32> {"number": 2, "id": "c4...", "start": 0, ...}                  epochs, oldest first
                        <crc32> {"number": 3, "id": "07...", "start": 8192, ...}

An epoch ends where the next one begins, the last one at the log's end. Bytes before the first line belong to no known
epoch: the directory is older than this file, or an Apache broker wrote them. Lines may begin after the log's end: a
power cut lost the bytes, or a slave has not received them yet.

The file is small and always written whole: a temporary file is written, synced and renamed, and the folder synced. So
after a crash at any step it is the old file or the new one, never a part. A line with a wrong checksum makes all lines
before it unknown; the first line says how many there are.

Invariant: an epoch's line is on the disk before the epoch's first byte is written here or stored by a slave.
Invariant: a slave's name is on the disk before its reports count in an epoch that waits for slaves.
Invariant: what a member promised or lost is on the disk before other brokers are informed of it.
Answers to: EpochFileCache of Apache's controller mode, which has no ids and no members.
"""

import logging
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import msgspec
import trio

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.ha.exchange import EPOCHS_LIMIT, Epoch

_LOG: Final = logging.getLogger("rocketrio_broker.store")

EPOCH_FILE: Final = "rocketrioEpochs"
SYNC: Final = "sync"

ANONYMOUS: Final = ""
"""The name used for slaves that do not identify themselves: Apache's."""

JOINED_LIMIT: Final = 256
"""The most slave names in one epoch's line; later slaves count without a name. Each costs a synced write."""


class Directory(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of the file: the state of the data directory."""

    member: str = ""
    """Its permanent random name."""
    highest: int = 0
    """The greatest epoch number that it has received, or promised so that it notices masters of older epochs."""
    whole_above: int = 0
    """Of epochs up to this number it may have lost what it had reported."""
    boot: str = ""
    """The boot id of the machine when the directory was last open."""
    reports_disk: bool = False
    """Whether it then reported what was on its disk."""
    closed_at: int | None = None
    """The log's end when it was closed cleanly; None while it is open."""
    lines: int | None = None
    """How many epochs the file names after this; None in a file of an older version."""
    epochs: tuple[Epoch, ...] = ()


class Epochs:
    """The epochs of one store, and their file."""

    def __init__(self, root: Path, log: CommitLog, *, disk: Disk) -> None:
        self.changes = Watermark()
        """Counts the changes of the lines that slaves must be notified of."""
        self.promises = 0
        """Counts the promises; after each one a slave queries its master again."""
        self._path = root / EPOCH_FILE
        self._temporary = self._path.with_name(EPOCH_FILE + ".tmp")
        self._log = log
        self._disk = disk
        self._directory = Directory()
        self._turn = trio.Lock()

    def __repr__(self) -> str:
        return f"<Epochs of {self.member or 'a nameless directory'}: {len(self.lines)}>"

    @property
    def member(self) -> str:
        """The name of this directory; empty before `begin`, or if its disk cannot store one."""
        return self._directory.member

    @property
    def lines(self) -> tuple[Epoch, ...]:
        """The epochs, oldest first."""
        return self._directory.epochs

    @property
    def highest(self) -> int:
        """The greatest epoch number known here."""
        return self._directory.highest

    @property
    def whole_above(self) -> int:
        """Of epochs up to this number, data that was reported may be lost here."""
        return self._directory.whole_above

    @property
    def end_of_own(self) -> int:
        """The address from which on another broker wrote the log; its end, if this one did or no epoch is known."""
        starts = [self._log.max_offset]
        for line in reversed(self.lines):
            if line.member == self.member:
                break
            starts.append(line.start)
        return min(starts)

    def to_send(self) -> list[Epoch]:
        """Return the lines as they are sent to other brokers, without the names of slaves."""
        return [msgspec.structs.replace(line, joined={}) for line in self.lines]

    def load(self) -> None:
        """Read the file; log lines that cannot be read and treat them as unknown. Blocks."""
        if not self._disk.exists(self._path):
            return
        file = self._disk.open(self._path)
        try:
            data = file.pread(file.size, 0)
        finally:
            file.close()
        self._directory, damaged = _decoded(data)
        if damaged:
            _LOG.warning(
                "epochs damaged file=%s lines=%s known=%d",
                self._path, ",".join(map(str, damaged)), len(self.lines),
            )  # fmt: skip

    # --- changes: each returns once the change is on the disk, and raises OSError -----------------

    async def begin(self, *, new_name: Callable[[], str], reports_disk: bool) -> None:
        """Name the directory at the broker's start, and record what it may have lost since it was last open."""
        boot, end = self._disk.boot_id(), self._log.max_offset

        def begun(now: Directory) -> Directory:
            epochs, whole_above = now.epochs, now.whole_above
            if now.closed_at is not None and end != now.closed_at:
                _LOG.warning(
                    "epochs forgotten closed_at=%d end=%d",
                    now.closed_at, end,
                )  # fmt: skip
                epochs, whole_above = (), now.highest
            is_same_boot = bool(boot) and boot == now.boot
            if now.closed_at is None and not is_same_boot and not now.reports_disk:
                whole_above = now.highest
            return msgspec.structs.replace(
                now,
                member=now.member or new_name(),
                whole_above=whole_above,
                boot=boot,
                reports_disk=reports_disk,
                closed_at=None,
                epochs=epochs,
            )

        await self._change(begun)

    async def close(self) -> None:
        """Record that the store was closed cleanly, with its log synced."""
        if self.member:
            end = self._log.max_offset
            await self._change(lambda now: msgspec.structs.replace(now, closed_at=end))

    async def open(self, epoch: Epoch) -> None:
        """Begin this epoch at the log's end; later writes belong to it. Lines that begin there or after are removed."""
        assert epoch.start == self._log.max_offset

        def opened(now: Directory) -> Directory:
            before = [line for line in now.epochs if line.start < epoch.start]
            return _with(now, [*before, epoch])

        await self._change(opened, is_news=True)

    async def adopt(self, lines: Sequence[Epoch]) -> None:
        """Follow a log of these epochs; keep what is known here of older ones.

        Of an own epoch that is not known here the slaves are not known either: this log had lost its bytes, or the
        file its line, and another broker has it.
        """

        def adopted(now: Directory) -> Directory:
            known = {line.key: line for line in now.epochs}
            for line in lines:
                if line.member == now.member and line.key not in known:
                    known[line.key] = msgspec.structs.replace(line, joined={ANONYMOUS: line.number})
            keys = [line.key for line in now.epochs]
            older = keys.index(lines[0].key) if lines and lines[0].key in keys else 0
            adopted = (known.get(line.key, line) for line in lines)
            return _with(now, [*now.epochs[:older], *adopted])

        before = [line.key for line in self.lines]
        if before != [line.key for line in adopted(self._directory).epochs]:
            await self._change(adopted, is_news=True)

    async def cut(self, end: int, count: int | None = None) -> None:
        """Remove lines that begin at or after `end`, where the log was cut, and all but the first `count` lines."""

        def cut(now: Directory) -> Directory:
            kept = now.epochs if count is None else now.epochs[:count]
            return _with(now, [line for line in kept if line.start < end])

        await self._change(cut, is_news=True)

    async def forget(self) -> None:
        """Remove all lines: the log continues with bytes of no known epoch, or from its beginning."""
        if self.lines:
            await self._change(lambda now: msgspec.structs.replace(now, epochs=()), is_news=True)

    async def join(self, member: str, highest: int) -> None:
        """Let reports of this slave count for what the last epoch here writes."""

        def joined(line: Epoch) -> Epoch:
            nonlocal member
            if member not in line.joined and len(line.joined) >= JOINED_LIMIT:
                member = ANONYMOUS
            if line.joined.get(member, -1) >= highest:
                return line
            return msgspec.structs.replace(line, joined={**line.joined, member: highest})

        await self._change_own(joined)

    @property
    def notes_early_answers(self) -> bool:
        """Whether an answer that waits for no slave must be recorded first."""
        last = self.lines[-1] if self.lines else None
        return last is not None and last.mode == SYNC and not last.answered_early

    async def note_early_answer(self) -> None:
        """Record that messages may be acknowledged from now on that no slave has."""
        await self._change_own(lambda line: msgspec.structs.replace(line, answered_early=True))

    async def promise(self, number: int) -> None:
        """Record that a broker is about to open an epoch of this number, and has asked for the end of this log."""
        # At once: no report from before the promise may be sent after the answer.
        self.promises += 1
        await self._change(
            lambda now: msgspec.structs.replace(now, highest=max(now.highest, number))
        )

    async def lose(self) -> None:
        """Record that data reported here may be given up."""
        await self._change(lambda now: msgspec.structs.replace(now, whole_above=now.highest))

    # --- the file ----------------------------------------------------------------------------

    async def _change_own(self, change: Callable[[Epoch], Epoch]) -> None:
        """Change the last line, if it is this directory's own and waits for slaves."""

        def changed(now: Directory) -> Directory:
            last = now.epochs[-1] if now.epochs else None
            if last is None or last.mode != SYNC or last.member != now.member:
                return now
            return msgspec.structs.replace(now, epochs=(*now.epochs[:-1], change(last)))

        await self._change(changed)

    async def _change(
        self, change: Callable[[Directory], Directory], *, is_news: bool = False
    ) -> None:
        async with self._turn:
            after = change(self._directory)
            if after == self._directory:
                return
            after = self._without_deleted(after)
            # The file and the state in memory change together, even if the caller is cancelled.
            with trio.CancelScope(shield=True):
                await self._disk.run(self._write, _encoded(after))
            # Not before the file is written: from here on other brokers learn of it.
            self._directory = after
        if is_news:
            self.changes.advance(self.changes.value + 1)

    def _without_deleted(self, directory: Directory) -> Directory:
        """Return `directory` without lines whose bytes are deleted from the log, and without excess old lines."""
        epochs, first = directory.epochs, self._log.min_offset
        while len(epochs) > 1 and (epochs[1].start <= first or len(epochs) > EPOCHS_LIMIT):
            epochs = epochs[1:]
        return msgspec.structs.replace(directory, epochs=epochs)

    def _write(self, data: bytes) -> None:
        disk = self._disk
        file = disk.open(self._temporary, create=True)
        try:
            file.truncate(0)
            file.pwrite(data, 0)
            # Before the rename: a power cut must not leave the new name with a part of the lines.
            file.fdatasync()
        finally:
            file.close()
        disk.rename(self._temporary, self._path)
        disk.sync_directory(self._path.parent)


def _with(directory: Directory, lines: Iterable[Epoch]) -> Directory:
    epochs = tuple(lines)
    highest = max((directory.highest, *(line.number for line in epochs)))
    return msgspec.structs.replace(directory, epochs=epochs, highest=highest)


def _encoded(directory: Directory) -> bytes:
    head = msgspec.structs.replace(directory, lines=len(directory.epochs), epochs=())
    return b"".join(
        b"%08x %s\n" % (zlib.crc32(text), text)
        for text in map(msgspec.json.encode, (head, *directory.epochs))
    )


def _decoded(data: bytes) -> tuple[Directory, list[int]]:
    """Return the content of the file, and the numbers of the lines that cannot be read, or of the last one missing."""
    head, lines, damaged = Directory(), list[Epoch](), list[int]()
    texts = data.splitlines()
    for number, line in enumerate(texts):
        checksum, _, text = line.partition(b" ")
        try:
            if int(checksum, 16) != zlib.crc32(text):
                raise ValueError
            if number == 0:
                head = msgspec.json.decode(text, type=Directory)
            else:
                lines.append(msgspec.json.decode(text, type=Epoch))
        except (ValueError, msgspec.MsgspecError):
            damaged.append(number + 1)
            # The epoch of the lost line's bytes is unknown, and so is where the epochs before it end.
            lines.clear()
    if head.lines is not None and len(texts) <= head.lines:
        damaged.append(head.lines + 1)
    if damaged:
        highest = max((head.highest, *(line.number for line in lines)))
        if damaged[-1] >= len(texts):
            lines.clear()
        head = msgspec.structs.replace(head, highest=highest, whole_above=highest)
    return msgspec.structs.replace(head, epochs=tuple(lines)), damaged
