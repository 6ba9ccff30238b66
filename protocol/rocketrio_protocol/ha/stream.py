"""The replication stream: what a slave reports, what a master transfers, and how received bytes become either.

    slave  -> master   | offset i64 |                        end of the slave's log
    master -> slave    | physical offset i64 | size i32 | size bytes of the log ... |

Size 0 is a heartbeat; its offset is the next address that the master will send. Between rocketrio brokers
(exchange.py) a header also says up to where the master's readers see, before the bytes.

Invariant: the stream is not aligned to records; any split of it gives the same bytes at the same addresses.
Invariant: nothing is allocated for a claimed size; no byte of a body is copied here.
Answers to: DefaultHAConnection, DefaultHAClient (their byte buffers); RocketMQ reference, section 6.1.
Unlike Java: a body is handed on as it arrives, not when it is whole, so that no buffer limits its size.
"""

import struct
from typing import Final

import attrs

from rocketrio_protocol.errors import RemoteProtocolError

TRANSFER_SIZE_LIMIT: Final = 4 * 1024 * 1024 - 12
"""Bytes of the largest body: what Apache's slaves can take, whose buffer of 4 MiB must hold a whole transfer
with its header (READ_MAX_BUFFER_SIZE in 4.4, 4.9 and 5.x)."""

LARGEST_OFFSET: Final = 2**63 - 1

_REPORT: Final = struct.Struct(">q")
_TRANSFER_HEADER: Final = struct.Struct(">qi")
_CONFIRMED: Final = struct.Struct(">q")

REPORT_SIZE: Final = _REPORT.size
TRANSFER_HEADER_SIZE: Final = _TRANSFER_HEADER.size


def encode_report(offset: int) -> bytes:
    """A slave's report of the end of its log."""
    return _REPORT.pack(offset)


def encode_transfer_header(physical_offset: int, size: int) -> bytes:
    """What precedes `size` bytes of the log; a heartbeat when `size` is 0."""
    assert 0 <= size <= TRANSFER_SIZE_LIMIT, size
    return _TRANSFER_HEADER.pack(physical_offset, size)


def encode_confirming_header(physical_offset: int, size: int, confirmed: int) -> bytes:
    """The same between rocketrio brokers."""
    return encode_transfer_header(physical_offset, size) + _CONFIRMED.pack(confirmed)


class ReportDecoder:
    """Cuts a slave's bytes into reports; only the last whole one matters, as each replaces those before."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """The newest report that `data` completes, or None. Raises RemoteProtocolError for what is none."""
        gathered = self._pending + bytes(data)
        whole = len(gathered) - len(gathered) % REPORT_SIZE
        self._pending = gathered[whole:]
        if not whole:
            return None
        (offset,) = _REPORT.unpack_from(gathered, whole - REPORT_SIZE)
        if offset < 0:
            raise RemoteProtocolError(
                f"A slave reported the offset {offset}",
                remedy="Is the peer a RocketMQ slave in ordinary (not controller) mode?",
            )
        return int(offset)


@attrs.define
class TransferPart:
    """Bytes of the log with the address of the first; no bytes: a heartbeat."""

    physical_offset: int
    body: memoryview
    transfer_start: int
    """Where the transfer that these bytes are part of begins."""
    transfer_end: int
    """The address after it; for a heartbeat the address that comes next."""
    confirmed: int | None = None
    """What the header said of the master's readers; None where headers say nothing."""

    @property
    def is_heartbeat(self) -> bool:
        return self.transfer_start == self.transfer_end


class TransferDecoder:
    """Cuts a master's bytes into parts of transfers."""

    def __init__(self, *, confirms: bool = False) -> None:
        """`confirms`: the master is a rocketrio broker, and its headers say up to where its readers see."""
        self._confirms = confirms
        self._header_size = TRANSFER_HEADER_SIZE + (_CONFIRMED.size if confirms else 0)
        self._confirmed: int | None = None
        self._header = b""
        self._start = 0
        self._next = 0
        self._end = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[TransferPart]:
        """What `data` holds, in order; bodies are views of `data`. Raises RemoteProtocolError for nonsense.

        After an error the stream is of no more use; what came before it in `data` is lost with it.
        """
        view = memoryview(data)
        parts: list[TransferPart] = []
        position, size = 0, len(view)
        while position < size:
            if self._next < self._end:
                taken = min(self._end - self._next, size - position)
                body = view[position : position + taken]
                parts.append(
                    TransferPart(self._next, body, self._start, self._end, self._confirmed)
                )
                self._next += taken
                position += taken
                continue
            wanted = self._header_size - len(self._header)
            self._header += bytes(view[position : position + wanted])
            position += wanted
            if len(self._header) == self._header_size:
                self._take_header()
                if self._start == self._end:
                    parts.append(
                        TransferPart(self._start, view[:0], self._start, self._end, self._confirmed)
                    )
        return parts

    def _take_header(self) -> None:
        offset, size = _TRANSFER_HEADER.unpack_from(self._header)
        if self._confirms:
            (self._confirmed,) = _CONFIRMED.unpack_from(self._header, TRANSFER_HEADER_SIZE)
        self._header = b""
        if offset < 0 or not 0 <= size <= TRANSFER_SIZE_LIMIT or offset > LARGEST_OFFSET - size:
            raise RemoteProtocolError(
                f"A transfer claims {size} bytes for the physical offset {offset}; "
                f"at most {TRANSFER_SIZE_LIMIT} bytes are allowed",
                remedy="Is the address that of a RocketMQ master's replication port (haListenPort)?",
            )
        self._start = self._next = offset
        self._end = offset + size
