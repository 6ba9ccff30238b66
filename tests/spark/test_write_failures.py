"""Tasks that fail while they write: what stays in the topic, what the driver says of it, and what drops the repeats."""

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import trio
from tests.support.running_cluster import Running, running_cluster

from rocketrio import MessageExt, open_consumer
from rocketrio.spark.repeats import drop_repeats
from rocketrio.spark.writing.stamps import row_stamp

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROWS = 1000


def run_job(cluster: Running, how: str, folder: Path) -> tuple[str, str]:
    """What the job printed, and what Spark's Python workers logged."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.failing_write", cluster.name_server, how, str(folder)],
        capture_output=True, text=True, timeout=500, check=True,
    )  # fmt: skip
    return done.stdout, done.stderr


async def consumed(cluster: Running, *, once: bool) -> list[MessageExt]:
    group = f"reader-{once}"
    async with open_consumer(
        "failing", group=group, name_servers=[cluster.name_server], start_from="earliest"
    ) as consumer:
        found: list[MessageExt] = []
        with trio.move_on_after(5) as patience:
            async for message in drop_repeats(consumer) if once else consumer:
                found.append(message)
                patience.deadline = trio.current_time() + 2
        return found


def test_a_task_that_runs_again_repeats_rows_under_their_stamps(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        said, _ = run_job(cluster, "once", tmp_path)
        assert said.split() == ["written"]
        stored = trio.run(lambda: consumed(cluster, once=False))
        assert {int(message.body) for message in stored} == set(range(2 * ROWS))
        repeated = len(stored) - 2 * ROWS
        assert 0 < repeated <= ROWS
        by_stamp = Counter(row_stamp(message) for message in stored)
        assert len(by_stamp) == 2 * ROWS
        once = trio.run(lambda: consumed(cluster, once=True))
        assert Counter(int(message.body) for message in once) == Counter(range(2 * ROWS))


def test_failed_job_reports_how_much_was_sent(tmp_path: Path) -> None:
    with running_cluster(tmp_path) as cluster:
        said, logged = run_job(cluster, "always", tmp_path)
        assert said.split() == ["failed", "True"]
        aborted = re.search(r"aborted, what was sent stays what=batch .*", logged)
        assert aborted is not None, logged[-2000:]
        assert "unknown_tasks=1 finished_tasks=1 totals=rows=1000 bytes=" in (aborted.group())
        stored = trio.run(lambda: consumed(cluster, once=True))
        assert ROWS < len(stored) < 2 * ROWS
