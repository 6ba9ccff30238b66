"""Rocketrio's processes for the benchmarks: a name server, a broker or a whole cluster, and where they serve.

Invariant: none outlives its block, nor the benchmark, however that ends.
"""

import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import attrs

sys.path.insert(0, str(Path(__file__).parent.parent))  # for tests.interop

from tests.support.processes import die_with_parent

BROKER: Final = ("-m", "rocketrio_broker.cli")
"""How this interpreter becomes `rocketrio-broker`."""
START_TIMEOUT: Final = 120.0
"""Seconds until it serves; a broker with a large log to look at takes the longest."""
STOP_TIMEOUT: Final = 180.0
"""Seconds a process may take to end; a broker with 80,000 new queue files takes the longest."""


@attrs.frozen
class Cluster:
    """Where a cluster serves."""

    name_server: str
    master: str
    pid: int
    """Of the process that runs all of it."""


def child(*arguments: str) -> "subprocess.Popen[str]":
    """This interpreter with these arguments, and its output to read; it dies with the benchmark."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        text=True,
        preexec_fn=die_with_parent,
    )


@contextmanager
def started(
    *arguments: str,
    ended_by: signal.Signals = signal.SIGTERM,
    program: tuple[str, ...] = BROKER,
) -> Iterator[tuple["subprocess.Popen[str]", dict[str, str]]]:
    """`rocketrio-broker` with these arguments, and the `name=value` words of its first line; it ends with the block."""
    with _running(arguments, 1, ended_by, program) as (process, lines):
        yield process, lines[0]


@contextmanager
def cluster(settings: tuple[str, ...] = (), *, slaves: int = 0) -> Iterator[Cluster]:
    """A name server, a master and slaves in one process that ends with the block, and their data with it."""
    given = (word for setting in settings for word in ("--set", setting))
    with tempfile.TemporaryDirectory() as folder:
        listen = ("--listen", "127.0.0.1:0", "--data", folder)
        command = ("cluster", *listen, "--slaves", str(slaves), *given)
        with _running(command, 2 + slaves, signal.SIGTERM) as (process, lines):
            found = {words["role"]: words["address"] for words in lines}
            yield Cluster(found["namesrv"], found["master"], process.pid)


@contextmanager
def _running(
    arguments: tuple[str, ...],
    members: int,
    ended_by: signal.Signals,
    program: tuple[str, ...] = BROKER,
) -> Iterator[tuple["subprocess.Popen[str]", list[dict[str, str]]]]:
    """The process, and the words of the line that each of its members prints when it serves."""
    process = child(*program, *arguments, "--log-level", "error")
    try:
        yield process, _ready_lines(process, members)
    finally:
        process.send_signal(ended_by)
        try:
            process.wait(STOP_TIMEOUT)
        finally:
            process.kill()
            process.communicate()


def _ready_lines(process: "subprocess.Popen[str]", members: int) -> list[dict[str, str]]:
    """What the members said. Ends the benchmark if one of them does not within START_TIMEOUT."""
    assert process.stdout is not None
    too_late = threading.Timer(START_TIMEOUT, process.kill)
    too_late.start()
    try:
        said = [process.stdout.readline() for _ in range(members)]
    finally:
        too_late.cancel()
    lines = [dict(word.partition("=")[::2] for word in line.split()) for line in said]
    if not all("address" in words for words in lines):
        raise SystemExit(f"it did not start: {process.args!r}")
    return lines
