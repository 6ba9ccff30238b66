"""The measurements, of a cluster in memory and of workers that pause."""

import pytest
import trio
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import open_admin
from rocketrio.bench import (
    Load,
    Recorder,
    measure_receives,
    measure_replication,
    measure_round_trips,
    measure_sends,
)
from rocketrio.bench.runs import _in_parallel, body_of, fill
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError


async def paused_at_ten(load: Load) -> Recorder:
    """Measure one worker that takes a millisecond for a message, and two seconds for the tenth."""
    recorder = Recorder("x")

    async def do(number: int, since: float) -> None:
        await trio.sleep(2.0 if number == 10 else 0.001)
        now = trio.current_time()
        recorder.add(now, now - since, 1)

    await _in_parallel(load, recorder, [do])
    return recorder


async def test_pause_delays_every_message_that_was_due_in_it(autojump_clock: MockClock) -> None:
    recorder = await paused_at_ten(Load(messages=300, rate=100.0))
    late = [one for one in recorder.latencies if one > 0.1]
    # 190 messages were due within the 1.9 s that end a tenth of a second before the pause did, and some until it was
    # caught up with.
    assert 190 <= len(late) <= 215
    assert max(late) == pytest.approx(2.0)
    assert recorder.is_whole


async def test_pause_delays_one_message_of_a_worker_without_a_rate(
    autojump_clock: MockClock,
) -> None:
    recorder = await paused_at_ten(Load(messages=300))
    assert sum(one > 0.1 for one in recorder.latencies) == 1


async def test_rate_is_kept_and_duration_ends_the_measurement(autojump_clock: MockClock) -> None:
    recorder = Recorder("x")

    async def do(number: int, since: float) -> None:
        recorder.add(trio.current_time(), 0.0, 1)

    figures = await _in_parallel(Load(messages=None, duration=10.0, rate=50.0), recorder, [do, do])
    assert figures.messages == pytest.approx(500, abs=2)
    assert figures.rate == pytest.approx(50.0, rel=0.01)


def test_load_without_an_end_is_refused() -> None:
    with pytest.raises(ConfigError, match="messages= or duration="):
        Load(messages=None)


def test_last_request_holds_the_messages_that_are_left() -> None:
    load = Load(messages=70, batch=32)
    assert [len(load.batch_of(number)) for number in load.numbers(0.0)] == [32, 32, 6]


@pytest.mark.parametrize("size", [1, 15, 16, 17, 200])
def test_body_has_the_size_that_was_asked_for(size: int) -> None:
    assert len(body_of(7, size)) == size


@pytest.mark.slow
async def test_cluster_in_memory_is_measured(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True) as cluster,
        client_of(cluster) as client,
        client_of(cluster, host="10.0.0.101") as other,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic("probe", queues=4)
        sends = await measure_sends([client, other], "probe", Load(messages=100, batch=8))
        assert (sends.messages, sends.statuses, sends.bytes) == (100, {"SEND_OK": 100}, 12_800)
        assert sends.p50 is not None

        recorder = Recorder("consume")
        await fill(client, "probe", Load(messages=50), recorder)
        assert recorder.filled == 50
        received = await measure_receives([client, other], "probe", "g", Load(messages=150))
        assert (received.messages, received.statuses) == (150, {"received": 150})

        trips = await measure_round_trips(client, "probe", "g2", Load(messages=20, in_flight=2))
        assert (trips.messages, trips.errors, trips.is_whole) == (20, 0, True)

        slaves = {"broker-a": [cluster.slaves[0].broker.address]}
        copied = await measure_replication(client, "probe", slaves, Load(messages=20, in_flight=2))
        assert (copied.messages, copied.errors) == (20, 0)
        with pytest.raises(ConfigError, match="has a slave"):
            await measure_replication(client, "probe", {"broker-a": []}, Load(messages=1))


@pytest.mark.slow
async def test_cluster_that_goes_away_is_counted_by_error(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster() as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic("probe")
        recorder = Recorder("produce")
        async with trio.open_nursery() as nursery:
            load = Load(messages=None, duration=30.0, rate=10.0, in_flight=64)
            nursery.start_soon(measure_sends, [client], "probe", load, recorder)
            await trio.sleep(10)
            cluster.silence(cluster.master)
        found = recorder.figures()
        assert found.statuses["SEND_OK"] >= 95
        assert found.errors >= 150
        assert found.messages + found.errors >= 290
