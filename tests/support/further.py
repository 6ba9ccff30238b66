"""Leaves the further cases of one kind to `make test-long`."""

from collections.abc import Iterable
from typing import Any

import pytest


def every_other(cases: Iterable[Any]) -> list[Any]:
    """Return all cases, each second one with the mark `long`."""
    return [
        pytest.param(case, marks=pytest.mark.long) if number % 2 else case
        for number, case in enumerate(cases)
    ]
