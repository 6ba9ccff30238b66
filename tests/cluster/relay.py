"""A relay between a client and one server, as a process: it forwards, and stops forwarding when told.

    python -m tests.cluster.relay 127.0.0.1:10911      prints the address it listens on
    a line on its input: hold, go, half-close

While it holds it accepts connections and takes nothing from them, as a firewall that forgot them: bytes that were on
their way stay where they are, and arrive when it goes on.
"""

import sys

import trio

CHUNK_SIZE = 64 * 1024


class Relay:
    """All connections to one target."""

    def __init__(self, target: str) -> None:
        self._host, port = target.rsplit(":", 1)
        self._port = int(port)
        self._going = trio.Event()
        self._going.set()
        self._to_clients: set[trio.SocketStream] = set()

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
            print(f"127.0.0.1:{listener.socket.getsockname()[1]}", flush=True)
            nursery.start_soon(trio.serve_listeners, self._serve, [listener])
            await self._obey()
            nursery.cancel_scope.cancel()

    async def _obey(self) -> None:
        while word := (await trio.to_thread.run_sync(sys.stdin.readline)).strip():
            if word == "hold":
                self._going = trio.Event()
            elif word == "go":
                self._going.set()
            elif word == "half-close":
                for stream in self._to_clients:
                    await stream.send_eof()

    async def _serve(self, client: trio.SocketStream) -> None:
        await self._going.wait()
        server = await trio.open_tcp_stream(self._host, self._port)
        self._to_clients.add(client)
        try:
            async with client, server, trio.open_nursery() as nursery:
                nursery.start_soon(self._forward, client, server, nursery.cancel_scope)
                nursery.start_soon(self._forward, server, client, nursery.cancel_scope)
        finally:
            self._to_clients.discard(client)

    async def _forward(
        self, source: trio.SocketStream, sink: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        try:
            while data := await source.receive_some(CHUNK_SIZE):
                await self._going.wait()
                await sink.send_all(data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()


if __name__ == "__main__":
    trio.run(Relay(sys.argv[1]).run)
