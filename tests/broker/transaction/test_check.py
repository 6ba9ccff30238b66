"""Transactions without a decision: when their producers are asked, how often, and what is kept over a restart."""

from contextlib import suppress

import attrs
import pytest
import trio
from tests.support.clocks import SteppedClock
from tests.support.stores import put_of
from tests.support.transaction_producer import (
    COMMIT,
    GIVEN_UP,
    HALF,
    OPERATIONS,
    ROLLBACK,
    UNKNOWN,
    TransactionProducer,
    producing,
    producing_on,
)
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_broker.transaction import check
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.record.properties import MAX_PROPERTIES_SIZE

ROUND = 30.0
"""transaction_check_interval"""


def offsets(producer: TransactionProducer) -> tuple[int, int]:
    """Progress on both topics."""
    query = producer.cluster.master.broker.state.consumer_offsets.query_offset
    return query("CID_RMQ_SYS_TRANS", HALF, 0), query("CID_RMQ_SYS_TRANS", OPERATIONS, 0)


async def test_undecided_message_is_checked_and_committed(autojump_clock: MockClock) -> None:
    async with producing(lambda _: COMMIT) as producer:
        half = await producer.send(b"x", properties="TAGS\x01red", queue_id=1)
        assert producer.asked == []
        await trio.sleep(ROUND + 1)
        ((header, message),) = producer.asked
        assert (header.msg_id, header.transaction_id) == (half.key, half.key)
        assert (message.topic, message.queue_id, message.body) == ("orders", 1, b"x")
        assert message.property_value("TRANSACTION_CHECK_TIMES") == "1"
        (seen,) = await producer.seen(queue_id=1)
        assert (seen.body, seen.tags) == (b"x", "red")
        assert seen.prepared_transaction_offset == header.commit_log_offset
        await trio.sleep(3 * ROUND)
        assert len(producer.asked) == 1
        assert len(await producer.seen(queue_id=1)) == 1


async def test_undecided_message_is_checked_and_rolled_back(autojump_clock: MockClock) -> None:
    async with producing(lambda _: ROLLBACK) as producer:
        await producer.send(b"never")
        await trio.sleep(4 * ROUND)
        assert len(producer.asked) == 1
        assert await producer.seen() == []


