"""The Spark programs among the examples, run as a user would run them, on a pair of brokers; they share one JVM."""

import re
import runpy
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from functools import partial
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
import trio
from tests.examples import programs
from tests.examples.programs import run, started
from tests.support.quick_start import quick_home, shared_jvm

from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIME_LIMIT = 400.0
"""Seconds for one job; Spark alone takes ten to start, and many on a busy machine."""
ENRICHED, HOURLY = 6000, 15_000
"""Flights."""
shell = partial(programs.shell, limit=TIME_LIMIT)


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    quick_home(tmp_path_factory.mktemp("spark"))
    with shared_jvm():
        yield


@pytest.fixture
async def cluster(jvm: None) -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=1, network="loopback", slave_read_enable=True) as running:
        yield running


@pytest.mark.parametrize("name", ["backfill", "dead_letters", "enrich", "hourly_delays"])
@pytest.mark.parametrize("arguments", [(), ("--help",), ("a", "b", "c")])
def test_job_with_wrong_arguments_ends_with_its_usage(
    monkeypatch: pytest.MonkeyPatch, name: str, arguments: tuple[str, ...]
) -> None:
    program = str(programs.EXAMPLES / f"spark_{name}.py")
    monkeypatch.setattr(sys, "argv", [program, *arguments])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(program, run_name="__main__")
    assert f"python examples/spark_{name}.py" in str(ended.value.code)


@pytest.mark.long
async def test_orders_of_the_producer_example_are_summed_by_tag(cluster: EmbeddedCluster) -> None:
    await run(cluster, "produce.py")
    said = await shell(cluster, "python examples/spark_batch.py")
    cents = {"open": range(2, 1010, 2), "paid": range(1, 1010, 2)}
    assert said.splitlines() == [
        f"{tag}: {len(numbers)} orders, {sum(numbers):.2f}" for tag, numbers in cents.items()
    ]


@pytest.mark.long
async def test_backfill_is_read_from_the_slave_while_the_master_takes_writes(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await shell(cluster, "rocketrio produce orders --count 20000 --size 200")
    async with trio.open_nursery() as nursery:
        produce = "rocketrio produce orders --count 5000 --size 200 && sleep 0.2"
        ends = trio.Event()

        async def keep_writing() -> None:
            while not ends.is_set():
                await shell(cluster, produce)

        nursery.start_soon(keep_writing)
        said = await shell(cluster, f"python examples/spark_backfill.py orders {tmp_path}/orders")
        ends.set()
    copied = re.search(r"copied (\d+) messages", said)
    gave = {role: int(n) for role, n in re.findall(r"(the \w+) at \S+ gave (\d+) messages", said)}
    assert copied is not None, said
    table = pq.read_table(tmp_path / "orders", columns=["queue_id", "queue_offset"])
    assert int(copied[1]) == table.num_rows >= 20000
    assert table.group_by(["queue_id", "queue_offset"]).aggregate([]).num_rows == table.num_rows
    # What the slave lacked when it was asked came from the master: the last few, at most.
    assert gave["the slave"] + gave["the master"] >= table.num_rows
    assert gave["the master"] < table.num_rows / 4, said


async def test_dead_letters_are_distinguished_by_sql(cluster: EmbeddedCluster) -> None:
    async with started(cluster, "order_service.py", "serve") as service:
        await service.has_said("serving")
        await run(cluster, "order_service.py", "order", "30")
        with trio.fail_after(TIME_LIMIT):
            while "3 dead letters" not in await run(cluster, "order_service.py", "dead"):  # noqa: ASYNC110
                await trio.sleep(0.2)
    said = await shell(cluster, "python examples/spark_dead_letters.py billing")
    assert said.splitlines() == [
        "3 of shop-orders: no amount, tried 1 times at most",
        '  no amount: order-10 {"number": 10}',
        '  no amount: order-20 {"number": 20}',
        '  no amount: order-30 {"number": 30}',
    ]


@pytest.mark.long
async def test_hourly_delays_are_those_of_pandas_over_two_runs(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    job = f"python examples/spark_hourly_delays.py {tmp_path}/delays"
    flights, said = await flights_in_two_parts(cluster, tmp_path, HOURLY, 9000, job)
    flights["hour"] = pd.to_datetime(flights["time_hour"])
    expected = flights.groupby(["hour", "origin"])["dep_delay"].agg(["size", "count", "mean"])
    last = expected.index.get_level_values("hour").max()
    found = pd.read_parquet(tmp_path / "delays" / "hours")
    found["hour"] = pd.to_datetime(found["hour"], utc=True)
    found = found.set_index(["hour", "origin"])
    assert found.index.is_unique
    assert f"{len(found)} hours are over" in said
    is_over = expected.index.get_level_values("hour") < last - timedelta(days=8)
    assert set(expected.index[is_over]) <= set(found.index)
    same = expected.loc[found.index]
    assert (same["size"] == found["flights"]).all()
    assert (same["count"] == found["departures"]).all()
    assert (same["mean"] - found["mean_delay"]).abs().max() < 1e-9


@pytest.mark.long
async def test_flights_are_enriched_into_two_topics_over_two_runs(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    job = f"python examples/spark_enrich.py {tmp_path}/enriched"
    flights, said = await flights_in_two_parts(cluster, tmp_path, ENRICHED, 4000, job)
    late = int((flights["dep_delay"] >= 60).sum())
    assert said.splitlines()[:2] == [
        f"flights-late: {late} flights",
        f"flights-on-time: {ENRICHED - late} flights",
    ]
    most = flights["carrier"].value_counts()
    names = {
        "UA": "United Air Lines Inc.",
        "B6": "JetBlue Airways",
        "EV": "ExpressJet Airlines Inc.",
    }
    assert said.splitlines()[2:] == [f"{names[code]}: {most[code]}" for code in most.index[:3]]


async def flights_in_two_parts(
    cluster: EmbeddedCluster, folder: Path, count: int, first: int, job: str
) -> tuple[pd.DataFrame, str]:
    """Run the job after the first flights were sent, and again after the rest; return all, and what it printed last."""
    source = folder / "flights.jsonl"
    source.write_text(await shell(cluster, f"python examples/demo/flights.py {count}"))
    for part in (f"head -n {first} {source}", f"tail -n +{first + 1} {source}"):
        await shell(cluster, f"{part} | rocketrio produce flights")
        said = await shell(cluster, job)
    flights = await trio.to_thread.run_sync(partial(pd.read_json, source, lines=True))
    return flights, said
