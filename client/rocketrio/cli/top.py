"""The command `rocketrio top`: brokers, groups or topics, live; top_screen.py says what keys do."""

from __future__ import annotations

import codecs
import os
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import attrs
import click

from rocketrio.cli.call import Call, reads_alone
from rocketrio.cli.commands import Command
from rocketrio.cli.numbers import Duration
from rocketrio.cli.top_screen import VIEWS, Screen, View, help_line, keys_of, ordered, table_of
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import printable

if TYPE_CHECKING:
    import trio
    from rich.console import Console, Group, RenderableType

    from rocketrio.admin.admin import Admin
    from rocketrio.admin.top import ClusterSampler, GroupSampler, TopicSampler, TopSample

try:
    import termios
    import tty
except ImportError:  # Windows
    termios = None  # type: ignore[assignment]

EVERY: Final = 2.0


@click.command(cls=Command)
@click.argument(
    "view", type=click.Choice(list(VIEWS.values())), default="cluster", metavar="[VIEW]"
)
@click.option(
    "--every",
    type=Duration(0.2),
    default=EVERY,
    show_default=f"{EVERY:g}s",
    help="Time between two samples.",
)
@reads_alone
async def top(call: Call, view: View, every: float) -> None:
    """Show brokers, groups or topics (VIEW: cluster, groups, topics) live, in the whole terminal.

    The lag of a topic is that of the group that is furthest behind. `trend` draws a group's lag in the last 12 samples,
    from 0 to the greatest of them. Rates are the difference of two samples. What is unknown is `unknown`, never 0, and
    a gap in a trend; what did not answer is named. Columns that have no room are left out, numbers and verdicts never.
    Keys: c, g and t change the view, s sorts by the next column, r the other way round, / filters, q quits.

    \b
    Examples:
      rocketrio top
      rocketrio top groups --every 5
      rocketrio top topics
    """
    if termios is None:
        raise click.UsageError("top needs a terminal of Unix; `rocketrio lag --watch` does not")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise click.UsageError(
            "top needs a terminal; use `rocketrio lag --watch` or `cluster health --watch`"
        )

    call.is_endless = True
    await call.admin.cluster_info()  # Without a name server it is an error, and no empty screen.
    with _keys_at_once(sys.stdin.fileno()):
        await _Top(call.admin, every, Screen.of(view)).run()


@contextmanager
def _keys_at_once(terminal: int) -> Generator[None]:
    """Have the terminal send each key at once and show none, and restore it afterwards."""
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal)
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def _event() -> trio.Event:
    import trio

    return trio.Event()


def _no_sample() -> TopSample:
    from rocketrio.admin.top import TopSample

    return TopSample((), {})


@attrs.define
class _Top:
    admin: Admin
    every: float
    screen: Screen
    sample: TopSample = attrs.Factory(_no_sample)
    problem: str = ""
    looked_at: float | None = None
    _changed: trio.Event = attrs.Factory(_event)
    _switched: trio.Event = attrs.Factory(_event)

    async def run(self) -> None:
        """Take samples and listen until the user quits."""
        import trio
        from rich.live import Live

        from rocketrio.cli.console import console

        screen = console()
        # No refresh thread: the screen is drawn when something has changed.
        with Live(console=screen, auto_refresh=False, screen=True) as live:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._listen, nursery.cancel_scope)
                nursery.start_soon(self._sample)
                while True:
                    self._changed = _event()
                    live.update(self._drawn(screen), refresh=True)
                    await self._changed.wait()

    async def _listen(self, scope: trio.CancelScope) -> None:
        import trio

        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        while True:
            await trio.lowlevel.wait_readable(0)
            data = os.read(0, 1024)
            if not data:  # The terminal is gone.
                scope.cancel()
                return
            for key in keys_of(decoder.decode(data)):
                columns = ordered(self.sample.rows[0]) if self.sample.rows else []
                view = self.screen.view
                self.screen = self.screen.pressed(key, columns)
                if self.screen.is_over:
                    scope.cancel()
                if self.screen.view != view:
                    self.sample = _no_sample()
                    self.looked_at = None
                    self._switched.set()
            self._changed.set()

    async def _sample(self) -> None:
        import trio

        from rocketrio.admin.top import ClusterSampler, GroupSampler, TopicSampler

        samplers: dict[View, ClusterSampler | GroupSampler | TopicSampler] = {
            "cluster": ClusterSampler(self.admin),
            "groups": GroupSampler(self.admin),
            "topics": TopicSampler(self.admin),
        }
        while True:
            view = self.screen.view
            try:
                found = await samplers[view].sample()
            except ConfigError:
                raise
            except Error as error:
                self.problem = error.what
            else:
                if view == self.screen.view:
                    self.sample, self.problem = found, ""
                    self.looked_at = trio.current_time()
            self._changed.set()
            if view == self.screen.view:
                self._switched = _event()
                with trio.move_on_after(self.every):
                    await self._switched.wait()

    def _drawn(self, console: Console) -> Group:
        from rich.console import Group
        from rich.text import Text

        title = Text.assemble(
            ("rocketrio top ", "bold"), (self.screen.view, "bold cyan"),
            f"  {time.strftime('%H:%M:%S')}  {counted(len(self.sample.rows), 'row')}  {self.sample.note}",
        )  # fmt: skip
        warnings = [f"{name} did not answer: {why}" for name, why in self.sample.silent.items()]
        if self.problem:
            age = "" if self.looked_at is None else "; what is below is old"
            warnings.insert(0, f"{self.problem}{age}")
        lines = [Text(printable(one), "red", no_wrap=True, overflow="ellipsis") for one in warnings]
        last = help_line(self.screen)
        around = console.render_lines(Group(title, *lines, last), pad=False)
        room = console.height - len(around) - 1
        if self.looked_at is None and not self.problem:
            table: RenderableType = Text("looking …", "dim")
        else:
            table = table_of(self.screen, self.sample.rows, room)
        return Group(title, *lines, table, last)
