"""Held pulls: the table alone, then against a broker whose seconds are exact."""

import logging
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
import trio
from tests.support.caller import SUBSCRIPTION, SUSPEND, bodies, caller_of
from tests.support.stores import opened, put_of
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.role.standing import CurrentStanding
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.waiting.long_polling import (
    SUSPEND_LIMIT,
    TURN_PULLS,
    HeldPull,
    HeldPulls,
    PullRequestHoldService,
)
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.errors import RequestTimeoutError

HOLD = SUBSCRIPTION | SUSPEND


def held_pull(
    channel: object = "c",
    *,
    topic: str = "t",
    queue_id: int = 0,
    deadline: float = 10.0,
    offset: int = 5,
) -> HeldPull:
    header = PullMessageRequestHeader("g", topic, queue_id, offset, 32, HOLD, 0, 15_000, 0, "*")
    return HeldPull(channel, RemotingCommand(11), header, None, deadline, offset)  # type: ignore[arg-type]


def test_pulls_are_found_by_queue_and_by_time() -> None:
    held = HeldPulls()
    late, soon, other = held_pull(deadline=20), held_pull(deadline=10), held_pull(queue_id=1)
    for pull in (late, soon, other):
        held.add(pull)
    assert held.at(("t", 0)) == [late, soon]
    assert held.at(("t", 7)) == []
    assert held.next_deadline == 10
    assert set(held.due(10)) == {soon, other}
    assert (len(held), held.next_deadline) == (1, 20)
    assert list(held.due(10)) == []


def test_removed_pull_is_gone_everywhere() -> None:
    held = HeldPulls()
    pull = held_pull()
    held.add(pull)
    held.remove(pull)
    assert (len(held), list(held), held.at(("t", 0))) == (0, [], [])
    assert list(held.due(100)) == []
    held.channel_closed("c")  # type: ignore[arg-type]


def test_connection_takes_its_pulls_with_it() -> None:
    held = HeldPulls()
    mine, others = held_pull("mine"), held_pull("other")
    held.add(mine)
    held.add(others)
    held.channel_closed("mine")  # type: ignore[arg-type]
    assert list(held) == [others]


def test_earlier_deadline_wakes_the_watcher() -> None:
    held = HeldPulls()
    held.add(held_pull(deadline=10))
    before = held.earlier.value
    held.add(held_pull(deadline=11))
    assert held.earlier.value == before
    held.add(held_pull(deadline=9))
    assert held.earlier.value > before


def test_pulls_that_were_woken_do_not_pile_up() -> None:
    held = HeldPulls()
    for _ in range(10_000):
        pull = held_pull()
        held.add(pull)
        held.remove(pull)
    assert len(held._by_deadline) < 3000


def test_full_table_displaces_pulls_of_the_connection_that_has_most() -> None:
    held = HeldPulls(limit=4, connection_limit=3)
    first, second, third = (held_pull("stranger") for _ in range(3))
    for pull in (first, second, third):
        assert held.has_room(pull)
        held.add(pull)
    assert not held.has_room(held_pull("stranger"))
    assert held.displaced_by(held_pull("stranger")) is None, "it has its share"
    held.add(held_pull("mine"))
    another = held_pull("mine")
    assert not held.has_room(another)
    assert held.displaced_by(another) is first
    held.remove(first)
    assert held.has_room(another)
    held.add(another)
    assert held.displaced_by(held_pull("mine")) is None, "both have the same"
    assert held.displaced_by(held_pull("third")) in (second, another)
    held.channel_closed("stranger")  # type: ignore[arg-type]
    held.channel_closed("mine")  # type: ignore[arg-type]
    assert (held._weight, held._weights, held._by_weight) == (0, {}, {})


def test_pull_weighs_what_its_expression_takes_and_keeps_no_body() -> None:
    header = PullMessageRequestHeader("g", "t", 0, 5, 32, HOLD, 0, 15_000, 0, "a||" * 1000)
    request = RemotingCommand(11, 7, 0, {"x": "y" * 1000}, b"z" * 1000, "remark")
    pull = HeldPull.of("c", request, header, None, None, deadline=1)  # type: ignore[arg-type]
    assert pull.weight == 1 + 3002 // 64
    assert pull.request == RemotingCommand(11, 7)
    held = HeldPulls(limit=100, connection_limit=40)
    assert not held.has_room(pull)
    assert held.displaced_by(pull) is None


class Reader:
    """One held pull in a task, and when it was answered."""

    def __init__(self) -> None:
        self.answer: RemotingCommand | None = None
        self.seconds = -1.0

    async def pull(self, caller: Any, addr: str, offset: int, **fields: Any) -> None:
        start = trio.current_time()
        self.answer = await caller.pull(addr, offset, sys_flag=HOLD, **fields)
        self.seconds = trio.current_time() - start


