"""Functions of users: which ones are taken, which are refused, and when."""

import functools
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
import trio

from rocketrio.callables import NotAwaitableError, async_function, plain_function
from rocketrio_protocol.errors import ConfigError


async def good(number: int) -> int:
    return number + 1


def bad(number: int) -> int:
    return number + 1


async def two(more: int, number: int) -> int:
    return number + more


class Good:
    async def __call__(self, number: int) -> int:
        return number + 1

    async def method(self, number: int) -> int:
        return number + 1

    @staticmethod
    async def static(number: int) -> int:
        return number + 1

    @classmethod
    async def of_class(cls, number: int) -> int:
        return number + 1


class Bad:
    def __call__(self, number: int) -> int:
        return number + 1

    def method(self, number: int) -> int:
        return number + 1


def decorated(function: Callable[[int], Awaitable[int]]) -> Callable[[int], Awaitable[int]]:
    @functools.wraps(function)
    def wrapper(number: int) -> Awaitable[int]:
        return function(number)

    return wrapper


@pytest.mark.parametrize(
    "function",
    [
        good,
        partial(two, 1),
        partial(partial(two, 1)),
        Good(),
        partial(Good()),
        Good().method,
        Good.static,
        Good.of_class,
        decorated(good),
        lambda number: good(number),
        functools.lru_cache(good),
    ],
)
async def test_whatever_is_awaited_is_taken(function: Any) -> None:
    assert await async_function("handler", function)(1) == 2


@pytest.mark.parametrize(
    "function", [good, partial(two, 1), Good(), Good().method], ids=lambda one: type(one).__name__
)
def test_what_is_surely_async_is_called_as_it_is(function: Any) -> None:
    assert async_function("handler", function) is function


async def generator(number: int) -> Any:
    yield number


@pytest.mark.parametrize(
    "function", [bad, Bad(), Bad().method, partial(bad), partial(Bad()), generator]
)
def test_plain_function_in_the_place_of_an_async_one_is_refused_at_once(function: Any) -> None:
    with pytest.raises(ConfigError, match="handler must be async def"):
        async_function("handler", function)


@pytest.mark.parametrize("function", [lambda number: number, decorated(bad), int])  # type: ignore[arg-type]
async def test_function_that_is_not_known_to_be_async_is_refused_by_its_first_call(
    function: Any,
) -> None:
    taken = async_function("handler", function)
    with pytest.raises(NotAwaitableError, match=r"handler must be async def.* returned "):
        await taken(1)


def test_coroutine_instead_of_a_function_is_refused_and_never_warned_of() -> None:
    with pytest.raises(ConfigError, match="without calling it"):
        async_function("handler", good(1))  # type: ignore[arg-type]


@pytest.mark.parametrize("nothing", [None, "good", 3])
def test_what_is_no_function_is_refused(nothing: Any) -> None:
    with pytest.raises(ConfigError, match=r"handler=.* is not a function"):
        async_function("handler", nothing)
    with pytest.raises(ConfigError, match=r"deserializer=.* is not a function"):
        plain_function("deserializer", nothing)


@pytest.mark.parametrize("function", [good, partial(two, 1), Good(), generator])
def test_async_function_in_the_place_of_a_plain_one_is_refused(function: Any) -> None:
    with pytest.raises(ConfigError, match="deserializer must be a plain def"):
        plain_function("deserializer", function)


@pytest.mark.parametrize("function", [bad, Bad(), partial(bad), int, lambda number: number])
def test_plain_functions_are_taken_as_such(function: Any) -> None:
    plain_function("deserializer", function)


async def test_error_inside_an_async_function_is_its_own(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async def fails(number: int) -> None:
        await trio.sleep(1)
        raise TypeError("object NoneType can't be used in 'await' expression")

    with pytest.raises(TypeError):
        await async_function("handler", lambda number: fails(number))(1)  # type: ignore[arg-type]


async def no_argument() -> None: ...


async def two_arguments(message: object, more: object) -> None: ...


async def by_name(*, message: object) -> None: ...


@pytest.mark.parametrize("function", [no_argument, two_arguments, by_name, lambda: None])
def test_function_that_cannot_be_called_with_one_argument_is_refused_at_once(
    function: Any,
) -> None:
    with pytest.raises(ConfigError, match="handler is called with one argument"):
        async_function("handler", function)


async def test_function_with_further_arguments_that_have_defaults_is_taken() -> None:
    async def handler(number: int, *more: int, scale: int = 2) -> int:
        return number * scale + len(more)

    assert await async_function("handler", handler)(3) == 6
