"""Times on the command line: one rule for all commands."""

import time
from collections.abc import Iterator
from datetime import UTC, datetime

import click
import pytest
from click.testing import CliRunner

from rocketrio.cli import main
from rocketrio.cli.json_values import utc_text
from rocketrio.cli.offsets import _time
from rocketrio.cli.types import PLACE, RANGE, Time, local_text, typed_time
from rocketrio.queue_positions import AtTime, FromLast

NOON: datetime = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.parametrize("text", ["2026-01-31T07:00", "2026-01-31T13:00+01:00", "2026-01-31T12Z"])
def test_a_time_is_the_same_for_all_commands(in_new_york: None, text: str) -> None:
    noon = AtTime(int(NOON.timestamp() * 1000))
    assert PLACE.convert(text, None, None) == noon
    assert PLACE.convert(f"@{text}", None, None) == noon
    assert Time().convert(text, None, None) == NOON
    assert _time(text) == NOON


def test_times_that_are_shown_can_be_given_again(in_new_york: None) -> None:
    assert utc_text(NOON) == "2026-01-31T12:00:00.000+00:00"
    assert local_text(NOON) == "2026-01-31T07:00:00-05:00"
    assert typed_time(utc_text(NOON)) == typed_time(local_text(NOON)) == NOON


@pytest.mark.parametrize("text", ["yesterday", "0001-01-01T00:00"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time: ISO 8601"):
        Time().convert(text, None, None)


def test_seconds_are_not_taken_for_milliseconds() -> None:
    for kind in (PLACE, RANGE):
        with pytest.raises(click.BadParameter, match="write these seconds as 1700000000000"):
            kind.convert("@1700000000", None, None)
    with pytest.raises(click.BadParameter, match="write these seconds as 1700000000000"):
        Time().convert("1700000000", None, None)


def test_place_may_be_a_time_back_or_an_offset() -> None:
    assert PLACE.convert("-10", None, None) == FromLast(10)
    found = PLACE.convert("-1h", None, None)
    assert isinstance(found, AtTime)
    assert abs(found.time_ms / 1000 - time.time() + 3600) < 60
    with pytest.raises(click.BadParameter, match="is not a place: first, last"):
        PLACE.convert("yesterday", None, None)


@pytest.mark.parametrize(
    "command", [["consume"], ["offsets", "show"], ["offsets", "reset"], ["dead-letters", "list"]]
)
def test_help_explains_times_without_a_zone(command: list[str]) -> None:
    said = " ".join(CliRunner().invoke(main, [*command, "--help"]).output.split())
    assert "without a zone, local time" in said
