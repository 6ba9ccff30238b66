"""Programs that attack as processes of their own, and what the attacked ones spend meanwhile."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.processes import Process

ROOT: Final = Path(__file__).parents[2]
BEGUN: Final = "the attack has begun"
"""What each program prints when it attacks."""


@contextmanager
def attacking(program: str, name: str, *words: object, log: Path) -> Iterator[None]:
    """Run an attack of a program of this folder from the beginning of the block to its end."""
    argv = [sys.executable, "-m", f"tests.hostile.{program}", name, *map(str, words)]
    attacker = Process.start(name, argv, log=log, cwd=ROOT)
    try:
        attacker.wait_until(lambda: attacker.has_said(BEGUN), "attacking")
        yield
        assert attacker.is_running, attacker.tail()
    finally:
        attacker.kill()


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    return time.clock_gettime(
        ~pid << 3 | 2
    )  # Its clock's number, as `clock_getcpuclockid` makes it.


def resident(pid: int) -> int:
    """Return how many bytes of a process are in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
