"""The boards are what their table says, and ask only for what brokers have."""

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from types import ModuleType

from prometheus_client import CollectorRegistry, generate_latest
from tests.support.clients import client_of
from tests.support.prometheus import MONITORING, needs_promtool
from tests.support.scraping import scraping
from trio.testing import MockClock

from rocketrio import open_admin
from rocketrio.exporter.names import page_of
from rocketrio.exporter.rounds import Rounds
from rocketrio.limits import EXPORTER_NAMES
from rocketrio.metrics import collector

APACHES = {
    *("rocketmq_consumer_lag_latency", "rocketmq_storage_message_reserve_time"),  # 5.1.0 to 5.1.3
    *("up", "ALERTS"),
}
SUFFIXES = ("_bucket", "_sum", "_count")


def boards() -> ModuleType:
    spec = importlib.util.spec_from_file_location("boards", MONITORING / "boards.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def expressions() -> list[str]:
    """What boards and rules ask Prometheus."""
    found = []
    for path in sorted(MONITORING.glob("grafana/*.json")):
        board = json.loads(path.read_text())
        found += [target["expr"] for panel in board["panels"] for target in panel["targets"]]
        found += [v["query"]["query"] for v in board["templating"]["list"] if v["type"] == "query"]
    for path in sorted(MONITORING.glob("*.rules.yml")):
        found += [re.sub(r"(summary|runbook|record|alert): .*", "", path.read_text())]
    return found


def test_boards_are_written_from_their_table() -> None:
    module = boards()
    written = {path.stem: path.read_text() for path in MONITORING.glob("grafana/*.json")}
    assert written == {board.name: module.board_json(board) for board in module.BOARDS}
    for board in module.BOARDS:
        for panel in board.panels:
            assert panel.description.endswith(".")


async def test_boards_and_rules_name_only_metrics_that_a_pair_has(
    autojump_clock: MockClock,
) -> None:
    """Or its client, or an exporter that asks it."""
    async with (
        scraping(slaves=1) as one,
        client_of(one.cluster, metrics=True) as client,
        open_admin(client=client) as admin,
    ):
        await one.call.send(one.addr, b"1")
        pages = [(await one.page(host=host)).text for host in ("10.0.0.10", "10.0.0.11")]
        pages += page_of(await Rounds(admin).next(), EXPORTER_NAMES)
        registry = CollectorRegistry()
        registry.register(collector(client))
        pages.append(generate_latest(registry).decode())
    families = set(re.findall(r"^# TYPE (\w+)", "".join(pages), re.MULTILINE))
    asked = set()
    for text in expressions():
        asked |= set(re.findall(r"\b((?:rocketmq|rocketrio|process)_\w+)", text))
    for name in sorted(asked - APACHES):
        base = next((name.removesuffix(s) for s in SUFFIXES if name.endswith(s)), name)
        assert name in families or base in families, name


@needs_promtool
def test_expressions_of_boards_are_promql(tmp_path: Path) -> None:
    asked = [text for text in expressions() if not text.startswith(("label_values", "#"))]
    rules = [
        {"record": f"asked:{number}", "expr": re.sub(r"\$\w+", "x", text)}
        for number, text in enumerate(asked)
    ]
    file = tmp_path / "rules.json"
    file.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
