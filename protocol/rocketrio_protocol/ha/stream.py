"""Encodes and decodes the replication stream: the reports of a slave and the transfers of a master.

    slave  -> master   | offset i64 |                        end of the slave's log
    master -> slave    | physical offset i64 | size i32 | size bytes of the log ... |

Size 0 is a heartbeat; its offset is the next one that the master will send. Between rocketrio brokers (exchange.py) a
header also says up to which offset readers of the master see the log.

Invariant: transfers are not aligned to records; any split of the stream gives the same bytes at the same offsets.
Invariant: a claimed size allocates nothing, and the bytes of a body are not copied.
Answers to: DefaultHAConnection, DefaultHAClient (their byte buffers); RocketMQ reference, section 6.1.
Unlike Java: a body is returned in parts as it arrives, so that no buffer limits its size.
"""

import struct
from typing import Final

import attrs

from rocketrio_protocol.errors import RemoteProtocolError

TRANSFER_SIZE_LIMIT: Final = 4 * 1024 * 1024 - 12
"""Bytes of the largest body: an Apache slave's buffer of 4 MiB must hold a whole transfer with its header
(READ_MAX_BUFFER_SIZE in 4.4, 4.9 and 5.x)."""

LARGEST_OFFSET: Final = 2**63 - 1

_REPORT: Final = struct.Struct(">q")
_TRANSFER_HEADER: Final = struct.Struct(">qi")
_CONFIRMED: Final = struct.Struct(">q")

REPORT_SIZE: Final = _REPORT.size
TRANSFER_HEADER_SIZE: Final = _TRANSFER_HEADER.size


def encode_report(offset: int) -> bytes:
    """Encode a slave's report of the end of its log."""
    return _REPORT.pack(offset)


def encode_transfer_header(physical_offset: int, size: int) -> bytes:
    """Encode the header of `size` bytes of the log; 0 is a heartbeat."""
    assert 0 <= size <= TRANSFER_SIZE_LIMIT, size
    return _TRANSFER_HEADER.pack(physical_offset, size)


def encode_confirming_header(physical_offset: int, size: int, confirmed: int) -> bytes:
    """Encode a header for a rocketrio slave, which also says up to which offset readers see the log."""
    return encode_transfer_header(physical_offset, size) + _CONFIRMED.pack(confirmed)


class ReportDecoder:
    """Cuts a slave's bytes into reports; only the last complete one matters, because each replaces the one before."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes | memoryview) -> int | None:
        """Return the newest report that `data` completes, or None. Raises RemoteProtocolError for a negative offset."""
        gathered = self._pending + bytes(data)
        whole = len(gathered) - len(gathered) % REPORT_SIZE
        # A report may be cut anywhere; its beginning waits for the rest.
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
    """Bytes of the log, and the offset of the first one; without bytes it is a heartbeat."""

    physical_offset: int
    body: memoryview
    transfer_start: int
    """The offset at which the transfer of these bytes begins."""
    transfer_end: int
    """The offset after the transfer; for a heartbeat, the offset of the next one."""
    confirmed: int | None = None
    """Up to which offset readers of the master see the log; None if its headers do not say so."""

    @property
    def is_heartbeat(self) -> bool:
        return self.transfer_start == self.transfer_end


class TransferDecoder:
    """Decodes the bytes of a master into parts of transfers."""

    def __init__(self, *, confirms: bool = False) -> None:
        """Set `confirms` for a rocketrio master: its headers say up to which offset readers see the log."""
        self._confirms = confirms
        self._header_size = TRANSFER_HEADER_SIZE + (_CONFIRMED.size if confirms else 0)
        self._confirmed: int | None = None
        self._header = b""
        self._start = 0
        self._next = 0
        self._end = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[TransferPart]:
        """Return the parts in `data`, in order; bodies are views of `data`. Raises RemoteProtocolError.

        After an error the stream cannot be decoded any further, and earlier parts in `data` are lost too.
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
        # Bodies are handed on as they arrive: the size is only a number, and is checked as such.
        if offset < 0 or not 0 <= size <= TRANSFER_SIZE_LIMIT or offset > LARGEST_OFFSET - size:
            raise RemoteProtocolError(
                f"A transfer claims {size} bytes for the physical offset {offset}; "
                f"at most {TRANSFER_SIZE_LIMIT} bytes are allowed",
                remedy="Is the address that of a RocketMQ master's replication port (haListenPort)?",
            )
        self._start = self._next = offset
        self._end = offset + size
