"""Prints what commands found: tables for people; JSON, lines of JSON and CSV for programs.

A command gives what it found once, as `output.show(found, columns)`; the options of the user choose how it is printed.
A column says what a program sees of each thing, and how a table shows that. Without columns the rows are mappings with
the keys that programs see. A value is text, a number, a bool, a time, an enum member, a list or mapping of these, or
None if it is unknown.

Invariant: unknown is null in JSON, an empty field in CSV and `unknown` in tables; times are ISO 8601 with a zone, in
JSON and CSV in UTC, in tables local unless --utc. A key never changes its meaning.
Invariant: a cut by --limit is named on standard error.
"""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs
import click

from rocketrio.cli.columns import UNKNOWN, Column, Row, columns_of, in_places, row_of
from rocketrio.cli.format_strings import row_printer
from rocketrio.cli.json_values import json_text, plain
from rocketrio.cli.say import say
from rocketrio.counts import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from rocketrio.cli.tables import Cell

FORMS: Final = ("table", "json", "ndjson", "csv")

Shown: TypeAlias = "RenderableType | list[str]"
"""What people see in place of a table, or below it: a line, several, or what rich draws."""


def _as_row(one: Any, columns: Iterable[Column]) -> Row:
    return one if isinstance(one, Mapping) else row_of(one, columns)


@attrs.frozen(kw_only=True)
class Output:
    """How a command prints: the options that `reads` and `changes` of `call.py` add."""

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
        found: Iterable[Any],
        columns: Sequence[str | Column] = (),
        *,
        document: Callable[[list[Row]], Any] | None = None,
        people: Shown | None = None,
        notes: Sequence[Shown] = (),
        lines: bool = False,
    ) -> None:
        """Print what was found in the form that the user chose.

        `columns` say what programs see of each thing, and what a table has. If the things are rows already, `columns`
        are those of the table alone, by default all keys. --columns may name any key. `document` makes the value of
        `--format json` from the rows, if that is not simply their list; with `lines` that format has a row per line.
        `people` is printed instead of a plain table, unless --columns and the like ask for one. `notes` follow a table.
        """
        known = columns_of(columns)
        given = [_as_row(one, known) for one in found]
        if not given:  # There is no row that has the other keys.
            known = [column for column in known if column.in_table]
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
            [column.key for column in in_places(known) if column.in_table]
            if known and self.for_people
            else keys
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
        from rocketrio.cli.tables import Fitted, Head

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
        from rocketrio.cli.console import console

        console().print(shown)
