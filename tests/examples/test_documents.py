"""Run the code of README and guides against a cluster in processes of its own; Spark's runs in tests/spark."""

from pathlib import Path

import pytest
from tests.examples.documents import Document
from tests.support.running_cluster import running_cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]


def run(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Document:
    with running_cluster(folder / "data", slaves=1) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        monkeypatch.chdir(folder)  # Guides write files.
        replaced = {
            "127.0.0.1:9876": cluster.name_server,
            "10.0.0.1:10911": cluster.master,
            "10.0.0.2:10911": cluster.slaves[0],
        }
        document = Document(name, folder, replaced)
        document.run(only=lambda source: "(spark" not in source)
        return document


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_readme_sends_and_receives(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = run(name, tmp_path, monkeypatch).printed
    assert printed[0].startswith("SEND_OK numbers@broker-a:")
    assert len(printed) == 1 + 1000
    assert sum(line.endswith("number-1 b'1'") for line in printed) == 1


@pytest.mark.parametrize(
    "name",
    [
        "docs/index-page.md",
        "docs/client.md",
        "docs/asyncio.md",
        "docs/testing.md",
        "docs/tracing.md",
        "docs/monitoring.md",
        "docs/operations.md",
        "docs/security.md",
    ],
)
def test_guide_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(name, tmp_path, monkeypatch)
