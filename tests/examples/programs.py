"""Running examples as a user would: to their end, or until Ctrl-C."""

import os
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import trio

from rocketrio_broker.embedded import EmbeddedCluster

EXAMPLES = Path(__file__).parents[2] / "examples"
TIME_LIMIT = 60.0


def environment(cluster: EmbeddedCluster) -> dict[str, str]:
    return {**os.environ, "NAMESRV_ADDR": ";".join(cluster.name_servers), "PYTHONUNBUFFERED": "1"}


async def run(cluster: EmbeddedCluster, name: str, *arguments: str) -> str:
    """What it prints until it ends by itself."""
    with trio.fail_after(TIME_LIMIT):
        done = await trio.run_process(
            [sys.executable, str(EXAMPLES / name), *arguments],
            capture_stdout=True,
            env=environment(cluster),
        )
    return done.stdout.decode()


async def run_until(cluster: EmbeddedCluster, said: str, name: str, *arguments: str) -> str:
    """Ctrl-C once it has printed `said`; what it prints until it has ended well."""
    output = b""
    with trio.fail_after(TIME_LIMIT):
        async with trio.open_nursery() as nursery:
            process = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, str(EXAMPLES / name), *arguments],
                    stdout=subprocess.PIPE,
                    env=environment(cluster),
                )
            )
            async for chunk in process.stdout:
                seen, output = said.encode() in output, output + chunk
                if said.encode() in output and not seen:
                    process.send_signal(signal.SIGINT)
    return output.decode()
