"""What the demo says: one line a step while it runs, and a table of what happened at its end."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum

import attrs
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.progress import (
    BarColumn,
    DownloadColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)
from rich.table import Table


class Outcome(Enum):
    """How a step ended."""

    TRUE = "true"
    FALSE = "not true"
    LEFT_OUT = "left out"


@attrs.frozen
class Finding:
    """One thing the demo claims, and whether it was so."""

    claim: str
    outcome: Outcome
    detail: str


PIPE_WIDTH = 120
"""Columns where there is no terminal."""


def _console() -> Console:
    return Console(width=None if Console().is_terminal else PIPE_WIDTH)


@attrs.define
class Report:
    """Prints as the demo goes and remembers what it found."""

    console: Console = attrs.Factory(_console)
    findings: list[Finding] = attrs.Factory(list)

    def step(self, number: int, text: str) -> None:
        """Begin a step."""
        self.console.print(f"[bold cyan]{number}.[/] [bold]{text}[/]")

    def say(self, text: str) -> None:
        """One line below the step."""
        self.console.print(f"   {text}", highlight=False, soft_wrap=True)

    def check(self, claim: str, *, holds: bool, detail: str) -> None:
        """Note whether a claim was true, and show it."""
        outcome = Outcome.TRUE if holds else Outcome.FALSE
        self.findings.append(Finding(claim, outcome, detail))
        mark = "[green]ok[/]" if holds else "[bold red]NOT TRUE[/]"
        self.console.print(f"   {mark}  {claim}: {detail}", highlight=False, soft_wrap=True)

    def leave_out(self, claim: str, why: str) -> None:
        """A claim that could not be looked at here."""
        self.findings.append(Finding(claim, Outcome.LEFT_OUT, why))
        self.console.print(
            f"   [yellow]left out[/]  {claim}: {why}", highlight=False, soft_wrap=True
        )

    @contextmanager
    def progress(self, what: str, total: int, unit: str) -> Iterator["Bar"]:
        """A progress bar with its rate; on a pipe it is one line at the end."""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=total, rate="")
            yield Bar(progress, task, unit)

    @contextmanager
    def bytes_progress(self, what: str) -> Iterator["Bar"]:
        """A progress bar of bytes with rate and time left."""
        columns = (
            TextColumn("   {task.description}"),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console) as progress:
            task = progress.add_task(what, total=None)
            yield Bar(progress, task, "B")

    def show(self, renderable: RenderableType) -> None:
        """Something of several lines below the step."""
        self.console.print(Padding(renderable, (0, 0, 0, 3)), highlight=False)

    def routing_tables(
        self,
        title: str,
        broker_addr_table: Mapping[str, Mapping[int, str]],
        pull_from_which_node_table: Mapping[str, int],
    ) -> None:
        """The two tables a client routes by."""
        brokers = "; ".join(
            f"{name} " + ", ".join(f"{broker_id}={addr}" for broker_id, addr in sorted(ids.items()))
            for name, ids in sorted(broker_addr_table.items())
        )
        nodes = " ".join(
            f"{queue}→{broker_id}"
            for queue, broker_id in sorted(pull_from_which_node_table.items())
        )
        self.say(f"[bold]{title}[/]")
        self.say(f"  broker_addr_table           {brokers}")
        self.say(f"  pull_from_which_node_table  {nodes or '(empty: the master)'}")

    def summary(self) -> bool:
        """The table of what happened; True when nothing was untrue."""
        table = Table(title="What happened", title_justify="left")
        table.add_column("claim")
        table.add_column("")
        table.add_column("seen", overflow="fold")
        colors = {Outcome.TRUE: "green", Outcome.FALSE: "bold red", Outcome.LEFT_OUT: "yellow"}
        for finding in self.findings:
            mark = f"[{colors[finding.outcome]}]{finding.outcome.value}[/]"
            table.add_row(finding.claim, mark, finding.detail)
        self.console.print(table)
        return all(finding.outcome is not Outcome.FALSE for finding in self.findings)


@attrs.define
class Bar:
    """One running progress bar."""

    _progress: Progress
    _task: object
    _unit: str

    def advance(self, count: int) -> None:
        """`count` more are done."""
        task = self._progress.tasks[0]
        self._progress.advance(task.id, count)
        if task.speed:
            self._progress.update(task.id, rate=f"{task.speed:,.0f} {self._unit}/s")

    def reached(self, done: int, *, of: int) -> None:
        """`done` of a total that may still grow."""
        self._progress.update(self._progress.tasks[0].id, completed=done, total=of)
