"""How numbers are written: counts, durations and rates, as options of commands and in their texts."""

import re
from typing import Any, Final

import click

_DURATION: Final = re.compile(r"(?:\d+(?:\.\d+)?(?:ms|[dhms]))+", re.ASCII)
_PART: Final = re.compile(r"([\d.]+)(ms|[dhms])", re.ASCII)
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}


class Whole(click.IntRange):
    """A whole number within bounds; the error names them."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            bounds = "" if self.min is None else f" from {self.min}"
            bounds += "" if self.max is None else f" to {self.max}"
            self.fail(f"{str(value)!r} is not a number{bounds}", param, ctx)


class Duration(click.ParamType[float]):
    """A duration as 500ms, 6s, 5m, 1h30m or 2d, in seconds; a number without a unit is seconds."""

    name = "DURATION"

    def __init__(self, least: float = 0.001) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        text = str(value)
        if _NUMBER.fullmatch(text):
            seconds = float(text)
        elif _DURATION.fullmatch(text):
            seconds = sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
        else:
            self.fail(f"{text!r} is not a duration like 6s, 5m or 1h30m", param, ctx)
        if seconds < self._least:
            self.fail(f"{text} is shorter than {self._least:g}s, the least", param, ctx)
        return seconds


class Rate(click.ParamType[float]):
    """A number a second: 5/s, 300/m, 1000/h, or a number."""

    name = "N/s"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number, _, unit = str(value).partition("/")
        seconds = {"": 1, "s": 1, "m": 60, "h": 3600}.get(unit)
        try:
            rate = float(number) / seconds if seconds else 0.0
        except ValueError:
            rate = 0.0
        if not 0 < rate < 1e9:
            self.fail(f"{str(value)!r} is not a rate like 5/s or 300/m", param, ctx)
        return rate


def rate_text(per_second: float | None) -> str:
    """Return a rate as tables show it: one digit after the point, and `unknown` without one."""
    return "unknown" if per_second is None else f"{per_second:,.1f}"
