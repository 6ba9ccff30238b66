"""Leaves the further cases of one kind to `make test-long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def every_other(cases: Iterable[Any]) -> list[Any]:
    """Return all cases, each second one with the mark `long`."""
    return [_further(case) if number % 2 else case for number, case in enumerate(cases)]


def first_of(count: int, cases: Iterable[Any]) -> list[Any]:
    """Return all cases, those after the first few with the mark `long`."""
    return [_further(case) if number >= count else case for number, case in enumerate(cases)]


def _further(case: Any) -> Any:
    return pytest.param(case, marks=pytest.mark.long)
