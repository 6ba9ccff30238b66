"""The screen of `rocketrio top`, without a terminal: what keys do, and what is shown.

c g t    brokers, groups, topics        s    the next column to sort by       r    the other way round
/        filter: type, Enter ends       Esc  no filter                        q    quit
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

import attrs

from rocketrio.cli.columns import UNKNOWN
from rocketrio_protocol.log_lines import printable

if TYPE_CHECKING:
    from rich.text import Text

    from rocketrio.cli.tables import Cropped

View: TypeAlias = Literal["cluster", "groups", "topics"]
VIEWS: Final[Mapping[str, View]] = {"c": "cluster", "g": "groups", "t": "topics"}
ESCAPE: Final = "\x1b"
_ENTER: Final = ("\r", "\n")
_RUBOUT: Final = ("\x7f", "\x08")
_FIRST_SORT: Final[Mapping[View, str]] = {"cluster": "", "groups": "", "topics": "in/s"}
"""Groups come with the worst first, and brokers by name."""
_SPARE: Final = {
    "in/s": 5, "out/s": 5, "queues": 4, "disk %": 4, "members": 3, "role": 3, "why": 2, "trend": 1,
}  # fmt: skip
"""The columns that are dropped where they have no room, from the first to the last by their ranks."""
_WHY_WIDTH: Final = 30
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_BAD: Final = {
    "behind": "yellow", "rewound": "yellow", "unknown": "dim",
    "stalled": "red", "stopped": "red", "ahead": "red", "losing": "bold red",
}  # fmt: skip


@attrs.frozen
class Screen:
    """What the user has chosen."""

    view: View
    sort: str = ""
    """A column, or nothing for the order in which rows come."""
    reverse: bool = False
    filter: str = ""
    is_typing: bool = False
    """Whether keys are letters of the filter."""
    is_over: bool = False

    @classmethod
    def of(cls, view: View) -> Screen:
        """Return the first screen of a view: numbers with the greatest first."""
        sort = _FIRST_SORT[view]
        return cls(view, sort, reverse=bool(sort))

    def pressed(self, key: str, columns: Sequence[str]) -> Screen:
        """Return the screen after a key; keys without a meaning change nothing."""
        if self.is_typing:
            if key in _ENTER:
                return attrs.evolve(self, is_typing=False)
            if key == ESCAPE:
                return attrs.evolve(self, is_typing=False, filter="")
            if key in _RUBOUT:
                return attrs.evolve(self, filter=self.filter[:-1])
            return attrs.evolve(self, filter=self.filter + key) if key.isprintable() else self
        if key == "q":
            return attrs.evolve(self, is_over=True)
        if key in VIEWS:
            return attrs.evolve(Screen.of(VIEWS[key]), filter=self.filter)
        if key == "s":
            choices = ["", *columns]
            place = choices.index(self.sort) if self.sort in choices else 0
            return attrs.evolve(self, sort=choices[(place + 1) % len(choices)])
        if key == "r":
            return attrs.evolve(self, reverse=not self.reverse)
        if key == "/":
            return attrs.evolve(self, is_typing=True, filter="")
        return attrs.evolve(self, filter="") if key == ESCAPE else self

    def chosen(self, rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
        """Return the rows that are shown, in their order; what is unknown comes last."""
        wanted = self.filter.casefold()
        kept = [
            row
            for row in rows
            if not wanted or wanted in " ".join(str(row[key]) for key in ordered(row)).casefold()
        ]
        if self.sort:
            known = [row for row in kept if row.get(self.sort) is not None]
            known.sort(key=lambda row: _comparable(row[self.sort]), reverse=self.reverse)
            return known + [row for row in kept if row.get(self.sort) is None]
        return kept[::-1] if self.reverse else kept


def ordered(row: Mapping[str, Any]) -> list[str]:
    """Return the columns that have an order and a text, all but a trend."""
    return [column for column, value in row.items() if not isinstance(value, tuple)]


def _comparable(value: Any) -> tuple[bool, Any]:
    return (False, value) if isinstance(value, int | float) else (True, str(value).casefold())


def keys_of(text: str) -> Iterator[str]:
    """Yield the keys of what a terminal sent; arrows and the like, which begin with Escape and more, are left out."""
    place = 0
    while place < len(text):
        if text[place] == ESCAPE and text[place + 1 : place + 2] in ("[", "O"):
            place += 2
            while place < len(text) and not text[place].isalpha() and text[place] != "~":
                place += 1
        else:
            yield text[place]
        place += 1


def table_of(screen: Screen, rows: Sequence[Mapping[str, Any]], height: int) -> Cropped:
    """Return the rows that fit in a number of lines, with a heading for each column."""
    from rocketrio.cli.tables import TEXT_WIDTH, Cropped, Fitted, Head

    columns = list(rows[0]) if rows else []
    shown = screen.chosen(rows)[: max(0, height - 1)]
    heads = [
        Head(
            f"{column}{_mark(screen, column)}",
            is_number=any(isinstance(row[column], int | float) for row in rows),
            spare=0 if column == screen.sort else _SPARE.get(column, 0),
            is_one_line=column == "why",
            least=_WHY_WIDTH if column == "why" else TEXT_WIDTH,
        )
        for column in columns
    ]
    cells = [[_cell(column, row[column]) for column in columns] for row in shown]
    return Cropped(Fitted(heads, cells), max(1, height))


def _mark(screen: Screen, column: str) -> str:
    if column != screen.sort:
        return ""
    return "↓" if screen.reverse else "↑"


def _cell(column: str, value: Any) -> Text:
    from rich.text import Text

    from rocketrio.admin.top import TREND_LENGTH

    if value is None:
        return Text(UNKNOWN, "dim")
    if isinstance(value, tuple):
        return Text(sparkline(value).rjust(TREND_LENGTH), "cyan")
    if isinstance(value, float):
        return Text(f"{value:,.1f}")
    if isinstance(value, int):
        return Text(f"{value:,}" if column != "id" else str(value))
    return Text(printable(str(value)), _BAD.get(value, "") if column == "verdict" else "")


def sparkline(numbers: Sequence[int | None]) -> str:
    """Return a block for each number: from 0, the lowest, to the greatest of them; a space for what is unknown."""
    greatest = max((number for number in numbers if number is not None), default=0)
    steps = len(_BLOCKS) - 2  # More than 0 never looks like 0.
    return "".join(
        " " if number is None else _BLOCKS[0 if number == 0 else 1 + steps * number // greatest]
        for number in numbers
    )


def help_line(screen: Screen) -> Text:
    """Return the line below the table."""
    from rich.text import Text

    if screen.is_typing:
        return Text(f"filter: {screen.filter}_   (Enter: done, Esc: none)", "reverse")
    parts = ["c brokers", "g groups", "t topics", "s sort", "r reverse", "/ filter", "q quit"]
    if screen.filter:
        parts.insert(0, f"only {screen.filter!r} (Esc: all)")
    return Text("  ".join(parts), "dim")
