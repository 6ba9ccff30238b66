"""Rows as people and programs get them."""

import csv
import io
import json
import sys
from datetime import UTC, datetime
from typing import Any

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.text import Text

from rocketrio.cli.columns import Column
from rocketrio.cli.output import Output

ROWS = [
    {"group": "billing", "lag": 7, "when": datetime(2026, 11, 21, 8, tzinfo=UTC), "topics": ["a"]},
    {"group": "audit", "lag": None, "when": None, "topics": []},
    {"group": "Zoo", "lag": 120, "when": None, "topics": ["a", "b"]},
]


@pytest.fixture(name="printed")
def _printed(capsys: pytest.CaptureFixture[str]) -> Any:
    def show(output: Output, *arguments: Any, **options: Any) -> str:
        output.show(ROWS, *arguments, **options)
        return capsys.readouterr().out

    return show


def test_json_is_a_list_of_rows_with_null_for_unknown(printed: Any) -> None:
    shown = json.loads(printed(Output(form="json")))
    assert shown[0] == {
        "group": "billing",
        "lag": 7,
        "when": "2026-11-21T08:00:00.000+00:00",
        "topics": ["a"],
    }
    assert shown[1]["lag"] is None


def test_json_document_has_the_rows_that_are_shown(printed: Any) -> None:
    output = Output(form="json", sort="lag", limit=1)
    shown = json.loads(printed(output, document=lambda rows: {"rows": rows, "in_all": 3}))
    assert [row["group"] for row in shown["rows"]] == ["billing"]
    assert shown["in_all"] == 3


def test_lines_of_json_are_one_for_each_row(printed: Any) -> None:
    lines = printed(Output(form="ndjson")).splitlines()
    assert [json.loads(line)["group"] for line in lines] == ["billing", "audit", "Zoo"]
    assert printed(Output(form="json"), lines=True).splitlines() == lines


def test_csv_has_an_empty_field_for_unknown(printed: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(printed(Output(form="csv")))))
    assert [row["lag"] for row in rows] == ["7", "", "120"]
    assert rows[2]["topics"] == '["a", "b"]'
    assert "lag" not in printed(Output(form="csv", headers=False))


def test_table_shows_unknown_and_aligns_numbers(printed: Any) -> None:
    lines = printed(Output(), ("group", Column("lag", "behind"))).splitlines()
    assert [line.rstrip() for line in lines] == [
        "group     behind",
        "billing        7",
        "audit    unknown",
        "Zoo          120",
    ]


def test_format_string_prints_each_row(printed: Any) -> None:
    assert printed(Output(form="%i %f{group}: %f{lag}\\n", limit=2)) == (
        "1 billing: 7\n2 audit: null\n"
    )


def test_columns_are_chosen_by_key_also_those_that_a_table_omits(printed: Any) -> None:
    out = printed(Output(columns=("topics", "group"), headers=False), ("group", "lag"))
    assert out.splitlines()[2].split() == ["a,", "b", "Zoo"]
    assert json.loads(printed(Output(form="json", columns=("lag",)))) == [
        {"lag": 7},
        {"lag": None},
        {"lag": 120},
    ]


def test_unknown_is_last_in_both_directions(printed: Any) -> None:
    for sort, groups in (("lag", "billing Zoo audit"), ("-lag", "Zoo billing audit")):
        out = printed(Output(sort=sort, columns=("group",), headers=False))
        assert out.split() == groups.split()
    out = printed(Output(sort="group", columns=("group",), headers=False))
    assert out.split() == ["audit", "billing", "Zoo"]


@pytest.mark.parametrize("output", [Output(columns=("lg",)), Output(sort="-lg")])
def test_unknown_column_is_wrong_usage_that_names_the_columns(output: Output) -> None:
    with pytest.raises(click.UsageError, match="no column 'lg': group, lag, when, topics"):
        output.show(ROWS, ("group",))


def test_cut_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    Output(limit=2).show(ROWS)
    assert capsys.readouterr().err == "the first 2 of 3 rows; --limit shows more\n"


def test_text_for_people_is_replaced_by_a_table_only_on_request(printed: Any) -> None:
    assert printed(Output(), people="three groups") == "three groups\n"
    assert "Zoo" in printed(Output(limit=3), people="three groups")
    assert printed(Output(), people="", notes=["a note"]) == "a note\n"


def test_times_are_local_or_utc() -> None:
    time = datetime(2026, 11, 21, 8, tzinfo=UTC)
    assert Output(utc=True).time(time) == "2026-11-21T08:00:00+00:00"
    assert datetime.fromisoformat(Output().time(time)) == time
    assert Output().time(None) == "unknown"


def test_text_of_strangers_is_no_markup_and_cannot_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = {"key": "[red]x[/] [/] \x1b[2J"}
    Output().show([row])
    assert capsys.readouterr().out.splitlines()[1].rstrip() == r"[red]x[/] [/] \x1b[2J"
    Output().line(row, "a\x1b[2J")
    assert capsys.readouterr().out == "a\\x1b[2J\n"


def test_stream_is_a_line_for_each_row(capsys: pytest.CaptureFixture[str]) -> None:
    for form in ("json", "ndjson"):
        Output(form=form).line({"a": None}, "text")
        assert capsys.readouterr().out == '{"a": null}\n'
    for form, expected in (("csv", "a,b\n1,2\n3,4\n"), ("%i=%f{b};", "1=2;2=4;")):
        output = Output(form=form)
        output.line({"a": 1, "b": 2}, "text")
        output.line({"a": 3, "b": 4}, "text")
        assert capsys.readouterr().out == expected


def test_cell_may_differ_from_the_value(printed: Any) -> None:
    column = Column("lag", cell=lambda row: Text(f"≥{row['lag']}", style="red"), right=True)
    assert "≥7" in printed(Output(), ("group", column))


VALUES = st.sampled_from([None, True, 0, -3, 2.5, "", "a", "B", "10"])


@given(
    st.lists(st.fixed_dictionaries({"a": VALUES, "b": VALUES}), max_size=6),
    st.sampled_from(["a", "-b"]),
)
def test_any_rows_are_sorted_and_none_is_lost(rows: list[dict[str, Any]], sort: str) -> None:
    ordered = Output(sort=sort)._ordered(list(rows), [])
    assert sorted(map(repr, ordered)) == sorted(map(repr, rows))
    unknown = [row[sort.removeprefix("-")] is None for row in ordered]
    assert unknown == sorted(unknown)


def test_narrow_terminal_gets_the_fields_below_each_other(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    columns = ("group", Column("lag", "behind"), "topics")
    for width, expected in ((23, "group    behind  topics"), (22, "group   billing")):
        monkeypatch.setattr(
            "rocketrio.cli.console.console",
            lambda width=width: Console(width=width, force_terminal=False),
        )
        Output().show(ROWS[:1], columns)
        lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
        assert lines[0] == expected
    assert lines == ["group   billing", "behind  7", "topics  a"]
