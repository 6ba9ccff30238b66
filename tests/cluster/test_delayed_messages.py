"""Delayed messages and transactions over a change of masters: nothing is lost, little comes twice."""

from collections import Counter
from collections.abc import Iterator

import pytest
import trio
from tests.support.clocks import SteppedClock
from tests.support.further import every_other
from tests.support.pair import pair_of
from tests.support.steps import Steps
from tests.support.transaction_producer import COMMIT, HALF, OPERATIONS, producing_on

from rocketrio_broker.delay.delayed_puts import parked_from
from rocketrio_broker.role import service
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.codes import ResponseCode

DELAY = "DELAY\x01"
PARKED = {"delayed": f"{DELAY}3", "half": "TRAN_MSG\x01true"}


async def test_slave_parks_and_delivers_nothing_by_itself() -> None:
    async with pair_of() as pair:
        master, slave, call = pair.master, pair.slave, pair.caller
        for number in range(20):
            await call.send(master.address, b"%d" % number, properties=DELAY + "2")
        await trio.sleep(10)
        assert master.store.max_physical_offset == slave.store.max_physical_offset
        for broker in (master, slave):
            assert broker.store.queue_bounds("orders", 0) == (0, 20)
        parked = [
            broker.store.queues()["SCHEDULE_TOPIC_XXXX"][1].entries(0, 20)
            for broker in (master, slave)
        ]
        assert parked[0] == parked[1]  # The times of delivery too: they are computed there again.


@pytest.mark.parametrize("kind", ["delayed", "half"])
async def test_new_master_has_the_topic_of_a_message_that_is_parked(kind: str) -> None:
    """It took over before it copied the table with the topic, and no queue shows it that there is one."""
    async with pair_of() as pair:
        await pair.level()
        await pair.send("one", topic="young", properties=PARKED[kind])
        await pair.level()
        assert pair.slave.state.topics.topic_config("young") is None
        await pair.fail_over()
        assert pair.slave.state.topics.topic_config("young") is not None
        if kind == "delayed":
            await trio.sleep(12)
            assert await pair.read(pair.second, topic="young") == ["one"]


async def test_reading_many_parked_messages_gives_way_to_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read_in: Counter[int] = Counter()
    steps = Steps()

    def counted(store: MessageStore, address: int) -> Iterator[PutMessage]:
        for put in parked_from(store, address):
            read_in[steps.total] += 1
            yield put

    monkeypatch.setattr(service, "parked_from", counted)
    monkeypatch.setattr(service, "PARKED_TURN", 7)
    async with pair_of() as pair:
        for number in range(50):
            await pair.send(str(number), topic="young", properties=f"{DELAY}18")
        await pair.level()
        trio.lowlevel.add_instrument(steps)
        await pair.fail_over()
        trio.lowlevel.remove_instrument(steps)
    assert sum(read_in.values()) >= 50
    assert max(read_in.values()) <= 7


@pytest.mark.slow
@pytest.mark.parametrize("killed_after", every_other([0.5, 2.0, 6.5, 11.0, 25.0]))
async def test_slave_that_takes_over_continues(killed_after: float) -> None:
    async with pair_of() as pair:
        master, slave, call = pair.master, pair.slave, pair.caller
        await trio.sleep(1)
        sent = [b"%d" % number for number in range(100)]
        for number, body in enumerate(sent):
            level = (1, 2, 3, 4)[number % 4]
            await call.send(master.address, body, properties=f"{DELAY}{level}")
            await trio.sleep(0.01)
        await trio.sleep(killed_after)
        await pair.fail_over()
        await trio.sleep(60)
        counts = Counter(await call.read(slave.address))
        assert counts.keys() == set(sent)
        assert max(counts.values()) <= 2
        # A rocketrio slave gets the progress every second.
        assert sum(counts.values()) <= len(sent) + 30


@pytest.mark.slow
async def test_brokers_change_places_and_each_message_comes_once() -> None:
    async with pair_of() as pair:
        one, other = pair.members
        sent: list[str] = []
        for turn in range(4):
            for level in (1, 3, 4):
                text = f"{turn}-{level}"
                await pair.send(text, at=one, properties=f"{DELAY}{level}")
                sent.append(text)
            await trio.sleep(15)
            await pair.change(one, "slave", 2 + turn)
            await pair.level(one, other)
            await trio.sleep(12)  # The slave has the progress and its own log on its disk.
            await pair.promote(other)
            one, other = other, one
        await trio.sleep(60)
        for member in pair.members:
            assert sorted(await pair.read(member)) == sorted(sent)


@pytest.mark.slow
async def test_transactions_go_on_at_the_slave_that_takes_over() -> None:
    async with pair_of() as pair, producing_on(pair.cluster) as producer:
        slave = pair.slave
        await trio.sleep(1)
        decided = [await producer.send(b"decided-%d" % number) for number in range(5)]
        for half in decided:
            await producer.end(half, COMMIT)
        late = await producer.send(b"decided at the new master")
        await producer.send(b"asked about")
        await trio.sleep(31)
        assert [message.body for _, message in producer.asked] == [
            b"decided at the new master",
            b"asked about",
        ]
        await pair.fail_over()
        producer.other_addr = slave.address
        producer.decide = lambda message: COMMIT if message.body == b"asked about" else None
        await producer.heartbeat()
        answer = await producer.end(late, COMMIT)
        assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(100)
        counts = Counter(await producer.call.read(slave.address))
        assert counts == Counter(
            [b"decided-%d" % number for number in range(5)]
            + [b"decided at the new master", b"asked about"]
        )
        assert len(await producer.call.read(slave.address, topic=OPERATIONS)) == 7
        assert slave.store.queue_bounds(HALF, 0) is not None


async def test_slave_that_takes_over_with_store_times_ahead_delivers() -> None:
    clock = SteppedClock()
    async with pair_of(wall_clock=clock) as pair:
        master, slave, call = pair.master, pair.slave, pair.caller
        await call.create_topic(master.address)
        await trio.sleep(10)  # The slave has copied it.
        clock.step_ms = 40 * 86_400_000
        await call.send(master.address, b"ahead", properties=DELAY + "3")
        await trio.sleep(2)
        clock.step_ms = 0
        await call.send(master.address, b"back", properties=DELAY + "3")
        await trio.sleep(2)
        await pair.fail_over()
        await trio.sleep(12)
        assert await call.read(slave.address) == [b"ahead", b"back"]
        assert "store time is 40 d ahead" in slave.store.problems()[0]
