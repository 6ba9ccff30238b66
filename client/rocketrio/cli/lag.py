"""The command `rocketrio lag`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Final, NoReturn

import click

from rocketrio.cli.call import Call, reads
from rocketrio.cli.commands import Command
from rocketrio.cli.lag_table import (
    GROUPS,
    QUEUES,
    GroupTable,
    queue_rows,
    queue_table,
    report_json,
)
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.refining import refined, seconds_of, window_options
from rocketrio.cli.types import GROUP, TOPIC
from rocketrio_protocol.lag import SAMPLE_EVERY, WINDOW

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rocketrio.admin.lag import LagWindow
    from rocketrio.admin.lag_values import LagReport

WORST_ROWS: Final = 20
"""The rows that a table has if neither --worst nor --all is given."""


@click.command(cls=Command)
@click.argument("groups", type=GROUP, nargs=-1, metavar="[GROUP]...")
@click.option("--topic", type=TOPIC, help="Only this topic.")
@click.option(
    "--worst",
    type=Whole(1),
    metavar="N",
    help=f"Only the worst N rows; a table of all groups has {WORST_ROWS} otherwise.",
)
@click.option("--all", "every", is_flag=True, help="All rows, with RocketMQ's own groups.")
@window_options
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option("--queues", is_flag=True, help="A row for each queue, with its owner.")
@reads
async def lag(
    call: Call,
    groups: tuple[str, ...],
    topic: str | None,
    worst: int | None,
    every: bool,
    window: float | None,
    once: bool,
    watch: bool,
    queues: bool,
) -> None:
    """Show how far behind groups are, the worst first, and whether that is a problem.

    \b
    ok        the lag was nearly 0 lately, or it falls, or it is small and hardly grows
    unknown   a broker did not answer, nothing was committed, or members keep their progress themselves
    behind    the group commits, and its lag does not fall
    rewound   the group went back, and no operator reset it
    stalled   the group commits nothing, though it has members
    stopped   the group commits nothing, and has no members
    ahead     the group's offset lies beyond the end of the queue: reset it
    losing    the next message is about to be deleted, or was deleted

    The answer comes at once: by one sample, and by what brokers counted in their last minute. A verdict that needs more
    samples is `unknown` then. In a terminal the answer is refined every 5 seconds for a minute, or until every group is
    ok; elsewhere only --window watches. What is unknown is `unknown`, in JSON null, and never 0. `≥7` is the lag of
    those queues whose lag is known.

    The exit code is 3 if a broker did not answer; standard error says which.

    \b
    Examples:
      rocketrio lag
      rocketrio lag --worst 5 --once
      rocketrio lag billing --window 60s > lag.txt
      rocketrio lag billing --queues
      rocketrio lag --topic orders --watch
      rocketrio lag --all --json
    """

    call.is_endless = watch
    if once and watch:
        raise click.UsageError("--once is one sample, and --watch repeats: give one of them")
    if every and worst is not None:
        raise click.UsageError("give --worst or --all, not both")
    if queues and not groups:
        raise click.UsageError("--queues needs a GROUP")
    if worst is None and not (every or groups) and call.output.is_plain:
        worst = WORST_ROWS
    length = (
        WINDOW if watch and window is None else seconds_of(window, once=once, output=call.output)
    )

    samples = call.admin.lag_window(
        *groups, topic=topic, seconds=length, include_system=every or bool(groups)
    )
    if watch:
        await _watch(samples, worst, call.output, queues=queues)
    report = await refined(
        samples,
        lambda: samples.report(worst=worst, owners=queues),
        lambda found: _table(found, queues=queues),
    )
    _show(report, call.output, queues=queues)
    call.silent.update(report.silent)


async def _watch(
    samples: LagWindow, worst: int | None, output: Output, *, queues: bool
) -> NoReturn:
    # No refresh thread: each report is shown when it arrives.
    import trio
    from rich.live import Live

    from rocketrio.cli.console import console

    is_screen = output.is_plain and sys.stdout.isatty()
    screen = Live(console=console(), auto_refresh=False) if is_screen else nullcontext()
    with screen as live:
        while True:
            await samples.sample()
            report = await samples.report(worst=worst, owners=queues)
            if live is None:
                _show(report, output, queues=queues)
            else:
                live.update(_table(report, queues=queues), refresh=True)
            await trio.sleep_until(samples.times[-1] + SAMPLE_EVERY)


def _show(report: LagReport, output: Output, *, queues: bool) -> None:

    document = report_json(report, queues=queues)
    output.show(
        queue_rows(document) if queues and output.form != "json" else document["rows"],
        ("group", "topic", *QUEUES) if queues else GROUPS,
        document=lambda rows: {**document, "rows": rows},
        people=_table(report, queues=queues),
    )


def _table(report: LagReport, *, queues: bool) -> RenderableType:

    return queue_table(report) if queues else GroupTable(report)
