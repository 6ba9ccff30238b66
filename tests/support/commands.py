"""The command `rocketrio` as scripts run it: arguments in, exit code and texts out."""

import json
import os
import sys
from collections.abc import Awaitable, Callable
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


def in_shell(cluster: EmbeddedCluster, **env: str) -> Callable[[str], Awaitable[Done]]:
    """Run lines of bash against this cluster."""

    async def shell(line: str) -> Done:
        done = await trio.run_process(
            ["bash", "-c", line],
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            env={**os.environ, "NAMESRV_ADDR": cluster.name_servers[0], **env},
        )
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    return shell
