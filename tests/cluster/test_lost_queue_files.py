"""Folders of queues that are lost while a broker is down: on a master and on a slave that is promoted later."""

import pytest
import trio
from tests.support.pair import Pair, pair_of

from rocketrio_broker.embedded import Member
from rocketrio_broker.testing.memory_disk import MemoryDisk

MESSAGES = 40


def lose(member: Member, name: str) -> None:
    disk = member.disk
    assert isinstance(disk, MemoryDisk)
    folder = member.config.data / "consumequeue" / name
    for path in [path for path in disk.files if folder in (path, *path.parents)]:
        disk.unlink(path)
    disk.directories = {path for path in disk.directories if folder not in (path, *path.parents)}


async def everything(pair: Pair, member: Member) -> list[list[bytes]]:
    addr = member.broker.address
    return [await pair.caller.read(addr, queue_id=queue_id) for queue_id in range(4)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("role", "is_killed", "name"),
    [
        ("master", False, "orders/3"),
        ("master", True, "orders"),
        ("slave", False, "orders"),
        ("slave", True, "orders/3"),
    ],
)
async def test_group_reads_each_message_of_a_queue_whose_folder_was_lost(
    caplog: pytest.LogCaptureFixture, name: str, is_killed: bool, role: str
) -> None:
    async with pair_of() as pair:
        addr = pair.master.address
        for number in range(MESSAGES):
            await pair.caller.send(addr, b"%d" % number, queue_id=number % 4)
        await trio.sleep(61)  # Until a checkpoint covers them.
        expected = await everything(pair, pair.first)
        assert sum(map(len, expected)) == MESSAGES
        member = pair.first if role == "master" else pair.second
        await (member.kill() if is_killed else member.stop())
        lose(member, name)
        await member.start()
        if role == "slave":
            await pair.fail_over()
        assert await everything(pair, member) == expected
        assert "queue lacks entries" in caplog.text
        answer = await pair.caller.send(member.broker.address, b"next", queue_id=3)
        assert answer.ext_fields["queueOffset"] == str(MESSAGES // 4)
