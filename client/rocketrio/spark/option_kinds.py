"""The kinds of options: how the text that Spark passes on becomes a value, and a value of Python such a text.

A kind reads the option's text (`parse`), writes the text for an argument of `from_rocketmq` (`text_of`), and names the
type of the argument. Each error names the option or the argument, and what it accepts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from numbers import Integral
from typing import Any, Final, Literal, NoReturn, TypeAlias, get_args, get_origin

import attrs
import msgspec

from rocketrio import arguments
from rocketrio.queue_positions import MILLISECONDS_MIN, TIME_FORMS, time_ms_of
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.errors import OptionError
from rocketrio.spark.reading.offsets import parse_position, parse_timestamp_table
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import group_name_problem
from rocketrio_protocol.remoting.ports import SystemWallClock

QueueIds: TypeAlias = Mapping[str, Mapping[str, Sequence[int]]]
"""Topic to broker to queue ids: `{"orders": {"broker-a": [0, 1]}}`."""

OffsetsByQueue: TypeAlias = Mapping[str, Mapping[str, Mapping[int, int]]]
"""Topic to broker to queue id to offset; -2 is the earliest offset, -1 the latest."""

Time: TypeAlias = datetime | int
"""A date with its time zone, or epoch milliseconds."""

TimesByQueue: TypeAlias = Mapping[str, Mapping[str, Mapping[int, Time]]]
"""Topic to broker to queue id to time."""

MAX_LONG: Final = 2**63 - 1
"""Java's long, the limit of offsets, times and counts."""
MAX_INT: Final = 2**31 - 1
"""The largest queue id and the largest number of Spark partitions."""

_TEXT_SHOWN: Final = 80  # characters of a wrong value in its error
_FOREVER: Final = 1e12  # seconds; a larger number would not fit the milliseconds of a JVM's long
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")
_DURATION: Final = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*([a-z]*)")
_UNITS_MS: Final = {"": 1, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}  # fmt: skip
_DURATIONS: Final = "500ms, 1.5s, 15m, 2h or 1d"
_MESSAGES: Final = re.compile(r"([0-9]{1,15})\s*messages?")


def shown(text: str) -> str:
    """Return a wrong value as errors quote it, shortened if it is long."""
    return repr(text) if len(text) <= _TEXT_SHOWN else f"{text[:_TEXT_SHOWN]!r}..."


def suggestion(wrong: str, known: Sequence[str]) -> str:
    """Return `; did you mean X?` if a known word is similar, otherwise a full stop."""
    near = arguments.similar_name(wrong, known)
    return "." if near is None else f"; did you mean {near}?"


@attrs.frozen
class OptionKind:
    """A kind of options."""

    hint: Any
    """The type of the argument."""
    parse: Callable[[str, str], Any] = lambda text, _: text
    """Return the value that a text means, given the option's name. Raises OptionError."""
    text_of: Callable[[str, Any], str] = arguments.text
    """Return the option's text, given the argument's name and its value. Raises ConfigError."""
    is_secret: bool = False


def kind_of(hint: Any) -> OptionKind:
    """Return the kind of a field that is True or False, or one of the words of a Literal in any letter case."""
    if hint in (bool, bool | None):
        return TRUTH
    literal = next(one for one in (hint, *get_args(hint)) if get_origin(one) is Literal)
    by_lower: dict[str, str] = {word.lower(): word for word in get_args(literal)}

    def parse(text: str, option: str) -> str:
        word = by_lower.get(text.strip().lower())
        if word is None:
            raise OptionError(f"{option}={text!r} must be one of: {', '.join(by_lower)}")
        return word

    return OptionKind(literal, parse)


def whole(least: int, most: int = MAX_LONG) -> OptionKind:
    """Return the kind of a whole number of a range."""

    def parse(text: str, option: str) -> int:
        number = int(text) if _WHOLE.fullmatch(text.strip()) else None
        if number is None or not least <= number <= most:
            is_low = number is None or number < least
            upper = "" if most == MAX_LONG and is_low else f" to {most}"
            raise OptionError(f"{option}={shown(text)} is not a whole number from {least}{upper}")
        return number

    return OptionKind(int, parse, lambda name, value: str(arguments.whole_number(name, value)))


