"""Run the code of guides against a cluster in processes of its own; Spark's runs in tests/spark."""

from pathlib import Path

import pytest
from tests.examples.documents import ROOT, Document
from tests.support.running_cluster import running_cluster

pytestmark = [pytest.mark.real, pytest.mark.slow]

SETTINGS = ("transaction_timeout=1", "transaction_check_interval=1")
"""So that a guide does not wait for half a minute until its broker asks."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("docs/index-page.md", marks=pytest.mark.long),
        "docs/client.md",
        "docs/asyncio.md",
        "docs/transactions.md",
        "docs/duckdb.md",
        "docs/from-rocketmq-clients.md",
        pytest.param("docs/from-kafka.md", marks=pytest.mark.long),
        pytest.param("docs/testing.md", marks=pytest.mark.long),
        pytest.param("docs/tracing.md", marks=pytest.mark.long),
        pytest.param("docs/monitoring.md", marks=pytest.mark.long),
        pytest.param("docs/autoscaling.md", marks=pytest.mark.long),
        pytest.param("docs/operations.md", marks=pytest.mark.long),
        "docs/security.md",
    ],
)
def test_guide_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_cluster(tmp_path / "data", slaves=1, settings=SETTINGS) as cluster:
        monkeypatch.setenv("NAMESRV_ADDR", cluster.name_server)
        monkeypatch.chdir(tmp_path)  # Guides write files.
        replaced = {
            "127.0.0.1:9876": cluster.name_server,
            "10.0.0.1:10911": cluster.master,
            "10.0.0.2:10911": cluster.slaves[0],
            "deploy/wanted-members.sh": str(ROOT / "deploy" / "wanted-members.sh"),
        }
        Document(name, tmp_path, replaced).run()
