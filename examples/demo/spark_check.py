"""The topic in Spark: its numbers beside those of pandas, who served a backfill, or what to install."""

import json
import os
import signal
import sys
from datetime import timedelta
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import attrs
import pandas as pd
import trio
from cluster import MASTER_ID, SLAVE_ID, Demo
from flights import AirportDelay, delays_by_airport, delays_by_hour
from java import java_problem
from spark_step import BACKFILL_GROUP
from steps import TOPIC

from rocketrio import Message, Producer, SendStatus, open_admin, open_producer

SPARK_LIMIT = 400.0
"""Seconds for all jobs."""
LIVE_INTERVAL = 0.005
"""Seconds between the sends of a producer that is not to notice the backfill."""
SAMPLE_LIMIT = 15.0
SAME = 1e-9
"""Minutes by which two ways to add up may differ."""


AGREE = "Spark and pandas agree"
FROM_SLAVE = "a backfill came from the slave while the master took writes"
HOURS = "hourly delays of a stream agree with pandas"


async def read_with_spark(demo: Demo, table: pd.DataFrame) -> bool:
    """The topic as DataFrames, in a batch, a backfill and a stream; False when Java is missing."""
    demo.report.step(8, "The topic as a Spark DataFrame: a batch, a backfill, a stream")
    missing = await trio.to_thread.run_sync(java_problem)
    if missing:
        for claim in (AGREE, FROM_SLAVE, HOURS):
            demo.report.leave_out(claim, missing)
        return False
    results: dict[str, dict[str, Any]] = {}
    async with open_producer(group="demo-live", name_servers=demo.name_servers) as producer:
        live = Live(producer)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(live.send)
            said = await _run(demo, results)
            nursery.cancel_scope.cancel()
    for name, claim, check in (
        ("by_airport", AGREE, _check_airports),
        ("backfill", FROM_SLAVE, partial(_check_backfill, live)),
        ("by_hour", HOURS, _check_hours),
    ):
        if name in results:
            await check(demo, table, results[name])
        else:
            demo.report.check(claim, holds=False, detail=f"the Spark job failed: {said}")
    return True


@attrs.define
class Live:
    """Sends to the master for as long as Spark reads, as those do whose messages a backfill must not hold up."""

    producer: Producer
    sent: int = 0
    slowest: float = 0.0
    """Seconds."""

    async def send(self) -> None:
        """Until cancelled."""
        while True:
            started = perf_counter()
            result = await self.producer.send(Message("flights-live", b"on its way"))
            if result.status is SendStatus.SEND_OK:
                self.sent += 1
            self.slowest = max(self.slowest, perf_counter() - started)
            await trio.sleep(LIVE_INTERVAL)


async def _run(demo: Demo, results: dict[str, dict[str, Any]]) -> str:
    """The jobs' results by name; what Spark said last where some are missing."""
    program = Path(__file__).with_name("spark_step.py")
    command = [sys.executable, str(program), demo.name_servers[0], TOPIC, str(demo.data / "spark")]
    done = None
    with trio.move_on_after(SPARK_LIMIT):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            start_new_session=True,
            deliver_cancel=partial(_kill_group),
        )
    if done is None:
        return "it took too long"
    for line in done.stdout.decode(errors="replace").splitlines():
        if line.startswith("RESULT "):
            told = json.loads(line.removeprefix("RESULT "))
            results[told["job"]] = told
    return done.stderr.decode(errors="replace")[-600:]


async def _check_airports(demo: Demo, table: pd.DataFrame, told: dict[str, Any]) -> None:
    expected = await trio.to_thread.run_sync(delays_by_airport, table)
    result = {airport: AirportDelay(**numbers) for airport, numbers in told["value"].items()}
    for airport, delay in sorted(expected.items()):
        found = result.get(airport)
        demo.report.say(
            f"{airport}  pandas {_spelled(delay)}   Spark {_spelled(found) if found else '-'}"
        )
    agree = result.keys() == expected.keys() and all(
        (found.flights, found.departures) == (delay.flights, delay.departures)
        and abs(found.mean_delay - delay.mean_delay) < SAME
        for airport, delay in expected.items()
        for found in [result[airport]]
    )
    rows = sum(found.flights for found in result.values())
    demo.report.check(AGREE, holds=agree, detail=f"{rows:,} rows in {told['seconds']:.1f} s")


async def _check_backfill(
    live: Live, demo: Demo, table: pd.DataFrame, told: dict[str, Any]
) -> None:
    async with open_admin(name_servers=demo.name_servers) as admin:
        with trio.move_on_after(SAMPLE_LIMIT):
            while True:  # Brokers count in samples of ten seconds.
                shares = await admin.served(TOPIC, BACKFILL_GROUP, period="hour")
                if sum(share.messages or 0 for share in shares) >= len(table):
                    break
                await trio.sleep(0.5)
    gave = {share.broker_id: share.bytes or 0 for share in shares}
    for share in shares:
        role = "slave " if share.broker_id == SLAVE_ID else "master"
        gave_it = f"gave {share.messages or 0:,} messages, {gave[share.broker_id]:,} bytes"
        demo.report.say(f"{role} at {share.address} {gave_it}")
    demo.report.check(
        FROM_SLAVE,
        holds=told["value"] == len(table) and gave.get(SLAVE_ID, 0) > 9 * gave.get(MASTER_ID, 0) and live.sent > 0,
        detail=f"{told['value']:,} rows to Parquet in {told['seconds']:.1f} s; meanwhile the master stored "
        f"{live.sent:,} messages, the slowest in {live.slowest * 1000:,.1f} ms",
    )  # fmt: skip


async def _check_hours(demo: Demo, table: pd.DataFrame, told: dict[str, Any]) -> None:
    expected = await trio.to_thread.run_sync(delays_by_hour, table)
    found = await trio.to_thread.run_sync(pd.read_parquet, demo.data / "spark" / "hours")
    found["hour"] = pd.to_datetime(found["hour"], utc=True)
    found = found.set_index(["hour", "origin"])
    # An hour is written when it is over: the last week's wait for flights of the week after.
    last = expected.index.get_level_values("hour").max()
    due = expected[expected.index.get_level_values("hour") < last - timedelta(days=8)]
    same = expected.reindex(found.index)
    demo.report.check(
        HOURS,
        holds=found.index.is_unique
        and due.index.isin(found.index).all()
        and bool((same["flights"] == found["flights"]).all())
        and bool((same["mean_delay"] - found["mean_delay"]).abs().max() < SAME),
        detail=f"{len(found):,} hours, each once, in {told['value']} micro-batches and {told['seconds']:.1f} s",
    )


def _spelled(delay: AirportDelay) -> str:
    return f"{delay.flights:,} flights, {delay.departures:,} departures, {delay.mean_delay:.4f} min"


async def _kill_group(process: trio.Process) -> None:
    """End Spark with its JVM and its Python workers."""
    os.killpg(process.pid, signal.SIGKILL)
