"""The command `rocketrio lag`: tables for people, JSON for programs, exit codes."""

import json

import attrs
import pytest
from click.testing import CliRunner
from rich.console import RenderableType
from tests.client.cli.drawings import drawn
from tests.client.cli.rows import PARTLY, REPORT, ROW
from tests.support.clients import client_of
from tests.support.commands import commands
from tests.support.orders import fill

from rocketrio import MessageQueue, open_admin
from rocketrio.admin import LagReport
from rocketrio.cli import main
from rocketrio.cli.lag_table import GroupTable, queue_table, report_json


def shown(table: RenderableType, width: int = 240) -> list[str]:
    """Draw a table; return its lines with one blank between columns."""
    return [" ".join(line.split()) for line in drawn(table, width)]


def test_table_has_a_row_for_each_group_and_topic_and_notes_what_it_omits() -> None:
    assert shown(GroupTable(REPORT)) == [
        "group topic lag oldest in/s out/s eta members verdict why",
        "billing orders 7 120 min 1.2 0.0 never 2 stalled queue 3 of broker-a stands",
        "billing orders ≥7 unknown - - - unknown unknown broker-b did not answer: away",
        "idle - unknown unknown - - - 0 unknown broker-b did not answer: away",
        "the worst 3 of 9 rows; --all shows all",
    ]


def test_reasons_are_below_a_narrow_table() -> None:
    lines = shown(GroupTable(REPORT), 80)
    assert lines[0].endswith("members verdict")
    assert lines[4:] == [
        "billing orders: stalled: queue 3 of broker-a stands",
        "billing orders: unknown: broker-b did not answer: away",
        "idle -: unknown: broker-b did not answer: away",
        "the worst 3 of 9 rows; --all shows all",
    ]


def test_table_of_queues_names_owners() -> None:
    lines = shown(queue_table(attrs.evolve(REPORT, rows=[PARTLY, ROW], rows_in_all=2)))
    assert lines == [
        "billing orders: unknown: broker-b did not answer: away",
        "queue owner committed end lag oldest stands for verdict",
        "broker-a/3 app-7@10.0.0.9 5 12 7 120 min 42 s stalled",
        "broker-b/3 unknown 5 unknown unknown unknown - unknown",
        "",
        "billing orders: stalled: queue 3 of broker-a stands",
        "queue owner committed end lag oldest stands for verdict",
        "broker-a/3 app-7@10.0.0.9 5 12 7 120 min 42 s stalled",
    ]


def test_report_without_groups_prints_a_note() -> None:
    empty = LagReport([], 0, {}, 0.0, 1)
    assert shown(GroupTable(empty))[-1] == "no group has committed anything"
    assert shown(queue_table(empty)) == ["no group has committed anything"]


def test_columns_from_counters_are_marked() -> None:
    report = attrs.evolve(REPORT, rows=[attrs.evolve(ROW, source="counters")])
    assert "in/s counted out/s counted" in shown(GroupTable(report))[0]


def test_json_has_null_for_unknown_and_no_infinity() -> None:
    found = json.loads(json.dumps(report_json(REPORT, queues=True), allow_nan=False))
    first, second, third = found["rows"]
    assert (first["eta_seconds"], first["catches_up"]) == (None, False)
    assert (second["lag"], second["lag_at_least"], second["members"]) == (None, 7, None)
    assert second["queues"][1]["is_owned"] is None
    assert second["catches_up"] is None
    assert (third["topic"], third["queues"]) == (None, [])
    assert found["silent"] == {"broker-b": "away"}
    assert (found["rows_in_all"], found["window_seconds"], found["samples"]) == (9, 60, 13)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--once", "--watch"],
        ["--once", "--window", "60s"],
        ["--all", "--worst", "3"],
        ["--queues"],
        ["--window", "soon"],
        ["--window", "5s"],
        ["bad group"],
    ],
)
def test_options_that_do_not_fit_are_wrong_usage(arguments: list[str]) -> None:
    done = CliRunner().invoke(main, ["lag", *arguments])
    assert done.exit_code == 2, done.output


@pytest.mark.real
async def test_lag_and_health_of_a_cluster_are_shown_and_a_dead_master_is_reported() -> None:
    async with commands(slaves=1) as (cluster, run):
        async with client_of(cluster) as client, open_admin(client=client) as admin:
            await fill(client, 5, read=2)
            done = await run("lag", "--once", "--json")
            assert done.code == 0, done.err
            [found] = done.json
            assert [(row["group"], row["lag"], row["verdict"]) for row in found["rows"]] == [
                ("billing", 3, "stopped")
            ]
            done = await run("lag", "billing", "--window", "10s", "--queues")
            assert done.code == 0, done.err
            assert done.out.split()[-1] == "stopped"
            await admin.reset_offsets("billing", {MessageQueue("orders", "broker-a", 0): 5})
            done = await run("lag")
            assert (done.code, "stopped" in done.out) == (0, False)
        done = await run("cluster", "health", "-e")
        assert done.code == 0
        assert done.out.startswith("nothing is wrong; 2 brokers answered\n"), done
        done = await run("lag", "nothing")
        assert done.code == 1
        assert "no master knows the group 'nothing'" in done.err
        await cluster.kill_master()
        done = await run("lag", "billing", "--once", "--json")
        assert done.code == 3, done
        assert done.err == "warning: broker-a did not answer: it has no master now\n"
        assert list(done.json[0]["silent"]) == ["broker-a"]
        done = await run("cluster", "health", "-e", "--json")
        assert done.code == 1, done
        [health] = done.json
        assert {"R06", "H01"} <= {one["code"] for one in health["findings"]}
        assert health["is_well"] is False