async def test_arrival_answers_a_held_pull_at_once(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, reader = cluster.master.broker.address, Reader()
        await caller.send(addr, b"first")
        nursery.start_soon(lambda: reader.pull(caller, addr, 1, suspend=15))
        await trio.sleep(3)
        assert len(cluster.master.broker.state.held_pulls) == 1
        await caller.send(addr, b"elsewhere", queue_id=1)
        await caller.send(addr, b"second")
        await wait_all_tasks_blocked()
        assert reader.answer is not None
        assert bodies(reader.answer) == [b"second"]
        assert reader.seconds == pytest.approx(3, abs=0.01)


async def test_pull_is_answered_when_its_time_is_up(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, reader = cluster.master.broker.address, Reader()
        await caller.send(addr, b"first")
        await reader.pull(caller, addr, 1, suspend=15)
        assert reader.answer is not None
        assert reader.answer.code == ResponseCode.PULL_NOT_FOUND
        assert reader.seconds == pytest.approx(15, abs=0.01)


async def test_short_polling_ignores_what_the_pull_asks_for(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(long_polling_enable=False) as cluster,
        caller_of(cluster) as caller,
    ):
        addr, reader = cluster.master.broker.address, Reader()
        await caller.send(addr, b"first")
        await reader.pull(caller, addr, 1, suspend=15)
        assert reader.seconds == pytest.approx(1, abs=0.01)


async def test_rejected_arrival_moves_the_reader_at_the_next_execution(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, reader = cluster.master.broker.address, Reader()
        await caller.send(addr, b"first", properties="TAGS\x01a")
        nursery.start_soon(lambda: reader.pull(caller, addr, 1, suspend=15, expression="b"))
        await trio.sleep(1)
        await caller.send(addr, b"unwanted", properties="TAGS\x01a")
        await trio.sleep(0.1)
        assert reader.answer is None
        await trio.sleep(5)
        assert reader.answer is not None
        assert reader.answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert reader.answer.ext_fields["nextBeginOffset"] == "2"


async def test_wanted_arrival_behind_rejected_ones_wakes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, reader = cluster.master.broker.address, Reader()
        await caller.send(addr, b"first", properties="TAGS\x01a")
        nursery.start_soon(lambda: reader.pull(caller, addr, 1, suspend=15, expression="b"))
        await wait_all_tasks_blocked()
        await caller.send(addr, b"unwanted", properties="TAGS\x01a")
        await caller.send(addr, b"wanted", properties="TAGS\x01b")
        await wait_all_tasks_blocked()
        assert reader.answer is not None
        assert bodies(reader.answer) == [b"wanted"]
        assert reader.seconds < 1


async def test_slave_wakes_its_readers_too(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await caller.send(master.address, b"first")
        await trio.sleep(20)
        reader = Reader()
        nursery.start_soon(lambda: reader.pull(caller, slave.address, 1, suspend=15))
        await trio.sleep(3)
        await caller.send(master.address, b"second")
        await trio.sleep(0.5)
        assert reader.answer is not None
        assert bodies(reader.answer) == [b"second"]


async def test_slave_answers_a_held_pull_when_the_transfer_arrives(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """The latency of one transfer, to the millisecond: no period of anything."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await caller.send(master.address, b"first")
        await trio.sleep(20)
        network = cluster.memory_network
        network.delay(cluster.master.host, cluster.slaves[0].host, 0.25)
        reader = Reader()
        nursery.start_soon(lambda: reader.pull(caller, slave.address, 1, suspend=15))
        await trio.sleep(3)
        await caller.send(master.address, b"second")
        await trio.sleep(1)
        assert reader.answer is not None
        assert bodies(reader.answer) == [b"second"]
        assert reader.seconds == pytest.approx(3.25, abs=0.002)


async def test_closed_connection_leaves_no_pull_behind(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with EmbeddedCluster() as cluster:
        addr, held = cluster.master.broker.address, cluster.master.broker.state.held_pulls
        async with caller_of(cluster) as caller:
            await caller.send(addr, b"first")
            with trio.move_on_after(2):
                await Reader().pull(caller, addr, 1, suspend=15)
            assert len(held) == 1
        await wait_all_tasks_blocked()
        assert len(held) == 0


class Faulty:
    """Fails in one call of the store, for one queue, as a disk or a bug would."""

    def __init__(self, store: Any, fault: Exception, name: str) -> None:
        self.calls = 0
        self._call = getattr(store, name)
        self._fault = fault

    def __call__(self, topic: str, queue_id: int, *args: Any, **more: Any) -> Any:
        if queue_id == 0:
            self.calls += 1
            raise self._fault
        return self._call(topic, queue_id, *args, **more)


@pytest.mark.parametrize("fault", [OSError(5, "Input/output error"), ZeroDivisionError("a bug")])
@pytest.mark.parametrize(
    ("expression", "name"),
    [("*", "get_message"), ("blue", "get_message"), ("*", "seen_queue_end")],
    ids=["executed again", "filter", "look"],
)
async def test_fault_in_a_held_pull_is_answered_to_it_and_touches_no_other(
    expression: str,
    name: str,
    fault: Exception,
    autojump_clock: MockClock,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        addr, readers = broker.address, [Reader(), Reader(), Reader()]
        for queue_id in (0, 1):
            await caller.send(addr, b"first", queue_id=queue_id)

        async def pull(reader: Reader, queue_id: int) -> None:
            await reader.pull(caller, addr, 1, queue_id=queue_id, suspend=15, expression=expression)

        nursery.start_soon(pull, readers[0], 0)
        nursery.start_soon(pull, readers[1], 1)
        await trio.sleep(1)
        faulty = Faulty(broker.store, fault, name)
        monkeypatch.setattr(broker.store, name, faulty)
        if name == "seen_queue_end":
            await trio.sleep(5)  # the look at all of them
        else:
            await caller.send(addr, b"second", queue_id=0, properties="TAGS\1blue\2")
        await wait_all_tasks_blocked()
        answer = readers[0].answer
        assert faulty.calls == 1
        assert answer is not None
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert (answer.remark or "").startswith(f"{type(fault).__name__}, which the log has as")
        errors = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert [record.exc_info is not None for record in errors] == [True]
        await caller.send(addr, b"second", queue_id=1, properties="TAGS\1blue\2")
        await wait_all_tasks_blocked()
        assert readers[1].answer is not None
        assert bodies(readers[1].answer) == [b"second"]
        assert len(broker.state.held_pulls) == 0
        monkeypatch.undo()
        await readers[2].pull(caller, addr, 0, expression="*")
        assert readers[2].answer is not None
        assert bodies(readers[2].answer)[0] == b"first"


class Executor:
    """Counts the pulls that are woken."""

    def __init__(self) -> None:
        self.woken: Counter[int] = Counter()

    def execute_held(self, pull: HeldPull) -> None:
        self.woken[pull.header.queue_id] += 1


async def test_what_arrived_before_the_service_runs_wakes_pulls(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with opened(MemoryDisk()) as store:
        held, executor = HeldPulls(), Executor()
        held.add(held_pull(queue_id=0, deadline=5, offset=0))
        store.append(put_of(topic="t", queue_id=0))
        await wait_all_tasks_blocked()
        service = PullRequestHoldService(held, executor, store, standing=CurrentStanding())
        await nursery.start(service.run)
        await trio.sleep(1)  # The next look without an arrival is later.
        assert executor.woken[0] == 1


async def test_others_have_their_turn_while_many_pulls_are_woken(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    count = 20 * TURN_PULLS
    async with opened(MemoryDisk()) as store:
        held, executor = HeldPulls(), Executor()
        service = PullRequestHoldService(held, executor, store, standing=CurrentStanding())
        await nursery.start(service.run)
        for queue_id, pulls in ((0, count), (1, 1)):
            for _ in range(pulls):
                held.add(held_pull(queue_id=queue_id, deadline=2, offset=0))
        store.append(put_of(topic="t", queue_id=0))
        store.append(put_of(topic="t", queue_id=1))
        turns = 0
        while not executor.woken[1]:
            await trio.lowlevel.checkpoint()
            turns += 1
        assert turns < 5
        assert executor.woken[0] <= 4 * TURN_PULLS
        gone = next(iter(held.at(("t", 0))[::-1]))
        held.remove(gone)  # Its connection has ended meanwhile.
        while executor.woken[0] < count - 1:
            before = executor.woken[0]
            await trio.lowlevel.checkpoint()
            assert executor.woken[0] - before <= 2 * TURN_PULLS
        for _ in range(count):
            held.add(held_pull(deadline=trio.current_time() + 1, offset=1))
        await trio.sleep(0.999)
        assert executor.woken[0] == count - 1
        await trio.sleep(0.002)
        assert executor.woken[0] == 2 * count - 1
        assert len(held) == 0


async def test_stranger_with_all_places_does_not_end_long_polling_for_others(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    """And no pull is held for longer than SUSPEND_LIMIT."""
    async with (
        EmbeddedCluster() as cluster,
        caller_of(cluster) as caller,
        caller_of(cluster) as stranger,
    ):
        broker = cluster.master.broker
        held = broker.state.held_pulls
        held._limit = 10
        await caller.send(broker.address, b"first")
        strangers, mine = [Reader() for _ in range(10)], Reader()

        async def pull(caller: Any, reader: Reader, suspend: float) -> None:
            with suppress(RequestTimeoutError):
                await reader.pull(caller, broker.address, 1, suspend=suspend)

        for reader in strangers:
            nursery.start_soon(pull, stranger, reader, 2.0**50)
        await trio.sleep(0.1)
        assert len(held) == 10
        nursery.start_soon(pull, caller, mine, 5)
        await trio.sleep(0.1)
        answered = [reader.answer for reader in strangers if reader.answer is not None]
        assert [answer.code for answer in answered] == [ResponseCode.PULL_NOT_FOUND]
        await trio.sleep(5)
        assert mine.seconds == pytest.approx(5, abs=0.01)
        await trio.sleep(SUSPEND_LIMIT)
        assert len(held) == 0
