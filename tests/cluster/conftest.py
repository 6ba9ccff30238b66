"""Stories about several brokers: their clock, and what several of them are given."""

from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import pytest
from tests.support.clocks import give_virtual_time
from tests.support.replication import secret_file

from rocketrio_broker.namesrv.routes import RouteInfoManager


def _is_story_in_memory(test: pytest.Function) -> bool:
    return iscoroutinefunction(test.function) and not test.get_closest_marker("real")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have every story in memory run in virtual time."""
    give_virtual_time(items, Path(__file__).parent, _is_story_in_memory)


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, Any]:
    """Return the setting of a secret that the brokers share."""
    return {"ha_secret_file": secret_file(tmp_path / "secret")}


@pytest.fixture
def lists_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the name server list the master that registered last, as Apache's does."""
    monkeypatch.setattr(RouteInfoManager, "_check_only_master", lambda *_: None)
