"""A client of HTTP in a few lines: one request, then everything until the connection ends."""

import gzip
from collections.abc import Iterator

import attrs

from rocketrio_protocol.remoting.ports import Dial, Transport


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        packed = self.headers.get("content-encoding") == "gzip"
        return (gzip.decompress(self.body) if packed else self.body).decode()


async def get(dial: Dial, addr: str, path: str = "/metrics", *headers: str) -> Answer:
    """The page at a path."""
    lines = (f"GET {path} HTTP/1.1", f"Host: {addr}", "Connection: close", *headers, "", "")
    return await ask(dial, addr, "\r\n".join(lines).encode())


async def ask(dial: Dial, addr: str, request: bytes) -> Answer:
    """What is answered to these bytes."""
    transport = await dial(addr)
    try:
        await transport.send_all(request)
        return parsed(await everything(transport))
    finally:
        await transport.aclose()


async def everything(transport: Transport) -> bytes:
    """What comes until the peer closes the connection."""
    received, buffer = b"", memoryview(bytearray(65536))
    while size := await transport.receive_into(buffer):
        received += bytes(buffer[:size])
    return received


def parsed(received: bytes) -> Answer:
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.split(": ", 1) for line in lines)
    headers = {name.lower(): value for name, value in pairs}
    if headers.get("transfer-encoding") == "chunked":
        body = b"".join(_chunks(body))
    return Answer(int(first.split()[1]), headers, body)


def _chunks(body: bytes) -> Iterator[bytes]:
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return
        yield body[: int(size, 16)]
        body = body[int(size, 16) + 2 :]
