"""Reads single option values: numbers, booleans, choices, lists. Each error names the option and what it accepts."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

from rocketrio.arguments import similar_name
from rocketrio.cluster.name_servers import name_server_addresses
from rocketrio.cluster.variables import NAME_SERVERS_VARIABLE
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.errors import OptionError
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.names import group_name_problem

_MAX_LONG: Final = 2**63 - 1  # Java's long, the limit of offsets, times and counts.
_TEXT_SHOWN: Final = 80  # characters of a wrong value in its error
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def whole_number(
    text: str, *, option: str, least: int, most: int = _MAX_LONG, hint: str = ""
) -> int:
    """Return an integer between `least` and `most`; `hint` is appended to the error text and says what is counted."""
    number = int(text) if _WHOLE.fullmatch(text.strip()) else None
    if number is None or not least <= number <= most:
        upper = "" if most == _MAX_LONG and (number is None or number < least) else f" to {most}"
        raise OptionError(f"{option}={shown(text)} is not a whole number from {least}{upper}{hint}")
    return number


NumberField: TypeAlias = tuple[str, str, int, int]
"""A field that is a plain number: its name, its option, its least and its largest value."""


def number_fields(texts: Mapping[str, str], fields: Iterable[NumberField]) -> dict[str, int]:
    """Return the values of those fields whose options are given."""
    return {
        field: whole_number(texts[option], option=option, least=least, most=most)
        for field, option, least, most in fields
        if option in texts
    }


def truth_fields(texts: Mapping[str, str], fields: Iterable[tuple[str, str]]) -> dict[str, bool]:
    """Return the values of those fields, each listed with its option, whose options are given."""
    return {
        field: truth(texts[option], option=option) for field, option in fields if option in texts
    }


def name_servers_of(texts: Mapping[str, str]) -> tuple[str, ...]:
    """Return the addresses in `nameServer`, or in the environment if the option is not given."""
    try:
        return name_server_addresses(texts.get("nameServer"))
    except ConfigError as error:
        if "nameServer" not in texts:
            raise OptionError(
                f"{NAME_SERVERS_VARIABLE} in the environment: {error.what}"
            ) from error
        raise OptionError(
            f"nameServer={texts['nameServer']!r} is not host:port;host:port"
        ) from error


def group_of(text: str, *, option: str) -> str:
    """Return the name of a group. Raises OptionError for a name that brokers do not allow."""
    group = text.strip()
    problem = group_name_problem(group)
    if problem is not None:
        raise OptionError(f"{option}={shown(text)}: {problem}")
    return group


def shown(text: str) -> str:
    """Return a wrong value as errors quote it, shortened if it is long."""
    return repr(text) if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]!r}..."


def distinct(words: Sequence[str], *, option: str) -> tuple[str, ...]:
    """Return the words. Raises OptionError if two differ only in letter case, because Spark treats them as equal."""
    by_lower: dict[str, str] = {}
    for word in words:
        other = by_lower.setdefault(word.lower(), word)
        if other != word:
            raise OptionError(f"{option} names {other} and {word}, which are the same to Spark")
    return tuple(words)


def truth(text: str, *, option: str) -> bool:
    """Return the boolean that the text means."""
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise OptionError(f"{option}={text!r} is neither true nor false")
    return word in _TRUE


def choice(text: str, *, option: str, words: Sequence[str]) -> str:
    """Return the given one of `words`, in lower case."""
    word = text.strip().lower()
    if word not in words:
        raise OptionError(f"{option}={text!r} must be one of: {', '.join(words)}")
    return word


def words_of(text: str, *, option: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list, in its order, each once."""
    words = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise OptionError(f"{option} is empty")
    if words[0].startswith("["):  # This is how Spark passes a list.
        raise OptionError(f"{option}={shown(text)} is a list; give one text, {option}=a,b")
    return words


def suggestion(wrong: str, known: Sequence[str]) -> str:
    """Return `; did you mean X?` if a known word is similar, otherwise a full stop."""
    near = similar_name(wrong, known)
    return "." if near is None else f"; did you mean {near}?"


_DURATION: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}  # fmt: skip
_DURATIONS: Final = "500ms, 1.5s, 15m, 2h or 1d"

DurationField: TypeAlias = tuple[str, str, int]
"""A field in seconds: its name, its option, and its least value in milliseconds."""


def duration(text: str, *, option: str, least_ms: int) -> float:
    """Return the seconds of `500ms`, `1.5 s`, `15m`, `2h` or `1d`; a number without a unit is milliseconds."""
    number, unit_ms = _number_and_unit(text)
    if not least_ms <= number * unit_ms <= _MAX_LONG:
        raise OptionError(
            f"{option}={shown(text)} is not a duration of at least {least_ms} ms, such as {_DURATIONS}"
            " (a number without a unit is milliseconds)"
        )
    return number * unit_ms / 1000


def duration_fields(texts: Mapping[str, str], fields: Iterable[DurationField]) -> dict[str, float]:
    """Return the values of those fields whose options are given."""
    return {
        field: duration(texts[option], option=option, least_ms=least_ms)
        for field, option, least_ms in fields
        if option in texts
    }


_MESSAGES: Final = re.compile(r"([0-9]{1,15})\s*messages?")


def staleness_bound(text: str, *, option: str) -> StalenessBound:
    """Return a bound in messages (`10000 messages`) or in time, a duration with a unit: a bare number could be both."""
    found = _MESSAGES.fullmatch(text.strip().lower())
    if found is not None:
        return StalenessBound(messages=int(found[1]))
    number, unit_ms = _number_and_unit(text)
    if text.strip()[-1:].isdecimal() or not 0 < number * unit_ms <= _MAX_LONG:
        raise OptionError(
            f"{option}={shown(text)} is neither a number of messages, such as 10000 messages,"
            f" nor a duration above 0 with its unit, such as {_DURATIONS}"
        )
    return StalenessBound(seconds=number * unit_ms / 1000)


def _number_and_unit(text: str) -> tuple[float, int]:
    """Return the number of a duration and the milliseconds of its unit; a negative number if it is not a duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        return -1.0, 1
    return float(found[1]), _UNITS_MS[found[2]]
