"""Formats the output of `rocketrio lag`: for people and for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketrio.cli.columns import UNKNOWN, Column, Drawn, drawn_table, hidden, in_places, row_of
from rocketrio.counts import counted
from rocketrio_protocol.lag import Judgement, Owner, Verdict, duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from rocketrio.admin.lag_values import GroupLag, LagReport

_WHY_WIDTH: Final = 50
"""With less room the reasons stand below the table."""
_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "magenta",
    Verdict.BEHIND: "yellow",
    Verdict.REWOUND: "yellow",
}
_BAD: Final = "bold red"
_NOT_MEASURED: Final = "-"


def _judged(key: str, **more: Any) -> Column:
    return Column(key, value=lambda one: getattr(one.judgement, key), **more)


GROUPS: Final = (
    Column("group", drawn=Drawn("group", lambda one: one.group)),
    Column("topic", drawn=Drawn("topic", lambda one: _topic(one))),
    _judged("verdict", place=4, drawn=Drawn("verdict", lambda one: _verdict(one.verdict))),
    _judged(
        "why",
        place=5,
        drawn=Drawn("why", lambda one: one.judgement.why, spare=5, least=_WHY_WIDTH),
    ),
    _judged("lag", drawn=Drawn("lag", lambda one: _lag(one), right=True)),
    _judged(
        "in_per_second",
        place=2,
        drawn=Drawn("in/s", lambda one: _rate(one.judgement.in_per_second), right=True, spare=3),
    ),
    _judged(
        "out_per_second",
        place=2,
        drawn=Drawn("out/s", lambda one: _rate(one.judgement.out_per_second), right=True, spare=3),
    ),
    Column(
        "eta_seconds",
        place=2,
        value=lambda one: _known_eta(one.judgement),
        drawn=Drawn("eta", lambda one: _eta(one.judgement.eta), right=True, spare=4),
    ),
    hidden("lag_at_least"),
    Column(
        "oldest_seconds",
        place=1,
        drawn=Drawn("oldest", lambda one: _length(one.oldest_seconds), right=True, spare=1),
    ),
    hidden("catches_up"),
    Column(
        "members",
        place=3,
        drawn=Drawn("members", lambda one: _number(one.members), right=True, spare=2),
    ),
    hidden("source"),
)
"""What programs see of a group and topic: null for unknown, times in seconds."""
_WHY: Final = [column.key for column in in_places(GROUPS) if column.drawn].index("why")
QUEUES: Final = (
    Column(
        "broker_name",
        value=lambda one: one.queue.broker_name,
        drawn=Drawn("queue", lambda one: f"{one.queue.broker_name}/{one.queue.queue_id}"),
    ),
    Column("queue_id", value=lambda one: one.queue.queue_id),
    Column(
        "owner",
        value=lambda one: None if isinstance(one.owner, Owner) else one.owner,
        drawn=Drawn("owner", lambda one: _owner(one.owner)),
    ),
    hidden("is_owned", lambda one: _OWNED.get(one.owner, True)),
    Column(
        "committed_offset",
        drawn=Drawn("committed", lambda one: _number(one.committed_offset), right=True),
    ),
    Column("max_offset", drawn=Drawn("end", lambda one: _number(one.max_offset), right=True)),
    _judged(
        "verdict", place=1, drawn=Drawn("verdict", lambda one: _verdict(one.judgement.verdict))
    ),
    hidden("why", lambda one: one.judgement.why),
    _judged("lag", drawn=Drawn("lag", lambda one: _number(one.lag), right=True)),
    hidden("in_per_second", lambda one: one.judgement.in_per_second),
    hidden("out_per_second", lambda one: one.judgement.out_per_second),
    hidden("eta_seconds", lambda one: _known_eta(one.judgement)),
    Column(
        "oldest_seconds",
        drawn=Drawn("oldest", lambda one: _length(one.oldest_seconds), right=True, spare=1),
    ),
    Column(
        "stands_for_seconds",
        value=lambda one: one.judgement.stands_for,
        drawn=Drawn(
            "stands for",
            lambda one: _length(one.judgement.stands_for, missing=_NOT_MEASURED),
            right=True,
            spare=3,
        ),
    ),
)
"""What programs see of a queue."""
_OWNED: Final[Mapping[object, bool | None]] = {Owner.NO_MEMBER: False, Owner.A_MEMBER: None}
"""Whether a queue has an owner, where its owner is not known by its id."""


def report_json(report: LagReport, *, queues: bool) -> dict[str, Any]:
    """Return a report for programs: stable names, null for unknown, times in seconds."""
    return {
        "rows": [_row_json(row, queues=queues) for row in report.rows],
        "rows_in_all": report.rows_in_all,
        "silent": dict(report.silent),
        "window_seconds": report.window,
        "samples": report.samples,
    }


def _row_json(row: GroupLag, *, queues: bool) -> dict[str, Any]:
    shown = row_of(row, GROUPS)
    return shown | {"queues": [row_of(one, QUEUES) for one in row.queues]} if queues else shown


def queue_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each queue of a report with queues, each with its group and topic."""
    return [
        {"group": row["group"], "topic": row["topic"], **queue}
        for row in document["rows"]
        for queue in row["queues"]
    ]


