"""Questions to brokers: many at once, asked again after a failure, and the positions that only brokers know."""

import json
from itertools import pairwise
from typing import Any

import pytest
import trio
from tests.spark.in_memory import COUNT, discover, loaded, read_options
from tests.support.running_cluster import channel_pool, load_queue, numbered
from trio.testing import MockClock

from rocketrio.cluster.api import ClientAPI, QueueEnd
from rocketrio.cluster.name_servers import NameServers
from rocketrio.spark.errors import (
    BrokerUnreachableError,
    OffsetOutOfRangeError,
    OptionError,
    SparkSourceError,
    TopicNotFoundError,
)
from rocketrio.spark.reading.questions import (
    QUESTIONS_AT_ONCE,
    Retries,
    for_each,
    repeated,
    source_errors,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import (
    BrokerError,
    BrokerSystemError,
    NotReachableError,
    RequestTimeoutError,
    RouteNotFoundError,
)
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(QUESTIONS_AT_ONCE + 1)]


async def test_of_two_pieces_of_advice_the_one_nearer_to_the_cause_is_given() -> None:
    async with open_channel_pool(dial_tcp) as pool:
        name_servers = NameServers(pool, ("127.0.0.1:1",))
        with pytest.raises(BrokerUnreachableError) as caught, source_errors():
            await name_servers.topic_route("orders")
    text = str(caught.value)
    assert "no name server answered (127.0.0.1:1)" in text
    assert text.endswith("Start one, or give its address as a name server or in NAMESRV_ADDR")


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (
            RouteNotFoundError("no route", topic="orders"),
            TopicNotFoundError,
            "no route (topic orders). Check `subscribe`",
        ),
        (NotReachableError("gone", remedy=""), BrokerUnreachableError, "gone. Check that the brokers run"),
        (BrokerError("refused", code=1), SparkSourceError, "refused"),
    ],
)  # fmt: skip
def test_errors_of_the_client_get_a_code(
    raised: Exception, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=r"^\[ROCKETMQ_") as caught, source_errors():
        raise raised
    assert said in str(caught.value)


async def test_error_that_may_pass_is_asked_again(autojump_clock: MockClock) -> None:
    asked: list[float] = []

    async def ask() -> int:
        asked.append(trio.current_time())
        if len(asked) < 3:
            raise NotReachableError("not yet")
        return 7

    assert await repeated(ask, Retries(3, 0.5)) == 7
    assert [at - asked[0] for at in asked] == [0, 0.5, 1.0]
    asked.clear()
    with pytest.raises(NotReachableError, match="not yet"):
        await repeated(ask, Retries(1, 0.5))


async def test_the_first_failure_is_raised_alone_and_ends_the_rest(
    autojump_clock: MockClock,
) -> None:
    asked = 0

    async def ask(queue: MessageQueue) -> None:
        nonlocal asked
        asked += 1
        await trio.sleep(1)
        raise NotReachableError(f"{queue} is away")

    with pytest.raises(NotReachableError, match="is away"):
        await for_each(QUEUES, ask)
    assert asked == QUESTIONS_AT_ONCE  # those that were under way


async def _ranges(cluster: EmbeddedCluster, **given: str) -> list[tuple[int, int]]:
    found = await discover(read_options(cluster, **given), dial=cluster.dial)
    assert not found.losses
    return [(part.start, part.end) for part in found.ranges]


async def _commit(cluster: EmbeddedCluster, group: str, offsets: dict[int, int]) -> None:
    async with channel_pool(cluster.dial) as pool:
        for queue_id, offset in offsets.items():
            await ClientAPI(pool).update_consumer_offset(
                cluster.master.broker.address,
                group,
                MessageQueue("orders", "broker-a", queue_id),
                offset,
            )


