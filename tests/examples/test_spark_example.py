"""The Spark example, run as a user would run it."""

import os
import sys
from pathlib import Path

import pytest
import trio

from rocketrio_broker.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.spark
async def test_spark_example_reads_what_the_producer_example_sent() -> None:
    async with EmbeddedCluster(slaves=0, network="loopback") as cluster:
        environment = {**os.environ, "NAMESRV_ADDR": ";".join(cluster.name_servers)}
        environment.pop("PYSPARK_PYTHON", None)
        with trio.fail_after(240):
            for name in ("produce.py", "spark_batch.py"):
                done = await trio.run_process(
                    [sys.executable, str(EXAMPLES / name)],
                    capture_stdout=True,
                    capture_stderr=True,
                    env=environment,
                    check=False,
                )
                assert done.returncode == 0, done.stderr.decode()[-2000:]
        cents = {"open": range(2, 1010, 2), "paid": range(1, 1010, 2)}
        assert done.stdout.decode().splitlines() == [
            f"{tag}: {len(numbers)} orders, {sum(numbers):.2f}" for tag, numbers in cents.items()
        ]
