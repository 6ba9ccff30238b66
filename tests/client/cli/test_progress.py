"""Progress on standard error: in a terminal only, and never among the data."""

import io
import sys

import pytest
import trio
from trio.testing import MockClock

from rocketrio.cli.progress import DRAW_EVERY, FIRST_AFTER, showing_progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def shown(terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, **options: object) -> str:
    """Return what is drawn while 60 messages are handled, one a tenth of a second."""
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "80")
    done = 0
    async with showing_progress("sending", lambda: done, **options):  # type: ignore[arg-type]
        while done < 60:
            done += 1
            await trio.sleep(0.1)
    return terminal.getvalue()


async def test_terminal_shows_count_rate_and_end(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    text = await shown(Terminal(), monkeypatch, total=60)
    assert "of 60 messages, 10." in text
    assert "58 of 60 messages" in text


async def test_without_an_end_there_is_a_count(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    text = await shown(Terminal(), monkeypatch)
    assert " 58 messages, " in text
    assert "left" not in text


@pytest.mark.parametrize("terminal", [io.StringIO(), Terminal()])
async def test_pipe_and_input_that_a_person_types_show_nothing(
    terminal: io.StringIO, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    assert await shown(terminal, monkeypatch, when=not terminal.isatty()) == ""


async def test_command_that_ends_at_once_shows_nothing(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    async with showing_progress("sending", lambda: 1):
        await trio.sleep(FIRST_AFTER - DRAW_EVERY)
    assert terminal.getvalue() == ""
