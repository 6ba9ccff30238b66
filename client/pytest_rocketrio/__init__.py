"""The pytest plugin: the fixture `rocketmq_cluster`, a RocketMQ cluster for one test.

pytest imports this module in every run, with or without such tests. It imports rocketrio, the broker and trio only for
a test that uses the fixture.
"""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "rocketmq_cluster(slaves=0, **settings): settings of the cluster that the fixture of this name starts",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run trio tests that use the fixture on a virtual clock; pytest-trio has marked its tests before."""
    for item in items:
        if "rocketmq_cluster" in getattr(item, "fixturenames", ()) and _is_trio(item):
            item.add_marker(pytest.mark.trio(run=_run_in_virtual_time), append=False)


@pytest.fixture
def rocketmq_cluster(request: pytest.FixtureRequest) -> Any:
    """Run a RocketMQ cluster for the test: in memory for a trio test, else on ports of 127.0.0.1.

    In a trio test (pytest-trio) it is a `rocketrio.testing.EmbeddedCluster` and time is virtual; in any other test it
    is a `rocketrio.testing.ClusterInThread`. NAMESRV_ADDR names its name server, so that clients find it without
    arguments.
    """
    kind = "_rocketmq_cluster_in_memory" if _is_trio(request.node) else "_rocketmq_cluster_on_ports"
    return request.getfixturevalue(kind)


@pytest.fixture
async def _rocketmq_cluster_in_memory(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Any]:
    from rocketrio.cluster.variables import NAME_SERVERS_VARIABLE
    from rocketrio.testing import open_cluster

    async with open_cluster(**_settings(request)) as cluster:
        monkeypatch.setenv(NAME_SERVERS_VARIABLE, ";".join(cluster.name_servers))
        yield cluster


@pytest.fixture
def _rocketmq_cluster_on_ports(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Any]:
    from rocketrio.cluster.variables import NAME_SERVERS_VARIABLE
    from rocketrio.testing import open_cluster_in_thread

    with open_cluster_in_thread(**_settings(request)) as cluster:
        monkeypatch.setenv(NAME_SERVERS_VARIABLE, ";".join(cluster.name_servers))
        yield cluster


def _is_trio(item: pytest.Item) -> bool:
    return item.get_closest_marker("trio") is not None


def _settings(request: pytest.FixtureRequest) -> dict[str, Any]:
    """Return the settings of the test's markers; one nearer to the test overrides those of its class and module."""
    markers = request.node.iter_markers("rocketmq_cluster")
    return {name: value for marker in reversed([*markers]) for name, value in marker.kwargs.items()}


def _run_in_virtual_time(main: Any, *, clock: Any, instruments: Any) -> Any:
    """Do what `trio.run` does, on a clock that jumps whenever every task waits, unless the test names a clock."""
    import trio
    from trio.testing import MockClock

    return trio.run(main, clock=clock or MockClock(autojump_threshold=0), instruments=instruments)
