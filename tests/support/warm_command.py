"""Runs the command `rocketrio` in processes that are forked from one which has imported everything.

Half a second of CPU is what a new interpreter needs to import the command, and the tests run it hundreds of times. The
forked process has the arguments, variables, folder and pipes of its own that any other would have. Tests of the start
itself, of signals, pipes of a shell and terminals start the installed program instead.

    test process          `run` sends arguments and four descriptors over a socket
    warm process          forks a watcher for each request (`python -m tests.support.warm_command`)
    watcher               forks the command, kills it if the test process has gone away, and reports its exit code
"""

import atexit
import functools
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import trio
from tests.support.processes import die_with_parent

_REQUEST_SIZE: Final = 128 << 10
"""Bytes of arguments and variables; a datagram of a socket pair takes somewhat more."""
_ROOT: Final = Path(__file__).parents[2]
_IMPORTED_BY_WORK: Final = (
    *("rocketrio.admin", "rocketrio.bench.runs"),
    *("rocketrio.cli.tables", "rocketrio.producing.produce", "rich.live", "rich.progress"),
)
"""What commands import when they run, and not for their help texts."""


@functools.cache
def _warm() -> socket.socket:
    """Start the warm process, once for each test process, with which it ends; return the socket to it."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        warm = subprocess.Popen(
            [sys.executable, "-m", "tests.support.warm_command"],
            stdin=there,
            cwd=_ROOT,
            preexec_fn=die_with_parent,
        )

    def end() -> None:
        here.close()
        warm.wait()

    atexit.register(end)
    return here


async def run(
    *arguments: str, stdin: bytes = b"", env: Mapping[str, str]
) -> "subprocess.CompletedProcess[bytes]":
    """Run the command to its end; a cancel kills it."""
    pipes = [os.pipe() for _ in range(3)]
    report, theirs = socket.socketpair()
    request = {"arguments": arguments, "env": dict(env), "folder": os.getcwd()}
    (into, fed), (out, printed), (err, complained) = pipes
    try:
        socket.send_fds(
            _warm(), [json.dumps(request).encode()], [into, printed, complained, theirs.fileno()]
        )
    finally:
        for fd in (into, printed, complained):
            os.close(fd)
        theirs.close()
    outputs: dict[int, bytes] = {}

    async def feed() -> None:
        async with trio.lowlevel.FdStream(fed) as stream:
            try:
                await stream.send_all(stdin)
            except trio.BrokenResourceError:  # It reads no more.
                return

    async def read(fd: int) -> None:
        async with trio.lowlevel.FdStream(fd) as stream:
            outputs[fd] = b"".join([piece async for piece in stream])

    with trio.socket.from_stdlib_socket(report) as ended:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed)
            nursery.start_soon(read, out)
            nursery.start_soon(read, err)
            code = int(await ended.recv(16))
    return subprocess.CompletedProcess(arguments, code, outputs[out], outputs[err])


# ------------------------------------------------------------------------------------ warm process


def _serve() -> dict[str, Any] | None:
    """Fork for each request until the test process ends; return in the forked process, with its request."""
    requests = socket.socket(fileno=0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # Watchers are not waited for.
    while True:
        request, fds, _, _ = socket.recv_fds(requests, _REQUEST_SIZE, 4)
        if not request:
            return None
        if os.fork() == 0:
            die_with_parent()
            requests.detach()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if _is_command(*fds):
                return dict(json.loads(request))
            os._exit(0)
        for fd in fds:
            os.close(fd)


def _is_command(into: int, printed: int, complained: int, report: int) -> bool:
    """Fork the command, and return True in it; in the watcher return False when it has ended."""
    pid = os.fork()
    if pid == 0:
        die_with_parent()
        for number, fd in enumerate((into, printed, complained)):
            os.dup2(fd, number)
            os.close(fd)
        os.close(report)
        return True
    for fd in (0, into, printed, complained):
        os.close(fd)
    with socket.socket(fileno=report) as reports:
        readable, _, _ = select.select([os.pidfd_open(pid), reports], [], [])
        if reports in readable:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if reports not in readable:
            reports.sendall(b"%d" % os.waitstatus_to_exitcode(status))
    return False


def _main() -> None:
    import click

    from rocketrio.cli import main

    context = click.Context(main)
    for name in main.list_commands(context):
        main.get_command(context, name)
    for module in _IMPORTED_BY_WORK:
        import_module(module)
    gc.freeze()
    request = _serve()
    if request is None:
        return
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    sys.argv = ["rocketrio", *request["arguments"]]
    sys.stdout.reconfigure(line_buffering=False)  # type: ignore[union-attr]  # As into any pipe.
    try:
        main(prog_name="rocketrio")
    except SystemExit as end:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(
            int(end.code or 0)
        )  # Without taking down all that was imported, which takes longest.


if __name__ == "__main__":
    _main()
