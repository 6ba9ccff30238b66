"""Prints what commands found: tables for people; JSON, lines of JSON and CSV for programs.

A command gives its rows once, as `output.show(rows, columns)`; the options of the user choose how they are printed.
Rows are mappings with the keys that programs see. A value is text, a number, a bool, a time, an enum member, a list or
mapping of these, or None if it is unknown.

Invariant: unknown is null in JSON, an empty field in CSV and `unknown` in tables; times are ISO 8601 with a zone, in
JSON and CSV in UTC, in tables local unless --utc. A key never changes its meaning.
Invariant: a cut by --limit is named on standard error.
"""

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import count
from typing import Any, Final, TypeAlias

import attrs
import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from rocketrio.cli.format_strings import row_printer
from rocketrio.cli.json_values import json_text, plain, utc_text
from rocketrio.cli.numbers import rate_text
from rocketrio.cli.say import say, unguarded
from rocketrio.cli.tables import Cell, Fitted, Head
from rocketrio.counts import counted
from rocketrio_protocol.log_lines import visible

__all__ = ["json_text", "utc_text"]  # for those who import them from here

UNKNOWN: Final = "unknown"
PIPED_WIDTH: Final = 1_000_000
"""The width of what goes to a file or another program: nothing folds there."""
FORMS: Final = ("table", "json", "ndjson", "csv")

Row: TypeAlias = Mapping[str, Any]
Shown: TypeAlias = RenderableType | list[str]
"""What people see in place of a table, or below it: a line, several, or what rich draws."""


@attrs.frozen
class Column:
    """A column of a table: the key of the rows that it shows, its heading, and how it shows a row."""

    key: str
    heading: str = ""
    """The key itself if this is empty."""
    cell: Callable[[Row], Cell] | None = None
    """What a table shows of a row, if that is not simply the value."""
    right: bool = False
    """Align to the right, and never fold; numbers do that anyway."""


def rate_column(key: str, heading: str) -> Column:
    """Return a column of rates, of which a table shows one digit after the point."""
    return Column(key, heading, lambda row: rate_text(row[key]), right=True)


