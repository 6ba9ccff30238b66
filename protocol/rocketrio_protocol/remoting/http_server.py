"""Serves a few pages over HTTP/1.1 to monitoring programs: h11 for the protocol, trio for the connections.

A connection carries one request and is closed after its answer, so that neither an idle peer nor a slow one keeps its
place for longer than `REQUEST_TIMEOUT`. A page is made in steps, with a checkpoint after each, and pages are made one
at a time; a peer that reads slowly delays no other.

Invariant: no request, however malformed, ends more than its own connection.
Invariant: a host has at most `HOST_CONNECTION_LIMIT` places, so that it cannot shut out another one.
Needs the extra `metrics` (h11).
"""

import logging
import zlib
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final, TypeAlias

import attrs
import h11
import trio

from rocketrio_protocol.errors import ClosedError, NotReachableError
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import Listener, Transport
from rocketrio_protocol.remoting.rare_log import RareLog
from rocketrio_protocol.remoting.server_limits import ConnectionPlaces, ServerLimits

CONNECTION_LIMIT: Final = 16
HOST_CONNECTION_LIMIT: Final = 8
REQUEST_TIMEOUT: Final = 5.0
"""Seconds from the acceptance of a connection to the last byte of its answer."""
HEADER_SIZE_LIMIT: Final = 16 * 1024
"""The most bytes of a request's line and headers; a browser with many cookies sends 8 KiB."""
COMPRESSION_LEVEL: Final = 1
"""Pages of metrics shrink to a twentieth at the fastest level; the best level takes twice as long for 2 % less."""

_RECEIVE_SIZE: Final = 4096
_GZIP: Final = 16 + zlib.MAX_WBITS

log = logging.getLogger("rocketrio_protocol")


@attrs.frozen
class Page:
    """One answer. Making the next of its `parts` may take five milliseconds."""

    parts: Iterable[bytes]
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"


MakePage: TypeAlias = Callable[[], Page]
Pages: TypeAlias = Mapping[str, MakePage]
"""The pages by path, such as `/metrics`."""


def text_page(text: str, *, status: int = 200) -> Page:
    """Return a page with one line of text."""
    return Page([f"{text}\n".encode()], status)


async def serve_http(
    listener: Listener,
    pages: Pages,
    *,
    faults: ConnectionFaults | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve until cancelled; then close the listener and all connections."""
    limits = ServerLimits(connections=CONNECTION_LIMIT, host_connections=HOST_CONNECTION_LIMIT)
    places, turn = ConnectionPlaces(limits, RareLog()), trio.Lock()
    faults = ConnectionFaults() if faults is None else faults
    try:
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                try:
                    transport = await listener.accept()
                except ClosedError:
                    return
                if places.has_room(transport.remote_addr):
                    visitor = _Visitor(transport, pages, turn)
                    places.take(visitor)
                    nursery.start_soon(visitor.serve, places, faults)
                else:
                    await transport.aclose()
    finally:
        listener.close()


class _Visitor:
    """One connection, with its one request."""

    def __init__(self, transport: Transport, pages: Pages, turn: trio.Lock) -> None:
        self.remote_addr = transport.remote_addr
        self.last_received = trio.current_time()
        self._transport = transport
        self._pages = pages
        self._turn = turn
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADER_SIZE_LIMIT)
        # For the whole request: a client that sends or reads a byte a second would keep its place for ever.
        self._scope = trio.CancelScope(deadline=self.last_received + REQUEST_TIMEOUT)

    def close(self, reason: str) -> None:
        """End the connection now."""
        self._scope.cancel()

    async def serve(self, places: ConnectionPlaces, faults: ConnectionFaults) -> None:
        try:
            with self._scope:
                try:
                    await self._serve()
                except h11.RemoteProtocolError as error:
                    status = error.error_status_hint
                    await self._answer(partial(text_page, str(error), status=status))
        except (NotReachableError, h11.LocalProtocolError) as error:
            log.debug("http connection ended addr=%s error=%s", self.remote_addr, error)
        except Exception as fault:
            faults.note(self.remote_addr, fault)
        finally:
            places.leave(self)
            await self._transport.aclose()

    async def _serve(self) -> None:
        request = await self._request()
        if request is not None:
            accepted = dict(request.headers).get(b"accept-encoding", b"")
            await self._answer(
                self._make(request),
                is_packed=b"gzip" in accepted.lower(),
                is_head=request.method == b"HEAD",
            )

    async def _request(self) -> h11.Request | None:
        """Return the request, or None if the peer ends the connection without one."""
        buffer = memoryview(bytearray(_RECEIVE_SIZE))
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Request):
                return event
            if event is not h11.NEED_DATA:
                return None
            size = await self._transport.receive_into(buffer)
            self._http.receive_data(bytes(buffer[:size]))

    def _make(self, request: h11.Request) -> MakePage:
        """Return the function that makes the page of the request."""
        if request.method not in (b"GET", b"HEAD"):
            return partial(text_page, "only GET is answered here", status=405)
        path = request.target.partition(b"?")[0].decode("ascii", "replace")
        missing = partial(text_page, f"no such page; there are {' '.join(self._pages)}", status=404)
        return self._pages.get(path, missing)

    async def _answer(
        self, make: MakePage, *, is_packed: bool = False, is_head: bool = False
    ) -> None:
        # One page at a time: each is made in steps, and many at once would hold many pages in memory.
        async with self._turn:
            try:
                page = make()
                body = await _made(page.parts, is_packed=is_packed)
            except Exception:  # A page is like a processor: its bug must not end the server.
                log.exception("http page failed addr=%s", self.remote_addr)
                page = text_page("this page has a fault, which the log describes", status=500)
                body, is_packed = b"".join(page.parts), False
        headers = [
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(body))),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
            ("Connection", "close"),
        ]
        if is_packed:
            headers.append(("Content-Encoding", "gzip"))
        head = self._http.send(h11.Response(status_code=page.status, headers=headers))
        await self._transport.send_all(head or b"")
        if not is_head:
            await self._transport.send_all(body)


async def _made(parts: Iterable[bytes], *, is_packed: bool) -> bytes:
    packer = zlib.compressobj(COMPRESSION_LEVEL, wbits=_GZIP)
    made = []
    for part in parts:
        made.append(packer.compress(part) if is_packed else part)
        await trio.lowlevel.checkpoint()
    if is_packed:
        made.append(packer.flush())
    return b"".join(made)
