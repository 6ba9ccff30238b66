"""The file of the role that a broker holds."""

import errno
from pathlib import Path

import attrs
import pytest
from tests.support.failing_disk import FailingDisk
from tests.support.faulty_disk import FaultyDisk

from rocketrio_broker.role.file import FILE_NAME, PendingHandOver, RoleAndId, RoleFile
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_broker.testing.memory_disk import MemoryDisk

DIRECTORY = Path("/data/config")
MASTER = BrokerConfig(role="sync-master")
SLAVE = attrs.evolve(MASTER, role="slave", broker_id=3)


def role_file(disk: MemoryDisk, configured: BrokerConfig = MASTER) -> RoleFile:
    return RoleFile(DIRECTORY, configured=configured, disk=disk)


async def test_held_role_is_applied_at_the_next_start() -> None:
    disk = MemoryDisk()
    assert role_file(disk).apply(MASTER) == MASTER
    await role_file(disk).hold(SLAVE)
    assert role_file(disk).apply(MASTER) == SLAVE
    assert role_file(disk).apply(attrs.evolve(MASTER, trace_on=False)).broker_id == 3


async def test_held_role_outlives_a_power_cut() -> None:
    disk = FaultyDisk()
    await role_file(disk).hold(SLAVE)
    after = disk.after_cut(seed=1, kept=0.0)
    assert role_file(after).apply(MASTER) == SLAVE


async def test_changed_settings_override_the_held_role(caplog: pytest.LogCaptureFixture) -> None:
    disk = MemoryDisk()
    await role_file(disk).hold(SLAVE)
    assert role_file(disk, SLAVE).apply(SLAVE) == SLAVE
    assert not caplog.text
    other = attrs.evolve(MASTER, role="slave", broker_id=5)
    assert role_file(disk, other).apply(other) == other
    assert "settings=slave 5 before=sync-master 0 held=slave 3" in caplog.text


async def test_settings_of_the_last_order_leave_what_came_after_it() -> None:
    disk = MemoryDisk()
    file = role_file(disk)
    await file.hold(SLAVE, is_order=True)  # And the operator writes it into the settings.
    await file.hold(MASTER, taken="t1")  # A hand-over.
    started = role_file(disk, SLAVE)
    assert (started.apply(SLAVE), started.taken) == (MASTER, "t1")
    later = attrs.evolve(MASTER, role="slave", broker_id=4)
    await started.hold(later)
    assert role_file(disk, SLAVE).apply(SLAVE) == later
    assert role_file(disk, MASTER).apply(MASTER) == MASTER  # Changed again, without an order.


async def test_hand_over_that_was_not_over_is_known_at_the_next_start() -> None:
    disk = MemoryDisk()
    pending = PendingHandOver("10.0.0.11:10911", "t1", RoleAndId.of(MASTER))
    await role_file(disk).hold(SLAVE, pending=pending)
    assert role_file(disk).pending == pending
    await role_file(disk).hold(MASTER, taken="t2")
    found = role_file(disk)
    assert (found.pending, found.taken) == (None, "t2")


@pytest.mark.parametrize("content", [b"", b"{", b'{"role":"slave","brokerId":0}', b"[]"])
async def test_unreadable_or_impossible_content_is_ignored(content: bytes) -> None:
    disk = MemoryDisk()
    await role_file(disk).hold(SLAVE)
    for name in (FILE_NAME, FILE_NAME + ".bak"):
        file = disk.open(DIRECTORY / name, create=True)
        file.truncate(0)
        file.pwrite(content, 0)
    assert role_file(disk).apply(MASTER) == MASTER


async def test_role_that_cannot_be_written_is_not_held() -> None:
    file = role_file(FailingDisk("rename"))
    with pytest.raises(ConfigFileError):
        await file.hold(SLAVE)
    assert file.apply(MASTER) == MASTER


async def test_role_is_written_again_after_a_sync_that_failed() -> None:
    disk = FailingDisk(error=errno.EIO)
    file = role_file(disk)
    await file.hold(MASTER, taken="t1")
    disk.fails_at = "sync_directory"  # After the file has its new content.
    with pytest.raises(ConfigFileError):
        await file.hold(SLAVE, taken="t1")
    disk.fails_at = ""
    await file.hold(MASTER, taken="t1")
    assert role_file(disk).apply(MASTER) == MASTER
