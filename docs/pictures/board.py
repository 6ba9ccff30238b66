"""Draws a board of monitoring/grafana as a picture, from what a real Prometheus answers to the board's own queries.

It needs no Grafana, so this is not Grafana's drawing: the panels, their places, queries, legends and units
are those of the board's file, the numbers are Prometheus', and Chromium makes a PNG of the page.
"""

import html
import json
import math
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any, Final, TypeAlias
from urllib.parse import urlencode

import attrs
from tests.support.prometheus import read

STEP: Final = 2.0
"""Seconds between two points."""
PAGE_WIDTH: Final = 900
ROW_HEIGHT: Final = 26
"""Pixels of a row of Grafana's grid, which has 24 columns."""
HEADER_HEIGHT: Final = 70
WIDTH, HEIGHT, LEFT, BOTTOM = 430, 120, 42, 18
"""Of a diagram, in pixels, and the room for its scales."""
COLORS: Final = ("#73bf69", "#f2cc0c", "#5794f2", "#ff9830", "#f2495c", "#b877d9", "#8ab8ff")
_STYLE: Final = """
body { margin: 0; padding: 8px; background: #111217; color: #ccccdc; font: 12px Helvetica, Arial, sans-serif; }
header { height: 54px; } h1 { margin: 2px 0; font-size: 17px; } header p { margin: 2px 0; color: #9fa3ad; }
main { display: grid; grid-template-columns: repeat(24, 1fr); gap: 8px; grid-auto-rows: 18px; }
section { background: #181b1f; border: 1px solid #2c3235; border-radius: 3px; padding: 6px 8px; overflow: hidden; }
h2 { margin: 0 0 4px; font-size: 13px; font-weight: bold; }
small { font-weight: normal; color: #9fa3ad; } svg { display: block; width: 100%; }
svg text { fill: #9fa3ad; font-size: 11px; }
ul { margin: 2px 0 0; padding: 0; list-style: none; }
li { display: inline-block; margin-right: 10px; font-size: 11px; white-space: nowrap; } li i { display: inline-block;
width: 12px; height: 3px; margin: 0 4px 3px 0; }
"""

Point: TypeAlias = tuple[float, str]
"""A time and a number, as Prometheus writes them."""
Ask: TypeAlias = Callable[[str], list[dict[str, Any]]]


@attrs.frozen
class Series:
    """One line of a diagram."""

    legend: str
    points: list[Point]


def draw_board(
    board: Path, prometheus: str, seconds: float, picture: Path, *, chosen: Mapping[str, str]
) -> None:
    """Draw the last seconds of a board; `chosen` has the values of some of its variables, the others are all."""
    text = json.loads(board.read_text())
    end = time.time()

    def ask(expression: str) -> list[dict[str, Any]]:
        query = re.sub(r"\$(\w+)", lambda match: chosen.get(match[1], ".*"), expression)
        asked = urlencode({"query": query, "start": end - seconds, "end": end, "step": STEP})
        answer = json.loads(read(f"{prometheus}/api/v1/query_range?{asked}"))
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    drawn = [_panel(panel, ask, end - seconds, end) for panel in text["panels"]]
    rows = max(panel["gridPos"]["y"] + panel["gridPos"]["h"] for panel in text["panels"])
    page = (
        f"<!doctype html><meta charset=utf-8><style>{_STYLE}</style>"
        f"<header><h1>{html.escape(text['title'])}</h1><p>monitoring/grafana/{board.name}, drawn from the board's "
        f"queries and what Prometheus answers to them, not by Grafana</p></header><main>{''.join(drawn)}</main>"
    )
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "board.html"
        source.write_text(page)
        screenshot(source, picture, PAGE_WIDTH, HEADER_HEIGHT + rows * ROW_HEIGHT)


def screenshot(source: Path, picture: Path, width: int, height: int) -> None:
    """Have Chromium (Debian: `apt-get install chromium`) make a PNG of a page, half as large again."""
    options = ("--headless", "--no-sandbox", "--hide-scrollbars", "--force-device-scale-factor=1.5")
    command = ["chromium", *options, f"--window-size={width},{height}", f"--screenshot={picture}"]
    subprocess.run([*command, source.as_uri()], check=True, capture_output=True)


def _panel(panel: dict[str, Any], ask: Ask, start: float, end: float) -> str:
    place = panel["gridPos"]
    unit = panel["fieldConfig"]["defaults"]["unit"]
    series = [
        Series(
            _legend(target["legendFormat"], found["metric"]),
            [point for point in found["values"] if point[1] != "NaN"],
        )
        for target in panel["targets"]
        for found in ask(target["expr"])
    ]
    legend = "".join(
        f'<li><i style="background: {color}"></i>{html.escape(one.legend)}</li>'
        for one, color in zip(series, cycle(COLORS), strict=False)
    )
    return (
        f'<section style="grid-area: {place["y"] + 1} / {place["x"] + 1} / span {place["h"]} / span {place["w"]}">'
        f"<h2>{html.escape(panel['title'])} <small>{'' if unit == 'short' else unit}</small></h2>"
        f"{_diagram(series, start, end)}<ul>{legend}</ul></section>"
    )


def _legend(template: str, labels: Mapping[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda match: labels.get(match[1], ""), template)


def _diagram(series: list[Series], start: float, end: float) -> str:
    top, ticks = scale(max((float(value) for one in series for _, value in one.points), default=0))

    def x(at: float) -> float:
        return LEFT + (at - start) / (end - start) * (WIDTH - LEFT)

    def y(value: float) -> float:
        return 6 + (1 - value / top) * (HEIGHT - BOTTOM - 6)

    parts = [
        f'<path d="M{LEFT} {y(tick):.1f}H{WIDTH}" stroke="#2c3235"/>'
        f'<text x="{LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick:,g}</text>'
        for tick in ticks
    ]
    for minute in range(math.ceil(start / 60), math.floor(end / 60) + 1):
        label = time.strftime("%H:%M", time.localtime(60 * minute))
        parts.append(
            f'<text x="{x(60 * minute):.1f}" y="{HEIGHT - 3}" text-anchor="middle">{label}</text>'
        )
    for one, color in zip(series, cycle(COLORS), strict=False):
        line = "".join(
            f"{step}{x(at):.1f} {y(float(value)):.1f}" for step, (at, value) in _steps(one.points)
        )
        parts.append(f'<path d="{line}" fill="none" stroke="{color}" stroke-width="1.5"/>')
    if not series:
        parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT / 2}" text-anchor="middle">No data</text>')
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}">{"".join(parts)}</svg>'


def _steps(points: Iterable[Point]) -> Iterator[tuple[str, Point]]:
    """Say for each point whether a line leads to it: what Prometheus does not know is a gap."""
    before = -math.inf
    for point in points:
        yield ("L" if point[0] - before < 1.5 * STEP else "M"), point
        before = point[0]


def scale(greatest: float) -> tuple[float, list[float]]:
    """Return the end of a scale from 0, and three to six ticks on it."""
    if not greatest:
        return 1, [0, 1]
    rough = greatest / 4
    power = 10 ** math.floor(math.log10(rough))
    step = next(times * power for times in (1, 2, 5, 10) if times * power >= rough)
    count = math.ceil(greatest / step)
    return count * step, [number * step for number in range(count + 1)]
