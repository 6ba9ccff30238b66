"""Functions that users give: one of the wrong kind is refused when it is given, not by each message that meets it.

A plain function where an async one is wanted does its work, and fails at the `await` behind it; as the failure of a
handler that would send every message to the dead-letter topic. What cannot be told from outside, a lambda for
example, is judged by what its calls return.
"""

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from types import FunctionType
from typing import Any, Final, TypeVar

from rocketrio_protocol.errors import ConfigError

A = TypeVar("A")
R = TypeVar("R")

_LAMBDA: Final = (lambda: None).__name__


class NotAwaitable(ConfigError):
    """What was given as an async function returned something that cannot be awaited. Nothing gets better by a retry."""


def async_function(
    argument: str, function: Callable[[A], Awaitable[R]]
) -> Callable[[A], Awaitable[R]]:
    """`function`, or one that raises NotAwaitable where its call turns out to be none of an async function.

    Raises ConfigError, which names the `argument`, for what surely is none: a plain `def`, a generator, no function.
    Raises it for one that cannot be called with one argument, too.
    """
    _check_callable(argument, function)
    _check_takes_one(argument, function)
    inner = _innermost(function)
    if inspect.iscoroutinefunction(inner):
        return function
    if isinstance(inner, FunctionType) and inner.__name__ != _LAMBDA and not _is_wrapper(inner):
        raise ConfigError(
            f"{argument} must be async def, and {function!r} is not",
            remedy="Work that blocks goes to a thread there: `await trio.to_thread.run_sync(work, message)`",
        )

    async def judged(value: A) -> R:
        outcome = function(value)
        if not inspect.isawaitable(outcome):
            raise NotAwaitable(f"{argument} must be async def: {function!r} returned {outcome!r}")
        return await outcome

    return judged


def plain_function(argument: str, function: Callable[..., object]) -> None:
    """Raises ConfigError, which names the `argument`, for what is no function, or an async one: nobody awaits it."""
    _check_callable(argument, function)
    inner = _innermost(function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{argument} must be a plain def, and {function!r} is async")


def _check_callable(argument: str, function: object) -> None:
    if callable(function):
        return
    hint = ""
    if inspect.iscoroutine(function):
        function.close()  # Otherwise Python warns of it too.
        hint = ": give the function itself, without calling it"
    raise ConfigError(f"{argument}={function!r} is no function{hint}")


def _check_takes_one(argument: str, function: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Some of C's functions do not tell.
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{argument} is called with one argument, and {function!r} takes {signature}: {error}"
        ) from None


def _is_wrapper(function: FunctionType) -> bool:
    # A decorator's: it may return what an async function gave it.
    return hasattr(function, "__wrapped__")


def _innermost(function: Any) -> Any:
    """The function that says whether it is async: behind partials, methods, and objects that can be called."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        elif isinstance(function, type) or inspect.iscoroutinefunction(function):
            return function
        elif isinstance(called := inspect.getattr_static(function, "__call__"), FunctionType):
            function = called
        else:
            return function
