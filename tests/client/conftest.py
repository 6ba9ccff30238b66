"""A cluster in memory under a virtual clock, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time

from rocketrio import ClientInstance
from rocketrio_broker.embedded import EmbeddedCluster


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test with this room's cluster runs in virtual time, without naming the clock.

    pytest hands over the tests of all rooms that it collected, and others call theirs a cluster too.
    """
    here = Path(__file__).parent
    for item in items:
        if not isinstance(item, pytest.Function) or here not in item.path.parents:
            continue
        if "cluster" in item.fixturenames:
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """A name server, a master and a slave that may be read."""
    async with EmbeddedCluster(slaves=1, slave_read_enable=True) as running:
        yield running


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    async with client_of(cluster) as opened:
        yield opened
