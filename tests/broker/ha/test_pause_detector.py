from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio
from tests.support.caller import caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.gather_offsets import GatheredOffsets
from rocketrio_broker.ha.pause_detector import ASK_AGAIN_AFTER, ASK_LIMIT, Absence
from rocketrio_protocol.errors import NotReachableError


@attrs.define
class Link:
    last_report_age: float = 0.0


@attrs.define
class Slaves:
    """What is asked, and how long that takes."""

    links: list[Link]
    seconds: float = 0.2
    asked: int = 0
    are_there: bool = True

    async def gather(self) -> GatheredOffsets:
        self.asked += 1
        await trio.sleep(self.seconds)
        missing = set() if self.are_there else {"10.0.0.2:10911"}
        return GatheredOffsets(
            unreachable={addr: NotReachableError("no") for addr in missing}, slaves_missing=missing
        )


@asynccontextmanager
async def watching(slaves: Slaves) -> AsyncGenerator[Absence]:
    absence = Absence(heartbeat_interval=5.0)
    absence.watch(slaves.links, slaves.gather)
    async with trio.open_nursery() as nursery:
        await nursery.start(absence.run)
        yield absence
        nursery.cancel_scope.cancel()


async def test_nothing_is_asked_while_all_goes_well(autojump_clock: MockClock) -> None:
    slaves = Slaves([Link(5.0)])
    async with watching(slaves) as absence:
        for _ in range(100):
            await trio.sleep(0.7)
            assert not absence.must_ask
    assert slaves.asked == 0
    assert not absence.must_ask


async def test_query_after_a_stop_waits_until_the_slaves_were_asked(
    autojump_clock: MockClock,
) -> None:
    slaves = Slaves([])
    async with watching(slaves) as absence:
        await trio.sleep(5)
        autojump_clock.jump(35)
        assert absence.must_ask
        before = trio.current_time()
        await absence.slaves_asked()
        assert trio.current_time() - before == pytest.approx(0.2)
        assert slaves.asked == 1
        assert not absence.must_ask
        await trio.sleep(20)
        assert slaves.asked == 1


async def test_slave_that_does_not_answer_delays_a_query_now_and_then(
    autojump_clock: MockClock,
) -> None:
    slaves = Slaves([], seconds=ASK_LIMIT, are_there=False)
    async with watching(slaves) as absence:
        await trio.sleep(5)
        autojump_clock.jump(35)
        waited = 0
        for _ in range(200):
            if absence.must_ask:
                await absence.slaves_asked()
                waited += 1
            await trio.sleep(0.1)
        assert waited == slaves.asked
        assert 3 <= waited <= 20 / ASK_AGAIN_AFTER + 1
        slaves.are_there = True
        await trio.sleep(ASK_AGAIN_AFTER)
        assert absence.must_ask
        await absence.slaves_asked()
        await trio.sleep(ASK_AGAIN_AFTER)
        assert not absence.must_ask


async def test_silent_slave_is_asked(autojump_clock: MockClock) -> None:
    """As in a partition: this process goes on, and clients commit to the slave."""
    slaves = Slaves([Link(0.1), Link(5.0)])
    async with watching(slaves) as absence:
        slaves.links[0].last_report_age = 8.0
        await trio.sleep(1.5)
        assert slaves.asked == 1
        await trio.sleep(ASK_AGAIN_AFTER)
        assert absence.must_ask
        slaves.links[0].last_report_age = 0.1
        await absence.slaves_asked()
        await trio.sleep(ASK_AGAIN_AFTER)
        assert not absence.must_ask


async def test_paused_master_reports_what_its_slave_took_meanwhile(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedCluster(slaves=1) as cluster,
        caller_of(cluster) as call,
    ):
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        for _ in range(40):
            await call.send(master.address, b"x")
        await call.commit(master.address, 10)
        await trio.sleep(12)
        # Just after the slave has copied, so that it has no time to tell.
        assert await call.committed(slave.address) == 10
        slave.state.consumer_offsets.commit_offset("billing", "orders", 0, 30)
        autojump_clock.jump(35)
        assert await call.committed(master.address) == 30
