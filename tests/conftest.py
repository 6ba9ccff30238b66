"""What holds for all tests."""

import gc
import signal
from collections.abc import Generator, Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from examples.demo.java import java_problem
from hypothesis import settings

# Before any test file makes settings of its own from it. A busy machine is no failure of the code, and each run tries
# other examples: there are hundreds of such tests, and a few runs have what one of a hundred examples would.
settings.register_profile("rocketrio", deadline=None, max_examples=40)
settings.load_profile("rocketrio")

SELDOM: Final = 50
"""After how many collections of younger garbage all is looked at. With Python's 10 that has a fifteenth of the tests'
time, with a thousand one process grew to 4.6 GB. Looking at the younger more seldom saves nothing: what is new then
leaves the processor's caches."""
SPELLED_OUT: Final = ("slow", "real", "spark", "interop")
"""Marks that stand in the file itself, where a test has them."""

_java_problem = cache(java_problem)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Without Java, skip what starts Spark before any fixture does; from here, so that the summary has one line."""
    if item.get_closest_marker("spark") and (problem := _java_problem()):
        pytest.skip(problem)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files without a mark that `-m` begins with: each process would import all six hundred of them."""
    mark = config.option.markexpr.partition(" ")[0]
    if mark in SPELLED_OUT and collection_path.suffix == ".py":
        return f"mark.{mark}" not in collection_path.read_text() or None
    return None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what pytest collects: it took a sixth of that time, and later a quarter."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(*gc.get_threshold()[:2], SELDOM)
        gc.enable()


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
