"""Leaves the further cases of one kind to `make test-long`.

A case is a value, or a `pytest.param` of several.
"""

from collections.abc import Iterable
from typing import Any

import pytest

_ParameterSet = type(pytest.param())


def every_other(cases: Iterable[Any]) -> list[Any]:
    """Return all cases, each second one with the mark `long`."""
    return one_in(2, cases)


def one_in(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases; of each `count` in a row all but the first have the mark `long`."""
    return [_further(case) if number % count else case for number, case in enumerate(cases)]


def first_of(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases, those after the first few with the mark `long`."""
    return [_further(case) if number >= count else case for number, case in enumerate(cases)]


def _further(case: Any) -> Any:
    if not isinstance(case, _ParameterSet):
        return pytest.param(case, marks=pytest.mark.long)
    return pytest.param(*case.values, marks=[*case.marks, pytest.mark.long], id=case.id)