@attrs.frozen(kw_only=True)
class Output:
    """How a command prints: the options that `reads` and `changes` of `common.py` add."""

    form: str = "table"
    columns: tuple[str, ...] = ()
    sort: str = ""
    limit: int | None = None
    headers: bool = True
    utc: bool = False
    _numbers: Iterator[int] = attrs.field(factory=lambda: count(1), init=False, eq=False)
    """The numbers of the lines of a stream."""

    @property
    def template(self) -> str | None:
        """The format string that the user gave; None without one."""
        return self.form if "%" in self.form else None

    @property
    def for_people(self) -> bool:
        """Whether people read the output, and not programs."""
        return self.form == "table"

    @property
    def is_plain(self) -> bool:
        """Whether people read the output, and asked for nothing special."""
        return self.for_people and not (
            self.columns or self.sort or self.limit is not None or not self.headers
        )

    def show(
        self,
        rows: Iterable[Row],
        columns: Sequence[str | Column] = (),
        *,
        document: Callable[[list[Row]], Any] | None = None,
        people: Shown | None = None,
        notes: Sequence[Shown] = (),
        lines: bool = False,
    ) -> None:
        """Print rows in the form that the user chose.

        `columns` are those of the table, by default all keys of the rows; --columns may name any key. `document` makes
        the value of `--format json` from the rows, if that is not simply their list; with `lines` that format has a row
        per line. `people` is printed instead of a plain table, unless --columns and the like ask for one. `notes`
        follow a table.
        """
        given = list(rows)
        known = [each if isinstance(each, Column) else Column(each) for each in columns]
        chosen = self._chosen(given, known)
        shown = self._ordered(given, known)
        if self.form == "json" and not lines:
            if self.columns:
                click.echo(json_text([_only(row, chosen) for row in shown]))
            else:
                click.echo(json_text(shown if document is None else document(shown)))
        elif self.form in ("json", "ndjson"):
            for row in shown:
                click.echo(json_text(_only(row, chosen) if self.columns else row))
        elif self.form == "csv":
            click.echo(self._csv(shown, chosen), nl=False)
        elif self.template is not None:
            show = row_printer(self.template)
            for number, row in enumerate(shown, 1):
                click.echo(show(row, number), nl=False)
        elif people is not None and self.is_plain:
            _print(people)
        else:
            self._table(shown, chosen)
        if self.for_people:
            for note in notes:
                _print(note)
        if len(shown) < len(given):
            click.echo(
                f"the first {len(shown):,} of {counted(len(given), 'row')}; --limit shows more",
                err=True,
            )

    def line(self, row: Row, text: str) -> None:
        """Print one row of a stream at once: `text` for people, and for programs the row."""
        if self.template is not None:
            show = row_printer(self.template)
            self.raw(lambda number: show(row, number))
            return
        number = next(self._numbers)
        if self.for_people:
            say(text)
        elif self.form == "csv":
            columns = self._chosen([row], [])
            click.echo(self._csv([row], columns, headers=number == 1), nl=False)
        else:
            click.echo(json_text(_only(row, self._chosen([row], [])) if self.columns else row))
        sys.stdout.flush()

    def raw(self, show: Callable[[int], bytes]) -> None:
        """Print one row of a stream at once, of which the number is given, as these bytes."""
        click.echo(show(next(self._numbers)), nl=False)
        sys.stdout.flush()

    def time(self, time: datetime | None, *, timespec: str = "seconds") -> str:
        """Return a time as a table shows it."""
        if time is None:
            return UNKNOWN
        return (time.astimezone(UTC) if self.utc else time.astimezone()).isoformat(
            timespec=timespec
        )

    def _chosen(self, rows: list[Row], known: list[Column]) -> list[Column]:
        """Return the columns that were asked for, else those of the table, else one for each key."""
        by_name = {key: Column(key) for row in rows for key in row}
        keys = list(by_name) or [column.key for column in known]
        by_name |= {column.key: column for column in known}
        for column in known:
            by_name.setdefault(column.heading or column.key, column)
        wanted = self.columns or (
            [column.key for column in known] if known and self.for_people else keys
        )
        if self.sort:
            wanted = [*wanted, self.sort.removeprefix("-")]
        for name in wanted:
            if name not in by_name:
                raise click.UsageError(f"there is no column {name!r}: {', '.join(by_name)}")
        return [by_name[name] for name in (wanted[:-1] if self.sort else wanted)]

    def _ordered(self, rows: list[Row], known: list[Column]) -> list[Row]:
        if self.sort:
            name = self.sort.removeprefix("-")
            keys = {column.heading: column.key for column in known if column.heading}
            key = name if any(name in row for row in rows) else keys.get(name, name)
            there = [row for row in rows if row.get(key) is not None]
            there.sort(key=lambda row: _comparable(row[key]), reverse=self.sort.startswith("-"))
            rows = [*there, *(row for row in rows if row.get(key) is None)]
        return rows[: self.limit]

    def _csv(self, rows: list[Row], columns: list[Column], *, headers: bool = True) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if headers and self.headers:
            writer.writerow([column.key for column in columns])
        writer.writerows([_field(row.get(column.key)) for column in columns] for row in rows)
        return text.getvalue()

    def _table(self, rows: list[Row], columns: list[Column]) -> None:
        right = {
            column.key: column.right or any(_is_number(row.get(column.key)) for row in rows)
            for column in columns
        }
        heads = [Head(column.heading or column.key, right[column.key]) for column in columns]
        cells = ([self._cell(row, column) for column in columns] for row in rows)
        _print(Fitted(heads, cells, show_heads=self.headers))

    def _cell(self, row: Row, column: Column) -> Cell:
        if column.cell is not None:
            return column.cell(row)
        value = row.get(column.key)
        return self.time(value) if isinstance(value, datetime) else _shown(value)


class _GuardedConsole(Console):
    """A console on which no text is markup or steers the terminal, whatever is drawn."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Draw something; what is in it is drawn by this method too."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))


def console(*, stderr: bool = False) -> Console:
    """Return the console for people: as wide as the terminal, and so wide that nothing folds where there is none."""
    stream = sys.stderr if stderr else sys.stdout
    return _GuardedConsole(
        file=unguarded(stream),
        width=None if stderr or stream.isatty() else PIPED_WIDTH,
        highlight=False,
        markup=False,
        emoji=False,
    )


def _only(row: Row, columns: list[Column]) -> Row:
    return {column.key: row.get(column.key) for column in columns}


def _field(value: Any) -> Any:
    """Return a value as a field of CSV: empty if it is unknown, JSON if it has parts."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime | Enum):
        return plain(value)
    return json_text(value) if isinstance(value, Mapping | list | tuple) else value


def _shown(value: Any) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(_shown(each) for each in value)
    return str(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _comparable(value: Any) -> tuple[int, Any]:
    """Return a key to sort by: numbers before times before texts."""
    if _is_number(value) or isinstance(value, bool):
        return 0, value
    return (1, value) if isinstance(value, datetime) else (2, _shown(value).casefold())


def _print(shown: Shown) -> None:
    if isinstance(shown, str):
        shown = [shown] if shown else []
    if isinstance(shown, list):
        for line in shown:
            say(line)
    else:
        console().print(shown)
