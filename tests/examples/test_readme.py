"""README, typed from its top to its bottom on one machine."""

import re
from pathlib import Path

import pytest
from tests.examples.documents import Tutorial
from tests.support.processes import free_port
from tests.support.quick_start import quick_home

INSTALLS = re.compile(r"^(git clone|pip install|sudo apt)", re.MULTILINE)
"""Blocks with such a line are omitted: a test changes neither its machine nor its own environment."""


@pytest.mark.spark
@pytest.mark.slow
def test_readme_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name_server = f"127.0.0.1:{free_port()}"
    monkeypatch.setenv("NAMESRV_ADDR", name_server)
    quick_home(tmp_path / "spark")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):  # README sets what Spark needs.
        monkeypatch.delenv(name)
    with Tutorial("README.md", tmp_path, {"127.0.0.1:9876": name_server}) as readme:
        readme.run(only=lambda source: not INSTALLS.search(source))
        paid = readme.shell("rocketrio consume paid-orders --group check --until-caught-up")
    assert readme.printed[0].startswith("SEND_OK orders@broker-a:")
    assert readme.printed[1] == "billed 500,500.00"
    assert "| true|  25050250|" in readme.printed
    assert len(paid.splitlines()) == 500 + 1