async def test_a_group_is_followed_from_its_commits(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        await _commit(cluster, "billing", {0: 120})
        group = {"startingOffsets": "group", "consumerGroup": "billing"}
        assert await _ranges(cluster, **group) == [(120, COUNT), (0, COUNT)]
        group["startingOffsetsFallback"] = "latest"
        assert await _ranges(cluster, **group) == [(120, COUNT), (COUNT, COUNT)]
        group["consumerGroup"] = "unknown"
        assert await _ranges(cluster, **group) == [(COUNT, COUNT), (COUNT, COUNT)]


async def test_a_group_that_is_past_the_end_has_nothing_to_read(autojump_clock: MockClock) -> None:
    async with loaded(queues=1) as cluster:
        await _commit(cluster, "billing", {0: 120})
        found = await _ranges(
            cluster,
            startingOffsets="group",
            consumerGroup="billing",
            endingOffsets='{"orders":{"broker-a":{"0":100}}}',
        )
        assert found == [(100, 100)]


async def test_what_a_new_master_does_not_show_yet_is_no_loss(autojump_clock: MockClock) -> None:
    async with loaded(queues=1) as cluster:
        await _commit(cluster, "billing", {0: 120})
        store = cluster.master.broker.store
        entry = store.queue_table.by_key["orders", 0].entry(100)
        assert entry is not None
        store.read_gate.set_reported(entry[0])
        assert await _ranges(cluster) == [(0, 100)]
        group = {"startingOffsets": "group", "consumerGroup": "billing"}
        assert await _ranges(cluster, **group) == [(120, 120)]
        store.read_gate.open()
        assert await _ranges(cluster, **group) == [(120, COUNT)]


async def test_what_a_group_committed_beyond_the_queue_is_a_loss(
    autojump_clock: MockClock,
) -> None:
    async with loaded(queues=1) as cluster:
        await _commit(cluster, "billing", {0: COUNT + 9})
        options = read_options(cluster, startingOffsets="group", consumerGroup="billing")
        found = await discover(options, dial=cluster.dial)
    (loss,) = found.losses
    assert (loss.start, loss.end) == (COUNT, COUNT + 9)
    assert isinstance(loss.error(), OffsetOutOfRangeError)


async def test_each_queue_may_have_its_time(autojump_clock: MockClock) -> None:
    async with loaded(count=100) as cluster, channel_pool(cluster.dial) as pool:
        master = cluster.master.broker.address
        await trio.sleep(60)
        later_ms = cluster.wall_clock.now_ms()
        await load_queue(pool, master, "orders", 0, numbered(0, 50))

        def times(first: int, second: int) -> str:
            return json.dumps({"orders": {"broker-a": {"0": first, "1": second}}})

        starts = times(later_ms, 0)
        assert await _ranges(cluster, startingOffsetsByTimestamp=starts) == [(100, 150), (0, 100)]
        ends = times(later_ms, later_ms)  # of the second queue none is that new: to its end
        assert await _ranges(cluster, endingOffsetsByTimestamp=ends) == [(0, 100), (0, 100)]

        with pytest.raises(OptionError, match=r"no message of orders@broker-a:1 was stored at"):
            await _ranges(cluster, startingOffsetsByTimestamp=ends)
        with pytest.raises(OptionError, match="startingOffsetsByTimestampStrategy=latest"):
            await _ranges(cluster, startingTimestamp=str(later_ms))
        strategy = {"startingOffsetsByTimestampStrategy": "latest"}
        assert await _ranges(cluster, startingOffsetsByTimestamp=ends, **strategy) == [
            (100, 150),
            (100, 100),
        ]


async def test_times_must_name_every_queue(autojump_clock: MockClock) -> None:
    async with loaded() as cluster:
        for option in ("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"):
            with pytest.raises(OptionError, match=f"{option} lacks orders@broker-a:1"):
                await _ranges(cluster, **{option: '{"orders":{"broker-a":{"0":1790000000000}}}'})


async def test_questions_are_asked_again_as_often_as_said(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue_end = ClientAPI.queue_end
    failures: list[float] = []

    async def fails(self: ClientAPI, addr: str, queue: MessageQueue, **named: Any) -> QueueEnd:
        if len(failures) < 4:
            failures.append(trio.current_time())
            raise BrokerSystemError("the store is busy")
        return await queue_end(self, addr, queue, **named)

    monkeypatch.setattr(ClientAPI, "queue_end", fails)
    async with loaded(queues=1) as cluster:
        with pytest.raises(Exception, match="the store is busy"):
            await _ranges(cluster, **{"fetchOffset.numRetries": "2"})
        assert len(failures) == 3
        failures.clear()
        given = {"fetchOffset.numRetries": "4", "fetchOffset.retryIntervalMs": "1500"}
        assert await _ranges(cluster, **given) == [(0, COUNT)]
    pauses = [after - before for before, after in pairwise(failures)]
    assert pauses == pytest.approx([1.5] * 3, abs=0.1)


async def test_name_servers_are_asked_again_too(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    min_offset = ClientAPI.min_offset
    calls = 0

    async def silent_once(self: ClientAPI, addr: str, queue: MessageQueue) -> int:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise RequestTimeoutError("no answer")
        return await min_offset(self, addr, queue)

    monkeypatch.setattr(ClientAPI, "min_offset", silent_once)
    async with loaded(queues=1) as cluster:
        assert await _ranges(cluster) == [(0, COUNT)]
        options = read_options(cluster, nameServer="10.9.9.9:1")
        started = trio.current_time()
        with pytest.raises(BrokerUnreachableError):
            await discover(options, dial=cluster.dial)
        assert trio.current_time() - started >= 3 * 0.2
