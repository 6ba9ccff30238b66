"""The types of arguments and options: names, addresses, queues, times, places and format strings.

They take what they check from the client when they check it: a help text needs none of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final

import click
from click.shell_completion import CompletionItem

from rocketrio.cli.commands import Kind
from rocketrio.cli.format_strings import RecordReader, message_printer
from rocketrio.cli.known_names import known_names
from rocketrio.queue_positions import AtTime, Place, PlaceRange, place_of, range_of, time_ms_of
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import group_name_problem, topic_name_problem
from rocketrio_protocol.times import nearest_time

_COMPLETED: Final = re.compile(r"[\w%|.:@\[\]-]+", re.ASCII)
"""A name of a topic, a group or a broker, or an address."""
TIME_EXAMPLE: Final = "2026-11-21T08:00+01:00"
TIME_HELP: Final = f"as {TIME_EXAMPLE} (without a zone, local time) or -1h30m for a time ago"
"""The help text for the format of times."""
PLACE_HELP: Final = f"first, last, N, +N after the first, -N before the end, or a time {TIME_HELP}"
"""The help text for places, as PLACE reads them."""
RANGE_HELP: Final = f"{PLACE_HELP}; A:B also says where to end"
"""The help text for ranges, as RANGE reads them."""


def _completions(ctx: click.Context, kind: Kind, incomplete: str) -> list[CompletionItem[str]]:

    # A shell puts what it is given into the line: names of strangers may have anything in them.
    return [
        CompletionItem(name)
        for name in known_names(ctx, kind)
        if name.startswith(incomplete) and _COMPLETED.fullmatch(name)
    ]


class _Name(click.ParamType[str]):
    """A valid name of a topic or group."""

    def __init__(self, name: str, problem: Callable[[str], str | None], kind: Kind) -> None:
        self.name = name
        self._problem = problem
        self._kind: Kind = kind

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, self._kind, incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        problem = self._problem(str(value))
        if problem is not None:
            self.fail(problem, param, ctx)
        return str(value)


class _Address(click.ParamType[str]):
    name = "HOST:PORT"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, "addresses", incomplete)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from rocketrio_protocol.remoting.ports import split_addr

        try:
            split_addr(str(value))
        except ConfigError as error:
            self.fail(f"{error}; `rocketrio cluster list` shows them", param, ctx)
        return str(value)


class _NameOrAddress(_Address):
    name = "ADDR|NAME"

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return _completions(ctx, "brokers", incomplete) + super().shell_complete(
            ctx, param, incomplete
        )

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        return super().convert(value, param, ctx) if ":" in str(value) else str(value)


class _Queue(click.ParamType[tuple[str, int]]):
    name = "BROKER/QUEUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        broker_name, _, queue_id = str(value).rpartition("/")
        if not broker_name or not queue_id.isdecimal():
            self.fail(f"{value!r} is not a queue like broker-a/3", param, ctx)
        return broker_name, int(queue_id)


class Time(click.ParamType[datetime]):
    """A time; without a zone it is local time."""

    name = "TIME"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> datetime:
        try:
            return typed_time(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class _PlaceType(click.ParamType[Place]):
    """A place in queues, or a time without its `@`."""

    name = "PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Place:
        now_ms = _now_ms()
        try:
            return place_of(str(value), now_ms)
        except ConfigError as error:
            with suppress(ConfigError):
                return AtTime(time_ms_of(str(value), now_ms))
            self.fail(str(error), param, ctx)


class _RangeType(click.ParamType[PlaceRange]):
    """A range of places, or the one from a place on."""

    name = "PLACE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> PlaceRange:
        if isinstance(value, PlaceRange):
            return value
        now_ms = _now_ms()
        try:
            return range_of(str(value), now_ms)
        except ConfigError as error:
            with suppress(ConfigError):
                return PlaceRange(AtTime(time_ms_of(str(value), now_ms)))
            self.fail(str(error), param, ctx)


def _now_ms() -> int:
    from rocketrio_protocol.remoting.ports import SystemWallClock

    return SystemWallClock().now_ms()


def range_to(since: PlaceRange, until: Place | None) -> PlaceRange:
    """Return the range with the end that `--to` gives. Raises UsageError for two ends, or one before the beginning."""
    if until is None:
        return since
    if since.end is not None:
        raise click.UsageError("give the end once: as --from A:B, or with --to")
    try:
        return PlaceRange(since.start, until)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def typed_time(text: str) -> datetime:
    """Return the time that a text names, local time if it has no zone. Raises ValueError for any other text."""
    try:
        return nearest_time(time_ms_of(text, _now_ms())).astimezone()
    except ConfigError as error:
        raise ValueError(str(error)) from error


def local_text(time: datetime, *, timespec: str = "seconds") -> str:
    """Return a time as tables show it: in the local time zone, with its offset."""
    return time.astimezone().isoformat(timespec=timespec)


ADDRESS: Final = _Address()
QUEUE: Final = _Queue()
PLACE: Final = _PlaceType()
RANGE: Final = _RangeType()
TOPIC: Final = _Name("TOPIC", topic_name_problem, "topics")
GROUP: Final = _Name("GROUP", group_name_problem, "groups")
BROKER: Final = _Name("NAME", lambda name: None, "brokers")
BROKER_OR_ADDRESS: Final = _NameOrAddress()


class Template(click.ParamType[str]):
    """A format string, see format_strings.py; `is_read` if it is for reading records."""

    name = "FORMAT"

    def __init__(self, *, is_read: bool = False) -> None:
        self._is_read = is_read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:

        try:
            if self._is_read:
                RecordReader(str(value))
            else:
                message_printer(str(value), dict)
        except ConfigError as error:
            self.fail(str(error), param, ctx)
        return str(value)
