"""Delayed messages on a broker in memory, with a clock that jumps: when they come, and what is known of it later."""

import logging
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from tests.broker.builders import read
from tests.broker.processors.asking import Asking
from tests.support.caller import Caller, bodies, caller_of, messages
from tests.support.clocks import SteppedClock
from tests.support.faulty_disk import FaultyDisk
from tests.support.stores import put_of
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import GetBrokerRuntimeInfoRequestHeader
from rocketrio_protocol.message import MessageExt

PROGRESS = Path("/master/config/delayOffset.json")
DELAYS = [1, 5, 10, 30, *(60 * m for m in range(1, 11)), 1200, 1800, 3600, 7200]


@attrs.define
class Delayed:
    """One broker and what it is asked."""

    cluster: EmbeddedCluster
    call: Caller

    @property
    def addr(self) -> str:
        return self.cluster.master.config.listen

    async def send(self, level: int | str, body: bytes = b"x", *, queue_id: int = 0) -> int:
        """Send one; its store time in ms."""
        answer = await self.call.send(
            self.addr, body, queue_id=queue_id, properties=f"DELAY\x01{level}"
        )
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        return self.cluster.wall_clock.now_ms()

    async def delivered(self, queue_id: int = 0) -> list[MessageExt]:
        store = self.cluster.master.broker.store
        if store.queue_bounds("orders", queue_id) is None:
            return []
        return messages(await self.call.pull(self.addr, 0, queue_id=queue_id))

    def progress(self) -> bytes:
        disk = self.cluster.master.disk
        assert isinstance(disk, MemoryDisk)
        return read(disk, PROGRESS)


@asynccontextmanager
async def delayed(**settings: Any) -> AsyncGenerator[Delayed]:
    async with EmbeddedCluster(**settings) as cluster, caller_of(cluster) as call:
        yield Delayed(cluster, call)


