"""`option` and `made_of`: declare the options of the Spark source at the fields that they set, once.

    pull_timeout: float = option("pullTimeoutMs", 10.0, duration(1))
    \"\"\"how long a pull may take\"\"\"

The parser, the arguments of `from_rocketmq`, the errors for unknown names and the tables of the documentation are
derived from it; the text below the field is the option's help. The types in `arguments.py` are compared with it.

Names are Kafka's if the meaning is the same; letter case does not matter. Spark would not report an ignored typo, so
every unknown name is refused with a list of the known ones.
"""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, Final

import attrs

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import OptionKind, kind_of, shown, suggestion

DEFAULT_GROUP: Final = "rocketrio-spark"
"""The group named in pulls, because brokers require one; nothing is committed for it."""

BATCH_READ: Final = "a batch read (spark.read)"
STREAMING_READ: Final = "a streaming read (spark.readStream)"
WRITE: Final = "a write (df.write, df.writeStream)"


@attrs.frozen
class Option:
    """One option, a row of the table in the documentation."""

    name: str
    kind: OptionKind
    default: str
    """The default as a user would write it; empty if the option has none."""
    argument: str
    """The name as an argument of `from_rocketmq`; empty for an option that has none."""
    batch_only: bool
    """Whether a stream has no such option."""


def option(
    name: str,
    default: Any,
    kind: OptionKind | None = None,
    *,
    argument: str | None = None,
    shown: str | None = None,
    batch_only: bool = False,
) -> Any:
    """Declare a field that an option sets.

    Without a `kind` the field's type says it, see `kind_of`. Without an `argument` its name is the option's in
    snake_case; `pullTimeoutMs` is in seconds as an argument, and `pull_timeout`. `shown` is the default as the
    documentation has it, if the field's own does not say it.
    """
    if argument is None:
        snake = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.removesuffix("Ms"))
        argument = snake.replace(".", "_").lower()
    return attrs.field(
        default=default,
        repr=kind is None or not kind.is_secret,
        metadata={
            "name": name,
            "kind": kind,
            "default": _as_written(default) if shown is None else shown,
            "argument": argument,
            "batch_only": batch_only,
        },
    )


def made_of(cls: type, default: Any) -> Any:
    """Declare a field that the parser makes of the options of another class."""
    return attrs.field(default=default, metadata={"made_of": cls})


@cache
def declared(cls: type) -> Mapping[str, Option]:
    """Return the options of a class by their names, in the order of its fields."""
    found: dict[str, Option] = {}
    for field in attrs.fields(cls):
        given = field.metadata
        if "made_of" in given:
            found |= declared(given["made_of"])
        elif "name" in given:
            found[given["name"]] = Option(**{**given, "kind": given["kind"] or kind_of(field.type)})
    return found


def values_of(cls: type, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of those fields whose own option is given. Raises OptionError."""
    options, values = declared(cls), {}
    for field in attrs.fields(cls):
        name = field.metadata.get("name")
        if name in texts:
            values[field.name] = options[name].kind.parse(texts[name], name)
    return values


def _as_written(default: Any) -> str:
    match default:
        case bool():
            return f"`{str(default).lower()}`"
        case int():
            return str(default)
        case float():  # Seconds, which options write in milliseconds.
            return str(round(default * 1000))
        case str():
            return f"`{default}`"
    return ""


_NOT_YET: Final[Mapping[str, str]] = {
    "delaytimems": "delays other than by level",
    "delivertimestamp": "delays other than by level",
}

_KAFKA_WORDS: Final[Mapping[str, str]] = {
    "kafka.bootstrap.servers": "nameServer",
    "kafka.group.id": "consumerGroup",
    "groupidprefix": "consumerGroup",
    "kafkaconsumer.polltimeoutms": "pullTimeoutMs",
}
"""Options that jobs ported from Kafka may still use, and the options that replace them here."""


def known_texts(
    given: Mapping[str, str],
    *,
    known: Collection[str],
    what: str,
    other_options: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Return the options by their proper names. Raises OptionError for an option that is not in `known`.

    `what` names the use that knows them, for the error text. `other_options` maps options of other uses to those uses;
    the error for such an option says to which use it belongs.
    """
    names = {name.lower(): name for name in known}
    others = {name.lower(): use for name, use in (other_options or {}).items()}
    texts: dict[str, str] = {}
    for key, text in given.items():
        lower = key.lower()
        if lower in others:
            raise OptionError(f"{key} is an option of {others[lower]}, not of {what}")
        if lower not in names:
            raise OptionError(_unknown(key, text, known, what))
        texts[names[lower]] = text
    return texts


def _unknown(key: str, text: str, known: Collection[str], what: str) -> str:
    """Return what is wrong with a name that is no option; only a path is quoted, others may be secrets."""
    lower = key.lower()
    if lower in _NOT_YET:
        return f"{key}: not supported yet: {_NOT_YET[lower]}"
    # Spark adds these two if a topic is used like a file or a table.
    if lower == "path":
        return (
            f"path={shown(text)}: RocketMQ topics are not paths; call load() or save() without a path,"
            " and name topics by an option, as .option('topic', ...)"
        )
    if lower.startswith("option."):
        return (
            "CREATE TABLE: Spark would give the table's reader none of these options;"
            " CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...) keeps them"
        )
    if _KAFKA_WORDS.get(lower) in known:
        return f"{key} is an option for Kafka; here it is {_KAFKA_WORDS[lower]}"
    if lower.startswith("kafka."):
        return f"{key} is an option for Kafka's client; leave it out here"
    near, listed = suggestion(key, tuple(known)), ", ".join(known)
    return f"unknown option {key!r}{near} {what[0].upper()}{what[1:]} knows: {listed}"
