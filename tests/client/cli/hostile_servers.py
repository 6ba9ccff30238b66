"""Servers that say what steers a terminal: relays before a real cluster, which change each name and each remark.

Names of the cluster have the word EVIL in them. On the way to the client it becomes HOSTILE, and on the way back EVIL
again, so that the cluster understands what it is asked.
"""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from typing import Any, Final, Literal

import attrs
from tests.support.raw_frames import json_framed, unframed

EVIL: Final = "EVIL"
HOSTILE: Final = "\x1b]0;PWNED\x07\x1b[31m\r\nFORGED\u202e\u009b[bold]x[/bold]"
Mode = Literal["names", "refuses"]
RESPONSE = 1
TLS_HANDSHAKE: Final = 0x16
"""The first byte of a connection with TLS."""


def _everywhere(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {change(key): _everywhere(each, change) for key, each in value.items()}
    if isinstance(value, list):
        return [_everywhere(each, change) for each in value]
    return value


@attrs.define
class Relay:
    """One server as clients see it."""

    server: str
    mode: Mode = "names"
    moved: dict[str, str] = attrs.Factory(dict)
    """Addresses of servers, and of the relays before them."""
    _listener: socket.socket = attrs.Factory(lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def address(self) -> str:
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            host, _, port = self.server.rpartition(":")
            server = socket.create_connection((host, int(port)))
            for source, sink, change in (
                (client, server, self._request),
                (server, client, self._answer),
            ):
                threading.Thread(target=_copy, args=(source, sink, change), daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _request(self, frame: bytes) -> bytes:
        kind, header, body = unframed(frame)
        assert kind == 0, "the client writes JSON headers"
        fields = _everywhere(json.loads(header), self._understood)
        for there, here in self.moved.items():
            body = body.replace(here.encode(), there.encode())
        for text in (
            HOSTILE,
            json.dumps(HOSTILE)[1:-1],
            json.dumps(HOSTILE, ensure_ascii=False)[1:-1],
        ):
            body = body.replace(text.encode(), EVIL.encode())
        return json_framed(fields, body)

    def _answer(self, frame: bytes) -> bytes:
        kind, header, body = unframed(frame)
        assert kind == 0, "the servers write JSON headers"
        fields = json.loads(header)
        if not fields["flag"] & RESPONSE:
            return frame
        fields = _everywhere(fields, self._said)
        if self.mode == "refuses":
            return json_framed(
                {**fields, "code": 1, "remark": f"no {HOSTILE} at\n  {HOSTILE}.java"}
            )
        for there, here in self.moved.items():
            body = body.replace(there.encode(), here.encode())
        said = json.dumps(HOSTILE)[1:-1]
        if body[:1] not in (
            b"{",
            b"[",
        ):  # Java's properties, or records, in which nothing may move.
            said = said.encode().decode() if _is_properties(body) else EVIL
        return json_framed(fields, body.replace(EVIL.encode(), said.encode()))

    def _understood(self, text: str) -> str:
        for there, here in self.moved.items():
            text = text.replace(here, there)
        return text.replace(HOSTILE, EVIL)

    def _said(self, text: str) -> str:
        for there, here in self.moved.items():
            text = text.replace(there, here)
        return text.replace(EVIL, HOSTILE)


def _is_properties(body: bytes) -> bool:
    return b"=" in body and b"\x01" not in body and b"\0" not in body


def _copy(source: socket.socket, sink: socket.socket, change: Callable[[bytes], bytes]) -> None:
    with suppress(OSError, ValueError), closing(source), closing(sink):
        stream = source.makefile("rb")
        # A client may also begin with TLS, which is no frame; no frame is so long that it begins like this.
        while (head := stream.read(4)) and head[0] != TLS_HANDSHAKE:
            frame = head + stream.read(int.from_bytes(head))
            sink.sendall(change(frame))


@contextmanager
def relays(name_server: str, broker: str) -> Iterator[tuple[Relay, Relay]]:
    """Relay a name server and a broker."""
    first, second = Relay(name_server), Relay(broker)
    moved = {broker: second.address, name_server: first.address}
    first.moved = second.moved = moved
    try:
        for one in (first, second):
            threading.Thread(target=one.serve, daemon=True).start()
        yield first, second
    finally:
        first.close()
        second.close()
