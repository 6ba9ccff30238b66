"""Fixtures of all broker tests, and Hypothesis without a deadline: a busy machine is no failure of the code."""

import os
from collections.abc import Iterator

import pytest
import trustme
from hypothesis import settings

settings.register_profile("rocketrio", deadline=None)
settings.load_profile("rocketrio")


@pytest.fixture
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)
