"""The kinds of options: how the text that Spark passes on becomes a value, and a value of Python such a text.

A kind reads the option's text (`parse`), writes the text for an argument of `from_rocketmq` (`text_of`), shows a
default as docs/spark.md does, and names the type of the argument. Each error names the option or the argument, and what
it accepts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from numbers import Integral
from typing import Any, Final, NoReturn, TypeAlias, get_args

import attrs
import msgspec

from rocketrio import arguments
from rocketrio.arguments import similar_name
from rocketrio.queue_positions import MILLISECONDS_MIN
from rocketrio.routing.read_policy import StalenessBound
from rocketrio.spark.errors import OptionError
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import group_name_problem

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
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,19}")

_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


def whole_number(
    text: str, *, option: str, least: int, most: int = MAX_LONG, hint: str = ""
) -> int:
    """Return an integer between `least` and `most`; `hint` is appended to the error text and says what is counted."""
    number = int(text) if _WHOLE.fullmatch(text.strip()) else None
    if number is None or not least <= number <= most:
        upper = "" if most == MAX_LONG and (number is None or number < least) else f" to {most}"
        raise OptionError(f"{option}={shown(text)} is not a whole number from {least}{upper}{hint}")
    return number


def group_of(text: str, option: str) -> str:
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


def truth(text: str, option: str) -> bool:
    """Return the boolean that the text means."""
    word = text.strip().lower()
    if word not in _TRUE + _FALSE:
        raise OptionError(f"{option}={text!r} is neither true nor false")
    return word in _TRUE


def words_of(text: str, option: str) -> tuple[str, ...]:
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


def seconds_of(text: str, *, option: str, least_ms: int) -> float:
    """Return the seconds of `500ms`, `1.5 s`, `15m`, `2h` or `1d`; a number without a unit is milliseconds."""
    number, unit_ms = _number_and_unit(text)
    if not least_ms <= number * unit_ms <= MAX_LONG:
        raise OptionError(
            f"{option}={shown(text)} is not a duration of at least {least_ms} ms, such as {_DURATIONS}"
            " (a number without a unit is milliseconds)"
        )
    return number * unit_ms / 1000


_MESSAGES: Final = re.compile(r"([0-9]{1,15})\s*messages?")


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


def _number_and_unit(text: str) -> tuple[float, int]:
    """Return the number of a duration and the milliseconds of its unit; a negative number if it is not a duration."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None or found[2] not in _UNITS_MS:
        return -1.0, 1
    return float(found[1]), _UNITS_MS[found[2]]


def _quoted(default: Any) -> str:
    return "" if default in (None, ()) else f"`{default}`"


def _word(name: str, value: Any) -> str:
    arguments.text(name, value)
    return str(value)


@attrs.frozen
class OptionKind:
    """A kind of options."""

    hint: Any
    """The type of the argument."""
    parse: Callable[[str, str], Any] = lambda text, _: text
    """Return the value that a text means, given the option's name. Raises OptionError."""
    text_of: Callable[[str, Any], str] = _word
    """Return the option's text, given the argument's name and its value. Raises ConfigError."""
    shown: Callable[[Any], str] = _quoted
    """Return a default as the documentation has it; empty without one."""
    is_secret: bool = False


def choice(words: Any) -> OptionKind:
    """Return the kind of one of the words of a Literal, in any letter case."""
    by_lower: dict[str, str] = {word.lower(): word for word in get_args(words)}

    def parse(text: str, option: str) -> str:
        word = by_lower.get(text.strip().lower())
        if word is None:
            raise OptionError(f"{option}={text!r} must be one of: {', '.join(by_lower)}")
        return word

    return OptionKind(words, parse)


def whole(least: int, most: int = MAX_LONG) -> OptionKind:
    """Return the kind of a whole number of a range."""

    def parse(text: str, option: str) -> int:
        return whole_number(text, option=option, least=least, most=most)

    return OptionKind(int, parse, lambda name, value: str(_whole(name, value)), _bare)


def duration(least_ms: int, *, unit: str = "") -> OptionKind:
    """Return the kind of a time: seconds in Python; in a text milliseconds, with their unit if it is given."""

    def parse(text: str, option: str) -> float:
        return seconds_of(text, option=option, least_ms=least_ms)

    def text_of(name: str, value: Any) -> str:
        arguments.seconds(name, value, may_be_0=True)
        if value >= _FOREVER:
            _wrong(name, value, f"less than {_FOREVER:g} seconds")
        return f"{round(value * 1000)}{unit}"

    return OptionKind(float, parse, text_of, lambda default: str(round(default * 1000)))


