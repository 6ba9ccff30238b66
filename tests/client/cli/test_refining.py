"""Answers that come at once, and are refined where people see it."""

import io
import re
import signal

import click
import pytest
import trio
from rich.console import Console
from rich.text import Text
from tests.client.admin.lag_calls import FakeCalls, window_of
from tests.client.cli.terminals import terminal
from tests.support.clients import client_of
from tests.support.commands import LIMIT, Run, begin, commands
from tests.support.orders import fill

from rocketrio.admin import GroupLag, LagReport
from rocketrio.admin.diagnosis.checks import check_lag
from rocketrio.admin.lag import LagWindow
from rocketrio.cli import refining
from rocketrio.cli.output import Output
from rocketrio.cli.refining import refined, seconds_of
from rocketrio.thresholds import Limits, Status
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.lag import Judgement, Verdict


def stopped_window(seconds: float = 20) -> LagWindow:
    return window_of(FakeCalls(), "a", length=seconds)


def counted(window: LagWindow) -> Text:
    return Text(f"{len(window.times)} samples")


@pytest.fixture(name="screen")
def _screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    screen = io.StringIO()
    monkeypatch.setattr(refining, "_is_screen", lambda: True)
    monkeypatch.setattr(refining.sys.stdout, "isatty", lambda: True)
    monkeypatch.setattr(
        "rocketrio.cli.console.console",
        lambda **_: Console(file=screen, force_terminal=True, width=80, height=24),
    )
    return screen


async def test_first_answer_is_drawn_before_the_second_sample_and_the_last_is_returned(
    autojump_clock: trio.testing.MockClock, screen: io.StringIO
) -> None:
    window = stopped_window()

    async def answer() -> Text:
        return counted(window)

    async with trio.open_nursery() as nursery:

        async def look() -> None:
            await trio.sleep(1)
            assert "1 samples" in screen.getvalue()
            assert "20 s left" in screen.getvalue()

        nursery.start_soon(look)
        found = await refined(window, answer, lambda text: text)
    assert found.plain == "5 samples"
    lefts = [int(left) for left in re.findall(r"(\d+) s left", screen.getvalue())]
    assert lefts == sorted(lefts, reverse=True)
    assert set(range(1, 21)) <= {*lefts}


async def test_answer_so_far_stays_after_an_interrupt(
    autojump_clock: trio.testing.MockClock, screen: io.StringIO
) -> None:
    window = stopped_window()

    async def answer() -> Text:
        return counted(window)

    with trio.move_on_after(7.5) as scope:
        await refined(window, answer, lambda text: text)
    assert scope.cancelled_caught
    *_, last = screen.getvalue().split("s left")
    assert "2 samples" in last


async def test_without_a_screen_a_window_is_counted_down_in_a_few_lines(
    autojump_clock: trio.testing.MockClock, capsys: pytest.CaptureFixture[str]
) -> None:
    window = stopped_window(60)

    async def answer() -> LagReport:
        return await window.report()

    report = await refined(window, answer)
    assert report.samples == 13
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"watching groups: {left} s left" for left in (60, 45, 30, 15)]


@pytest.mark.parametrize(
    ("window", "once", "form", "out", "screen", "seconds"),
    [
        (None, False, "table", True, True, 60),
        (None, True, "table", True, True, 0),
        (None, False, "json", True, True, 0),
        (None, False, "table", False, True, 0),
        (None, False, "table", True, False, 0),
        (10.0, False, "json", False, False, 10),
    ],
)
def test_groups_are_watched_where_people_see_it_or_on_request(
    monkeypatch: pytest.MonkeyPatch,
    window: float | None, once: bool, form: str, out: bool, screen: bool, seconds: float,
) -> None:  # fmt: skip
    monkeypatch.setattr(refining, "_is_screen", lambda: screen)
    monkeypatch.setattr(refining.sys.stdout, "isatty", lambda: out)
    assert seconds_of(window, once=once, output=Output(form=form)) == seconds
    if window is None:
        assert seconds_of(window, once=once) == 0
    else:
        with pytest.raises(click.UsageError, match="omit --window"):
            seconds_of(window, once=True)


# ---------------------------------------------------------------------------------------- check lag

HELD = Judgement(Verdict.UNKNOWN, "one sample does not show it", 7)


def report_of(judgement: Judgement, age: float | None) -> LagReport:
    row = GroupLag("billing", "orders", judgement, 1, age, [], "counters")
    return LagReport([row], 1, {}, 0.0, 1)


