"""A cluster in memory under a virtual clock, and clients of it."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio
from tests.support.clients import open_client
from trio.testing import MockClock

from rocketrio import ClientInstance
from rocketrio_broker.embedded import EmbeddedCluster


def run_in_virtual_time(main: Any, *, clock: Any, instruments: Any) -> Any:
    """As `trio.run`, on a clock that jumps whenever every task waits."""
    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)


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
    async with open_client(
        name_servers=cluster.name_servers, dial=cluster.dial, wall_clock=cluster.wall_clock
    ) as opened:
        yield opened
