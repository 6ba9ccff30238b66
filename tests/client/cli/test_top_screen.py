"""What keys do on the screen of `rocketrio top`, and what it shows."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.client.cli.drawings import drawn

from rocketrio.admin.top import TREND_LENGTH
from rocketrio.cli.top_screen import (
    ESCAPE,
    Screen,
    help_line,
    keys_of,
    ordered,
    sparkline,
    table_of,
)

ROWS = [
    {"topic": "orders", "lag": 5, "in/s": 1.5},
    {"topic": "bills", "lag": None, "in/s": 20.0},
    {"topic": "Zebra", "lag": 70, "in/s": None},
]
COLUMNS = list(ROWS[0])


def after(keys: str, screen: Screen = Screen("groups")) -> Screen:  # noqa: B008
    for key in keys_of(keys):
        screen = screen.pressed(key, COLUMNS)
    return screen


def shown(screen: Screen) -> list[str]:
    return [row["topic"] for row in screen.chosen(ROWS)]


def test_sort_goes_through_the_columns_and_back_to_the_given_order() -> None:
    assert [after("s" * count).sort for count in range(5)] == ["", "topic", "lag", "in/s", ""]
    assert shown(after("")) == ["orders", "bills", "Zebra"]
    assert shown(after("s")) == ["bills", "orders", "Zebra"]
    assert shown(after("ss")) == ["orders", "Zebra", "bills"]
    assert shown(after("r")) == ["Zebra", "bills", "orders"]


def test_unknown_is_last_both_ways() -> None:
    assert shown(after("ss"))[-1] == shown(after("ssr"))[-1] == "bills"


def test_filter_is_typed_edited_kept_and_removed() -> None:
    screen = after("/orx\x7fd")
    assert (screen.is_typing, screen.filter, shown(screen)) == (True, "ord", ["orders"])
    assert "ord_" in help_line(screen).plain
    screen = after("\r", screen)
    assert (screen.is_typing, shown(screen)) == (False, ["orders"])
    assert shown(after("q", after("/q"))) == []  # q is a letter of the filter.
    assert shown(after(ESCAPE, screen)) == ["orders", "bills", "Zebra"]
    assert shown(after("/zeb")) == ["Zebra"]


def test_views_change_and_keep_the_filter_and_q_ends() -> None:
    screen = after("/a\rt")
    assert (screen.view, screen.filter, screen.sort, screen.reverse) == (
        "topics",
        "a",
        "in/s",
        True,
    )
    assert after("c").view == "cluster"
    assert after("q").is_over


def test_arrows_and_other_keys_of_several_characters_are_no_letters() -> None:
    assert list(keys_of("a\x1b[A\x1b[15~\x1bOPb\x1b")) == ["a", "b", ESCAPE]


@given(st.text(max_size=40), st.integers(0, 9))
def test_any_keys_leave_a_screen_that_can_be_drawn(keys: str, height: int) -> None:
    screen = after(keys)
    assert set(shown(screen)) <= {"orders", "bills", "Zebra"}
    console = Console(width=60, file=io.StringIO())
    console.print(table_of(screen, ROWS, height), help_line(screen))


def text_of(
    screen: Screen, width: int, height: int = 9, rows: list[dict[str, object]] = ROWS
) -> str:
    return "\n".join(drawn(table_of(screen, rows, height), width))


def test_table_shows_unknown_and_never_more_lines_than_fit() -> None:
    text = text_of(Screen("groups", sort="lag"), 60)
    assert "lag↑" in text
    assert text.count("unknown") == 2
    assert len(text_of(Screen("groups"), 60, height=2).splitlines()) == 2


@pytest.mark.parametrize("width", [10, 40, 200])
def test_text_of_strangers_steers_no_terminal_and_folds_no_line(width: int) -> None:
    rows: list[dict[str, object]] = [{"lag": 1, "why": "\x1b[2J" + "x" * 300}]
    text = text_of(Screen("groups"), width, rows=rows)
    assert "\x1b" not in text
    assert len(text.splitlines()) == 2


def test_sparkline_begins_at_zero_and_has_a_gap_for_what_is_unknown() -> None:
    assert sparkline([0, 50, None, 100]) == "▁▅ █"
    assert sparkline([7, 7]) == "██"
    assert sparkline([0, 1, 1_000_000]) == "▁▂█"  # One message is not none.
    assert sparkline([0, 0]) == "▁▁"
    assert sparkline([None, None]) == "  "
    assert sparkline([]) == ""


@given(st.lists(st.none() | st.integers(0, 2**63), max_size=TREND_LENGTH))
def test_sparkline_is_as_high_as_its_numbers(numbers: list[int | None]) -> None:
    drawn = sparkline(numbers)
    assert len(drawn) == len(numbers)
    assert [one == " " for one in drawn] == [one is None for one in numbers]
    assert [one == "▁" for one in drawn] == [one == 0 for one in numbers]
    known = sorted(
        (one, block) for one, block in zip(numbers, drawn, strict=True) if one is not None
    )
    blocks = [block for _, block in known]
    assert blocks == sorted(blocks)
    assert not known or known[-1][1] == ("█" if known[-1][0] else "▁")


GROUPS: list[dict[str, object]] = [
    {
        "group": "billing", "topic": "orders", "lag": 1_234, "trend": (0, None, 617, 1_234),
        "in/s": 400.0, "out/s": None, "members": 2, "verdict": "behind",
        "why": "queue 3 of broker-a falls behind by 400/s",
    }
]  # fmt: skip


@pytest.mark.parametrize(
    ("width", "heads"),
    [
        (140, ["group", "topic", "lag", "trend", "in/s", "out/s", "members", "verdict", "why"]),
        (80, ["group", "topic", "lag", "trend", "verdict", "why"]),
        (70, ["group", "topic", "lag", "trend", "verdict"]),
        (40, ["group", "topic", "lag", "verdict"]),
    ],
)
def test_trend_stands_where_there_is_room(width: int, heads: list[str]) -> None:
    head, row = text_of(Screen("groups"), width, rows=GROUPS).splitlines()
    assert head.split() == heads
    assert ("1,234" in row, "behind" in row) == (True, True)
    assert (f"1,234  {'▁ ▅█'.rjust(TREND_LENGTH)}" in row) == ("trend" in heads)


def test_trend_is_neither_sorted_by_nor_searched() -> None:
    assert "trend" not in ordered(GROUPS[0])
    assert [Screen("groups", filter=text).chosen(GROUPS) for text in ("617", "none)")] == [[], []]