def words(parse: Callable[[str, str], Any], separator: str = ",") -> OptionKind:
    """Return the kind of several words in one text."""

    def text_of(name: str, value: Any) -> str:
        if isinstance(value, str):
            return value
        entries = arguments.list_of(str, name, value)
        if split := [one for one in entries if separator in one]:
            _wrong(name, split[0], f"one entry of a list: {separator!r} separates entries")
        return separator.join(entries)

    return OptionKind(str | Sequence[str], parse, text_of, lambda _: "")


def by_queue(leaf: Callable[[str, object], object], hint: Any, *, has_words: bool) -> OptionKind:
    """Return the kind of a JSON with a value for each queue; with `has_words`, a text is passed on as it is."""

    def text_of(name: str, value: Any) -> str:
        if has_words and isinstance(value, str):
            return value

        def of_broker(queues: Any) -> object:
            return {
                str(_whole(name, queue_id)): leaf(name, one)
                for queue_id, one in _entries(name, queues, "queue id")
            }

        return _by_broker(name, value, of_broker)

    return OptionKind(hint, text_of=text_of)


def offsets_by_queue(words: Any) -> OptionKind:
    """Return the kind of an option that has an offset for each queue, or one of the words of a Literal."""
    return by_queue(_whole, words | OffsetsByQueue, has_words=True)


def _bare(default: Any) -> str:
    return "" if default is None else str(default)


def _secret_text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{name} must be text")  # Without the value.
    return value


def _truth_text(name: str, value: Any) -> str:
    arguments.flag(name, value)
    return str(value).lower()


def _pattern(text: str, option: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OptionError(
            f"{option}={text!r} is not a valid regular expression: {error}"
        ) from error
    return text


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


def _columns(text: str, option: str) -> tuple[str, ...]:
    return distinct(words_of(text, option), option=option)


def _names(text: str, _: str) -> frozenset[str]:
    return frozenset(name.strip() for name in text.split(",") if name.strip())


def _wrong(name: str, value: object, wanted: str) -> NoReturn:
    raise ConfigError(f"{name}={value!r} must be {wanted}")


def _whole(name: str, value: Any) -> int:
    arguments.whole_number(name, value)
    return int(value)


def _epoch_ms(name: str, value: object) -> int:
    if isinstance(value, datetime):
        time_ms = arguments.epoch_ms(name, value)
        return time_ms if time_ms >= MILLISECONDS_MIN else 0  # Before any cluster, and not seconds.
    if not isinstance(value, Integral) or isinstance(value, bool):
        _wrong(name, value, "a datetime or epoch milliseconds")
    return int(value)


def _queue_ids(name: str, value: object) -> list[int]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        _wrong(name, value, "a list of queue ids")
    return [_whole(name, one) for one in value]


def _by_broker(name: str, value: object, of_broker: Callable[[object], object]) -> str:
    found = {
        _word(name, topic): {
            _word(name, broker): of_broker(one) for broker, one in _entries(name, brokers, "broker")
        }
        for topic, brokers in _entries(name, value, "topic")
    }
    return msgspec.json.encode(found).decode()


def _entries(name: str, value: object, key: str) -> list[tuple[object, object]]:
    if not isinstance(value, Mapping):
        _wrong(name, value, f"a mapping by {key}, as in {{'orders': {{'broker-a': {{0: 17}}}}}}")
    return list(value.items())


_FOREVER: Final = 1e12  # seconds; a larger number would not fit the milliseconds of a JVM's long

TEXT: Final = OptionKind(str)
SECRET: Final = OptionKind(str, text_of=_secret_text, is_secret=True)
FILE: Final = OptionKind(str, text_of=lambda name, value: str(arguments.path(name, value)))
PATTERN: Final = OptionKind(str, _pattern)
GROUP: Final = OptionKind(str, group_of)
STALENESS: Final = OptionKind(str, staleness_bound)
TRUTH: Final = OptionKind(
    bool, truth, _truth_text, lambda one: "" if one is None else f"`{str(one).lower()}`"
)
WORDS: Final = words(words_of)
COLUMNS: Final = words(_columns)
NAMES: Final = words(_names)
INSTANT: Final = OptionKind(Time, text_of=lambda name, value: str(_epoch_ms(name, value)))
QUEUES: Final = OptionKind(
    QueueIds,
    _queues,
    lambda name, value: _by_broker(name, value, lambda ids: _queue_ids(name, ids)),
)
TIMES_BY_QUEUE: Final = by_queue(_epoch_ms, TimesByQueue, has_words=False)
