"""Encodes and decodes Java properties: the bodies of GET_ and UPDATE_BROKER_CONFIG (26, 25).

    key=value      one per line; `:` and spaces separate too; `#` and `!` begin comments; `\\` at the end joins lines

Answers to: java.util.Properties, MixAll.string2Properties and properties2String.
Unlike Java: the lines are sorted; escapes are not written, as in MixAll.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import Body

TEXT_SIZE_LIMIT: Final = 64 * 1024
"""Bytes of a body; all settings of an Apache broker take 12 KiB."""
LINES_LIMIT: Final = 2_000
"""Lines of a body; all settings of an Apache broker take 400. A line costs more to read than its bytes do."""

_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_PLAIN: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_KEY: Final = re.compile(r"(?P<key>(?:[^\\\s=:]|\\.)*)\s*[=:]?\s*(?P<value>.*)", re.DOTALL)


def parse_properties(data: Body) -> dict[str, str]:
    """Decode properties. Raises RemoteProtocolError if the text is too long, has too many lines or is not UTF-8."""
    if len(data) > TEXT_SIZE_LIMIT:
        raise RemoteProtocolError(
            f"The properties have {len(data)} bytes; {TEXT_SIZE_LIMIT} is the limit"
        )
    try:
        text = bytes(data).decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError(f"The properties are not UTF-8 text: {error}") from error
    lines = text.count("\n") + text.count("\r")
    if lines > LINES_LIMIT:
        raise RemoteProtocolError(f"The properties have {lines} lines; {LINES_LIMIT} is the limit")
    properties = {}
    for line in _logical_lines(text):
        match = _KEY.fullmatch(line)
        assert match is not None  # The pattern matches any text.
        properties[_unescaped(match["key"])] = _unescaped(match["value"])
    return properties


def format_properties(properties: Mapping[str, str]) -> bytes:
    """Encode properties."""
    return "".join(f"{key}={properties[key]}\n" for key in sorted(properties)).encode()


def _logical_lines(text: str) -> Iterator[str]:
    begun: list[str] = []  # The parts of a line that continues on the next one.
    for raw in re.split(r"\r\n|\r|\n", text):
        line = raw.lstrip()
        if not begun and (not line or line[0] in "#!"):
            continue
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun.append(line[:-1])
        else:
            yield "".join((*begun, line))
            begun.clear()
    if begun:
        yield "".join(begun)


def _unescaped(text: str) -> str:
    def plain(match: re.Match[str]) -> str:
        what = match[1]
        return chr(int(what[1:], 16)) if len(what) == 5 else _PLAIN.get(what, what)

    return _ESCAPE.sub(plain, text)
