"""A program can name every type that the methods of `rocketrio.admin` take and return."""

import inspect
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import pytest

import rocketrio.admin
from rocketrio.admin import AccessAdmin, Admin, DeadLetters, EventFeed, LagWindow


def _types(hint: Any) -> Iterator[type]:
    if isinstance(hint, type):
        yield hint
    for part in get_args(hint):
        yield from _types(part)


@pytest.mark.parametrize("public", [Admin, AccessAdmin, DeadLetters, EventFeed, LagWindow])
def test_types_of_public_methods_are_exported(public: type) -> None:
    missing = {
        found.__qualname__
        for name, method in inspect.getmembers(public, inspect.isfunction)
        if not name.startswith("_")
        for hint in get_type_hints(method).values()
        for found in _types(hint)
        if found.__module__.startswith("rocketrio.admin.")
        and found.__qualname__ not in rocketrio.admin.__all__
    }
    assert missing == set()
