"""Folders of queues that are lost while a broker is down: on a master and on a slave that is promoted later."""

import pytest
import trio
from tests.support.caller import Caller, bodies, caller_of

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.testing.memory_disk import MemoryDisk

MESSAGES = 40


def lose(member: Member, name: str) -> None:
    disk = member.disk
    assert isinstance(disk, MemoryDisk)
    folder = member.config.data / "consumequeue" / name
    for path in [path for path in disk.files if folder in (path, *path.parents)]:
        disk.unlink(path)
    disk.directories = {path for path in disk.directories if folder not in (path, *path.parents)}


async def everything(call: Caller, addr: str) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    for queue_id in range(4):
        queue: list[bytes] = []
        while (answer := await call.pull(addr, len(queue), queue_id=queue_id)).code == 0:
            queue += bodies(answer)
        found.append(queue)
    return found


@pytest.mark.parametrize("name", ["orders/3", "orders"])
@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("role", ["master", "slave"])
async def test_group_reads_each_message_of_a_queue_whose_folder_was_lost(
    caplog: pytest.LogCaptureFixture, name: str, is_killed: bool, role: str
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        addr = cluster.master.broker.address
        for number in range(MESSAGES):
            await call.send(addr, b"%d" % number, queue_id=number % 4)
        await trio.sleep(61)  # Until a checkpoint covers them.
        expected = await everything(call, addr)
        assert sum(map(len, expected)) == MESSAGES
        member = cluster.master if role == "master" else cluster.slaves[0]
        await (member.kill() if is_killed else member.stop())
        lose(member, name)
        await member.start()
        if role == "slave":
            await cluster.master.kill()
            addr = member.broker.address
            await call.change_role(addr, "async-master", 0)
        assert await everything(call, addr) == expected
        assert "queue lacks entries" in caplog.text
        answer = await call.send(addr, b"next", queue_id=3)
        assert answer.ext_fields["queueOffset"] == str(MESSAGES // 4)
