from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from rocketrio_broker.testing.kill_switch import KillSwitch
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.errors import NotReachableError

FOLDER = Path("/data")


def test_disk_stays_as_it_was_when_the_plug_was_pulled() -> None:
    memory, switch = MemoryDisk(), KillSwitch()
    disk = switch.disk(memory)
    disk.make_directory(FOLDER)
    file = disk.open(FOLDER / "kept", create=True)
    file.pwrite(b"before", 0)
    switch.kill()
    file.pwrite(b"after!", 0)
    file.truncate(1)
    file.fdatasync()
    disk.open(FOLDER / "new", create=True).pwrite(b"x", 0)
    disk.unlink(FOLDER / "kept")
    disk.rename(FOLDER / "kept", FOLDER / "renamed")
    assert memory.list_directory(FOLDER) == ["kept"]
    assert memory.open(FOLDER / "kept").pread(100, 0) == b"before"


def test_what_is_written_into_a_mapping_after_the_kill_is_in_no_file() -> None:
    memory, switch = MemoryDisk(), KillSwitch()
    disk = switch.disk(memory)
    disk.make_directory(FOLDER)
    file = disk.open(FOLDER / "index", create=True)
    file.truncate(6)
    mapping = file.map()
    mapping[:6] = b"before"
    switch.kill()
    mapping[:6] = b"after!"
    file.map()[:6] = b"later!"
    assert memory.open(FOLDER / "index").pread(100, 0) == b"before"


async def test_nothing_is_sent_or_dialled_after_the_kill(autojump_clock: MockClock) -> None:
    network, switch = MemoryNetwork(), KillSwitch()
    host = network.host("10.0.0.1")
    listener = await network.host("10.0.0.2").listen("10.0.0.2:1")
    dial = switch.dial(host.dial)
    transport = await dial("10.0.0.2:1")
    theirs = await listener.accept()
    await transport.send_all(b"before")
    buffer = memoryview(bytearray(100))
    assert await theirs.receive_into(buffer) == 6
    switch.kill()
    with pytest.raises(NotReachableError):
        await transport.send_all(b"after")
    with pytest.raises(NotReachableError):
        await dial("10.0.0.2:1")
    with trio.move_on_after(1) as waiting:
        await theirs.receive_into(buffer)
    assert waiting.cancelled_caught
