"""Checks of arguments: one of the wrong type is refused with a ConfigError that names it, any other is returned.

Without them Python would take `True` for 1 and "orders" for six topics, and fail much later or never.
"""

import difflib
import inspect
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    import attrs

T = TypeVar("T")

_BEGINNING: Final = 4  # Characters that are enough to match the beginning of a name.
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def whole_number(argument: str, value: object, *, least: int | None = None) -> int:
    """Return a whole number, after checking it; it may be one of numpy."""
    is_one = type(value) is int or (isinstance(value, Integral) and not isinstance(value, bool))
    if not is_one or (least is not None and value < least):  # type: ignore[operator]
        bound = "" if least is None else f", at least {least}"
        raise ConfigError(f"{argument}={value!r} must be a whole number{bound}")
    return int(value)  # type: ignore[call-overload, no-any-return]


def seconds(argument: str, value: object, *, may_be_0: bool = False) -> float:
    """Return a positive number of seconds, or 0 with `may_be_0`, after checking it; math.inf is accepted."""
    is_one = isinstance(value, Real) and not isinstance(value, bool)
    if not is_one or not (value > 0 or (may_be_0 and value == 0)):  # type: ignore[operator]
        bound = "at least 0" if may_be_0 else "more than 0"
        raise ConfigError(f"{argument}={value!r} must be a number of seconds, {bound}")
    return float(value)  # type: ignore[arg-type]


def epoch_ms(argument: str, value: datetime) -> int:
    """Return the milliseconds of a time with a zone: without one it would mean another time on the next machine."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise ConfigError(f"{argument}={value!r} must be a datetime with a time zone")
    # Exact, unlike timestamp(), which is a float.
    return (value - _EPOCH) // timedelta(milliseconds=1)


def flag(argument: str, value: object) -> bool:
    """Return True or False, after checking it: any text would count as True, even "false"."""
    if not isinstance(value, bool):
        raise ConfigError(f"{argument}={value!r} must be True or False")
    return value


def text(argument: str, value: object) -> str:
    """Return a str, after checking it."""
    if not isinstance(value, str):
        raise ConfigError(f"{argument}={value!r} must be text")
    return value


def path(argument: str, value: object) -> Path:
    """Return the path of a file, given as text or as a path."""
    if not isinstance(value, str | PathLike):
        raise ConfigError(f"{argument}={value!r} must be the path of a file")
    return Path(value)


def list_of(kind: type[T], argument: str, values: Iterable[T]) -> list[T]:
    """Return an iterable as a list, after checking each element's type."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise ConfigError(f"{argument}={values!r} must be a list of {kind.__name__}")
    found = list(values)
    for value in found:
        if not isinstance(value, kind):
            raise ConfigError(f"{argument}= holds {value!r}, and each must be a {kind.__name__}")
    return found


def no_such_argument(
    function: Callable[..., object], name: str, others: Iterable[str]
) -> ConfigError:
    """Return the error for a name that is neither an argument of the function nor one of the `others` that it takes."""
    close = similar_name(name, [*inspect.signature(function).parameters, *others])
    meant = "" if close is None else f"; did you mean {close}=?"
    return ConfigError(f"{function.__name__} has no argument {name}={meant}")


def similar_name(wrong: str, known: Iterable[str]) -> str | None:
    """Return the known name that was probably meant: the shortest that begins so, or the most similar; None if none is.

    Letter case does not matter.
    """
    by_lower = {name.lower(): name for name in known}
    lower = wrong.lower()
    begun = [name for name in by_lower if len(lower) >= _BEGINNING and name.startswith(lower)]
    near = sorted(begun, key=len) or difflib.get_close_matches(lower, by_lower, n=1)
    return by_lower[near[0]] if near else None


def instance(kind: type[T], argument: str, value: object, *, hint: str) -> None:
    """Check for an instance of a rocketrio class."""
    if not isinstance(value, kind):
        raise ConfigError(f"{argument}={value!r} must be a {kind.__name__}: {hint}")


def checked(
    check: Callable[..., object], **bounds: Any
) -> Callable[[object, "attrs.Attribute[Any]", Any], None]:
    """Return the validator of a field of attrs that checks as one of these functions does."""

    def validate(_: object, field: "attrs.Attribute[Any]", value: Any) -> None:
        check(field.name, value, **bounds)

    return validate
