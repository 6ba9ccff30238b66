"""`setting`: declares a setting of the broker at its field, once.

    transaction_timeout: float = setting(
        6.0, "Seconds a transaction may ...", not_negative, java="transactionTimeOut", unit=MS, live=True
    )

The type and the checks say what may be written. The file, the environment, `--set`, the flags of the command,
RocketMQ's names for requests 25 and 26, and the pages of settings are derived from it.
"""

from collections.abc import Callable
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

import attrs
from attrs import validators

MS: Final = "milliseconds"
"""The unit in which RocketMQ writes a time; here it is seconds."""

NOT_SHOWN: Final = ""
"""The RocketMQ name of a setting that its tools do not see under one name, such as an address."""

positive = validators.gt(0)
not_negative = validators.ge(0)


@attrs.frozen
class Flag:
    """An option of `rocketrio-broker run` that gives a setting."""

    name: str
    help: str
    check: Callable[[str], object] | None = None
    """Raises ConfigError for a text that cannot be the value; None if the type of the setting suffices."""


def setting(
    default: Any,
    help: str,  # noqa: A002 - it reads well in a declaration
    *checks: Any,
    java: str | None = None,
    unit: str = "",
    live: bool = False,
    flag: Flag | None = None,
) -> Any:
    """Declare a setting; `help` is a sentence.

    `java` is RocketMQ's name if it is not the name here in camelCase, and `unit=MS` says that it counts milliseconds
    there. `live` says that the running broker reads the setting at each use, so that request 25 may change it. Give the
    class `field_transformer=checked_words`, which adds the check of a Literal.
    """
    metadata = {"help": help, "java": java, "unit": unit, "live": live, "flag": flag}
    return attrs.field(default=default, validator=list(checks), metadata=metadata)


def words(kind: Any) -> tuple[str, ...]:
    """Return the words of a Literal, also of one that may be None; nothing for another type."""
    kind = without_none(kind)
    return get_args(kind) if get_origin(kind) is Literal else ()


def without_none(kind: Any) -> Any:
    """Return X of `X | None`, and any other type as it is."""
    return get_args(kind)[0] if get_origin(kind) in (Union, UnionType) else kind


def checked_words(_: type, fields: list["attrs.Attribute[Any]"]) -> list["attrs.Attribute[Any]"]:
    """Let settings whose type is a Literal refuse other words, for `field_transformer`."""
    return [_checked(field) if words(field.type) else field for field in fields]


def _checked(field: "attrs.Attribute[Any]") -> "attrs.Attribute[Any]":
    check = validators.in_(words(field.type))
    is_optional = without_none(field.type) is not field.type
    return field.evolve(validator=validators.optional(check) if is_optional else check)