async def test_decided_messages_are_not_asked_about(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        for number in range(40):
            half = await producer.send(b"%d" % number)
            await producer.end(half, ROLLBACK if number % 2 else COMMIT)
        await trio.sleep(3 * ROUND)
        assert producer.asked == []
        assert len(await producer.seen()) == 20


async def test_young_message_is_left_alone(autojump_clock: MockClock) -> None:
    """Younger than transaction_timeout when the round comes."""
    async with producing(lambda _: COMMIT) as producer:
        await trio.sleep(ROUND - 5)
        await producer.send(b"x")
        await trio.sleep(6)
        assert producer.asked == []
        await trio.sleep(ROUND)
        assert len(producer.asked) == 1


@pytest.mark.parametrize(("seconds", "round_number"), [(1, 1), (45, 2), (100, 4)])
async def test_message_with_an_immunity_time_is_first_checked_after_it(
    autojump_clock: MockClock, seconds: int, round_number: int
) -> None:
    async with producing(lambda _: COMMIT) as producer:
        await producer.send(b"x", properties=f"CHECK_IMMUNITY_TIME_IN_SECONDS\x01{seconds}")
        await producer.send(b"usual")
        await trio.sleep(ROUND * round_number - 1)
        assert [message.body for _, message in producer.asked].count(b"x") == 0
        await trio.sleep(2)
        assert [message.body for _, message in producer.asked].count(b"x") == 1
        await trio.sleep(2 * ROUND)
        assert sorted(await producer.seen_bodies()) == [b"usual", b"x"]


@pytest.mark.parametrize("answer", [UNKNOWN, None])
async def test_transaction_is_given_up_after_enough_checks(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, answer: int | None
) -> None:
    async with producing(
        lambda _: answer, transaction_check_interval=5.0, transaction_timeout=1.0
    ) as producer:
        await producer.send(b"nobody knows")
        await trio.sleep(5 * 20)
        times = [message.property_value("TRANSACTION_CHECK_TIMES") for _, message in producer.asked]
        assert times == [str(number) for number in range(1, 16)]
        (message,) = await producer.seen(GIVEN_UP)
        assert (message.body, message.property_value("REAL_TOPIC")) == (b"nobody knows", "orders")
        assert await producer.seen() == []
        assert "transaction given up" in caplog.text


async def test_decision_that_comes_after_that_counts_once(autojump_clock: MockClock) -> None:
    async with producing(transaction_check_max=1) as producer:
        half = await producer.send(b"at last")
        await trio.sleep(4 * ROUND)
        assert len(await producer.seen(GIVEN_UP)) == 1
        for _ in range(2):
            await producer.end(half, COMMIT)
        assert await producer.seen_bodies() == [b"at last"]


@pytest.mark.slow
async def test_group_without_producers_loses_nothing(autojump_clock: MockClock) -> None:
    """Java would have given it up: here no producer means no question."""
    async with EmbeddedCluster(cluster_name="lab") as cluster:
        async with producing_on(cluster) as gone:
            await gone.send(b"patient")
        await trio.sleep(3600)
        async with producing_on(cluster, lambda _: COMMIT) as back:
            await trio.sleep(ROUND + 1)
            assert await back.seen_bodies() == [b"patient"]
            assert len(await back.seen(HALF)) == 2  # no copies but that of the one question


@pytest.mark.slow
async def test_group_that_never_comes_back_is_given_up_with_its_time_in_the_log(
    autojump_clock: MockClock,
) -> None:
    store = attrs.evolve(SMALL_STORE, file_reserved_time=1.0)
    async with EmbeddedCluster(cluster_name="lab", store=store) as cluster:
        async with producing_on(cluster) as gone:
            await gone.send(b"orphan")
        await trio.sleep(3500)
        bounds = cluster.master.broker.store.queue_bounds
        assert bounds(GIVEN_UP, 0) is None
        await trio.sleep(200)
        assert bounds(GIVEN_UP, 0) == (0, 1)


async def test_producer_with_a_wrong_clock_is_asked(autojump_clock: MockClock) -> None:
    async with producing(lambda _: COMMIT) as producer:
        await producer.send(b"1970", born_timestamp=0)
        await producer.send(b"2100", born_timestamp=4_102_444_800_000)
        await trio.sleep(ROUND + 1)
        assert sorted(await producer.seen_bodies()) == [b"1970", b"2100"]


async def test_producers_of_a_group_are_asked_in_turn(autojump_clock: MockClock) -> None:
    async with (
        producing(lambda _: COMMIT) as first,
        producing_on(first.cluster, lambda _: COMMIT) as second,
    ):
        for number in range(10):
            await first.send(b"%d" % number)
        await trio.sleep(ROUND + 1)
        assert (len(first.asked), len(second.asked)) == (5, 5)


async def test_restart_continues_the_checks_where_they_were(autojump_clock: MockClock) -> None:
    """Nothing decided is asked about again, and what was copied is not copied a second time."""
    async with producing() as producer:
        decided = await producer.send(b"decided")
        await producer.end(decided, COMMIT)
        await producer.send(b"open")
        await trio.sleep(ROUND + 1)
        assert [message.body for _, message in producer.asked] == [b"open"]
        await producer.cluster.kill_master()
        await producer.cluster.restart_master()
        producer.decide = lambda _: COMMIT
        await producer.heartbeat()
        await trio.sleep(2 * ROUND + 1)
        assert [message.body for _, message in producer.asked] == [b"open", b"open"]
        assert await producer.seen_bodies() == [b"decided", b"open"]
        times = producer.asked[-1][1].property_value("TRANSACTION_CHECK_TIMES")
        assert times == "2"


@pytest.mark.parametrize("topic", [HALF, OPERATIONS])
async def test_progress_beyond_the_end_hides_no_open_message_and_asks_about_no_decided_one(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, topic: str
) -> None:
    async with producing() as producer:
        decided = await producer.send(b"decided")
        await producer.end(decided, COMMIT)
        await producer.send(b"open")
        offsets_here = producer.cluster.master.broker.state.consumer_offsets
        offsets_here.commit_offset("CID_RMQ_SYS_TRANS", topic, 0, 99)
        await producer.cluster.master.stop()
        await producer.cluster.restart_master()
        producer.decide = lambda _: COMMIT
        await producer.heartbeat()
        await trio.sleep(2 * ROUND + 1)
        assert [message.body for _, message in producer.asked] == [b"open"]
        assert await producer.seen_bodies() == [b"decided", b"open"]
        assert f"lay beyond the end of its queue topic={topic} before=99" in caplog.text
        await trio.sleep(2 * ROUND)
        assert max(offsets(producer)) < 99


@pytest.mark.slow
async def test_progress_follows_what_is_decided(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        halves = [await producer.send(b"%d" % number) for number in range(5)]
        for half in (halves[0], halves[2], halves[1], halves[4]):
            await producer.end(half, ROLLBACK)
        await producer.send(b"young", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x01100000")
        producer.decide = lambda _: ROLLBACK
        await trio.sleep(4 * ROUND)
        # 3 was copied as 6, and both 4 operations and that for the copy are done; 5 is still open.
        assert offsets(producer) == (5, 4)
        broker = producer.cluster.master.broker
        for topic, end in ((HALF, 7), (OPERATIONS, 5)):
            kept = broker.state.consumer_offsets.query_offset("CID_RMQ_SYS_TRANS", topic, 1)
            assert kept == end == broker.store.next_queue_offset(topic, 0)
        await producer.cluster.kill_master()
        await producer.cluster.restart_master()
        await producer.heartbeat()
        await trio.sleep(4 * ROUND)
        assert [message.body for _, message in producer.asked] == [b"3"]


@pytest.mark.slow
async def test_progress_waits_for_slaves_that_could_take_over(autojump_clock: MockClock) -> None:
    async with producing(slaves=1) as producer:
        await trio.sleep(12)
        await producer.end(await producer.send(b"x"), COMMIT)
        connection = producer.cluster.master.broker.ha_service.connections[0]
        behind = connection.slave_ack_offset - 1
        check_service = producer.cluster.master.broker.state.live_slaves
        check_service.watch([Behind(behind)])
        await trio.sleep(5 * ROUND)
        assert offsets(producer) == (-1, -1)
        check_service.watch([])
        await trio.sleep(2 * ROUND)
        assert offsets(producer) == (1, 1)


@pytest.mark.slow
async def test_progress_waits_until_the_log_is_confirmed(autojump_clock: MockClock) -> None:
    async with producing() as producer:
        gate = producer.cluster.master.broker.store.read_gate
        await producer.end(await producer.send(b"x"), COMMIT)
        gate.set_reported(producer.cluster.master.broker.store.max_physical_offset)
        await producer.end(await producer.send(b"y"), COMMIT)
        await trio.sleep(5 * ROUND)
        assert offsets(producer) == (-1, -1)
        gate.open()
        await trio.sleep(3 * ROUND)
        assert offsets(producer) == (2, 2)


@attrs.define
class Behind:
    """A slave that does not come on."""

    slave_ack_offset: int
    addr: str = "10.0.0.77:1"
    slave_request_offset: int | None = 0


async def test_open_message_moves_along_with_the_log(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file may be deleted, and a broker that starts reads all that follows it."""
    monkeypatch.setattr(check, "MOVE_DISTANCE", 10)
    async with EmbeddedCluster(cluster_name="lab") as cluster:
        async with producing_on(cluster) as gone:
            await gone.send(b"patient")
            for _ in range(25):
                await gone.end(await gone.send(b"x"), ROLLBACK)
        await trio.sleep(ROUND + 1)
        async with producing_on(cluster, lambda _: COMMIT) as back:
            assert [message.body for message in await back.seen(HALF)][26:] == [b"patient"]
            await trio.sleep(3 * ROUND)
            assert await back.seen_bodies() == [b"patient"]
            assert back.asked[0][1].property_value("TRANSACTION_CHECK_TIMES") == "1"
            assert offsets(back)[0] >= 27


async def test_message_whose_record_is_gone_is_passed_over(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with producing() as producer:
        await producer.send(b"old", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x0190")
        await trio.sleep(ROUND + 1)
        state = producer.cluster.master.broker.state
        ((offset, half),) = state.ledger.open.items()
        state.ledger.open[offset] = attrs.evolve(half, physical_offset=1 << 30)
        await trio.sleep(100)
        assert "not in the log any more" in caplog.text
        assert state.ledger.open == {}


async def test_resent_half_message_is_asked_about_once(autojump_clock: MockClock) -> None:
    """A client whose send was not answered in time sends it again under the same key."""
    async with producing(lambda _: COMMIT) as producer:
        await producer.send(b"first try")
        producer.sent -= 1
        half = await producer.send(b"first try")
        await producer.end(half, COMMIT)
        await trio.sleep(3 * ROUND)
        assert producer.asked == []
        assert await producer.seen_bodies() == [b"first try"]


DAY_MS = 86_400_000


@pytest.mark.slow
async def test_clock_that_was_ahead_holds_no_check(autojump_clock: MockClock) -> None:
    clock = SteppedClock()
    async with (
        EmbeddedCluster(wall_clock=clock) as cluster,
        producing_on(cluster, lambda _: COMMIT) as producer,
    ):
        clock.step_ms = 40 * DAY_MS
        await producer.send(b"while ahead")
        await trio.sleep(10)
        clock.step_ms = 0
        await producer.send(b"after")
        await trio.sleep(3 * ROUND)
        assert sorted(await producer.seen_bodies()) == [b"after", b"while ahead"]
        await producer.send(b"later")
        await cluster.master.kill()
        await cluster.restart_master()
        await producer.heartbeat()
        await trio.sleep(3 * ROUND)
        assert sorted(await producer.seen_bodies()) == [b"after", b"later", b"while ahead"]


async def test_half_message_read_while_the_clock_was_ahead_is_due_in_time(
    autojump_clock: MockClock,
) -> None:
    clock = SteppedClock()
    async with (
        EmbeddedCluster(wall_clock=clock) as cluster,
        producing_on(cluster, lambda _: COMMIT) as producer,
    ):
        clock.step_ms = 40 * DAY_MS
        await producer.send(b"x", properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x0150")
        await trio.sleep(ROUND + 1)
        clock.step_ms = 0
        await trio.sleep(2 * ROUND)
        assert await producer.seen_bodies() == [b"x"]


async def test_clock_that_jumps_ahead_gives_up_nothing(autojump_clock: MockClock) -> None:
    clock = SteppedClock()
    async with EmbeddedCluster(wall_clock=clock) as cluster:
        async with producing_on(cluster) as producer:
            await producer.send(b"x")
        clock.step_ms = 40 * DAY_MS
        await trio.sleep(3 * ROUND)
        assert cluster.master.broker.store.queue_bounds(GIVEN_UP, 0) is None


@pytest.mark.parametrize("digits", [400, 5000])
@pytest.mark.parametrize(
    "name",
    ["CHECK_IMMUNITY_TIME_IN_SECONDS", "TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET"],
)
async def test_huge_number_in_a_half_message_ends_no_check_and_no_start(
    autojump_clock: MockClock, name: str, digits: int
) -> None:
    async with producing() as producer:
        await producer.heartbeat()
        await producer.send(b"hostile", properties=f"{name}\x01{'9' * digits}")
        half = await producer.send(b"paid")
        await trio.sleep(2 * ROUND)
        await producer.cluster.kill_master()
        await producer.cluster.restart_master()
        await trio.sleep(2 * ROUND)
        assert (await producer.end(half, COMMIT)).code == ResponseCode.SUCCESS
        assert await producer.seen_bodies() == [b"paid"]


async def test_half_message_that_no_topic_can_take_is_given_up_and_the_next_is_checked(
    autojump_clock: MockClock,
) -> None:
    """Another broker may have parked it: Apache's of 5.x store longer topics."""
    async with producing(lambda _: COMMIT) as producer:
        store = producer.cluster.master.broker.store
        now_ms = producer.cluster.wall_clock.now_ms()
        properties = (
            f"TRAN_MSG\x01true\x02PGROUP\x01producers\x02REAL_TOPIC\x01{'t' * 200}\x02REAL_QID\x010"
        )
        await producer.send(b"before")  # It makes the topic.
        store.append(put_of(b"never", HALF, properties=properties.encode(), born_time_ms=now_ms))
        await producer.send(b"after")
        await trio.sleep(2 * ROUND + 1)
        assert await producer.seen_bodies() == [b"before", b"after"]
        assert await producer.seen_bodies(GIVEN_UP) == [b"never"]


@pytest.mark.slow
async def test_half_message_without_room_for_the_number_of_checks_is_given_up_and_not_in_the_way(
    autojump_clock: MockClock,
) -> None:
    async with producing(lambda _: COMMIT) as producer:
        accepted = []
        for size in range(MAX_PROPERTIES_SIZE - 200, MAX_PROPERTIES_SIZE - 100, 1):
            body = b"%d" % size
            with suppress(AssertionError):  # Refused: it has too many properties to be parked.
                await producer.send(body, properties=f"fill\x01{'x' * size}")
                accepted.append(body)
        await producer.send(b"next")
        await trio.sleep(3 * ROUND)
        delivered = await producer.call.read(producer.addr)
        assert b"next" in delivered
        for _ in range(16):  # One that cannot be asked about uses up its checks.
            await producer.heartbeat()
            await trio.sleep(ROUND)
        given_up = await producer.call.read(producer.addr, topic=GIVEN_UP)
        assert sorted([*delivered, *given_up]) == sorted([*accepted, b"next"])
        assert 0 < len(given_up) < len(accepted) < 100
