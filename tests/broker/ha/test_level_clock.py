"""Since when a slave was level: what proves it, and what slaves say of it to readers."""

import pytest
import trio
from tests.support.caller import caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.level_clock import LevelClock
from rocketrio_protocol.commands.offset import GetMaxOffsetRequestHeader

KIB = 1024
FILE_SIZE = 1024 * KIB


class Queues:
    built = 1 << 40


def level_clock(queues: Queues | None = None) -> LevelClock:
    where = queues or Queues()
    return LevelClock(file_size=FILE_SIZE, dispatched=lambda: where.built)


def test_unknown_until_something_proves_it(autojump_clock: MockClock) -> None:
    assert level_clock().age_millis() is None


@pytest.mark.parametrize(
    ("size", "end", "proves"),
    [
        (0, 100, True),  # A heartbeat: nothing was left to send.
        (500, 600, True),
        (32 * KIB - 1, 40 * KIB, True),
        (32 * KIB, 40 * KIB, False),  # As much as an Apache master sends at once.
        (900 * KIB, 950 * KIB, False),
        (500, FILE_SIZE, False),  # Cut short by the end of a file.
        (0, FILE_SIZE, True),
    ],
)
async def test_transfer_that_was_all_there_was_proves_it(
    size: int, end: int, proves: bool, autojump_clock: MockClock
) -> None:
    clock = level_clock()
    clock.took(size, end)
    await trio.sleep(2.5)
    assert clock.age_millis() == (2500 if proves else None)


async def test_limit_of_a_master_is_learnt_from_its_largest_transfer(
    autojump_clock: MockClock,
) -> None:
    clock = level_clock()
    for number in range(1, 4):
        clock.took(256 * KIB, number * 256 * KIB)
    assert clock.age_millis() is None
    clock.took(200 * KIB, 968 * KIB)
    assert clock.age_millis() == 0


async def test_messages_count_when_their_queues_have_them(autojump_clock: MockClock) -> None:
    queues = Queues()
    queues.built = 0
    clock = level_clock(queues)
    clock.took(100, 100)
    await trio.sleep(1)
    clock.took(100, 200)
    await trio.sleep(1)
    assert clock.age_millis() is None
    queues.built = 100
    assert clock.age_millis() == 2000
    clock.took(100, 300)
    queues.built = 300
    assert clock.age_millis() == 0


@pytest.mark.slow
async def test_slave_says_how_old_its_view_is_and_a_master_does_not(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await caller.send(master.address, b"first")
        await trio.sleep(1)
        await caller.send(master.address, b"second")
        await trio.sleep(2)
        answer = await caller.pull(slave.address, 0)
        assert answer.ext_fields["rocketrioLevelMillis"] == "2000"
        of_queue = GetMaxOffsetRequestHeader("orders", 0)
        asked = await caller.pool.call(slave.address, of_queue)
        assert asked.ext_fields == {"offset": "2", "rocketrioLevelMillis": "2000"}
        await trio.sleep(60)  # Heartbeats say it every 5 s.
        answer = await caller.pull(slave.address, 0)
        assert int(answer.ext_fields["rocketrioLevelMillis"]) <= 5000
        cluster.memory_network.partition(cluster.master.host, cluster.slaves[0].host)
        await trio.sleep(60)
        answer = await caller.pull(slave.address, 0)
        assert 60_000 <= int(answer.ext_fields["rocketrioLevelMillis"]) <= 65_000
        assert "rocketrioLevelMillis" not in (await caller.pull(master.address, 0)).ext_fields
        assert (await caller.pool.call(master.address, of_queue)).ext_fields == {"offset": "2"}
