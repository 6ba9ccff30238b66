"""The demo's brokers as real processes, so that "kill" means kill -9.

Invariant: when `open_processes` is left, however that happens, none of its processes is alive.
"""

import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from subprocess import PIPE

import attrs
import trio

START_LIMIT = 20.0
"""Seconds a process may take until its ready line."""
STOP_LIMIT = 10.0
"""Seconds a process may take to end on SIGTERM before it is killed."""


class ProcessFailedError(Exception):
    """A process ended, or said nothing, before it was ready."""


@attrs.define
class Server:
    """One running name server or broker."""

    name: str
    process: trio.Process
    ready: Mapping[str, str]
    """The fields of its ready line: role, name, address, ha_address."""

    @property
    def address(self) -> str:
        """Where it serves."""
        return self.ready["address"]

    async def kill(self) -> None:
        """Kill -9, as a power cut of the process."""
        self.process.send_signal(signal.SIGKILL)
        await self.process.wait()

    def pause(self) -> None:
        """Let it do nothing, as a machine that hangs."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)

    async def stop(self) -> int:
        """Ask it to end, and its exit code; killed if it takes too long. Safe while being cancelled."""
        if self.process.poll() is None:
            self.process.terminate()
            with trio.move_on_after(STOP_LIMIT):
                return await self.process.wait()
            self.process.kill()
        return await self.process.wait()


@attrs.define
class Processes:
    """Starts servers and knows those alive."""

    folder: Path
    nursery: trio.Nursery
    servers: dict[str, Server] = attrs.Factory(dict)

    async def start(self, name: str, *arguments: str) -> Server:
        """Run `rocketrio-broker` with these arguments until its ready line. Raises ProcessFailedError."""
        command = [str(Path(sys.executable).with_name("rocketrio-broker")), *arguments]
        log_path = self.folder / f"{name}.log"
        with log_path.open("ab") as log:
            process = await self.nursery.start(
                partial(
                    trio.run_process,
                    command,
                    stdout=PIPE,
                    stderr=log,
                    start_new_session=True,  # Ctrl-C is for the demo, which then stops them in order.
                    check=False,
                    deliver_cancel=_stop_then_kill,
                    capture_stdout=False,
                )
            )
        self.servers[name] = Server(name, process, {})
        line = b""
        with trio.move_on_after(START_LIMIT):
            while not line.endswith(b"\n") and (chunk := await process.stdout.receive_some()):
                line += chunk
        if not line.startswith(b"ready "):
            raise ProcessFailedError(f"{name} did not start: {_last_words(log_path)}")
        fields = dict(field.split("=", 1) for field in line.decode().split()[1:])
        self.servers[name].ready = fields
        return self.servers[name]


@asynccontextmanager
async def open_processes(folder: Path) -> AsyncIterator[Processes]:
    """Processes with their logs under `folder`; all are stopped on the way out."""
    async with trio.open_nursery() as nursery:
        processes = Processes(folder, nursery)
        try:
            yield processes
            async with trio.open_nursery() as stopping:
                for server in processes.servers.values():
                    stopping.start_soon(server.stop)
        finally:
            nursery.cancel_scope.cancel()


async def _stop_then_kill(process: trio.Process) -> None:
    process.terminate()
    with trio.CancelScope(shield=True), trio.move_on_after(STOP_LIMIT):
        await process.wait()
        return
    process.kill()


def _last_words(log_path: Path) -> str:
    lines = log_path.read_text(errors="replace").strip().splitlines()
    return " | ".join(lines[-3:]) or "it said nothing"
