"""The command `rocketrio` as scripts run it: arguments in, exit code and texts out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio
from tests.support import warm_command

from rocketrio_broker.embedded import EmbeddedCluster

ROCKETRIO = str(Path(sys.executable).parent / "rocketrio")
LIMIT = 600.0
"""Seconds for a story of commands, which takes some 20: each is a process of its own, and the machine may be busy."""


@attrs.frozen
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> list[Any]:
        return [json.loads(line) for line in self.out.splitlines()]


async def rocketrio(*arguments: str, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
    done = await warm_command.run(*arguments, stdin=stdin, env={**os.environ, **(env or {})})
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())


Run = Callable[..., Awaitable[Done]]


def in_cluster(cluster: EmbeddedCluster) -> Run:
    async def run(*arguments: str, stdin: bytes = b"") -> Done:
        env = {"NAMESRV_ADDR": ";".join(cluster.name_servers)}
        return await rocketrio(*arguments, stdin=stdin, env=env)

    return run


@asynccontextmanager
async def commands(**settings: Any) -> AsyncIterator[tuple[EmbeddedCluster, Run]]:
    """Open a cluster on real ports, and a function that runs commands in it; all of it ends within `LIMIT`."""
    with trio.fail_after(LIMIT):
        async with EmbeddedCluster(network="loopback", **settings) as cluster:
            yield cluster, in_cluster(cluster)


async def begin(cluster: EmbeddedCluster, *arguments: str) -> Any:
    """Start a command that a test interrupts; its input and both outputs are pipes."""
    return await trio.lowlevel.open_process(
        [ROCKETRIO, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "NAMESRV_ADDR": cluster.name_servers[0]},
    )


async def printed(process: Any, lines: int) -> bytes:
    """Return what a process has printed as soon as it has this number of lines."""
    found = b""
    while found.count(b"\n") < lines:
        found += await process.stdout.receive_some()
    return found


async def interrupted(process: Any) -> tuple[int, bytes]:
    """Press Ctrl-C; return the exit code, and what was printed and not read yet."""
    process.send_signal(signal.SIGINT)
    rest = b"".join([chunk async for chunk in process.stdout])
    return await process.wait(), rest


def in_shell(cluster: EmbeddedCluster, **env: str) -> Callable[[str], Awaitable[Done]]:
    """Run lines of bash against this cluster."""

    return partial(bash, env={**os.environ, "NAMESRV_ADDR": cluster.name_servers[0], **env})


async def bash(line: str, env: dict[str, str]) -> Done:
    """Run a line of bash with these variables."""
    done = await trio.run_process(
        ["bash", "-c", line], capture_stdout=True, capture_stderr=True, check=False, env=env
    )
    return Done(done.returncode, done.stdout.decode(), done.stderr.decode())
