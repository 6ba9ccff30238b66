"""Remembers how far each slave has acknowledged this log: what was promised to producers for its sake is not given up.

    rocketrioAcknowledged   <crc32> {"9f...": [53090, "10.0.0.11:10911"], ...}    two places of 4096 bytes, used in turn

A report is noted here before it counts, in a mapping of the file: it outlives the process at once, and a power cut
after `SYNC_PERIOD`, or the next start. One place is written while the other is synced, so one of them is always whole.

A slave's own word is not enough: its directory may be an older copy, which knows nothing of what it acknowledged since.
Bytes are only given up if what the slaves say (`Epoch.covers`) and what is noted here both allow it (ha/epochs.py).

Invariant: a slave that is not named here, because a power cut came first or the file was lost, may have had everything.
Invariant: no noted address lies beyond the address at which this broker last began an epoch, and what it wrote since.
Answers to: nothing; Java's master forgets what its slaves had when it ends.
"""

import logging
import zlib
from pathlib import Path
from typing import Final

import msgspec
import trio

from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.epochs import ANONYMOUS
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_broker.waiting.watermark import Watermark

_LOG: Final = logging.getLogger("rocketrio_broker.store")

ACKNOWLEDGED_FILE: Final = "rocketrioAcknowledged"

SYNC_PERIOD: Final = 1.0
"""Seconds between two syncs while slaves acknowledge more."""

_PLACE_SIZE: Final = 4096  # some 80 slaves; a page, so that no write waits for the other place, which is being synced
_PLACES: Final = 2
_ADDRESS_DIGITS: Final = 20


class Acknowledgement(msgspec.Struct, frozen=True, array_like=True):
    """How far one slave has acknowledged the log."""

    address: int
    """It had everything before this address."""
    broker: str = ""
    """Where it answers requests; empty if it did not say so."""


_Slaves = dict[str, Acknowledgement]
_DECODER: Final = msgspec.json.Decoder(_Slaves)


class Acknowledged:
    """The greatest address that each slave of one store has acknowledged, and their file."""

    def __init__(self, root: Path, *, disk: Disk) -> None:
        self.slaves: _Slaves = {}
        """By the name of the slave's directory; the empty name stands for all slaves that are not named here."""
        self.shown = 0
        """Readers were shown the log up to here before the start, says its last checkpoint; 0 if it does not say."""
        self._path = root / ACKNOWLEDGED_FILE
        self._disk = disk
        self._file: MappedFile | None = None
        self._begun_at = 0
        self._place = 0
        """The place that is written, and not being synced."""
        self._writes = Watermark()
        """Counts the writes to the file."""
        self._synced_writes = 0

    def __repr__(self) -> str:
        return f"<Acknowledged by {len(self.slaves)} slaves>"

    def load(self) -> None:
        """Read the file; log it if nothing of it can be read. Blocks."""
        if not self._disk.exists(self._path):
            return
        file = self._disk.open(self._path)
        try:
            places = [file.pread(_PLACE_SIZE, at * _PLACE_SIZE) for at in range(_PLACES)]
            # A killed process may have left it to the kernel; what is relied on from now on survives a power cut.
            file.fdatasync()
        finally:
            file.close()
        found = [slaves for slaves in map(_decoded, places) if slaves is not None]
        if not found:
            _LOG.warning("acknowledged addresses damaged file=%s", self._path)
        # From both places: one of them may have been cut short while it was written.
        for slaves in found:
            for name, one in slaves.items():
                if name not in self.slaves or self.slaves[name].address < one.address:
                    self.slaves[name] = one

    async def begin_at(self, start: int) -> None:
        """Prepare for an epoch that begins at `start`: what was acknowledged beyond it is not in the log any more.

        Raises OSError. Until the first epoch that waits for slaves nothing is noted.
        """
        self._begun_at, self.shown = start, min(self.shown, start)
        for name, one in self.slaves.items():
            self.slaves[name] = Acknowledgement(min(one.address, start), one.broker)
        if self._file is None:
            self._file = await self._disk.run(self._opened)
        for place in range(_PLACES):
            self._write(place)
        await self._disk.run(self._file.flush)

    def join(self, slave: str, broker: str) -> None:
        """Know a slave from now on; `broker` is where it answers requests, empty if it did not say so.

        A slave that is new here may have had everything of earlier epochs: its name may have been lost.
        """
        unnamed = self.slaves.get(ANONYMOUS, Acknowledgement(0))
        new = Acknowledgement(max(unnamed.address, self._begun_at))
        known = self.slaves.get(slave, new)
        self.slaves[slave] = Acknowledgement(known.address, broker)
        self._make_room(slave)
        self._write(self._place)

    def note(self, slave: str, address: int) -> None:
        """Note that a slave has acknowledged everything before this address."""
        name = slave if slave in self.slaves else ANONYMOUS
        known = self.slaves.get(name)
        if known is not None and known.address < address:
            self.slaves[name] = Acknowledgement(address, known.broker)
            self._write(self._place)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sync what is noted."""
        task_status.started()
        while True:
            await self._writes.wait_past(self._synced_writes)
            await self.sync()
            await trio.sleep(SYNC_PERIOD)

    async def sync(self) -> None:
        """Return once all that is noted survives a power cut. Raises OSError."""
        if self._writes.value > self._synced_writes and self._file is not None:
            self._synced_writes = self._writes.value
            # The other place first: what comes during the sync is written there,
            # and the place that is being synced stays whole.
            self._place = (self._place + 1) % _PLACES
            await self._disk.run(self._file.flush)

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()

    def _make_room(self, slave: str) -> None:
        """Count other slaves than this one as unnamed if there are too many, those first that had least."""
        slaves = self.slaves
        while len(_encoded(slaves)) + _ADDRESS_DIGITS * len(slaves) > _PLACE_SIZE:
            others = slaves.keys() - {ANONYMOUS, slave}
            name = min(others, key=lambda name: slaves[name].address)
            unnamed = slaves.get(ANONYMOUS, Acknowledgement(0))
            # The greater address: what a slave had acknowledged counts when its name is dropped, too.
            address = max(unnamed.address, slaves.pop(name).address)
            slaves[ANONYMOUS] = Acknowledgement(address)

    # --- the file ----------------------------------------------------------------------------

    def _opened(self) -> MappedFile:
        """Open the file; make it if it is not there, or damaged. Blocks."""
        disk, size = self._disk, _PLACES * _PLACE_SIZE
        is_new = not disk.exists(self._path)
        if not is_new:
            found = disk.open(self._path)
            is_new = found.size != size
            found.close()
        file = MappedFile(disk, self._path, size, 0, create=is_new)
        file.reserve(size)
        if is_new:
            disk.sync_directory(self._path.parent)
        return file

    def _write(self, place: int) -> None:
        if self._file is not None:
            line, at = _encoded(self.slaves), place * _PLACE_SIZE
            self._file.mapping[at : at + len(line)] = line
            self._writes.advance(self._writes.value + 1)


def _encoded(slaves: _Slaves) -> bytes:
    text = msgspec.json.encode(slaves)
    return b"%08x %s\n" % (zlib.crc32(text), text)


def _decoded(data: bytes) -> _Slaves | None:
    """Return the content of one place, None if it was not written whole."""
    checksum, _, text = data.partition(b"\n")[0].partition(b" ")
    try:
        return _DECODER.decode(text) if int(checksum, 16) == zlib.crc32(text) else None
    except (ValueError, msgspec.MsgspecError):
        return None
