"""Prometheus itself and its promtool, as Debian's package `prometheus` has them."""

import json
import shutil
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support.processes import Process, free_port
from tests.support.waiting import wait_until

MONITORING = Path(__file__).parents[2] / "monitoring"


def _needs(program: str) -> pytest.MarkDecorator:
    reason = f"{program} is missing: `apt-get install prometheus` (Debian) has it"
    return pytest.mark.skipif(shutil.which(program) is None, reason=reason)


needs_promtool = _needs("promtool")
needs_prometheus = _needs("prometheus")


@attrs.frozen
class Prometheus:
    """One that runs, and scrapes every second."""

    url: str

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """What it answers to an expression now."""
        query = urllib.parse.urlencode({"query": expression})
        try:
            answer = read(f"{self.url}/api/v1/query?{query}")
        except urllib.error.URLError:  # It is starting.
            return []
        found: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return found

    def number(self, expression: str) -> float | None:
        """The only number that it answers; None without one."""
        found = self.ask(expression)
        return float(found[0]["value"][1]) if found else None

    def until(self, expression: str, wanted: float | None) -> None:
        """Wait until an expression has this value."""
        wait_until(lambda: self.number(expression) == wanted, f"{expression} is {wanted}")

    def broken_rules(self) -> list[str]:
        """The names of the rules that it could not evaluate."""
        groups = json.loads(read(f"{self.url}/api/v1/rules"))["data"]["groups"]
        return [rule["name"] for one in groups for rule in one["rules"] if rule["health"] == "err"]


def read(url: str) -> bytes:
    """The body of a page."""
    with urllib.request.urlopen(url, timeout=10) as answer:
        content: bytes = answer.read()
        return content


@contextmanager
def prometheus(
    folder: Path, targets: Sequence[str], exporters: Sequence[str] = ()
) -> Iterator[Prometheus]:
    """One that scrapes these addresses as jobs `rocketmq` and `rocketmq-exporter`, with the rules that are shipped."""
    port = free_port()
    config = folder / "prometheus.json"  # JSON is YAML too.
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                "rule_files": [str(path) for path in MONITORING.glob("*.rules.yml")],
                "scrape_configs": [
                    {"job_name": name, "static_configs": [{"targets": list(found)}]}
                    for name, found in (("rocketmq", targets), ("rocketmq-exporter", exporters))
                ],
            }
        )
    )
    argv = (
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    process = Process.start("prometheus", argv, log=folder / "prometheus.log")
    try:
        yield Prometheus(f"http://127.0.0.1:{port}")
    finally:
        process.kill()
