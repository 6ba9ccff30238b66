"""Stories about several brokers: their clock, and what several of them are given."""

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import run_in_virtual_time
from tests.support.replication import secret_file

from rocketrio_broker.namesrv.routes import RouteInfoManager


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every story in memory runs in virtual time, without naming the clock.

    pytest hands over the tests of all rooms that it collected.
    """
    here = f"{Path(__file__).parent}/"
    for item in items:
        if (
            isinstance(item, pytest.Function)
            and str(item.path).startswith(here)
            and iscoroutinefunction(item.function)
            and not item.get_closest_marker("real")
        ):
            item.add_marker(pytest.mark.trio(run=run_in_virtual_time), append=False)


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, Any]:
    """Return the setting of a secret that the brokers share."""
    return {"ha_secret_file": secret_file(tmp_path / "secret")}


@pytest.fixture
def lists_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the name server list the master that registered last, as Apache's does."""
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
