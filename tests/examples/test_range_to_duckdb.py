"""The example that copies a range of a topic into a DuckDB file: killed, continued, limited by time, from a slave."""

import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.examples.programs import EXAMPLES, run, started
from tests.support.running_cluster import channel_pool, full_topic, load_queue, numbered

from rocketrio_broker.embedded import EmbeddedCluster

duckdb = pytest.importorskip("duckdb", reason="`pip install duckdb` has it")
pytestmark = [pytest.mark.real, pytest.mark.slow]

EXAMPLE = "range_to_duckdb.py"
QUEUES, IN_EACH = 4, 25_000
LIVES = 3
"""How often the program is killed."""
KILLED = """
import os, random, signal, sys, threading
from pathlib import Path

sys.path.insert(0, EXAMPLES)
import range_to_duckdb as example
import trio

example.ROWS = 5_000  # Twenty tables: three lives of at most two leave some to read.
store, turns = example.Range.store, iter(("first", "second"))

def killed_meanwhile(self, batch):
    if next(turns) == "second":
        kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
        threading.Timer(random.uniform(0, 0.02), kill).start()
        store(self, batch)
        threading.Event().wait()
    return store(self, batch)

example.Range.store = killed_meanwhile
trio.run(example.main, Path(sys.argv[1]), sys.argv[2], [])
"""
"""A program: the example, killed within 20 ms of the moment at which it begins to store its second table."""
HOUR = timedelta(hours=1)


def rows(file: Path, query: str) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(file), read_only=True) as connection:
        found: list[tuple[Any, ...]] = connection.sql(query).fetchall()
        return found


def counts(file: Path) -> list[tuple[Any, ...]]:
    return rows(
        file,
        "SELECT queue_id, count(*), count(DISTINCT decode(body)), max(queue_offset) + 1"
        " FROM messages GROUP BY queue_id ORDER BY queue_id",
    )


async def test_each_message_of_the_range_is_in_the_file_once_though_it_is_killed(
    tmp_path: Path,
) -> None:
    async with EmbeddedCluster(slaves=1, network="loopback") as cluster, channel_pool() as pool:
        master = cluster.master.broker.address
        await full_topic(pool, master, "orders", QUEUES, IN_EACH)
        file = tmp_path / "killed.duckdb"
        killed = tmp_path / "killed.py"
        killed.write_text(KILLED.replace("EXAMPLES", repr(str(EXAMPLES))))
        read = 0
        for life in range(1, LIVES + 1):
            async with started(cluster, str(killed), str(file), "orders") as program:
                await program.ended()
            assert program.returncode == -signal.SIGKILL, program.said
            already, read = read, sum(row[1] for row in counts(file))
            assert already < read < QUEUES * IN_EACH, life
        said = await run(cluster, EXAMPLE, str(file), "orders")
        assert f"{QUEUES * IN_EACH} messages\ncomplete, read from " in said
        whole = [(queue, IN_EACH, IN_EACH, IN_EACH) for queue in range(QUEUES)]
        assert counts(file) == whole

        # What is stored later is added by the next run.
        await load_queue(pool, master, "orders", 0, numbered(9, 100))
        await run(cluster, EXAMPLE, str(file), "orders")
        assert counts(file) == [(0, IN_EACH + 100, IN_EACH + 100, IN_EACH + 100), *whole[1:]]

        other = await run(cluster, EXAMPLE, str(file), "sales", check=False)
        assert other.startswith(f"{file} holds the range 'orders from the first to the last'")


async def test_range_of_time_has_what_was_stored_in_it_and_comes_from_the_slave(
    tmp_path: Path,
) -> None:
    async with EmbeddedCluster(slaves=1, network="loopback") as cluster, channel_pool() as pool:
        master, slave = cluster.master.broker.address, cluster.slaves[0].broker.address
        await full_topic(pool, master, "orders", QUEUES, IN_EACH)
        await trio.sleep(0.01)  # Stored times are whole milliseconds.
        middle = datetime.now(UTC)
        await trio.sleep(0.01)
        for queue in range(QUEUES):
            await load_queue(pool, master, "orders", queue, numbered(9, 100))

        async def load(name: str, since: datetime, until: datetime) -> str:
            file = str(tmp_path / name)
            return await run(
                cluster, EXAMPLE, file, "orders", since.isoformat(), until.isoformat(), check=False
            )

        said = await load("before", middle - HOUR, middle)
        assert slave in said.splitlines()[-1]
        assert counts(tmp_path / "before") == [
            (q, IN_EACH, IN_EACH, IN_EACH) for q in range(QUEUES)
        ]
        await load("after", middle, datetime.now(UTC))
        assert counts(tmp_path / "after") == [(q, 100, 100, IN_EACH + 100) for q in range(QUEUES)]
        await load("none", middle - 2 * HOUR, middle - HOUR)
        assert counts(tmp_path / "none") == []
        assert "in the past" in await load("future", middle, middle + HOUR)
