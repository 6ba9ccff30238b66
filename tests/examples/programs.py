"""Running examples as a user would: to their end, or until Ctrl-C."""

import os
import signal
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import attrs
import trio
from tests.support.commands import bash
from tests.support.processes import Process
from tests.support.waiting import eventually

from rocketrio_broker.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
TIME_LIMIT = 240.0
"""Seconds for what a program has to say, or for its end; on a quiet machine both come within one or two."""


def environment(cluster: EmbeddedCluster) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": ";".join(cluster.name_servers), "PYTHONUNBUFFERED": "1"}


async def run(cluster: EmbeddedCluster, name: str, *arguments: str, check: bool = True) -> str:
    """What it prints until it ends by itself."""
    async with started(cluster, name, *arguments) as program:
        await program.ended()
    assert program.returncode == 0 or not check, program.said
    return program.said


async def run_until(cluster: EmbeddedCluster, said: str, name: str, *arguments: str) -> str:
    """Ctrl-C once it has printed `said`; what it prints until it has ended well."""
    async with started(cluster, name, *arguments) as program:
        await program.has_said(said)
    assert program.returncode == 0, program.said
    return program.said


async def shell(cluster: EmbeddedCluster, line: str, *, limit: float) -> str:
    """A line of a shell in which `python` and `rocketrio` are ours; what it prints."""
    variables = environment(cluster)
    variables.pop("PYSPARK_PYTHON", None)
    variables["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{variables['PATH']}"
    with trio.fail_after(limit):
        done = await bash(f"cd {EXAMPLES.parent}; set -o pipefail; {line}", variables)
    assert done.code == 0, done.err[-3000:]
    return done.out


@attrs.define
class Program:
    """A running example."""

    process: Process
    said: str = ""
    """What it had printed when it was last listened to."""

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    def has_ended(self) -> bool:
        """Listen to what it has printed so far; return whether that is all."""
        is_running = self.process.is_running
        self.said = self.process.log.read_text()
        return not is_running

    async def has_said(self, words: str) -> None:
        """Wait until it has printed these words; fails if it ends without."""
        await eventually(lambda: self.has_ended() or words in self.said, TIME_LIMIT)
        assert words in self.said, self.said

    async def ended(self) -> None:
        """Wait for its end."""
        await eventually(self.has_ended, TIME_LIMIT)


@asynccontextmanager
async def started(cluster: EmbeddedCluster, name: str, *arguments: str) -> AsyncGenerator[Program]:
    """Run an example as long as the block, then give it a Ctrl-C unless it has ended."""
    argv = [sys.executable, EXAMPLES / name, *arguments]
    with TemporaryDirectory() as folder:
        process = Process.start(name, argv, log=Path(folder, "log"), env=environment(cluster))
        program = Program(process)
        try:
            yield program
            if process.is_running:
                os.kill(process.pid, signal.SIGINT)
            await program.ended()
        finally:
            process.kill()
