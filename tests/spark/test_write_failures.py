"""Tasks that fail while they write: what stays in the topic, what the driver says of it, and what drops the repeats."""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import attrs
import pytest
import trio
from tests.spark.failing_write import ROWS, stored
from tests.support.running_cluster import running_cluster

from rocketrio import MessageExt, open_consumer
from rocketrio.spark.repeats import drop_repeats
from rocketrio.spark.writing.stamps import row_stamp

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@attrs.frozen
class Job:
    """Where the job wrote, what it printed, and what Spark's Python workers logged."""

    name_server: str
    said: list[str]
    logged: str


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    folder = tmp_path_factory.mktemp("job")
    with running_cluster(folder) as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.failing_write", cluster.name_server, str(folder)],
            capture_output=True, text=True, timeout=500, check=True,
        )  # fmt: skip
        yield Job(cluster.name_server, done.stdout.splitlines(), done.stderr)


async def consumed(job: Job, topic: str) -> list[MessageExt]:
    """All messages of the topic, in the order in which one consumer gets them."""
    count = await stored(job.name_server, topic)
    async with open_consumer(
        topic, group="reader", name_servers=[job.name_server], start_from="earliest"
    ) as consumer:
        found: list[MessageExt] = []
        async for message in consumer:
            found.append(message)
            if len(found) == count:
                break
        return found


async def each_once(messages: list[MessageExt]) -> list[MessageExt]:
    async def given() -> AsyncIterator[MessageExt]:
        for message in messages:
            yield message

    return [message async for message in drop_repeats(given())]


def test_a_task_that_runs_again_repeats_rows_under_their_stamps(job: Job) -> None:
    assert "once written" in job.said
    messages = trio.run(consumed, job, "once")
    assert {int(message.body) for message in messages} == set(range(2 * ROWS))
    repeated = len(messages) - 2 * ROWS
    assert 0 < repeated <= ROWS
    by_stamp = Counter(row_stamp(message) for message in messages)
    assert len(by_stamp) == 2 * ROWS
    once = trio.run(each_once, messages)
    assert Counter(int(message.body) for message in once) == Counter(range(2 * ROWS))


def test_failed_job_reports_how_much_was_sent(job: Job) -> None:
    assert "always failed True" in job.said
    aborted = re.findall(r"aborted, what was sent stays what=batch .*", job.logged)
    assert len(aborted) == 1, job.logged[-2000:]
    assert "unknown_tasks=1 finished_tasks=1 totals=rows=1000 bytes=" in aborted[0]
    messages = trio.run(consumed, job, "always")
    assert ROWS < len(trio.run(each_once, messages)) < 2 * ROWS
