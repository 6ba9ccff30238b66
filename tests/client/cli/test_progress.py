"""Progress on standard error: in a terminal only, and never among the data."""

import io
import os
import pty
import socket
import subprocess
import sys

import pytest
import trio
from tests.support.commands import ROCKETRIO
from tests.support.waiting import HANGS
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


async def test_what_a_command_prints_goes_where_it_belongs(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """Standard output may be a file or a pipe while standard error is a terminal."""
    terminal, file = Terminal(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(sys, "stdout", file)
    async with showing_progress("asking"):
        await trio.sleep(2 * FIRST_AFTER)
        sys.stdout.write("a row\n")
    assert file.getvalue() == "a row\n"
    assert "asking" in terminal.getvalue()


TRIES = 5
ASKING = [
    "clients",
    "cluster status",
    "broker role broker-a sync-master",
    "broker show broker-a",
    "dead-letters count --all-groups",
    "group check billing",
    "group list",
    "message browse orders",
    "message get 7F00000100002A9F0000000000000000 --topic orders",
    "message trace AC11",
    "offsets export billing",
    "producers orders",
    "topic list --long",
]


@pytest.mark.real
async def test_command_that_gets_no_answer_shows_that_it_asks() -> None:
    """The name server takes connections and answers nothing."""
    silent = socket.create_server(("127.0.0.1", 0), backlog=100)
    env = {
        **os.environ,
        "NAMESRV_ADDR": f"127.0.0.1:{silent.getsockname()[1]}",
        "TERM": "xterm",
        "COLUMNS": "80",
    }
    limit = trio.CapacityLimiter(2)

    def first_line(words: list[str]) -> bytes:
        ours, theirs = pty.openpty()
        command = [ROCKETRIO, *words]
        with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=env) as one:
            os.close(theirs)
            shown = b""
            try:
                while b"0:00:0" not in shown and b"error" not in shown:
                    shown += os.read(ours, 4096)
                return shown
            finally:
                one.kill()
                os.close(ours)

    async def look(words: str) -> None:
        # A process that gets no turn for its three seconds has nothing to say but how they ended.
        for _ in range(TRIES):
            shown = await trio.to_thread.run_sync(first_line, words.split(), limiter=limit)
            if b"0:00:0" in shown:
                return
        raise AssertionError((words, shown))

    with silent, trio.fail_after(HANGS):
        async with trio.open_nursery() as nursery:
            for words in ASKING:
                nursery.start_soon(look, words)
