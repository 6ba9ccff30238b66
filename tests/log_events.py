"""Every log line of the source, found in the syntax trees: `python -m tests.log_events` writes docs/log-events.md."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from rocketrio_protocol.log_lines import parsed_form

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs/log-events.md"
ROOMS: Final = {
    "broker": "Name server and broker",
    "protocol": "Connections of brokers and clients",
    "client": "Client, commands and Spark",
}
LEVELS: Final = ("debug", "info", "warning", "error", "exception", "critical")
LOGGERS: Final = frozenset({"logger", "log", "_log", "_LOG", "self._rare_log"})
EXEMPT: Final = ("protocol/rocketrio_protocol/remoting/rare_log.py",)
"""It passes on the lines of others."""
HEAD: Final = """# Log events

<!-- Written by `python -m tests.log_events`. -->

Every line that rocketrio logs is an event in constant words, followed by its values as `key=value`. This page lists all
of them; [logs.md](logs.md) explains the form. *any* in the column *level* means that the level depends on the case.
"""


@attrs.frozen
class Line:
    """One call of a logger."""

    path: str
    number: int
    level: str
    form: str | None
    """None if it is not a constant."""
    values: int | None
    """How many it is given; None if that depends."""

    @property
    def place(self) -> str:
        return f"{self.path}:{self.number}"


@cache
def lines() -> list[Line]:
    """Return every line in the source."""
    found: list[Line] = []
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name, source = str(path.relative_to(ROOT)), path.read_text()
            if name not in EXEMPT and any(f"{logger}." in source for logger in LOGGERS):
                found += lines_of(name, source)
    return found


def lines_of(path: str, source: str) -> Iterator[Line]:
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        level = node.func.attr
        if level not in (*LEVELS, "log") or ast.unparse(node.func.value) not in LOGGERS:
            continue
        args = node.args[1:] if level == "log" else node.args
        form = args[0].value if isinstance(args[0], ast.Constant) else None
        is_known = not any(isinstance(each, ast.Starred) for each in args)
        yield Line(
            path,
            node.lineno,
            {"log": "any", "exception": "error"}.get(level, level),
            form if isinstance(form, str) else None,
            len(args) - 1 if is_known else None,
        )


def page() -> str:
    """Return the page of all events."""
    parts = [HEAD]
    for room, title in ROOMS.items():
        rows: dict[str, tuple[dict[str, None], dict[str, None], dict[str, None]]] = {}
        for line in lines():
            form = parsed_form(line.form or "")
            if not line.path.startswith(f"{room}/") or form is None:
                continue
            levels, keys, files = rows.setdefault(form[0], ({}, {}, {}))
            levels[line.level] = None
            keys.update(dict.fromkeys(f"`{key}`" for key, _ in form[1]))
            files[line.path.removeprefix(f"{room}/").split("/", 1)[1]] = None
        parts.append(f"\n## {title}\n\n| event | level | values | file |\n|---|---|---|---|\n")
        parts += [
            f"| {event} | {', '.join(levels)} | {', '.join(keys)} | {', '.join(files)} |\n"
            for event, (levels, keys, files) in sorted(rows.items(), key=lambda row: row[0].lower())
        ]
    return "".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
