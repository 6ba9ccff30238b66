"""Fixtures of all broker tests."""

import os
from collections.abc import Iterator

import pytest
import trustme


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)
