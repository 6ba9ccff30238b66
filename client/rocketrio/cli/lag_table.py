"""Formats the output of `rocketrio lag`: for people and for programs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import attrs

from rocketrio.cli.output import UNKNOWN
from rocketrio.counts import counted
from rocketrio_protocol.lag import Judgement, Owner, Verdict, duration

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from rocketrio.admin.lag_values import GroupLag, LagReport, QueueLag
    from rocketrio.cli.tables import Cell

_GROUP_COLUMNS: Final = (
    *("group", "topic", "lag", "oldest", "in/s", "out/s", "eta", "members", "verdict", "why"),
)
_SPARE: Final = {
    "why": 5, "eta": 4, "in/s": 3, "out/s": 3, "members": 2, "oldest": 1, "stands for": 3,
}  # fmt: skip
"""The columns that are dropped where they have no room, from the first to the last by their ranks."""
_WHY_WIDTH: Final = 50
"""With less room the reasons stand below the table."""
_QUEUE_COLUMNS: Final = (
    *("queue", "owner", "committed", "end", "lag", "oldest", "stands for", "verdict"),
)
GROUP_KEYS: Final = (
    *("group", "topic", "lag", "oldest_seconds", "in_per_second", "out_per_second"),
    *("eta_seconds", "members", "verdict", "why"),
)
"""The columns of a table that --columns, --sort and the like ask for."""
QUEUE_KEYS: Final = (
    *("group", "topic", "broker_name", "queue_id", "owner", "committed_offset", "max_offset"),
    *("lag", "oldest_seconds", "stands_for_seconds", "verdict"),
)
_RIGHT: Final = frozenset(
    {"lag", "oldest", "in/s", "out/s", "eta", "members", "committed", "end", "stands for"}
)
_STYLES: Final = {
    Verdict.OK: "green",
    Verdict.UNKNOWN: "magenta",
    Verdict.BEHIND: "yellow",
    Verdict.REWOUND: "yellow",
}
_BAD: Final = "bold red"
_NOT_MEASURED: Final = "-"


def report_json(report: LagReport, *, queues: bool) -> dict[str, Any]:
    """Return a report for programs: stable names, null for unknown, times in seconds."""
    return {
        "rows": [_row_json(row, queues=queues) for row in report.rows],
        "rows_in_all": report.rows_in_all,
        "silent": dict(report.silent),
        "window_seconds": report.window,
        "samples": report.samples,
    }


def queue_rows(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each queue of a report with queues, each with its group and topic."""
    return [
        {"group": row["group"], "topic": row["topic"], **queue}
        for row in document["rows"]
        for queue in row["queues"]
    ]


def _row_json(row: GroupLag, *, queues: bool) -> dict[str, Any]:
    shown = {
        "group": row.group,
        "topic": row.topic,
        **_judgement_json(row.judgement),
        "lag_at_least": row.lag_at_least,
        "oldest_seconds": row.oldest_seconds,
        "catches_up": row.catches_up,
        "members": row.members,
        "source": row.source,
    }
    if queues:
        shown["queues"] = [_queue_json(queue) for queue in row.queues]
    return shown


def _queue_json(one: QueueLag) -> dict[str, Any]:
    owners = {Owner.NO_MEMBER: (None, False), Owner.A_MEMBER: (None, None)}
    owner, is_owned = owners[one.owner] if isinstance(one.owner, Owner) else (one.owner, True)
    return {
        "broker_name": one.queue.broker_name,
        "queue_id": one.queue.queue_id,
        "owner": owner,
        "is_owned": is_owned,
        "committed_offset": one.committed_offset,
        "max_offset": one.max_offset,
        **_judgement_json(one.judgement),
        "oldest_seconds": one.oldest_seconds,
        "stands_for_seconds": one.judgement.stands_for,
    }


def _judgement_json(one: Judgement) -> dict[str, Any]:
    is_number = one.eta is not None and one.eta < math.inf
    return {
        "verdict": one.verdict.value,
        "why": one.why,
        "lag": one.lag,
        "in_per_second": one.in_per_second,
        "out_per_second": one.out_per_second,
        "eta_seconds": one.eta if is_number else None,
    }


@attrs.frozen
class GroupTable:
    """A table of groups and topics for people, with notes on what is missing from it.

    Where the reasons have no room beside the numbers they stand below.
    """

    report: LagReport

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table for the width that there is."""
        from rocketrio.cli.tables import TEXT_WIDTH, Fitted, Head

        rows = self.report.rows
        mark = " counted" if any(row.source == "counters" for row in rows) else ""
        heads = [
            Head(
                f"{name}{mark}" if name.endswith("/s") else name,
                is_number=name in _RIGHT,
                least=_WHY_WIDTH if name == "why" else TEXT_WIDTH,
                spare=_SPARE.get(name, 0),
            )
            for name in _GROUP_COLUMNS
        ]
        table = Fitted(heads, map(_group_cells, rows))
        yield table
        kept = table.kept(options.max_width)
        if kept is not None and _GROUP_COLUMNS.index("why") not in kept:
            yield from (_heading(row) for row in rows if row.verdict != Verdict.OK)
        yield from _notes(self.report)


def _group_cells(row: GroupLag) -> list[Cell]:
    return [
        row.group,
        _topic(row),
        _lag(row),
        _length(row.oldest_seconds),
        _rate(row.judgement.in_per_second),
        _rate(row.judgement.out_per_second),
        _eta(row.judgement.eta),
        UNKNOWN if row.members is None else str(row.members),
        _verdict(row.verdict),
        row.judgement.why,
    ]


def queue_table(report: LagReport) -> RenderableType:
    """Return a table of queues for people, one for each group and topic."""
    from rich.console import Group
    from rich.text import Text

    from rocketrio.cli.tables import Fitted, Head

    parts: list[RenderableType] = []
    for row in report.rows:
        rows = [
            (
                f"{one.queue.broker_name}/{one.queue.queue_id}",
                _owner(one.owner),
                _number(one.committed_offset),
                _number(one.max_offset),
                _number(one.lag),
                _length(one.oldest_seconds),
                _length(one.judgement.stands_for, missing=_NOT_MEASURED),
                _verdict(one.judgement.verdict),
            )
            for one in row.queues
        ]
        heads = [
            Head(name, is_number=name in _RIGHT, spare=_SPARE.get(name, 0))
            for name in _QUEUE_COLUMNS
        ]
        parts += [_heading(row), Fitted(heads, rows), Text()]
    return Group(*parts[:-1], *_notes(report))


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
