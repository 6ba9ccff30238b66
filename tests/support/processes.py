"""Child processes of tests: started in a group of their own, and never left behind.

Invariant: a child dies with the process that started it, however that one ends (PR_SET_PDEATHSIG).
Invariant: what a child prints goes to its log file, so that a full pipe never stops it.
"""

import ctypes
import fcntl
import os
import random
import select
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Final

import attrs

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)

START_TIMEOUT = 90.0
"""Seconds; a broker needs 5 to 10 alone on two cores, and several may be starting at once."""
STOP_TIMEOUT = 40.0
"""Seconds; an Apache broker takes up to 10 to stop."""
_LOG_TAIL = 4000
_KEPT: Final[set[int]] = set()
"""The ports that this process has been given."""


class NotStartedError(Exception):
    """A child process ended or stayed silent while it was being waited for."""


def die_with_parent() -> None:
    """Runs in the child: the kernel kills it when the starting thread ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


@attrs.define
class Process:
    """One running program with its log file."""

    name: str
    log: Path
    _popen: "subprocess.Popen[bytes]"
    _log_begin: int = 0
    """Where in its log file this run begins."""

    @classmethod
    def start(
        cls,
        name: str,
        argv: Sequence[str | Path],
        *,
        log: Path,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
    ) -> "Process":
        """Start `argv` with its output appended to `log`."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            log_begin = output.tell()
            popen = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return cls(name, log, popen, log_begin)

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def returncode(self) -> int | None:
        """Its exit code once it has ended, negative for a signal."""
        return self._popen.poll()

    @property
    def is_running(self) -> bool:
        return self._popen.poll() is None

    def tail(self) -> str:
        """The end of what it printed."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:]

    def has_said(self, text: str) -> bool:
        """Whether it printed this since it was started."""
        return text.encode() in self.log.read_bytes()[self._log_begin :]

    def wait_until(
        self, claim: Callable[[], bool], what: str, timeout: float = START_TIMEOUT
    ) -> None:
        """Return once `claim()` holds; `NotStartedError` when the process ends or time runs out."""
        deadline = time.monotonic() + timeout
        while not claim():
            if not self.is_running:
                code = self._popen.returncode
                raise NotStartedError(
                    f"{self.name} ended with {code} before {what}:\n{self.tail()}"
                )
            if time.monotonic() > deadline:
                raise NotStartedError(
                    f"{self.name}: not {what} within {timeout:.0f} s:\n{self.tail()}"
                )
            time.sleep(0.1)

    def ended(self, timeout: float) -> int:
        """Wait until it ends by itself, kill what is left of the group; return the exit code."""
        try:
            return self._popen.wait(timeout)
        finally:
            self.kill()

    def stop(self, timeout: float = STOP_TIMEOUT) -> int:
        """SIGTERM, wait, and kill what is left of the group; returns the exit code."""
        if self.is_running:
            self._popen.terminate()
            try:
                self._popen.wait(timeout)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        self._kill_group()
        return self._popen.returncode

    def kill(self) -> None:
        """SIGKILL for the whole group, and wait."""
        self._kill_group()
        self._popen.wait()

    def _kill_group(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)


@attrs.define
class LineProcess:
    """One running program that answers each line with a line; what else it says goes to its log."""

    log: Path
    _popen: "subprocess.Popen[str]"

    @classmethod
    def start(cls, argv: Sequence[str | Path], *, log: Path) -> "LineProcess":
        """Start `argv` in the folder of the log, which is made if need be."""
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            popen = subprocess.Popen(
                [str(word) for word in argv],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                bufsize=1,
                cwd=log.parent,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        return cls(log, popen)

    @property
    def pid(self) -> int:
        return self._popen.pid

    def ask(self, line: str, timeout: float | None = None) -> str:
        """The answer; empty when it ended, or said nothing within `timeout` seconds."""
        stdin, stdout = self._popen.stdin, self._popen.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(line + "\n")
        stdin.flush()
        # One line an answer, so a readable pipe holds the whole of it or soon will.
        ready, _, _ = select.select([stdout], [], [], timeout)
        return stdout.readline() if ready else ""

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:]

    def kill(self) -> None:
        """SIGKILL, and wait."""
        self._popen.kill()
        self._popen.wait()
        for stream in (self._popen.stdin, self._popen.stdout):
            if stream is not None:
                stream.close()


def free_port(*neighbours: int) -> int:
    """A port of 127.0.0.1 that is free, and whose `neighbours` (distances) are free too.

    Taken below the range the kernel gives out for port 0, so that no other program steps in. Nor does another test,
    though nothing listens there yet, or while a server is down: this process keeps them until it ends.
    """
    for _ in range(1000):
        port = random.randrange(20_000, 32_000)
        wanted = {port + distance for distance in (0, *neighbours)}
        if wanted & _KEPT:
            continue
        with ExitStack() as stack:
            try:
                for each in wanted:
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
                    fcntl.lockf(_ports_file(), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, each)
            except OSError:
                continue
            _KEPT.update(wanted)
            return port
    raise RuntimeError("no free port between 20000 and 32000")


@cache
def _ports_file() -> int:
    """Open the file in which a process locks the byte of each port that it keeps."""
    path = Path(tempfile.gettempdir(), f"rocketrio-ports-{os.getuid()}")
    return os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
