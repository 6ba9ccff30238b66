"""A program can name every type that the methods of `rocketrio.admin` take; `Admin` is the sum of its subjects."""

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
def test_types_that_public_methods_take_are_exported(public: type) -> None:
    missing = {
        found.__qualname__
        for name, method in inspect.getmembers(public, inspect.isfunction)
        if not name.startswith("_")
        for argument, hint in get_type_hints(method).items()
        if argument != "return"
        for found in _types(hint)
        if found.__module__.startswith("rocketrio.admin.")
        and found.__qualname__ not in rocketrio.admin.__all__
    }
    assert missing == set()


def test_only_the_base_of_the_subjects_has_fields() -> None:
    """A second base with slots of its own could not be summed, and a class without `__slots__` gives a dictionary."""
    *subjects, base, _, _ = Admin.__mro__
    assert [one.__name__ for one in subjects if one.__dict__.get("__slots__") != ()] == []
    assert {"client", "calls"} <= set(base.__slots__)


def test_no_subject_hides_a_name_of_another() -> None:
    owners: dict[str, list[str]] = {}
    for subject in Admin.__mro__[:-2]:
        for name, found in vars(subject).items():
            if inspect.isfunction(found) and not name.startswith("__"):
                owners.setdefault(name, []).append(subject.__name__)
    assert {name: of for name, of in owners.items() if len(of) > 1} == {}
