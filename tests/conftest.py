"""What holds for all tests."""

import gc
import signal
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def programs_hear_ctrl_c() -> Iterator[None]:
    """A shell that starts the tests in the background has them ignore SIGINT, and so would every program of theirs."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def no_garbage_collection() -> Iterator[None]:
    """What a collection costs depends on all that other tests have left behind: CPU time is measured without."""
    gc.disable()
    yield
    gc.enable()
