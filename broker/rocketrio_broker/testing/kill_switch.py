"""Simulates kill -9 for one broker inside a process: after `kill` the broker reaches neither disk nor network.

Clean-up code still runs, because it is cancelled, but everything that it writes, syncs, sends or dials is lost. What
remains is what kill -9 leaves: the page cache with everything written before.

Invariant: after `kill` no byte is sent, and no file changes.
"""

import mmap
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from rocketrio_broker.store.disk import Buffer, Disk, DiskFile, Lock
from rocketrio_broker.testing.memory_disk import MemoryDisk, MemoryFile, MemoryOpenFile
from rocketrio_protocol.errors import ClosedError, NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import CONNECT_TIMEOUT, Dial, Listen, Listener, Transport

Result = TypeVar("Result")
Arguments = TypeVarTuple("Arguments")


class KillSwitch:
    """A switch that can be turned off once, for good."""

    def __init__(self) -> None:
        self.is_killed = False
        self.mapped: list[MemoryFile] = []

    def kill(self) -> None:
        """Let nothing out from now on."""
        self.is_killed = True
        # A mapping is memory, which nothing holds back: what is written there from now on belongs to no file.
        for file in self.mapped:
            file.unmap()

    def disk(self, disk: Disk) -> Disk:
        """Return the disk behind this switch."""
        return _SwitchedDisk(disk, self)

    def dial(self, dial: Dial) -> Dial:
        """Return the dial function behind this switch."""

        async def switched(addr: str, *, timeout: float = CONNECT_TIMEOUT) -> Transport:
            if self.is_killed:
                raise NotReachableError("The process was killed", broker_addr=addr)
            return _SwitchedTransport(await dial(addr, timeout=timeout), self)

        return switched

    def listen(self, listen: Listen) -> Listen:
        """Return the listen function behind this switch."""

        async def switched(addr: str) -> Listener:
            return _SwitchedListener(await listen(addr), self)

        return switched


class _SwitchedTransport:
    def __init__(self, transport: Transport, switch: KillSwitch) -> None:
        self.local_addr = transport.local_addr
        self.remote_addr = transport.remote_addr
        self._transport = transport
        self._switch = switch

    async def receive_into(self, buffer: memoryview) -> int:
        return await self._transport.receive_into(buffer)

    def send_nowait(self, data: Body) -> int:
        self._check()
        return self._transport.send_nowait(data)

    async def send_all(self, data: Body) -> None:
        self._check()
        await self._transport.send_all(data)

    async def aclose(self) -> None:
        await self._transport.aclose()

    def _check(self) -> None:
        if self._switch.is_killed:
            raise NotReachableError("The process was killed", broker_addr=self.remote_addr)


class _SwitchedListener:
    def __init__(self, listener: Listener, switch: KillSwitch) -> None:
        self.addr = listener.addr
        self._listener = listener
        self._switch = switch

    async def accept(self) -> Transport:
        transport = await self._listener.accept()
        if self._switch.is_killed:
            await transport.aclose()
            raise ClosedError("The process was killed")
        return _SwitchedTransport(transport, self._switch)

    def close(self) -> None:
        self._listener.close()


class _SwitchedFile:
    """A file whose content no longer changes after the kill."""

    def __init__(self, file: DiskFile, switch: KillSwitch) -> None:
        self._file = file
        self._switch = switch
        self.pread = file.pread
        self.forget_pages = file.forget_pages
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def map(self) -> mmap.mmap:
        mapping = self._file.map()
        if isinstance(self._file, MemoryOpenFile):
            if self._switch.is_killed:
                self._file.file.unmap()
            else:
                self._switch.mapped.append(self._file.file)
        return mapping

    def pwrite(self, data: Buffer, offset: int) -> None:
        if not self._switch.is_killed:
            self._file.pwrite(data, offset)

    def truncate(self, size: int) -> None:
        if not self._switch.is_killed:
            self._file.truncate(size)

    def clear_from(self, offset: int) -> None:
        if not self._switch.is_killed:
            self._file.clear_from(offset)

    def reserve(self, offset: int, size: int) -> None:
        if not self._switch.is_killed:
            self._file.reserve(offset, size)

    def fdatasync(self) -> None:
        if not self._switch.is_killed:
            self._file.fdatasync()


class _SwitchedDisk:
    """A disk whose files and names no longer change after the kill."""

    def __init__(self, disk: Disk, switch: KillSwitch) -> None:
        self._disk = disk
        self._switch = switch
        self.exists = disk.exists
        self.list_directory = disk.list_directory
        self.links_in = disk.links_in
        self.is_open_to_others = disk.is_open_to_others
        self.is_directory = disk.is_directory
        self.used_ratio = disk.used_ratio
        self.capacity = disk.capacity
        self.physical_memory = disk.physical_memory
        self.boot_id = disk.boot_id

    async def run(self, work: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
        return await self._disk.run(work, *arguments)

    def open(self, path: Path, *, create: bool = False) -> DiskFile:
        if self._switch.is_killed and not self._disk.exists(path):
            if not create:
                raise FileNotFoundError(path)
            return MemoryOpenFile(MemoryFile(), MemoryDisk())  # Only the killed broker uses it.
        return _SwitchedFile(self._disk.open(path, create=create), self._switch)

    def lock(self, path: Path) -> Lock:
        return self._disk.lock(path)

    def make_directory(self, path: Path) -> None:
        if not self._switch.is_killed:
            self._disk.make_directory(path)

    def sync_directory(self, path: Path) -> None:
        if not self._switch.is_killed:
            self._disk.sync_directory(path)

    def sync_tree(self, path: Path) -> None:
        if not self._switch.is_killed:
            self._disk.sync_tree(path)

    def unlink(self, path: Path) -> None:
        if not self._switch.is_killed:
            self._disk.unlink(path)

    def remove_directory(self, path: Path) -> None:
        if not self._switch.is_killed:
            self._disk.remove_directory(path)

    def rename(self, old: Path, new: Path) -> None:
        if not self._switch.is_killed:
            self._disk.rename(old, new)
