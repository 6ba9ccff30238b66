"""Formats the output of `rocketrio cluster status`: a table of brokers, and notes on problems and waiting sends."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from rocketrio.cli.columns import UNKNOWN, Column, Drawn, drawn_table, hidden
from rocketrio_protocol.log_lines import printable

if TYPE_CHECKING:
    from msgspec import Struct
    from rich.console import RenderableType

    from rocketrio.admin.cluster_status import BrokerStatus
    from rocketrio.cli.tables import Cell
    from rocketrio_protocol.ha.status import LastWait

_COPYING_LEFT: Final = 1.0
"""Seconds: a slave that has at least this much time left is shown as copying."""
_NOT_THERE: Final = "-"
_SHOWN_BY: Final = {
    "slaves": "slaves have not acknowledged the rest yet",
    "disk": "too few slaves keep up, so they see what the master's disk has",
    "nobody": "too few slaves keep up, and readers wait for them",
    "master": "as the master reported",
}
"""Why readers see less than is stored."""


def _of_slave(heading: str, cell: Callable[[BrokerStatus], str], *, right: bool = False) -> Drawn:
    return Drawn(heading, lambda one: cell(one) if one.role == "slave" else _NOT_THERE, right)


STATUS: Final = (
    hidden("cluster"),
    Column("broker_name", drawn=Drawn("broker", lambda one: one.broker_name)),
    Column("broker_id", drawn=Drawn("id", lambda one: str(one.broker_id), right=True)),
    Column("role", drawn=Drawn("role", lambda one: one.role)),
    Column("address", drawn=Drawn("address", lambda one: one.address)),
    Column("state", place=1, drawn=Drawn("state", lambda one: _state(one.state))),
    hidden("state_id"),
    hidden("min_physical_offset"),
    Column(
        "max_physical_offset",
        drawn=Drawn("log end", lambda one: _number(one.max_physical_offset), right=True),
    ),
    Column("follows", drawn=_of_slave("follows", lambda one: one.follows or UNKNOWN)),
    Column(
        "bytes_behind", drawn=_of_slave("behind", lambda one: _size(one.bytes_behind), right=True)
    ),
    Column(
        "seconds_behind",
        drawn=_of_slave("seconds", lambda one: _seconds(one.seconds_behind), right=True),
    ),
    hidden("seconds_since_report"),
    hidden("bytes_per_second"),
    hidden("seconds_left"),
    hidden("acknowledges"),
    Column("problem", place=2),
    hidden("last_wait", lambda one: None if one.last_wait is None else _wait_json(one.last_wait)),
    hidden("shown_physical_offset"),
    hidden("shown_by"),
    hidden("configured"),
    hidden("epoch"),
    hidden("beyond", lambda one: None if one.beyond is None else _beyond_json(one.beyond)),
    hidden("answered", lambda one: None if one.answered is None else dict(one.answered)),
)
"""What programs see of a broker's status: stable names, null for unknown, times in seconds, sizes in bytes."""


def status_table(statuses: Sequence[BrokerStatus]) -> RenderableType:
    """Return the statuses as a table, with notes."""
    from rich.console import Group
    from rich.text import Text

    notes = [Text(printable(line), style=style) for line, style in _notes(statuses)]
    return Group(drawn_table(STATUS, statuses), *([Text("")] if notes else []), *notes)


def _state(state: str | None) -> Cell:
    from rich.text import Text

    from rocketrio.admin.cluster_status import TAKES_WRITES

    is_well = state in (TAKES_WRITES, "following", "connected")
    return Text(state or UNKNOWN, style="green" if is_well else "bold yellow")


def _number(value: int | None) -> str:
    return UNKNOWN if value is None else f"{value:,}"


def _notes(statuses: Sequence[BrokerStatus]) -> Iterator[tuple[str, str]]:
    for one in statuses:
        who = f"{one.broker_name} {one.broker_id}"
        left = one.seconds_left
        if left is not None and left >= _COPYING_LEFT and one.copied is not None:
            rate = _size(one.bytes_per_second)
            yield f"{who}: {one.copied:.0%} copied, {rate}/s, {_duration(left)} left", "bold"
        if one.problem:
            yield f"{who}: {one.problem}", "yellow"
        if not one.is_as_configured:
            yield f"{who}: holds {one.role} {one.broker_id}, its settings say {one.configured}", ""
        if hidden := _hidden(one):
            yield f"{who}: {hidden}", ""
        if one.acknowledges == "disk":
            yield f"{who}: acknowledges what its disk has", ""
        if one.last_wait is not None:
            yield f"{who}: {wait_text(one.last_wait)}", ""
        counts = {name: count for name, count in (one.answered or {}).items() if count}
        if counts:
            results = ", ".join(f"{count:,} {name}" for name, count in counts.items())
            yield f"{who}: sends that waited were answered {results}", ""


def _hidden(one: BrokerStatus) -> str | None:
    """Describe how far readers see, if that is less than what is stored or depends on less than it should."""
    shown, end = one.shown_physical_offset, one.max_physical_offset
    if shown is None or end is None or (shown >= end and one.shown_by in ("slaves", "master")):
        return None
    text = f"readers see up to {shown:,}"
    if end > shown:
        text += f", {_size(end - shown)} less than is stored"
    return f"{text}: {_SHOWN_BY.get(one.shown_by or '', UNKNOWN)}"


def wait_text(wait: LastWait) -> str:
    """Describe what the last send that had to wait has waited for."""
    parts = []
    if wait.flush_seconds is not None:
        parts.append(f"{wait.flush_seconds * 1000:,.1f} ms for the disk")
    if wait.slave_seconds is not None:
        slave = f" (last report: {wait.slave})" if wait.slave else ""
        parts.append(f"{wait.slave_seconds * 1000:,.1f} ms for slaves{slave}")
    waited = f"after {' and '.join(parts)}" if parts else "at once"
    return f"the last send that had to wait got {wait.status} {waited}"


def _beyond_json(beyond: Struct) -> dict[str, Any]:
    import msgspec

    return msgspec.structs.asdict(beyond)


def _wait_json(wait: LastWait) -> dict[str, Any]:
    return {
        "status": wait.status,
        "end_offset": wait.end_offset,
        "flush_seconds": wait.flush_seconds,
        "slave_seconds": wait.slave_seconds,
        "slave": wait.slave,
    }


def _size(count: int | None) -> str:
    if count is None:
        return UNKNOWN
    size = float(count)
    for unit in ("B", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} GB"


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds:,.1f}"


def _duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes = seconds / 60
    return f"{minutes:.0f} min" if minutes < 100 else f"{minutes / 60:.0f} h"
