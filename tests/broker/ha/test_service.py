"""HAService: who is accepted, and what is logged about them (`ha/service.py`)."""

import pytest
import trio
from tests.support.replication import MASTER_HA, OTHER_SLAVE, SLAVE, master
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.connection_limits import ARRIVALS_OF_HOST_LIMIT


async def test_statistics_name_each_slave_and_its_backlog(autojump_clock: MockClock) -> None:
    async with master(messages=20) as ours:
        end = ours.store.max_physical_offset
        level, behind = await ours.raw_slave(SLAVE), await ours.raw_slave(OTHER_SLAVE)
        await level.report(end)
        await behind.report(500)
        await trio.sleep(3)
        numbers = ours.service.statistics()
        assert numbers.ha_address == MASTER_HA
        assert numbers.max_physical_offset == end
        by_host = {each.addr.split(":")[0]: each for each in numbers.connections}
        assert by_host[SLAVE].bytes_behind == 0
        assert by_host[OTHER_SLAVE].slave_request_offset == 500
        assert by_host[OTHER_SLAVE].bytes_behind == end - 500
        assert by_host[OTHER_SLAVE].last_report_age == 3.0
        assert numbers.last_refusal is None


async def test_slave_that_has_not_reported_has_requested_no_address(
    autojump_clock: MockClock,
) -> None:
    async with master(messages=1) as ours:
        await ours.raw_slave()
        await wait_all_tasks_blocked()
        (only,) = ours.service.statistics().connections
        assert only.slave_request_offset is None
        assert only.slave_ack_offset == 0


async def test_too_many_slaves_are_turned_away(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with master() as ours:
        for _ in range(SLAVES_LIMIT):
            await (await ours.raw_slave()).report(0)
            await wait_all_tasks_blocked()
        surplus = await ours.raw_slave(OTHER_SLAVE)
        await surplus.report(0)
        assert await surplus.wait_ended() == 0.0
        assert len(ours.service.connections) == SLAVES_LIMIT
        assert f"already {SLAVES_LIMIT} slaves" in caplog.text


async def test_silent_strangers_keep_no_slave_out(autojump_clock: MockClock) -> None:
    """Seven connections a second for 20 s, each of which would last as long; the slave says nothing for 5 s, as
    Apache's does."""
    async with master(messages=1) as ours:
        served = []

        async def follow() -> None:
            for _ in range(4):
                slave = await ours.raw_slave(SLAVE)
                await trio.sleep(4.9)
                await slave.report(ours.store.min_physical_offset)
                served.append(await slave.read_transfer())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            for _ in range(140):
                await ours.raw_slave("10.0.0.66")
                await trio.sleep(1 / 7)
        assert [transfer.offset for transfer in served if transfer is not None] == [0] * 4
        assert len(ours.service.connections) <= 4 + ARRIVALS_OF_HOST_LIMIT


async def test_end_of_the_service_ends_its_connections(autojump_clock: MockClock) -> None:
    async with master() as ours:
        peer = await ours.raw_slave()
        await wait_all_tasks_blocked()
    assert await peer.wait_ended() == 0.0
    assert ours.service.connections == []
