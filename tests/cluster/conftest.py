"""Fixtures of stories about several brokers."""

from pathlib import Path
from typing import Any

import pytest
from tests.support.replication import secret_file


@pytest.fixture
def secret(tmp_path: Path) -> dict[str, Any]:
    """Return the setting of a secret that the brokers share."""
    return {"ha_secret_file": secret_file(tmp_path / "secret")}