@attrs.frozen
class GroupTable:
    """A table of groups and topics for people, with notes on what is missing from it.

    Where the reasons have no room beside the numbers they stand below.
    """

    report: LagReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table for the width that there is."""
        rows = self.report.rows
        marks = {}
        if any(row.source == "counters" for row in rows):
            marks = dict.fromkeys(("in_per_second", "out_per_second"), " counted")
        table = drawn_table(GROUPS, rows, marks=marks)
        yield table
        kept = table.kept(options.max_width)
        if kept is not None and _WHY not in kept:
            yield from (_heading(row) for row in rows if row.verdict != Verdict.OK)
        yield from _notes(self.report)


def queue_table(report: LagReport) -> RenderableType:
    """Return a table of queues for people, one for each group and topic."""
    from rich.console import Group
    from rich.text import Text

    parts: list[RenderableType] = []
    for row in report.rows:
        parts += [_heading(row), drawn_table(QUEUES, row.queues), Text()]
    return Group(*parts[:-1], *_notes(report))


def _known_eta(judgement: Judgement) -> float | None:
    return None if judgement.eta is None or judgement.eta == math.inf else judgement.eta


def _heading(row: GroupLag) -> Text:
    from rocketrio.cli.tables import text_of

    return text_of(f"{row.group} {_topic(row)}: {row.verdict.value}: {row.judgement.why}")


def _topic(row: GroupLag) -> str:
    return _NOT_MEASURED if row.topic is None else row.topic


def _notes(report: LagReport) -> list[Text]:
    from rich.text import Text

    notes = []
    if len(report.rows) < report.rows_in_all:
        notes.append(
            f"the worst {len(report.rows):,} of {counted(report.rows_in_all, 'row')}; --all shows all"
        )
    if not report.rows and not report.silent:
        notes.append("no group has committed anything")
    return [Text(note) for note in notes]


def _lag(row: GroupLag) -> str:
    if row.lag is not None:
        return str(row.lag)
    return f"≥{row.lag_at_least}" if row.lag_at_least else UNKNOWN


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def _length(seconds: float | None, *, missing: str = UNKNOWN) -> str:
    return missing if seconds is None else duration(seconds)


def _rate(value: float | None) -> str:
    return _NOT_MEASURED if value is None else f"{value:.1f}"


def _eta(seconds: float | None) -> str:
    if seconds is None:
        return _NOT_MEASURED
    return duration(seconds) if seconds < math.inf else "never"


def _owner(owner: str | Owner) -> str:
    if owner is Owner.NO_MEMBER:
        return "none"
    return UNKNOWN if isinstance(owner, Owner) else owner


def _verdict(verdict: Verdict) -> Text:
    from rich.text import Text

    return Text(verdict.value, style=_STYLES.get(verdict, _BAD))
