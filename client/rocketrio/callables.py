"""Checks of functions that users pass: one of the wrong kind is refused at once, not when a message first reaches it.

A plain function in place of an async one does its work, and then fails at the `await`; in a handler that failure would
send every message to the dead-letter topic. If the kind cannot be seen from outside, as with a lambda, the result of
each call is checked.
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


class NotAwaitableError(ConfigError):
    """A function passed as async returned something that cannot be awaited. A retry does not help."""


def async_function(
    argument: str, function: Callable[[A], Awaitable[R]]
) -> Callable[[A], Awaitable[R]]:
    """Return `function`, or a wrapper that raises NotAwaitableError if a call returns something that cannot be awaited.

    Raises ConfigError, which names the `argument`, for an object that is certainly not async: a plain `def`, a
    generator, or not a function. Also raises it for a function that cannot be called with one argument.
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
            raise NotAwaitableError(
                f"{argument} must be async def: {function!r} returned {outcome!r}"
            )
        return await outcome

    return judged


def plain_function(argument: str, function: Callable[..., object]) -> None:
    """Raise ConfigError, which names the `argument`, for an object that is not a function, or an async function."""
    _check_callable(argument, function)
    inner = _innermost(function)
    if inspect.iscoroutinefunction(inner) or inspect.isasyncgenfunction(inner):
        raise ConfigError(f"{argument} must be a plain def, and {function!r} is async")


def _check_callable(argument: str, function: object) -> None:
    if callable(function):
        return
    hint = ""
    if inspect.iscoroutine(function):
        function.close()  # Otherwise Python would warn about it too.
        hint = ": give the function itself, without calling it"
    raise ConfigError(f"{argument}={function!r} is not a function{hint}")


def _check_takes_one(argument: str, function: Callable[..., object]) -> None:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return  # Some functions of C modules have no signature.
    try:
        signature.bind(None)
    except TypeError as error:
        raise ConfigError(
            f"{argument} is called with one argument, and {function!r} takes {signature}: {error}"
        ) from None


def _is_wrapper(function: FunctionType) -> bool:
    # A decorator's wrapper: it may return the result of an async function.
    return hasattr(function, "__wrapped__")


def _innermost(function: Any) -> Any:
    """Return the function that decides whether the object is async: behind partials, methods and callable objects."""
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
