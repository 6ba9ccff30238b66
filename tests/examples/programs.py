"""Running examples as a user would: to their end, or until Ctrl-C."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

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
        done = await trio.run_process(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=EXAMPLES.parent,
            env=variables,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    return done.stdout.decode()


class Program:
    """A running example, and what it has said so far."""

    def __init__(self, process: trio.Process) -> None:
        self.process = process
        self.said = ""
        self.has_ended = False
        self._news = trio.Event()

    @property
    def returncode(self) -> int | None:
        return self.process.returncode

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for chunk in self.process.stdout:
            self.said += chunk.decode()
            self._hear()
        self.has_ended = True
        self._hear()

    def _hear(self) -> None:
        self._news.set()
        self._news = trio.Event()

    async def has_said(self, words: str) -> None:
        with trio.move_on_after(TIME_LIMIT):
            while words not in self.said and not self.has_ended:
                await self._news.wait()
        assert words in self.said, self.said

    async def ended(self) -> None:
        with trio.move_on_after(TIME_LIMIT):
            while not self.has_ended:
                await self._news.wait()
        assert self.has_ended, self.said


@asynccontextmanager
async def started(cluster: EmbeddedCluster, name: str, *arguments: str) -> AsyncGenerator[Program]:
    """Runs as long as the block does, then gets a Ctrl-C unless it has ended."""
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(
                trio.run_process,
                [sys.executable, str(EXAMPLES / name), *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=environment(cluster),
                check=False,
            )
        )
        program = Program(process)
        nursery.start_soon(program.listen)
        yield program
        if not program.has_ended:
            process.send_signal(signal.SIGINT)
        await program.ended()
