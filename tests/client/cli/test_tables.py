"""Tables at any width: numbers and verdicts stay whole, texts fold, columns are dropped, and lines fit."""

from pathlib import Path

import attrs
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.console import Console
from tests.client.cli.drawings import drawn
from tests.client.cli.rows import MASTER, PARTLY, REPORT, ROW, SLAVE

import rocketrio.cli
from rocketrio.cli.cluster_table import status_table
from rocketrio.cli.console import PIPED_WIDTH
from rocketrio.cli.lag_table import GroupTable, queue_table
from rocketrio.cli.tables import Cropped, Fitted, Head
from rocketrio.cli.top_screen import Screen, table_of

LARGE = 27_793_769_123
LONG = "payments-of-all-countries-that-are-settled-within-a-day-and-reported"
WIDTHS = st.integers(40, 200)
TEXTS = st.text(st.sampled_from("ab é漢-"), max_size=90)
NUMBERS = st.one_of(
    st.integers(-(2**63), 2**63 - 1).map("{:,}".format),
    st.sampled_from(["unknown", "≥27,793,769,123", "2026-11-21T08:00:00+01:00"]),
)


def words(lines: list[str]) -> set[str]:
    return {word for line in lines for word in line.split()}


@pytest.mark.slow
@given(
    WIDTHS,
    st.lists(st.tuples(NUMBERS, TEXTS, NUMBERS, TEXTS, NUMBERS), max_size=3),
    st.lists(st.integers(0, 3), min_size=5, max_size=5),
)
@example(40, [("1", LONG, "2" * 20, LONG, "3")], [0] * 5)
def test_each_number_is_whole_and_no_line_is_too_wide(
    width: int, rows: list[tuple[str, ...]], ranks: list[int]
) -> None:
    heads = [
        Head(f"column{index}", is_number=not index % 2, spare=rank)
        for index, rank in enumerate(ranks)
    ]
    table = Fitted(heads, rows)
    lines = drawn(table, width)
    assert max((Console().render_str(line).cell_len for line in lines), default=0) <= width
    kept = table.kept(width)
    shown = [index for index in range(5) if kept is None or index in kept]
    assert {row[index] for row in rows for index in shown if not index % 2} <= words(lines)
    assert {index for index in range(5) if not ranks[index]} <= {*shown}
    letters = "".join("".join(lines).split())
    for row in rows:
        for index in shown:
            assert not set(row[index]) - set(letters) - {" "}, "a text was dropped"


@given(WIDTHS, st.lists(NUMBERS, min_size=1, max_size=4), TEXTS)
def test_number_in_a_text_is_not_broken(width: int, numbers: list[str], text: str) -> None:
    rows = [[f"{number}; {text} queue={number} is", "1", text] for number in numbers]
    lines = drawn(Fitted([Head("why"), Head("n", is_number=True), Head("text")], rows), width)
    assert {f"{number};" for number in numbers} <= words(lines)
    assert {f"queue={number}" for number in numbers} <= words(lines)


@given(st.integers(4, 200))
def test_text_of_one_line_ends_after_a_whole_word(width: int) -> None:
    why = f"queue 3 stands at {LARGE:,} for 15 s"
    heads = [Head("n", is_number=True), Head("why", least=10, spare=1, is_one_line=True)]
    lines = drawn(Fitted(heads, [["7", why]]), width)
    assert len(lines) == 2
    assert {word.strip("…") for word in lines[1].split()} - {""} <= {"7", *why.split()}


def test_columns_are_dropped_by_rank_and_those_of_one_rank_together() -> None:
    heads = [Head("name"), Head("in", True, spare=2), Head("out", True, spare=2), Head("age", spare=1)]  # fmt: skip
    table = Fitted(heads, [["x" * 20, "1,000", "2,000", "3 s"]])
    assert table.kept(39) == [0, 1, 2, 3]
    assert table.kept(38) == [0, 3]
    assert table.kept(24) == [0]
    assert table.kept(20) == [0]
    assert table.kept(15) is None


def test_records_have_the_value_below_its_heading_if_beside_it_has_no_room() -> None:
    number = f"{LARGE:,}"
    table = Fitted([Head("committed_offset"), Head("n", True), Head("m", True)], [["a", number, number]])  # fmt: skip
    assert [line.split() for line in drawn(table, 48)][1] == ["a", number, number]
    beside = ["committed_offset  a", f"n                 {number}", f"m                 {number}"]
    assert drawn(table, 47) == drawn(table, 32) == beside
    assert drawn(table, 31) == ["committed_offset", "  a", "n", f"  {number}", "m", f"  {number}"]


def test_long_text_among_numbers_folds_and_the_numbers_do_not() -> None:
    path = "/a long folder" * 9
    rows = [["size", f"{LARGE:,}"], ["path", path]]
    lines = drawn(Fitted([Head("key"), Head("value", is_number=True)], rows), 60)
    assert lines[1].split() == ["size", f"{LARGE:,}"]
    assert "".join("".join(lines[2:]).split()) == "path" + path.replace(" ", "")


def test_crop_keeps_the_first_lines() -> None:
    table = Fitted([Head("n")], [[str(number)] for number in range(9)])
    assert drawn(Cropped(table, 3), 80) == ["n", "0", "1"]


GROUPS = [
    attrs.evolve(
        one,
        group=LONG,
        topic=f"{LONG}-topic",
        judgement=attrs.evolve(one.judgement, lag=lag, in_per_second=12_345.6),
    )
    for one, lag in ((ROW, LARGE), (PARTLY, None))
]
RECEIVER = attrs.evolve(SLAVE, broker_name=LONG, max_physical_offset=LARGE, state="following")
TOP = [
    {"group": LONG, "topic": f"{LONG}-topic", "lag": LARGE, "in/s": 12_345.6, "out/s": None,
     "members": 3, "verdict": "stopped", "why": f"queue 3 of {LONG} stands at {LARGE:,} for 60 s"},
    {"group": "a", "topic": "b", "lag": None, "in/s": None, "out/s": 0.0, "members": 0,
     "verdict": "unknown", "why": "broker-a did not answer"},
]  # fmt: skip


@pytest.mark.parametrize("width", [*range(40, 201, 8)])
def test_lag_and_verdict_are_whole_in_each_table_that_has_them(width: int) -> None:
    for shown in (
        GroupTable(attrs.evolve(REPORT, rows=GROUPS)),
        table_of(Screen("groups"), TOP, 100),
    ):
        lines = drawn(shown, width)
        assert max(map(len, lines)) <= width
        assert "unknown" in words(lines)
        assert {"stalled", "stopped"} & words(lines)
        assert {str(LARGE), f"{LARGE:,}"} & words(lines)
    lines = drawn(queue_table(attrs.evolve(REPORT, rows=GROUPS)), width)
    assert {"5", "12", "7", "stalled"} <= words(lines)
    lines = drawn(status_table([MASTER, RECEIVER]), width)
    assert {f"{LARGE:,}", "4,000,000,000", "61.2", "following"} <= words(lines)


def test_nothing_folds_in_a_pipe() -> None:
    lines = drawn(GroupTable(attrs.evolve(REPORT, rows=GROUPS)), PIPED_WIDTH)
    assert [len(line.split()) > 8 and LONG in line for line in lines[1:3]] == [True, True]


def test_one_file_lays_out_tables() -> None:
    folder = Path(rocketrio.cli.__file__).parent
    users = {path.name for path in folder.rglob("*.py") if "rich.table" in path.read_text()}
    assert users == {"tables.py"}
