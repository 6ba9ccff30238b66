"""The two ids of a message: the offset id says where it is stored, the unique id which producer created it.

    offset id   store host IP (4 or 16 B) | i32 port | i64 physical offset
    unique id   producer IP (4 or 16 B) | 2 B process id | 4 B instance | 4 B ms in month | 2 B counter

Both are upper-case hexadecimal with 32 or 56 digits, so only the field they are in distinguishes them.
Answers to: MessageDecoder.createMessageId / decodeMessageId, MessageClientIDSetter.
Unlike Java: the month begins in UTC, not in the machine's time zone; no program decodes that part.
"""

from collections.abc import Callable, Iterable
from ipaddress import ip_address
from struct import Struct
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.layout import IPV4_HOST_SIZE, IPV6_HOST_SIZE, unpack_host
from rocketrio_protocol.times import nearest_time

BATCH_ID_SEPARATOR: Final = ","

_OFFSET: Final = Struct(">q")
_OFFSET_SIZE: Final = 8
_COUNTER_SIZE: Final = 2
_COUNTER_END: Final = 1 << 8 * _COUNTER_SIZE


def offset_message_id(host: bytes | bytearray | memoryview, physical_offset: int) -> str:
    """Return the id of the record at `physical_offset` of the broker with this packed host."""
    return (bytes(host) + _OFFSET.pack(physical_offset)).hex().upper()


def parse_offset_message_id(text: str) -> tuple[str, int, int]:
    """Return IP, port and physical offset of an offset id. Raises LocalProtocolError for any other string."""
    try:
        packed = bytes.fromhex(text)
    except ValueError as error:
        raise LocalProtocolError(f"{text!r} is not a message id: it is not hexadecimal") from error
    if len(packed) * 2 != len(text) or len(packed) - _OFFSET_SIZE not in (
        IPV4_HOST_SIZE,
        IPV6_HOST_SIZE,
    ):
        raise LocalProtocolError(f"{text!r} is not a message id: it must have 32 or 56 digits")
    ip, port = unpack_host(packed[:-_OFFSET_SIZE])
    return ip, port, int(_OFFSET.unpack(packed[-_OFFSET_SIZE:])[0])


def split_message_ids(joined: str) -> list[str]:
    return joined.split(BATCH_ID_SEPARATOR) if joined else []


class UniqueIdGenerator:
    """Creates the UNIQ_KEY values of one process; up to 65,536 a millisecond are unique."""

    def __init__(
        self, *, ip: str, process_id: int, wall_clock_ms: Callable[[], int], instance_hash: int
    ) -> None:
        try:
            packed_ip = ip_address(ip).packed
        except ValueError as error:
            raise LocalProtocolError(f"{ip!r} is not an IP address") from error
        process = (process_id & 0xFFFF).to_bytes(2) + (instance_hash & 0xFFFFFFFF).to_bytes(4)
        self._prefix = (packed_ip + process).hex().upper()
        self._wall_clock_ms = wall_clock_ms
        self._counter = 0
        self._head_ms = -1
        self._head = ""
        self._month_start_ms = 0
        self._month_end_ms = 0

    def __repr__(self) -> str:
        return f"<UniqueIdGenerator {self._prefix}>"

    def next(self) -> str:
        """Return the next id."""
        now_ms = self._wall_clock_ms()
        if now_ms != self._head_ms:
            self._begin_millisecond(now_ms)
        counter = self._counter
        self._counter = (counter + 1) & 0xFFFF
        return f"{self._head}{counter:04X}"

    def take(self, count: int) -> list[str]:
        """Return the next `count` ids; all ids of one call share a millisecond while its counter lasts."""
        if count > _COUNTER_END:
            return [self.next() for _ in range(count)]
        now_ms = self._wall_clock_ms()
        if now_ms != self._head_ms:
            self._begin_millisecond(now_ms)
        head, first = self._head, self._counter
        self._counter = (first + count) % _COUNTER_END
        numbers: Iterable[int] = range(first, first + count)
        if first + count > _COUNTER_END:
            numbers = [number % _COUNTER_END for number in numbers]
        digits = Struct(f">{count}H").pack(*numbers).hex(" ", _COUNTER_SIZE).upper().split()
        return [head + four for four in digits]

    def _begin_millisecond(self, now_ms: int) -> None:
        """Set the prefix of all ids of this millisecond."""
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        self._head = f"{self._prefix}{now_ms - self._month_start_ms:08X}"
        self._head_ms = now_ms


def _month_around(now_ms: int) -> tuple[int, int]:
    start = nearest_time(now_ms).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    years, month_index = divmod(start.month, 12)
    end = start.replace(year=start.year + years, month=month_index + 1)
    return int(start.timestamp() * 1000), int(end.timestamp() * 1000)
