"""A TCP proxy that writes down every remoting frame between Apache peers, in the form of tests/golden.

It runs a trio loop in a thread of its own, because the processes around it belong to the main thread
(the kernel ends a child with the *thread* that started it).

A broker advertises the port it listens on, so a proxy in front of it must change what it says to the
name server: `renamed` addresses are exchanged for others of the same length in requests to name servers,
and what is recorded is what the name server saw.
"""

import json
import lzma
import struct
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import attrs
import trio

_READ_SIZE = 65536
_MAX_FRAME = 16 * 1024 * 1024


@attrs.frozen
class Listener:
    """Where the proxy listens for one server, and where that server really is."""

    server: str
    port: int
    real_port: int


@attrs.define
class Recorder:
    """The frames so far; `recording` makes and runs one."""

    renamed: Mapping[bytes, bytes]
    lines: list[dict[str, object]] = attrs.field(factory=list)
    _connections: int = 0

    def next_connection(self) -> int:
        self._connections += 1
        return self._connections

    def frame(
        self, listener: Listener, connection: int, *, from_dialer: bool, data: bytes
    ) -> bytes:
        """Note one frame; returns what to pass on."""
        if listener.server == "namesrv" and from_dialer:
            for real, shown in self.renamed.items():
                data = data.replace(real, shown)
        self.lines.append(
            {
                "t": time.time_ns() // 1_000_000,
                "conn": connection,
                "to": listener.server,
                "port": listener.port,
                "dir": ">" if from_dialer else "<",
                "hex": data.hex(),
            }
        )
        return data

    def write(self, path: Path, neutral: Mapping[bytes, bytes]) -> None:
        """Write the frames, with what names a machine overwritten by text of the same length."""
        path.parent.mkdir(parents=True, exist_ok=True)
        with lzma.open(path, "wt", preset=9) as output:
            for line in self.lines:
                data = bytes.fromhex(str(line["hex"]))
                for found, shown in neutral.items():
                    assert len(found) == len(shown)
                    data = data.replace(found, shown)
                output.write(json.dumps({**line, "hex": data.hex()}, separators=(",", ":")) + "\n")


@contextmanager
def recording(listeners: list[Listener], renamed: Mapping[bytes, bytes]) -> Iterator[Recorder]:
    """Proxy every listener until the block ends."""
    recorder = Recorder(renamed)
    started = threading.Event()
    scope = trio.CancelScope()
    token: list[trio.lowlevel.TrioToken] = []

    async def main() -> None:
        with scope:
            async with trio.open_nursery() as nursery:
                for listener in listeners:
                    await nursery.start(_serve, recorder, listener)
                token.append(trio.lowlevel.current_trio_token())
                started.set()

    thread = threading.Thread(target=trio.run, args=(main,), name="recorder")
    thread.start()
    try:
        assert started.wait(10), "the proxy did not start"
        yield recorder
    finally:
        if token:
            token[0].run_sync_soon(scope.cancel)
        thread.join(10)


async def _serve(
    recorder: Recorder,
    listener: Listener,
    *,
    task_status: trio.TaskStatus[list[trio.SocketListener]],
) -> None:
    async def handle(dialer: trio.SocketStream) -> None:
        connection = recorder.next_connection()
        try:
            server = await trio.open_tcp_stream("127.0.0.1", listener.real_port)
        except OSError:
            return  # The server is gone: hang up, as it would.
        async with server, trio.open_nursery() as nursery:
            for source, sink, from_dialer in ((dialer, server, True), (server, dialer, False)):
                nursery.start_soon(
                    _relay, recorder, listener, connection, source, sink, from_dialer, nursery
                )

    await trio.serve_tcp(handle, listener.port, host="127.0.0.1", task_status=task_status)


async def _relay(
    recorder: Recorder,
    listener: Listener,
    connection: int,
    source: trio.SocketStream,
    sink: trio.SocketStream,
    from_dialer: bool,
    nursery: trio.Nursery,
) -> None:
    """Pass whole frames from `source` to `sink`; either side's end ends the connection."""
    buffered = bytearray()
    try:
        while chunk := await source.receive_some(_READ_SIZE):
            buffered += chunk
            while len(buffered) >= 4:
                size = 4 + struct.unpack_from(">i", buffered)[0]
                assert 8 <= size <= _MAX_FRAME, "not a remoting frame"
                if len(buffered) < size:
                    break
                data = bytes(buffered[:size])
                del buffered[:size]
                await sink.send_all(
                    recorder.frame(listener, connection, from_dialer=from_dialer, data=data)
                )
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass
    nursery.cancel_scope.cancel()
