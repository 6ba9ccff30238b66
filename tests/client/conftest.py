"""A cluster in memory under a virtual clock, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.clients import client_of
from tests.support.clocks import give_virtual_time

from rocketrio import ClientInstance
from rocketrio_broker.embedded import EmbeddedCluster, Member


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have every test with this room's cluster run in virtual time; other rooms call theirs a cluster too."""
    give_virtual_time(items, Path(__file__).parent, lambda test: "cluster" in test.fixturenames)


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
