"""`option` and `from_options`: declare the options of the Spark source at the fields that they set, once.

    pull_timeout: float = option("pullTimeoutMs", duration(1), 10.0, "how long a pull may take")

The parser, the arguments of `from_rocketmq`, the errors for unknown names and the tables of the documentation are
derived from it; the types in `arguments.py` are compared with it.

Names are Kafka's if the meaning is the same; letter case does not matter. Spark would not report an ignored typo, so
every unknown name is refused with a list of the known ones.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

import attrs

from rocketrio.spark.errors import OptionError
from rocketrio.spark.option_kinds import OptionKind, shown, suggestion

DEFAULT_GROUP: Final = "rocketrio-spark"
"""The group named in pulls, because brokers require one; nothing is committed for it."""

BATCH_READ: Final = "a batch read (spark.read)"
STREAMING_READ: Final = "a streaming read (spark.readStream)"
WRITE: Final = "a write (df.write, df.writeStream)"


def _argument(option: "Option") -> str:
    """Return the option's name in snake_case; `pullTimeoutMs` is in seconds as an argument, and `pull_timeout`."""
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", option.name.removesuffix("Ms"))
    return words.replace(".", "_").lower()


@attrs.frozen
class Option:
    """One option, a row of the table in the documentation."""

    name: str
    kind: OptionKind
    help: str
    default: str = ""
    """The default as a user would write it; empty if the option has none."""
    argument: str = attrs.field(default=attrs.Factory(_argument, takes_self=True))
    """The name as an argument of `from_rocketmq`; empty for an option that has none."""
    batch_only: bool = False
    """Whether a stream has no such option."""


def option(
    name: str,
    kind: OptionKind,
    default: Any,
    help: str,  # noqa: A002 - as in Option
    *,
    default_shown: str | None = None,
    batch_only: bool = False,
) -> Any:
    """Declare a field that one option sets; the kind shows the default, unless `default_shown` does."""
    in_table = kind.shown(default) if default_shown is None else default_shown
    declared = Option(name, kind, help, in_table, batch_only=batch_only)
    return attrs.field(
        default=default,
        repr=not kind.is_secret,
        metadata={"options": (declared,), "is_parsed": True},
    )


def from_options(default: Any, *options: Option) -> Any:
    """Declare a field that the parser of its class sets, from several options or from one that depends on others."""
    return attrs.field(default=default, metadata={"options": options})


def declared(cls: type) -> Mapping[str, Option]:
    """Return the options of a class by their names, in the order of its fields."""
    fields = attrs.fields(cls)
    return {one.name: one for field in fields for one in field.metadata.get("options", ())}


def fields_of(cls: type, texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of those fields whose `option` is given. Raises OptionError."""
    values = {}
    for field in attrs.fields(cls):
        if field.metadata.get("is_parsed"):
            (one,) = field.metadata["options"]
            if one.name in texts:
                values[field.name] = one.kind.parse(texts[one.name], one.name)
    return values


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
        if lower in names:
            texts[names[lower]] = text
            continue
        _refuse_not_yet(key)
        _refuse_tables_and_files(lower, text)
        if lower in _KAFKA_WORDS and _KAFKA_WORDS[lower] in known:
            raise OptionError(f"{key} is an option for Kafka; here it is {_KAFKA_WORDS[lower]}")
        if lower.startswith("kafka."):
            raise OptionError(f"{key} is an option for Kafka's client; leave it out here")
        near = suggestion(key, tuple(known))
        listed = ", ".join(known)
        raise OptionError(
            f"unknown option {key!r}{near} {what[0].upper()}{what[1:]} knows: {listed}"
        )
    return texts


def _refuse_tables_and_files(name: str, text: str) -> None:
    """Raise OptionError for options that Spark adds itself if a topic is used like a file or a table."""
    if name == "path":
        raise OptionError(
            f"path={shown(text)}: RocketMQ topics are not paths; call load() or save() without a path,"
            " and name topics by an option, as .option('topic', ...)"
        )
    if name.startswith("option."):
        raise OptionError(
            "CREATE TABLE: Spark would give the table's reader none of these options;"
            " CREATE TEMPORARY VIEW ... USING rocketmq OPTIONS (...) keeps them"
        )


def _refuse_not_yet(key: str) -> None:
    """Raise OptionError for a planned option. Its value is never shown, because it may be a secret."""
    missing = _NOT_YET.get(key.lower())
    if missing is not None:
        raise OptionError(f"{key}: not supported yet: {missing}")
