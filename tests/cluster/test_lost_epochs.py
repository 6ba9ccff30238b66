"""A broker that has lost its epoch file, or a part of it: running members are not sent back to what they handled."""

import logging
from collections.abc import Callable

import pytest
import trio
from tests.cluster.group_at_work import Handled, asynchronous_pair, members, send_named
from tests.cluster.members import copy_of, set_back
from tests.support.caller import accepted
from tests.support.faulty_disk import FaultyDisk
from tests.support.further import every_other
from tests.support.pair import pair_of

from rocketrio_broker.embedded import Member
from rocketrio_broker.store.epochs import EPOCH_FILE

Damage = Callable[[bytes], bytes | None]


def to_a_whole_line(content: bytes) -> bytes:
    return b"".join(content.splitlines(keepends=True)[:-1])


DAMAGES: dict[str, Damage] = {
    "deleted": lambda _: None,
    "emptied": lambda _: b"",
    "halved": lambda content: content[: len(content) // 2],
    "without its last line": to_a_whole_line,
    "of random bytes": lambda content: bytes(37 * at % 251 for at in range(len(content))),
    "of zeros": lambda content: bytes(len(content)),
}
LOSSES = {
    ("stop", "master"): ("of zeros", "without its last line"),
    ("kill", "master"): ("deleted", "halved"),
    ("stop", "slave"): ("emptied", "halved"),
    ("kill", "slave"): ("of random bytes", "without its last line"),
    ("stop", "both"): ("of random bytes", "halved"),
    ("kill", "both"): ("deleted", "without its last line"),
}
"""Everybody loses all lines in one way, and in another some of them."""


def damage_epochs(member: Member, damage: Damage) -> None:
    """Damage the file of a broker that is down."""
    disk, path = member.disk, member.config.data / EPOCH_FILE
    file = disk.open(path)
    content = damage(file.pread(file.size, 0))
    disk.unlink(path)
    if content is not None:
        disk.open(path, create=True).pwrite(content, 0)


def lose_log(member: Member) -> None:
    """A power cut takes all of the log of a broker that is down, and nothing else."""
    folder = member.config.data / "commitlog"
    for name in member.disk.list_directory(folder):
        member.disk.unlink(folder / name)


def positions_set_back(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What members and broker say of positions that were lowered."""
    words = "offset set back", "offset moved"
    return [line for line in caplog.messages if line.startswith(words)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "who", "damage"),
    every_other(
        pytest.param(*story, damage) for story, damages in LOSSES.items() for damage in damages
    ),
)
async def test_lost_epochs_send_no_member_back(
    caplog: pytest.LogCaptureFixture, how: str, who: str, damage: str
) -> None:
    handled = Handled()
    async with asynchronous_pair() as pair, members(pair.cluster, handled):
        master, slave = pair.members
        # A second epoch of this master, in which the members read.
        await master.stop()
        await master.start()
        sent = await send_named(pair, "second", 40)
        await handled.wait(sent)
        await trio.sleep(15)
        for member in {"master": [master], "slave": [slave], "both": [master, slave]}[who]:
            await (member.stop() if how == "stop" else member.kill())
            damage_epochs(member, DAMAGES[damage])
        caplog.set_level(logging.INFO)
        for member in (master, slave):
            if not member.is_running:
                await member.start()
        sent = await send_named(pair, "after", 20)
        await handled.wait(sent)
        assert positions_set_back(caplog) == []
        # What the file says now is enough for a failover.
        await trio.sleep(15)
        await master.stop()
        await pair.promote(slave)
        sent = await send_named(pair, "promoted", 20, at=slave)
        await handled.wait(sent)
        assert positions_set_back(caplog) == []
        assert len(handled.bodies) == len(set(handled.bodies))


@pytest.mark.parametrize("is_behind", [False, True])
async def test_master_gets_its_epochs_back_from_a_slave_with_the_same_log(is_behind: bool) -> None:
    async with asynchronous_pair() as pair:
        master = pair.first
        await pair.send("one")
        await pair.level()
        if is_behind:
            pair.part(pair.first, pair.second.host)
            await pair.send("two", "three")
        before = [line.key for line in master.broker.store.epochs.lines]
        await master.stop()
        damage_epochs(master, DAMAGES["deleted"])
        pair.network.heal()
        await master.start()
        after = [line.key for line in master.broker.store.epochs.lines]
        assert after[:-1] == before
        assert after[-1][0] == before[-1][0] + 1


@pytest.mark.slow
async def test_master_keeps_its_offsets_though_the_slave_lacks_its_last_epoch() -> None:
    """The slave knows only the first epoch of the log, and the master's own offsets name the second."""
    async with asynchronous_pair() as pair:
        master, slave = pair.members
        await pair.send("one")
        await pair.level()
        await slave.stop()
        await master.stop()
        await master.start()
        await pair.send("two", "three")
        end = pair.master.store.next_queue_offset("orders", 0)
        accepted(await pair.caller.commit(pair.master.address, end))
        await trio.sleep(10)
        before = [line.key for line in pair.master.store.epochs.lines]
        await master.kill()
        damage_epochs(master, DAMAGES["deleted"])
        await slave.start()
        await master.start()
        assert [line.key for line in pair.master.store.epochs.lines[:-1]] == before
        assert await pair.caller.committed(pair.master.address) == end
        await pair.level()


@pytest.mark.slow
async def test_master_gets_its_end_and_its_offsets_back_from_a_slave_that_lost_its_epochs() -> None:
    """The slave alone has both, and the master alone knows the epoch that the offsets name."""
    async with pair_of(make_disk=FaultyDisk) as pair:
        master, slave = pair.members
        await pair.send("one")
        await pair.level()
        copy = copy_of(master)
        await pair.send("two", "three")
        accepted(await pair.caller.commit(pair.master.address, 2))
        await trio.sleep(10)
        await master.kill()
        await slave.kill()
        damage_epochs(slave, DAMAGES["deleted"])
        await slave.start()
        await set_back(master, copy)
        assert await pair.read(master) == ["one", "two", "three"]
        assert await pair.caller.committed(pair.master.address) == 2
        await pair.send("four")
        await pair.level()


@pytest.mark.slow
@pytest.mark.parametrize("slaves", [1, 2])
async def test_master_that_lost_its_log_takes_the_offsets_of_the_slave_that_it_copies(
    caplog: pytest.LogCaptureFixture, slaves: int
) -> None:
    """They name an epoch that is lost. Those of another slave, which may have another log, stay there."""
    async with pair_of(slaves=slaves) as pair:
        master, *followers = pair.members
        await pair.send("one", "two")
        await pair.level()
        accepted(await pair.caller.commit(pair.master.address, 2))
        await trio.sleep(10)
        for member in pair.members:
            await member.kill()
        lose_log(master)
        for slave in followers:
            damage_epochs(slave, DAMAGES["deleted"])
            await slave.start()
        caplog.clear()
        await master.start()
        assert await pair.read(master) == ["one", "two"]
        assert await pair.caller.committed(pair.master.address) == 2
        refused = [line for line in caplog.messages if line.startswith("offsets of another")]
        assert len(refused) == len(followers) - 1
