"""A relay between a client and one server, as a process: it forwards, and misbehaves when told.

python -m tests.support.relay 127.0.0.1:10911      prints the address it listens on
a line on its input: hold, go, half-close, drop, delay SECONDS

hold          it accepts connections and takes nothing from them, as a firewall that forgot them: bytes that were
              on their way stay where they are, and arrive when it goes on
go            it forwards again
half-close    clients hear the end of what their server says; what they say goes on
drop          every connection is reset at both ends
delay         whatever comes from now on arrives so much later
"""

import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

import attrs
import trio

CHUNK_SIZE = 64 * 1024
CHUNKS_LIMIT = 64
"""On their way in one direction at once."""
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)


class Relay:
    """All connections to one target."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._going = trio.Event()
        self._going.set()
        self._delay = 0.0
        self._to_clients: set[trio.SocketStream] = set()
        self._scopes: set[trio.CancelScope] = set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            print(f"127.0.0.1:{listener.socket.getsockname()[1]}", flush=True)
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            await self._obey()
            nursery.cancel_scope.cancel()

    async def _obey(self) -> None:
        while words := (await trio.to_thread.run_sync(sys.stdin.readline)).split():
            match words:
                case ["hold"]:
                    self._going = trio.Event()
                case ["go"]:
                    self._going.set()
                case ["half-close"]:
                    for stream in self._to_clients:
                        await stream.send_eof()
                case ["drop"]:
                    for scope in self._scopes:
                        scope.cancel()
                case ["delay", seconds]:
                    self._delay = float(seconds)

    async def _serve(self, client: trio.SocketStream) -> None:
        await self._going.wait()
        try:
            server = await trio.open_tcp_stream(self._host, self._port)
        except OSError:
            # The target is not there yet, or not any more: the next connection may find it.
            await client.aclose()
            return
        self._to_clients.add(client)
        try:
            async with client, server:
                with trio.CancelScope() as dropped:
                    self._scopes.add(dropped)
                    async with trio.open_nursery() as nursery:
                        self._forward(client, server, nursery)
                        self._forward(server, client, nursery)
                self._scopes.discard(dropped)
                if dropped.cancelled_caught:
                    for stream in (client, server):
                        stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        finally:
            self._to_clients.discard(client)

    def _forward(
        self, source: trio.SocketStream, sink: trio.SocketStream, nursery: trio.Nursery
    ) -> None:
        """One direction: the end of either one ends the connection."""
        put, take = trio.open_memory_channel[tuple[float, bytes]](CHUNKS_LIMIT)

        async def receive() -> None:
            try:
                while data := await source.receive_some(CHUNK_SIZE):
                    await self._going.wait()
                    await put.send((trio.current_time() + self._delay, bytes(data)))
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            put.close()

        async def send() -> None:
            try:
                async for time, data in take:
                    await trio.sleep_until(time)
                    await self._going.wait()
                    await sink.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            nursery.cancel_scope.cancel()

        nursery.start_soon(receive)
        nursery.start_soon(send)


# --- the end that the test holds ---------------------------------------------------------------


@attrs.define
class RelayProcess:
    """A relay that runs, and its input."""

    address: str
    _input: "IO[str]"

    def tell(self, word: str) -> None:
        self._input.write(word + "\n")
        self._input.flush()


@contextmanager
def relay_to(target: str) -> Iterator[RelayProcess]:
    """A relay process before this server, killed when the block ends."""
    command = [sys.executable, "-m", "tests.support.relay", target]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            yield RelayProcess(process.stdout.readline().strip(), process.stdin)
        finally:
            process.kill()


if __name__ == "__main__":
    trio.run(Relay(sys.argv[1]).run)
