"""A cluster in memory under a virtual clock, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time

from rocketrio import ClientInstance
from rocketrio_broker.embedded import EmbeddedCluster, Member


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test with this room's cluster runs in virtual time, without naming the clock.

    pytest hands over the tests of all rooms that it collected, and others call theirs a cluster too.
    """
    here = f"{Path(__file__).parent}/"
    for item in items:
        if not isinstance(item, pytest.Function) or not str(item.path).startswith(here):
            continue
        if "cluster" in item.fixturenames:
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest) -> AsyncIterator[EmbeddedCluster]:
    """A name server and a master, and a slave for a test that asks for it: three quarters of an idle cluster's work."""
    slaves = int("slave" in request.fixturenames)
    async with EmbeddedCluster(slaves=slaves, slave_read_enable=True) as running:
        yield running


@pytest.fixture
def slave(cluster: EmbeddedCluster) -> Member:
    """A slave of the cluster, which may be read."""
    return cluster.slaves[0]


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    async with client_of(cluster) as opened:
        yield opened