@pytest.mark.slow
async def test_every_level_is_delivered_at_its_time(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        await trio.sleep(0.37)  # Between two looks.
        stored = {level: await broker.send(level, b"%d" % level) for level in range(1, 19)}
        await trio.sleep(DELAYS[-1] + 1)
        found = {int(message.body): message for message in await broker.delivered()}
        assert list(found) == list(range(1, 19))
        for level, seconds in enumerate(DELAYS, start=1):
            late = found[level].store_time_ms - stored[level] - 1000 * seconds
            assert 0 <= late <= 2, (level, late)


async def test_nothing_is_delivered_early(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        await broker.send(2)
        await trio.sleep(4.9)
        assert await broker.delivered() == []
        await trio.sleep(0.2)
        assert len(await broker.delivered()) == 1


async def test_answer_names_the_queue_sent_to_and_the_place_in_the_level(
    autojump_clock: MockClock,
) -> None:
    async with delayed() as broker:
        for place in range(2):
            answer = await broker.call.send(
                broker.addr, b"x", queue_id=3, properties="DELAY\x015\x02KEYS\x01k"
            )
            assert answer.ext_fields["queueId"] == "3"
            assert answer.ext_fields["queueOffset"] == str(place)
        parked = messages(
            await broker.call.pull(broker.addr, 0, topic="SCHEDULE_TOPIC_XXXX", queue_id=4)
        )
        assert [message.properties["REAL_QID"] for message in parked] == ["3", "3"]


async def test_level_beyond_the_last_is_the_last(autojump_clock: MockClock) -> None:
    store = attrs.evolve(SMALL_STORE, message_delay_level="1s 3s")
    async with delayed(store=store) as broker:
        sent_ms = await broker.send(99)
        await trio.sleep(4)
        (message,) = await broker.delivered()
        assert message.store_time_ms == sent_ms + 3000
        assert message.property_value("DELAY") == "2"


@pytest.mark.parametrize("level", ["0", "soon", "-1"])
async def test_message_without_a_level_is_not_delayed(
    autojump_clock: MockClock, level: str
) -> None:
    async with delayed() as broker:
        await broker.send(level)
        assert len(await broker.delivered()) == 1


async def test_delivered_message_is_the_one_that_was_sent(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        properties = "KEYS\x01k1 k2\x02DELAY\x011\x02WAIT\x01true\x02TAGS\x01red"
        await broker.call.send(
            broker.addr, b"later", queue_id=2, properties=properties, flag=7, born_timestamp=1234
        )
        await trio.sleep(2)
        (message,) = await broker.delivered(queue_id=2)
        assert (message.body, message.flag, message.born_time_ms) == (b"later", 7, 1234)
        assert (message.keys, message.tags, message.born_host[0]) == ("k1 k2", "red", "10.0.0.100")
        filtered = await broker.call.pull(broker.addr, 0, queue_id=2, expression="red")
        assert bodies(filtered) == [b"later"]


async def test_held_pull_gets_it_when_it_is_due(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        await broker.call.send(broker.addr, b"first")
        await broker.send(2, b"later")
        start = trio.current_time()
        answer = await broker.call.pull(broker.addr, 1, sys_flag=2 | 4, suspend=20)
        assert bodies(answer) == [b"later"]
        assert trio.current_time() - start == pytest.approx(5, abs=0.01)


async def test_burst_is_delivered_whole_and_in_order(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        for number in range(200):
            await broker.send(1, b"%d" % number)
        await trio.sleep(3)
        store = broker.cluster.master.broker.store
        assert store.queue_bounds("orders", 0) == (0, 200)
        found: list[bytes] = []
        while len(found) < 200:
            found += bodies(await broker.call.pull(broker.addr, len(found)))
        assert found == [b"%d" % number for number in range(200)]


async def test_progress_is_written_as_apache_writes_it(autojump_clock: MockClock) -> None:
    async with delayed(flush_delay_offset_interval=3.0) as broker:
        await broker.send(2)
        await broker.send(1)
        await broker.send(1)
        await trio.sleep(9)
        assert broker.progress() == b'{\n\t"offsetTable":{1:2,2:1\n\t}\n}'


async def test_operators_see_how_far_the_levels_are(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        for level in (1, 1, 4):
            await broker.send(level)
        await trio.sleep(2)
        await broker.send(1)
        answer = await broker.call.pool.call(broker.addr, GetBrokerRuntimeInfoRequestHeader())
        assert b'"scheduleMessageOffset_1":"2,3"' in bytes(answer.body)


async def test_clean_restart_delivers_nothing_twice(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        await broker.send(1, b"before")
        await broker.send(2, b"behind")
        await trio.sleep(2)
        await broker.cluster.master.stop()
        await trio.sleep(60)
        await broker.cluster.restart_master()
        await trio.sleep(1)
        assert [message.body for message in await broker.delivered()] == [b"before", b"behind"]


async def test_killed_broker_continues_from_its_last_write(autojump_clock: MockClock) -> None:
    async with delayed(flush_delay_offset_interval=1.0) as broker:
        for number in range(5):
            await broker.send(1, b"%d" % number)
        await trio.sleep(4)
        await broker.send(2, b"later")
        await broker.cluster.kill_master()
        await broker.cluster.restart_master()
        await trio.sleep(10)
        assert [message.body for message in await broker.delivered()] == [
            *(b"%d" % number for number in range(5)),
            b"later",
        ]


async def test_progress_ahead_of_the_log_is_ignored(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """As a slave may get it from an Apache master that dies before its log has come."""
    async with delayed() as broker:
        await broker.send(1, b"delivered")
        await trio.sleep(2)
        await broker.send(4, b"due later")
        await broker.cluster.master.stop()
        disk = broker.cluster.master.disk
        ConfigFile(PROGRESS, disk=disk).write(DelayOffsetWrapper({1: 1, 4: 1}))
        await broker.cluster.restart_master()
        await trio.sleep(40)
        assert [message.body for message in await broker.delivered()] == [
            b"delivered",
            b"due later",
        ]
        assert "delivered again delay_level=4 from=0 before=1" in caplog.text


@pytest.mark.parametrize("role", ["master", "slave"])
async def test_progress_of_another_log_skips_no_message_of_any_level(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, role: str
) -> None:
    """As `config/` of a broker whose log was removed, and as a slave's that is promoted."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        member = cluster.master if role == "master" else cluster.slaves[0]
        path = member.config.config_directory / PROGRESS.name
        await cluster.master.kill()
        await member.stop() if member is not cluster.master else None
        ConfigFile(path, disk=member.disk).write(DelayOffsetWrapper({1: 1, 2: 77, 19: 4}))
        await member.start()
        addr = member.broker.address
        if role == "slave":
            await call.change_role(addr, "async-master", 0)
        for level in (1, 2, 3):
            await call.send(addr, b"%d" % level, properties=f"DELAY\x01{level}")
        await trio.sleep(15)
        assert bodies(await call.pull(addr, 0)) == [b"1", b"2", b"3"]
        assert (
            "progress lay beyond the end of its level delay_level=2 before=77 end=0" in caplog.text
        )
        await member.stop()
        kept = ConfigFile(path, disk=member.disk).load(DelayOffsetWrapper)
        assert kept == DelayOffsetWrapper({1: 1, 2: 1, 3: 1, 19: 0})


async def test_progress_that_runs_ahead_goes_back_to_the_last_known_end(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with delayed() as broker:
        await broker.send(1, b"delivered")
        await trio.sleep(3)
        broker.cluster.master.broker.state.delay_offsets.advance(1, 9, 0)
        await broker.send(1, b"next")
        await trio.sleep(3)
        assert [message.body for message in await broker.delivered()] == [b"delivered", b"next"]
        # The scan comes before the second message, or just after it.
        assert "lies beyond the end of its level delay_level=1 before=9 end=" in caplog.text
        assert " from=1\n" in caplog.text


async def test_level_whose_queue_was_deleted_begins_again(autojump_clock: MockClock) -> None:
    async with delayed() as broker:
        for number in range(3):
            await broker.send(1, b"%d" % number)
        await trio.sleep(3)
        broker.cluster.master.broker.store.delete_topic("SCHEDULE_TOPIC_XXXX")
        await broker.send(1, b"next")
        await trio.sleep(3)
        assert [message.body for message in await broker.delivered()][3:] == [b"next"]


async def test_lost_progress_delivers_messages_twice_and_loses_none(
    autojump_clock: MockClock,
) -> None:
    async with delayed() as broker:
        await broker.send(1, b"twice")
        await trio.sleep(2)
        await broker.cluster.kill_master()
        await broker.cluster.restart_master()
        await trio.sleep(1)
        assert [message.body for message in await broker.delivered()] == [b"twice", b"twice"]


@pytest.mark.slow
async def test_power_cut_that_takes_deliveries_loses_no_message(autojump_clock: MockClock) -> None:
    """The log is flushed rarely here, so that the end that is lost holds deliveries that the progress counts."""
    store = attrs.evolve(SMALL_STORE, flush_interval_commit_log=0.5)
    async with delayed(
        store=store, flush_delay_offset_interval=0.1, make_disk=FaultyDisk
    ) as broker:
        master, sent = broker.cluster.master, 0
        for attempt in range(6):
            for _ in range(4):
                await broker.send(1, b"%d" % sent)
                sent += 1
            await trio.sleep(1.0 + 0.13 * attempt)
            disk = master.disk
            assert isinstance(disk, FaultyDisk)
            flushed = master.broker.store.flushed.value
            await master.kill()
            master.disk = disk.after_cut(seed=attempt, kept=0.5)
            await master.start()
            assert master.broker.store.max_physical_offset >= flushed
        await trio.sleep(3)
        parked = master.broker.store.queue_bounds("SCHEDULE_TOPIC_XXXX", 0)
        assert parked is not None
        kept = messages(
            await broker.call.pull(broker.addr, 0, topic="SCHEDULE_TOPIC_XXXX", max_messages=32)
        )
        found = {message.body for message in await broker.delivered()}
        assert {message.body for message in kept} <= found


async def test_progress_is_written_only_for_deliveries_that_are_on_the_disk(
    autojump_clock: MockClock,
) -> None:
    """Nothing else would tell that this delivery is lost: it was late, and a later message is on the disk."""
    store = attrs.evolve(SMALL_STORE, flush_interval_commit_log=100.0)
    async with delayed(
        store=store, flush_delay_offset_interval=0.1, make_disk=FaultyDisk
    ) as broker:
        master = broker.cluster.master
        await broker.send(1, b"late")
        await trio.sleep(0.9)
        master.broker.store.refusals.refuse(Refuser.STANDING, "for a moment")
        await trio.sleep(0.5)
        master.broker.store.refusals.lift(Refuser.STANDING)
        await broker.call.send(broker.addr, b"later and on the disk", queue_id=1)
        master.broker.store.flush_soon()
        await trio.sleep(1.3)
        assert len(await broker.delivered()) == 1
        disk = master.disk
        assert isinstance(disk, FaultyDisk)
        await master.kill()
        master.disk = disk.after_cut(seed=1, kept=0.0)
        await master.start()
        await trio.sleep(2)
        assert {message.body for message in await broker.delivered()} == {b"late"}


async def test_shorter_table_delivers_what_waited_by_the_longer_one(
    autojump_clock: MockClock,
) -> None:
    """As Apache: nothing waits longer than its level does now."""
    async with delayed() as broker:
        await broker.send(18, b"two hours")
        await broker.send(5, b"a minute")
        await broker.cluster.master.stop()
        store = attrs.evolve(SMALL_STORE, message_delay_level="1s 5s 10s 30s 60s")
        broker.cluster.master.config = attrs.evolve(broker.cluster.master.config, store=store)
        await broker.cluster.restart_master()
        await trio.sleep(1)
        assert [message.body for message in await broker.delivered()] == [b"two hours"]
        await trio.sleep(60)
        assert [message.body for message in await broker.delivered()] == [b"two hours", b"a minute"]


async def test_clock_that_is_set_back_makes_late_and_never_early(
    autojump_clock: MockClock,
) -> None:
    clock = SteppedClock()
    async with delayed(wall_clock=clock) as broker:
        await trio.sleep(0.37)
        await broker.send(2, b"before")
        clock.step_ms = -3000
        await broker.send(2, b"after")
        await trio.sleep(4.9)
        assert await broker.delivered() == []
        await trio.sleep(2.1)
        assert [message.body for message in await broker.delivered()] == [b"before", b"after"]


DAY_MS = 86_400_000


async def test_clock_that_was_ahead_holds_delayed_messages_no_longer_than_their_level(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    clock = SteppedClock()
    async with delayed(wall_clock=clock) as broker:
        clock.step_ms = 40 * DAY_MS
        await broker.send(3, b"while ahead")
        await trio.sleep(2)
        clock.step_ms = 0
        for number in range(20):
            await broker.send(3, b"%d" % number)
            await trio.sleep(1)
        # Ten seconds each, and at most two looks.
        seen = [message.body for message in await broker.delivered()]
        assert seen[0] == b"while ahead"
        assert 8 <= len(seen) - 1 <= 11
        await trio.sleep(12)
        assert len(await broker.delivered()) == 21
        assert caplog.text.count("clock jumped by=40 d") == 1
        assert caplog.text.count("store time is 40 d ahead of the clock") == 1
        answer = await broker.call.pool.call(broker.addr, GetBrokerRuntimeInfoRequestHeader())
        assert b"store time is 40 d ahead of the clock" in answer.body


async def test_rest_of_a_delay_is_long_enough_to_pass(autojump_clock: MockClock) -> None:
    """By a clock that jumps to each deadline a wait of less than it can count in would be waited for without end."""
    clock = SteppedClock()
    async with delayed(wall_clock=clock) as broker:
        await trio.sleep(5.0)
        clock.step_ms = 40 * DAY_MS
        await broker.send(3, b"while ahead")
        clock.step_ms = 0
        service = broker.cluster.master.broker.state.delayed_messages()
        (queue,) = service._queues()
        first = 1 / 3
        assert service._deliver_level(queue, clock.now_ms(), first) == 10.0
        late = math.nextafter(first + 10.0, 0.0)
        wait = service._deliver_level(queue, clock.now_ms(), late)
        assert late < late + wait < late + 0.0011
        assert service._deliver_level(queue, clock.now_ms(), late + wait) == 1.0
        assert [message.body for message in await broker.delivered()] == [b"while ahead"]


@pytest.mark.parametrize("level", [2, 5])
async def test_delays_after_a_restart_with_store_times_ahead_take_their_level_once_more_at_most(
    autojump_clock: MockClock, level: int
) -> None:
    clock = SteppedClock()
    async with delayed(wall_clock=clock) as broker:
        clock.step_ms = 40 * DAY_MS
        await broker.send(level, b"first")
        await trio.sleep(0.5)
        clock.step_ms = 0
        await broker.send(level, b"second")
        await broker.cluster.master.kill()
        await broker.cluster.restart_master()
        await trio.sleep(DELAYS[level - 1] - 1)
        assert await broker.delivered() == []
        await trio.sleep(3)
        assert [message.body for message in await broker.delivered()] == [b"first", b"second"]
        # What is delivered is not delivered again, although its time seems to lie behind the log's last moment.
        await broker.cluster.master.stop()
        await broker.cluster.restart_master()
        await trio.sleep(DELAYS[level - 1] + 3)
        assert len(await broker.delivered()) == 2


async def test_full_disk_delays_and_does_not_lose(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with delayed() as broker:
        await broker.send(1)
        store = broker.cluster.master.broker.store
        store.refusals.refuse(Refuser.STANDING, "no room")
        with caplog.at_level(logging.WARNING):
            await trio.sleep(5)
        assert await broker.delivered() == []
        assert caplog.text.count("not delivered, will retry reason=no room") == 1
        store.refusals.lift(Refuser.STANDING)
        await trio.sleep(2)
        assert len(await broker.delivered()) == 1


async def test_entry_without_its_message_is_passed_over(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with delayed() as broker:
        await broker.send(1, b"good")
        asking = Asking(broker.cluster, broker.call.pool, broker.cluster.master.broker)
        asking.put("SCHEDULE_TOPIC_XXXX", b"names no topic")
        await broker.send(1, b"too")
        await trio.sleep(3)
        assert [message.body for message in await broker.delivered()] == [b"good", b"too"]
        assert "delayed message cannot be delivered" in caplog.text


@pytest.mark.parametrize("name", ["TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS"])
async def test_arbitrary_time_is_refused_and_not_ignored(
    autojump_clock: MockClock, name: str
) -> None:
    async with delayed() as broker:
        answer = await broker.call.send(broker.addr, b"x", properties=f"{name}\x015000")
        assert answer.code == ResponseCode.MESSAGE_ILLEGAL
        assert "arbitrary time" in (answer.remark or "")
        assert broker.cluster.master.broker.store.max_physical_offset == 0
        answer = await broker.call.send(broker.addr, b"x", properties="MODEL\x01DELUXE")
        assert answer.code == ResponseCode.SUCCESS


@pytest.mark.parametrize(
    ("topic", "queue_id"),
    [("orders", str(2**31)), ("orders", "9" * 5000), ("../../x", "0"), ("/abs/x", "0")],
)
async def test_message_that_cannot_be_stored_is_skipped_at_every_start(
    autojump_clock: MockClock, topic: str, queue_id: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with delayed() as broker:
        properties = f"DELAY\x011\x02REAL_TOPIC\x01{topic}\x02REAL_QID\x01{queue_id}"
        broker.cluster.master.broker.store.append(
            put_of(topic="SCHEDULE_TOPIC_XXXX", properties=properties.encode())
        )
        await broker.cluster.kill_master()
        await broker.cluster.restart_master()
        await broker.send(1, b"next")
        await trio.sleep(3)
        assert [message.body for message in await broker.delivered()] == [b"next"]
    assert "names no topic that it could be delivered to" in caplog.text
