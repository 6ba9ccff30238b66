"""Lays out tables for the width that there is, so that no number and no verdict is ever cut.

    numbers   are as wide as the widest of them
    texts     fold at spaces, but not below a few words, and no number in them is broken
    spare     columns are dropped where they have no room, those of the highest rank first
    records   are what a table becomes that still has no room: the fields of each row below each other

What goes to a file or to a program has all the width that it needs, so nothing folds there.

Invariant: text of strangers is no markup, and cannot steer the terminal.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeAlias

import attrs
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from rocketrio_protocol.log_lines import printable

TEXT_WIDTH: Final = 16
"""A column of texts may fold, but not below this width."""
NAME_WIDTH: Final = 32
"""Texts get this width before there is room for columns that are spare."""
NUMBER_WIDTH: Final = 40
"""No number is wider, so a longer text among numbers folds as texts do."""
_GAP: Final = 2
_NUMBER: Final = re.compile(r"\(?([\w.-]{1,24}=)?[≥~+-]?\d[\d.,:/%TZ+-]{0,38}[;)]*")
"""A word of a text that is a number, a time or an address: in two lines it would be another one."""

Cell: TypeAlias = str | Text


@attrs.frozen
class Head:
    """The heading of a column, and how the column is laid out."""

    text: Cell
    is_number: bool = False
    """Whether the cells are aligned to the right, in one line each."""
    least: int = TEXT_WIDTH
    """The width below which texts do not fold."""
    spare: int = 0
    """The rank among the columns that may be dropped, those of one rank together; one with 0 is never dropped."""
    is_one_line: bool = False
    """Whether texts end with `…` in place of folding, for a screen that has a line for each row."""


class Fitted:
    """A table that fits the width for which it is drawn."""

    def __init__(
        self, heads: Sequence[Head], rows: Iterable[Sequence[Cell]], *, show_heads: bool = True
    ) -> None:
        """Take the columns, and the cells of each row."""
        self._heads = heads
        self._titles = [text_of(head.text) for head in heads]
        self._rows = [[text_of(cell) for cell in row] for row in rows]
        self._show_heads = show_heads
        self._least: list[int] = []
        self._wished: list[int] = []
        self._widest: list[int] = []
        for index, head in enumerate(heads):
            cells = [row[index] for row in self._rows]
            title = self._titles[index].cell_len
            widest = max([title, *(cell.cell_len for cell in cells)])
            numbers = 0 if head.is_one_line else max(map(_widest_number, cells), default=0)
            is_whole = head.is_number and widest <= NUMBER_WIDTH
            least = widest if is_whole else max(title, numbers, min(widest, head.least))
            wished = least if head.spare else max(least, min(widest, NAME_WIDTH))
            self._least.append(least)
            self._wished.append(wished)
            self._widest.append(widest)

    def kept(self, width: int) -> list[int] | None:
        """Return the columns that have room beside each other; None if not even those have that are not spare."""
        kept = list(range(len(self._heads)))
        for rank in sorted({head.spare for head in self._heads} - {0}, reverse=True):
            if self._room(kept, self._wished, width) < 0:
                kept = [index for index in kept if self._heads[index].spare != rank]
        return kept if self._room(kept, self._least, width) >= 0 else None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the table, or the records."""
        kept = self.kept(options.max_width)
        if kept is None:
            yield from self._records(options.max_width)
        else:
            yield self._table(kept, options.max_width)

    @staticmethod
    def _room(kept: Sequence[int], widths: Sequence[int], width: int) -> int:
        return width - sum(widths[index] for index in kept) - _GAP * (len(kept) - 1)

    def _table(self, kept: Sequence[int], width: int) -> Table:
        widths = list(self._least)
        room = self._room(kept, widths, width)
        for wanted in (self._wished, self._widest):
            for index in kept:
                more = min(room, wanted[index] - widths[index])
                widths[index] += more
                room -= more
        table = Table(box=None, pad_edge=False, header_style="bold", show_header=self._show_heads)
        for index in kept:
            head = self._heads[index]
            table.add_column(
                self._titles[index],
                justify="right" if head.is_number else "left",
                no_wrap=head.is_one_line,
                overflow="fold",
                width=widths[index],
            )
        for row in self._rows:
            table.add_row(
                *(
                    _shortened(row[index], widths[index])
                    if self._heads[index].is_one_line
                    else row[index]
                    for index in kept
                )
            )
        return table

    def _records(self, width: int) -> Iterator[RenderableType]:
        cells = [cell for row in self._rows for cell in row]
        titles = max(title.cell_len for title in self._titles)
        values = max((cell.cell_len for cell in cells), default=0)
        numbers = max(map(_widest_number, cells), default=0)
        is_beside = titles + _GAP + max(numbers, min(values, TEXT_WIDTH)) <= width
        for number, row in enumerate(self._rows):
            if number:
                yield Text()
            if not is_beside:
                for title, cell in zip(self._titles, row, strict=True):
                    yield Text(title.plain, "bold")
                    yield Padding(cell, (0, 0, 0, _GAP if cell.cell_len + _GAP <= width else 0))
                continue
            table = Table(box=None, pad_edge=False, show_header=False)
            table.add_column(style="bold", no_wrap=True)
            table.add_column(overflow="fold")
            for title, cell in zip(self._titles, row, strict=True):
                table.add_row(title, cell)
            yield table


@attrs.frozen
class Cropped:
    """The first lines of something that may be longer than a screen."""

    shown: RenderableType
    height: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw as many lines as fit."""
        for line in console.render_lines(self.shown, options, pad=False)[: self.height]:
            yield from line
            yield Segment.line()


def text_of(cell: Cell) -> Text:
    """Return a cell in which nothing is markup, and nothing steers the terminal."""
    return cell if isinstance(cell, Text) else Text(printable(cell))


def _widest_number(cell: Text) -> int:
    return max((len(word) for word in cell.plain.split() if _NUMBER.fullmatch(word)), default=0)


def _shortened(cell: Text, width: int) -> Text:
    """Return a text that ends with `…` after its last whole word that fits; a number is then there or not."""
    if cell.cell_len <= width:
        return cell
    short = cell.copy()
    short.truncate(width - 1)
    words, space, _ = short.plain.rpartition(" ")
    return (short[: len(words) + 1] if space else short).append("…")
