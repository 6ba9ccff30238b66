"""The columns of commands: each says once what programs see of a thing, and how tables show it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import attrs

from rocketrio.cli.numbers import rate_text

if TYPE_CHECKING:
    from rocketrio.cli.tables import Cell, Fitted

UNKNOWN: Final = "unknown"
Row: TypeAlias = Mapping[str, Any]


@attrs.frozen
class Drawn:
    """How a `drawn_table` has a column."""

    heading: str
    cell: Callable[[Any], Cell]
    """What it shows of a thing."""
    right: bool = False
    spare: int = 0
    """The rank among the columns that are dropped where they have no room, see `Head`."""
    least: int | None = None
    """The width below which texts do not fold, if it is not that of `tables.py`."""


@attrs.frozen
class Column:
    """A column: what programs see of a thing under a key, and how a table shows that."""

    key: str
    heading: str = ""
    """The key itself if this is empty."""
    cell: Callable[[Row], Cell] | None = None
    """What a table shows of a row, if that is not simply the value."""
    right: bool = False
    """Align to the right, and never fold; numbers do that anyway."""
    value: Callable[[Any], Any] | None = attrs.field(default=None, kw_only=True)
    """Takes the value from a thing, if it is not simply its attribute of this name."""
    in_table: bool = attrs.field(default=True, kw_only=True)
    """Whether a table has the column if --columns does not say which it has."""
    place: int = attrs.field(default=0, kw_only=True)
    """Tables have the columns in the order of their places, and those of one place in the order of the JSON."""
    drawn: Drawn | None = attrs.field(default=None, kw_only=True)
    """How the table that people see by default has it, if that is another one."""

    def of(self, thing: Any) -> Any:
        """Return the value of a thing."""
        value = getattr(thing, self.key) if self.value is None else self.value(thing)
        return list(value) if isinstance(value, tuple) else value


def dashed(key: str, heading: str = "", *, unknown: bool = False, **more: Any) -> Column:
    """Return a column that shows `-` for an empty text or list, and for None unless None means `unknown`."""

    def cell(row: Row) -> str:
        value = row.get(key)
        if value is None:
            return UNKNOWN if unknown else "-"
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value)) or "-"
        return str(value) or "-"

    return Column(key, heading, cell, **more)


def rate_column(key: str, heading: str, **more: Any) -> Column:
    """Return a column of rates, of which a table shows one digit after the point."""
    return Column(key, heading, lambda row: rate_text(row[key]), right=True, **more)


def model_column() -> Column:
    """Return the column of a group's model, CLUSTERING or BROADCASTING, which a group without members has not."""

    def cell(row: Row) -> str:
        if row["model"] is None:
            return "-" if row["members"] == 0 else UNKNOWN
        return str(row["model"]).lower()

    return Column("model", cell=cell)


def hidden(key: str, value: Callable[[Any], Any] | None = None) -> Column:
    """Return a column that no table has unless --columns names it."""
    return Column(key, value=value, in_table=False)


def in_places(columns: Iterable[Column]) -> list[Column]:
    """Return columns in the order of tables."""
    return sorted(columns, key=lambda column: column.place)


def drawn_table(
    columns: Iterable[Column],
    things: Iterable[Any],
    *,
    marks: Mapping[str, str] = MappingProxyType({}),
) -> Fitted:
    """Return the table that people see of things; `marks` are added to the headings of the columns with these keys."""
    from rocketrio.cli.tables import TEXT_WIDTH, Fitted, Head

    shown = [(column.key, column.drawn) for column in in_places(columns) if column.drawn]
    heads = [
        Head(
            drawn.heading + marks.get(key, ""),
            is_number=drawn.right,
            least=drawn.least or TEXT_WIDTH,
            spare=drawn.spare,
        )
        for key, drawn in shown
    ]
    return Fitted(heads, [[drawn.cell(thing) for _, drawn in shown] for thing in things])


def columns_of(columns: Iterable[str | Column]) -> list[Column]:
    """Return columns of which some are given by their key alone."""
    return [each if isinstance(each, Column) else Column(each) for each in columns]


def row_of(thing: Any, columns: Iterable[Column]) -> dict[str, Any]:
    """Return what programs see of a thing."""
    return {column.key: column.of(thing) for column in columns}
