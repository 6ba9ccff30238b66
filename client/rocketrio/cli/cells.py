"""Columns whose cells say `-` where there is nothing to show, which is not unknown."""

from rocketrio.cli.output import UNKNOWN, Column, Row


def dashed(key: str, heading: str = "", *, unknown: bool = False) -> Column:
    """Return a column that shows `-` for an empty text or list, and for None unless None means `unknown`."""

    def cell(row: Row) -> str:
        value = row.get(key)
        if value is None:
            return UNKNOWN if unknown else "-"
        if isinstance(value, list | tuple):
            return ", ".join(map(str, value)) or "-"
        return str(value) or "-"

    return Column(key, heading, cell)
