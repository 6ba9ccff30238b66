"""Every example of the client, run as a user would run it."""

import sys
from pathlib import Path

import pytest
import trio
from tests.examples.programs import run
from tests.support.waiting import HANGS

from rocketrio_broker.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.real
async def test_examples_work_one_after_the_other() -> None:
    async with EmbeddedCluster(slaves=1, network="loopback", slave_read_enable=True) as cluster:
        with trio.fail_after(HANGS):
            produced = await run(cluster, "produce.py")
            assert produced.startswith("SEND_OK orders@broker-a:")
            assert "batch of 6" in produced
            assert "pipeline stored 1000" in produced

            first = await run(cluster, "consume_group.py", "1000")
            second = await run(cluster, "consume_group.py", "9")
            orders = [
                int(line.rpartition(" ")[2])
                for line in (first + second).splitlines()
                if " order " in line
            ]
            assert sorted(orders) == list(range(1, 1010))
            assert second.endswith("lag 0\n")

            backlog = await run(cluster, "read_backlog_from_slave.py")
            slave = cluster.slaves[0].broker.address
            assert backlog.count(f"broker id 1 at {slave}") == 4
            assert "read 1009 messages" in backlog


@pytest.mark.slow
async def test_test_with_an_embedded_cluster_passes() -> None:
    done = await trio.run_process(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "pytest_rocketrio",
         str(EXAMPLES / "test_with_embedded_cluster.py")],
        capture_stdout=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout.decode()
    assert "2 passed" in done.stdout.decode()