def duration(least_ms: int, *, unit: str = "") -> OptionKind:
    """Return the kind of a time: seconds in Python; in a text milliseconds, with their unit if it is given."""

    def parse(text: str, option: str) -> float:
        number, unit_ms = _number_and_unit(text)
        if not least_ms <= number * unit_ms <= MAX_LONG:
            raise OptionError(
                f"{option}={shown(text)} is not a duration of at least {least_ms} ms, such as {_DURATIONS}"
                " (a number without a unit is milliseconds)"
            )
        return number * unit_ms / 1000

    def text_of(name: str, value: Any) -> str:
        if arguments.seconds(name, value, may_be_0=True) >= _FOREVER:
            _wrong(name, value, f"less than {_FOREVER:g} seconds")
        return f"{round(value * 1000)}{unit}"

    return OptionKind(float, parse, text_of)


def _number_and_unit(text: str) -> tuple[float, int]:
    """Return the number of a duration and the milliseconds of its unit; a negative number if it is not a duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        return -1.0, 1
    return float(found[1]), _UNITS_MS[found[2]]


def staleness_bound(text: str, option: str) -> StalenessBound:
    """Return a bound in messages (`10000 messages`) or in time, a duration with a unit: a bare number could be both."""
    found = _MESSAGES.fullmatch(text.strip().lower())
    if found is not None:
        return StalenessBound(messages=int(found[1]))
    number, unit_ms = _number_and_unit(text)
    if text.strip()[-1:].isdecimal() or not 0 < number * unit_ms <= MAX_LONG:
        raise OptionError(
            f"{option}={shown(text)} is neither a number of messages, such as 10000 messages,"
            f" nor a duration above 0 with its unit, such as {_DURATIONS}"
        )
    return StalenessBound(seconds=number * unit_ms / 1000)


def words(parse: Callable[[str, str], Any], separator: str = ",") -> OptionKind:
    """Return the kind of several words in one text."""

    def text_of(name: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        entries = arguments.list_of(str, name, value)
        if split := [one for one in entries if separator in one]:
            _wrong(name, split[0], f"one entry of a list: {separator!r} separates entries")
        return separator.join(entries)

    return OptionKind(str | Sequence[str], parse, text_of)


def _words(text: str, option: str) -> tuple[str, ...]:
    """Return the words of a comma-separated list, in its order, each once."""
    found = tuple(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not found:
        raise OptionError(f"{option} is empty")
    if found[0].startswith("["):  # This is how Spark passes a list.
        raise OptionError(f"{option}={shown(text)} is a list; give one text, {option}=a,b")
    return found


def _columns(text: str, option: str) -> tuple[str, ...]:
    """Return the words; two that differ only in letter case are equal to Spark, and an error."""
    by_lower: dict[str, str] = {}
    for word in (found := _words(text, option)):
        other = by_lower.setdefault(word.lower(), word)
        if other != word:
            raise OptionError(f"{option} names {other} and {word}, which are the same to Spark")
    return found


def _offsets(words: Any, *, is_end: bool) -> OptionKind:
    """Return the kind of an option that has an offset for each queue, or one of the words of a Literal."""

    def parse(text: str, option: str) -> Any:
        return parse_position(text, option=option, is_end=is_end)

    def text_of(name: str, value: Any) -> str:
        return value if isinstance(value, str) else _by_queue(name, value, arguments.whole_number)

    return OptionKind(words | OffsetsByQueue, parse, text_of)


def _by_queue(name: str, value: object, leaf: Callable[[str, object], object]) -> str:
    """Return the JSON of a mapping by topic, broker and queue id."""

    def of_queues(queues: object) -> object:
        return {
            str(arguments.whole_number(name, queue_id)): leaf(name, one)
            for queue_id, one in _entries(name, queues, "queue id")
        }

    return _by_broker(name, value, of_queues)


def _by_broker(name: str, value: object, of_broker: Callable[[object], object]) -> str:
    found = {
        arguments.text(name, topic): {
            arguments.text(name, broker): of_broker(one)
            for broker, one in _entries(name, brokers, "broker")
        }
        for topic, brokers in _entries(name, value, "topic")
    }
    return msgspec.json.encode(found).decode()


def _entries(name: str, value: object, key: str) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping):
        _wrong(name, value, f"a mapping by {key}, as in {{'orders': {{'broker-a': {{0: 17}}}}}}")
    return list(value.items())


def _queue_ids(name: str, value: object) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _wrong(name, value, "a list of queue ids")
    return [arguments.whole_number(name, one) for one in value]


def _queues(text: str, option: str) -> tuple[MessageQueue, ...]:
    try:
        ids = msgspec.json.decode(text, type=dict[str, dict[str, list[int]]])
    except msgspec.DecodeError as error:
        raise OptionError(
            f'{option}={shown(text)} is not JSON like {{"orders":{{"broker-a":[0,1]}}}}: {error}'
        ) from error
    queues = {
        MessageQueue(topic, broker_name, queue_id)
        for topic, brokers in ids.items()
        for broker_name, queue_ids in brokers.items()
        for queue_id in queue_ids
    }
    if not queues or not all(0 <= queue.queue_id <= MAX_INT for queue in queues):
        raise OptionError(
            f"{option}={shown(text)} names no queue, or one below 0 or above {MAX_INT}"
        )
    return tuple(sorted(queues))


def _time_ms(text: str, option: str) -> int:
    """Return a time as commands write it too."""
    try:
        return time_ms_of(text, SystemWallClock().now_ms())
    except ConfigError as error:
        raise OptionError(f"{option}={shown(text)} is not a time: {TIME_FORMS}") from error


def _epoch_ms(name: str, value: object) -> int:
    if isinstance(value, datetime):
        time_ms = arguments.epoch_ms(name, value)
        return time_ms if time_ms >= MILLISECONDS_MIN else 0  # Before any cluster, and not seconds.
    if not isinstance(value, Integral) or isinstance(value, bool):
        _wrong(name, value, "a datetime or epoch milliseconds")
    return int(value)


def _truth(text: str, option: str) -> bool:
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise OptionError(f"{option}={text!r} is neither true nor false")
    return word in _TRUE


def _pattern(text: str, option: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"{option}={text!r} is not a valid regular expression: {error}"
        ) from error
    return text


def _group(text: str, option: str) -> str:
    group = text.strip()
    problem = group_name_problem(group)
    if problem is not None:
        raise OptionError(f"{option}={shown(text)}: {problem}")
    return group


def _secret_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text")  # Without the value.
    return value


def _wrong(name: str, value: object, wanted: str) -> NoReturn:
    raise ConfigError(f"{name}={value!r} must be {wanted}")


TEXT: Final = OptionKind(str)
SECRET: Final = OptionKind(str, text_of=_secret_text, is_secret=True)
FILE: Final = OptionKind(str, text_of=lambda name, value: str(arguments.path(name, value)))
PATTERN: Final = OptionKind(str, _pattern)
GROUP: Final = OptionKind(str, _group)
STALENESS: Final = OptionKind(str, staleness_bound)
TRUTH: Final = OptionKind(
    bool, _truth, lambda name, value: str(arguments.flag(name, value)).lower()
)
SERVERS: Final = words(lambda text, _: text, ";")
WORDS: Final = words(_words)
COLUMNS: Final = words(_columns)
NAMES: Final = words(lambda text, _: frozenset(filter(None, map(str.strip, text.split(",")))))
INSTANT: Final = OptionKind(Time, _time_ms, lambda name, value: str(_epoch_ms(name, value)))
STARTS: Final = _offsets(Literal["earliest", "latest", "group"], is_end=False)
ENDS: Final = _offsets(Literal["latest"], is_end=True)
QUEUES: Final = OptionKind(
    QueueIds,
    _queues,
    lambda name, value: _by_broker(name, value, lambda ids: _queue_ids(name, ids)),
)
TIMES_BY_QUEUE: Final = OptionKind(
    TimesByQueue,
    lambda text, option: parse_timestamp_table(text, option=option),
    lambda name, value: _by_queue(name, value, _epoch_ms),
)
