"""The small applications among the examples: what they promise, and that they end well on Ctrl-C."""

import re
from collections.abc import AsyncIterator

import pytest
from tests.examples.programs import run, run_until

from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = pytest.mark.real


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=0, network="loopback") as running:
        yield running


async def test_asyncio_service_bills_every_order(cluster: EmbeddedCluster) -> None:
    said = await run(cluster, "asyncio_service.py", "100")
    assert said == f"taking orders\nbilled 100 orders, {sum(range(100))} cents\n"


async def test_asyncio_service_ends_well_on_ctrl_c(cluster: EmbeddedCluster) -> None:
    said = await run_until(cluster, "taking orders", "asyncio_service.py")
    found = re.fullmatch(r"taking orders\nbilled (\d+) orders, \d+ cents\n", said)
    assert found is not None, said
