"""Each alert fires for what it is about, and is silent for what is near to it: judged by Prometheus' own promtool."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.support.prometheus import MONITORING, needs_promtool

from rocketrio.admin.diagnosis.brokers import PUT_OK
from rocketrio.admin.diagnosis.groups import OF_VERDICT
from rocketrio.thresholds import DISK_PERCENT, SECONDS_BEHIND, Severity
from rocketrio_broker.ha.client import HAClientState
from rocketrio_protocol.lag import LOSING_PART

RULES = MONITORING / "alerts.rules.yml"
GUIDE = Path(__file__).parents[2] / "docs/monitoring.md"

MASTER = 'cluster="c",node_id="a",instance="m",job="rocketmq"'
SLAVE = 'cluster="c",node_id="a",instance="s",job="rocketmq"'
GROUP = f'{MASTER},consumer_group="g",topic="t"'

Series = dict[str, str]
"""Values a minute apart by series, as promtool writes them: `0x10` is eleven zeros, `_` no sample."""


@attrs.frozen
class Story:
    """What must make an alert fire, or not, `at` a time."""

    alert: str
    at: str
    fires: Series
    silent: Series


def slaves(live: str, *, required: int) -> Series:
    return {
        f"rocketrio_ha_live_slaves{{{MASTER}}}": live,
        f"rocketrio_ha_in_sync_slaves_wanted{{{MASTER}}}": "1x10",
        f"rocketrio_ha_required{{{MASTER}}}": f"{required}x10",
        f"rocketrio_broker_takes_writes{{{MASTER}}}": "1x10",
    }


def taking(master: int, slave: int) -> Series:
    name = "rocketrio_broker_takes_writes"
    return {f"{name}{{{MASTER}}}": f"{master}x10", f"{name}{{{SLAVE}}}": f"{slave}x10"}


def state(now: HAClientState) -> Series:
    return {f'rocketrio_ha_state{{{SLAVE},state="{now.text}",state_id="{now.value}"}}': "1x5"}


def state_of_an_earlier_version(text: str) -> Series:
    return {f'rocketrio_ha_state{{{SLAVE},state="{text}"}}': "1x5"}


def sent(status: str, values: str) -> Series:
    return {f'rocketrio_sends_answered_total{{{MASTER},status="{status}"}}': values}


def verdict(name: str, values: str) -> Series:
    return {f'rocketrio_group_verdict{{{GROUP},verdict="{name}"}}': values}


def one(name: str, values: str, labels: str = MASTER) -> Series:
    return {f"{name}{{{labels}}}": values}


def old(first_offset: int) -> Series:
    return {
        f"rocketmq_consumer_lag_latency_milliseconds{{{GROUP}}}": "9000000x30",
        f"rocketmq_storage_message_reserve_time_milliseconds{{{MASTER}}}": "10000000x30",
        f"rocketrio_log_first_offset{{{MASTER}}}": f"{first_offset}x30",
    }


FREE, USED = "rocketrio_store_disk_free_bytes", "rocketrio_store_disk_used_ratio"
DEAD = "rocketmq_send_to_dlq_messages_total"

STORIES = (
    Story("BrokerSilent", "5m", one("up", "0x10"), one("up", "1 0 1x10")),
    Story(
        "BrokerSilent",
        "5m",
        one("rocketrio_exporter_up", "0x10"),
        one("rocketrio_exporter_up", "1x10"),
    ),
    Story("TwoMasters", "1m", taking(1, 1), taking(1, 0)),
    Story("NoMaster", "5m", taking(0, 0), taking(1, 0)),
    Story("SlaveMissing", "5m", slaves("0x10", required=1), slaves("1x10", required=1)),
    Story("SlaveMissing", "5m", slaves("1 0x10", required=0), slaves("1 0 1x10", required=0)),
    Story(
        "SlaveBehind",
        "5m",
        one("rocketrio_ha_slave_behind_seconds", "90x10", f'{MASTER},slave="1"'),
        one("rocketrio_ha_slave_behind_seconds", "0 90 0x10", f'{MASTER},slave="1"'),
    ),
    Story("LogsDiverged", "1m", state(HAClientState.DIVERGED), state(HAClientState.FOLLOWING)),
    Story("LogsDiverged", "1m", state(HAClientState.BEYOND), state(HAClientState.PAUSING)),
    Story(
        "LogsDiverged",
        "1m",
        state_of_an_earlier_version("has what the master lacks, waiting for an operator"),
        state_of_an_earlier_version("pausing before the next attempt"),
    ),
    Story(
        "SendsUnsafe",
        "5m",
        sent("FLUSH_SLAVE_TIMEOUT", "0 0 0 4x5"),
        sent("FLUSH_SLAVE_TIMEOUT", "7x10") | sent("PUT_OK", "0+100x10"),
    ),
    Story("DiskFilling", "7h", one(FREE, "1e11-2e8x420"), one(FREE, "1e11-1000x420")),
    Story("DiskFilling", "20m", one(USED, "0.87x30"), one(USED, "0.84x30")),
    Story("DiskFull", "1m", one(USED, "0.93x5"), one(USED, "0.89x5")),
    Story(
        "LoopSlow",
        "5m",
        one("rocketrio_loop_delay_seconds", "0.8x10"),
        one("rocketrio_loop_delay_seconds", "0.01 0.8 0.01x10"),
    ),
    Story("GroupStopped", "10m", verdict("stopped", "1x20"), verdict("ok", "1x20")),
    Story("GroupStopped", "10m", verdict("stalled", "1x20"), verdict("stalled", "1x2 0x20")),
    Story("GroupAhead", "10m", verdict("ahead", "1x20"), verdict("ahead", "1x2 0x20")),
    Story("GroupBehind", "40m", verdict("behind", "1x50"), verdict("behind", "1x20 0x30")),
    Story("WillBeDeletedUnread", "20m", old(first_offset=1024), old(first_offset=0)),
    Story(
        "WillBeDeletedUnread",
        "20m",
        verdict("losing", "1x30") | old(first_offset=1024),
        verdict("behind", "1x30"),
    ),
    Story(
        "LagUnknown",
        "20m",
        one("rocketrio_group_lag_known", "0x30", GROUP),
        one("rocketrio_group_lag_known", "0x5 1x30", GROUP),
    ),
    Story(
        "SubscriptionsDiffer",
        "10m",
        one("rocketrio_group_subscriptions_differ", "1x20", GROUP),
        one("rocketrio_group_subscriptions_differ", "0 1 1 0x20", GROUP),
    ),
    Story("DeadLetters", "20m", one(DEAD, "_x16 1x20", GROUP), one(DEAD, "5x40", GROUP)),
    Story("DeadLetters", "20m", one(DEAD, "5x16 6x20", GROUP), one(DEAD, "0x40", GROUP)),
    Story(
        "CertificateExpires",
        "2h",  # Prometheus plays its tests at the beginning of 1970.
        one("rocketrio_certificate_expires_timestamp_seconds", "1200000x130"),
        one("rocketrio_certificate_expires_timestamp_seconds", "1300000x130"),
    ),
    Story(
        "TransactionsGivenUp",
        "30m",
        one("rocketrio_transactions_given_up_total", "0x20 1x20"),
        one("rocketrio_transactions_given_up_total", "3x40"),
    ),
)


def texts() -> list[str]:
    """Return what the file says of each alert, which begins with its name."""
    return RULES.read_text().split("- alert: ")[1:]


def alerts() -> list[str]:
    return re.findall(r"- alert: (\w+)", RULES.read_text())


def rule_test(story: Story, series: Series, *, fires: bool) -> dict[str, Any]:
    """Return the test of one story in the form of promtool."""
    firing = f'ALERTS{{alertname="{story.alert}",alertstate="firing"}}'
    wanted = {"labels": f'{{alertname="{story.alert}"}}', "value": 1}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {
                "expr": f"count by (alertname) ({firing})",
                "eval_time": story.at,
                "exp_samples": [wanted] if fires else [],
            }
        ],
    }


@pytest.mark.slow
@needs_promtool
def test_each_alert_fires_for_its_trouble_and_is_silent_without(tmp_path: Path) -> None:
    tests = [
        rule_test(story, series, fires=fires)
        for story in STORIES
        for series, fires in ((story.fires, True), (story.silent, False))
    ]
    file = tmp_path / "test.json"  # JSON is YAML too.
    file.write_text(json.dumps({"rule_files": [str(RULES)], "tests": tests}))
    done = subprocess.run(["promtool", "test", "rules", file], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_rules_and_the_sample_configuration_are_what_prometheus_reads() -> None:
    rules = sorted(MONITORING.glob("*.rules.yml"))
    assert len(rules) == 3
    for command in (["check", "rules", *rules], ["check", "config", MONITORING / "prometheus.yml"]):
        done = subprocess.run(["promtool", *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("amtool") is None, reason="needs amtool of Alertmanager")
def test_sample_for_alertmanager_sends_pages_elsewhere_than_tickets() -> None:
    receivers = []
    for severity in ("page", "ticket"):
        command = ["amtool", "config", "routes", "test", f"severity={severity}"]
        done = subprocess.run(
            [*command, f"--config.file={MONITORING / 'alertmanager.yml'}"],
            capture_output=True,
            text=True,
            check=True,
        )
        receivers.append(done.stdout.strip())
    assert receivers == ["pager", "tickets"]


@pytest.mark.parametrize(
    ("alert", "part"),
    [
        ("SlaveBehind", f"_behind_seconds > {SECONDS_BEHIND.critical:g}"),
        ("DiskFilling", f"_used_ratio > {DISK_PERCENT.critical / 100:g}"),
        ("WillBeDeletedUnread", f"({LOSING_PART:g} * max by"),
        ("SendsUnsafe", f'{{status!="{PUT_OK}"}}'),
    ],
)
def test_alert_has_the_limit_of_its_rule(alert: str, part: str) -> None:
    [text] = [one for one in texts() if one.startswith(f"{alert}\n")]
    assert part in text


def test_verdicts_that_page_are_those_that_are_errors() -> None:
    pages = " ".join(one for one in texts() if "severity: page" in one)
    paged = "|".join(re.findall(r'{verdict=~?"(.+?)"}', pages)).split("|")
    errors = {verdict for verdict, rule in OF_VERDICT.items() if rule.severity is Severity.ERROR}
    assert set(paged) == errors


def test_alert_knows_the_ids_of_the_states_that_earlier_versions_named_by_texts() -> None:
    [text] = [one for one in texts() if one.startswith("LogsDiverged\n")]
    [ids] = re.findall(r'{state_id=~"(.+?)"}', text)
    [phrases] = re.findall(r'{state_id="",state=~"(.+?)"}', text)
    assert set(ids.split("|")) == {
        one.value for one in HAClientState if re.fullmatch(phrases, one.text)
    }


def test_every_alert_has_a_story() -> None:
    assert set(alerts()) == {story.alert for story in STORIES}


def test_every_alert_has_a_row_in_the_guide() -> None:
    headings = set(re.findall(r"^#+ (\w+)$", GUIDE.read_text(), re.MULTILINE))
    assert set(alerts()) <= headings
    links = re.findall(r"runbook: docs/monitoring.md#(\w+)", RULES.read_text())
    assert links == [name.lower() for name in alerts()]
