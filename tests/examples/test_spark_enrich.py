"""The example that writes a stream back: run as a user would run it, twice, with more flights in between."""

from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import trio
from tests.examples import programs

from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

TIME_LIMIT = 400.0
shell = partial(programs.shell, limit=TIME_LIMIT)


async def test_flights_are_enriched_into_two_topics_over_two_runs(tmp_path: Path) -> None:
    async with EmbeddedCluster(slaves=0, network="loopback") as cluster:
        await enrich_twice(cluster, tmp_path)


async def enrich_twice(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    lines = await shell(cluster, "python examples/demo/flights.py 6000")
    source = tmp_path / "flights.jsonl"
    source.write_text(lines)
    for part in (f"head -n 4000 {source}", f"tail -n +4001 {source}"):
        await shell(cluster, f"{part} | rocketrio produce flights")
        said = await shell(cluster, f"python examples/spark_enrich.py {tmp_path}/enriched")
    flights = await trio.to_thread.run_sync(partial(pd.read_json, source, lines=True))
    late = int((flights["dep_delay"] >= 60).sum())
    assert said.splitlines()[:2] == [
        f"flights-late: {late} flights",
        f"flights-on-time: {6000 - late} flights",
    ]
    most = flights["carrier"].value_counts()
    names = {
        "UA": "United Air Lines Inc.",
        "B6": "JetBlue Airways",
        "EV": "ExpressJet Airlines Inc.",
    }
    assert said.splitlines()[2:] == [f"{names[code]}: {most[code]}" for code in most.index[:3]]