@pytest.mark.parametrize(
    ("judgement", "age", "messages", "limits", "status"),
    [
        (HELD, 30.0, None, None, Status.UNKNOWN),
        (HELD, 30.0, None, Limits(60, 300), Status.OK),
        (HELD, 61.0, None, Limits(60, 300), Status.WARNING),
        (HELD, 301.0, Limits(1, 9), Limits(60, 300), Status.CRITICAL),
        (HELD, None, Limits(8, 9), None, Status.OK),
        (HELD, None, None, Limits(60, 300), Status.UNKNOWN),
        (Judgement(Verdict.UNKNOWN, "no answer", None), 3.0, None, Limits(60, 300), Status.UNKNOWN),
        (Judgement(Verdict.STOPPED, "stands", 7), 3.0, None, Limits(60, 300), Status.CRITICAL),
    ],
)  # fmt: skip
def test_thresholds_decide_at_once_what_needs_more_samples_and_nothing_else(
    judgement: Judgement,
    age: float | None,
    messages: Limits | None,
    limits: Limits | None,
    status: Status,
) -> None:
    result = check_lag(report_of(judgement, age), messages, limits)
    assert result.status is status
    assert "keep up" not in result.text


# ------------------------------------------------------------------------------- the real commands


async def stopped_group(cluster: EmbeddedCluster) -> None:
    """Have a group without members, and with unread messages in two queues."""
    async with client_of(cluster) as client:
        await fill(client, 6, queues=2, read=1)


def words(seen: bytes) -> set[bytes]:
    return {*re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b" ", seen).split()}


@pytest.mark.real
async def test_commands_answer_at_once_outside_a_terminal_and_are_refined_inside() -> None:
    async with commands() as (cluster, run):
        await stopped_group(cluster)
        await _outside(run)
        for command, code in (("lag", 130), ("doctor", 130)):
            async with terminal(command, namesrv=cluster.name_servers[0], width=80) as tty:
                await tty.until(lambda seen: b"s left" in seen)
                assert {b"stopped"} <= {word.strip(b":") for word in words(tty.seen)}
                tty.seen = b""
                tty.process.send_signal(signal.SIGINT)
                assert await tty.ended() == code
                assert b"stopped" in tty.seen  # The answer so far stays.
        async with terminal("lag", "--window", "10s", namesrv=cluster.name_servers[0]) as tty:
            assert await tty.ended() == 0
            *_, result = tty.seen.split(b"s left")
            assert {b"billing", b"orders", b"stopped"} <= words(result)
            assert b"for 10 s" in result
        await _misspelt(run)


@pytest.mark.real
async def test_doctor_whose_cluster_goes_away_while_it_watches_keeps_what_it_found() -> None:
    with trio.fail_after(LIMIT):
        async with EmbeddedCluster(network="loopback") as cluster:
            await stopped_group(cluster)
            process = await begin(cluster, "doctor", "--window", "10s", "--ignore", "C02")
            async for part in process.stderr:
                assert b"s left" in part
                break
        out = b"".join([part async for part in process.stdout]).decode()
        assert await process.wait() == 2
    assert "billing in orders is stopped" in out
    assert "not known: lag of groups: " in out


async def _outside(run: Run) -> None:
    done = await run("lag", "--json")
    assert (done.code, done.json[0]["samples"], done.err) == (0, 1, ""), done
    done = await run("lag")
    assert (done.code, done.out.splitlines()[1].split()[9], done.err) == (0, "stopped", ""), done
    done = await run("lag", "--json", "--window", "10s")
    assert (done.code, done.json[0]["samples"]) == (0, 3), done
    assert re.fullmatch(r"(watching groups: \d+ s left\n)+", done.err)
    done = await run("doctor")
    assert (done.code, done.err) == (2, ""), done
    assert "billing in orders is stopped: queue " in done.out
    assert "in the last minute" in done.out
    done = await run("check", "lag", "--age", "1000:2000")
    assert (done.code, done.out.split()[0], done.err) == (2, "CRITICAL", ""), done
    done = await run("cluster", "health")
    assert done.out.splitlines()[-1] == "groups were not looked at: see `rocketrio doctor`"
    done = await run("cluster", "health", "--json")
    assert "groups" not in done.json[0]


async def _misspelt(run: Run) -> None:
    for more in ((), ("--reset-to", "latest"), ("--json",)):
        done = await run("offsets", "orders", "--group", "biling", *more)
        assert (done.code, done.out) == (1, ""), done
        assert "no master knows the group 'biling'" in done.err
    assert (await run("group", "create", "new")).code == 0
    done = await run("offsets", "orders", "--group", "new")
    assert (done.code, done.out.splitlines()[-1]) == (0, "lag in all: unknown"), done
