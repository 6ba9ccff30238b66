"""The layout of a stored record: in the commit log, in the body of a pull answer, and in replication.

    0 i32 size | 4 i32 magic | 8 i32 body CRC | 12 i32 queue id | 16 i32 flag | 20 i64 queue offset
    28 i64 physical offset | 36 i32 sysFlag | 40 i64 born ms | 48 born host | i64 store ms
    store host | i32 reconsume times | i64 prepared offset | i32 n | body
    i8 (V2: i16) n | topic | i16 n | properties
    padding: i32 size to the end of the file | i32 magic | any bytes

A host is a packed IP address and an i32 port: 8 bytes for IPv4, 20 for IPv6, as two bits of sysFlag say.

No other file counts bytes of a record: `head_struct` makes the structs that read fields of its head, HEAD_OFFSETS says
where a field is, and `vectors` has the numpy type for many heads at once.

Answers to: MessageDecoder, MessageSysFlag, MessageExt.socketAddress2ByteBuffer.
"""

from enum import IntFlag
from ipaddress import ip_address
from struct import Struct, calcsize
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError

MAGIC_V1: Final = -626843481
"""0xDAA320A7: the topic length is one byte."""
MAGIC_V2: Final = -626843477
"""0xDAA320AB: the topic length is two bytes; 5.x writes it for topics over 127 bytes."""
MAGIC_PADDING: Final = -875286124
"""0xCBD43194: nothing more in this file of the log."""

MAGICS: Final = (MAGIC_V1, MAGIC_V2)
"""Those of records."""

MAX_TOPIC_SIZE_V1: Final = 127
MAX_TOPIC_SIZE_V2: Final = 32767


class SysFlag(IntFlag):
    """Bits of a record's sysFlag; the two transaction bits together make `TRANSACTION_MASK`."""

    COMPRESSED = 0x1
    MULTI_TAGS = 0x2
    TRANSACTION_PREPARED = 0x4
    TRANSACTION_COMMIT = 0x8
    TRANSACTION_ROLLBACK = 0xC
    BORN_HOST_IPV6 = 0x10
    STORE_HOST_IPV6 = 0x20
    NEED_UNWRAP = 0x40
    INNER_BATCH = 0x80
    COMPRESSION_LZ4 = 0x100
    COMPRESSION_ZSTD = 0x200
    COMPRESSION_ZLIB = 0x300


# Plain numbers for the paths that every message takes: arithmetic of IntFlag costs a microsecond.
COMPRESSED: Final = 0x1
BORN_HOST_IPV6: Final = 0x10
STORE_HOST_IPV6: Final = 0x20
HOSTS_IPV6_MASK: Final = 0x30
TRANSACTION_MASK: Final = 0xC
COMPRESSION_TYPE_MASK: Final = 0x700
COMPRESSION_TYPE_SHIFT: Final = 8

IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20
IPV6_EXTRA: Final = IPV6_HOST_SIZE - IPV4_HOST_SIZE
"""Bytes by which an IPv6 host shifts the fields behind it."""

HEAD_FORMATS: Final = {
    "size": "i",
    "magic": "i",
    "body_crc": "i",
    "queue_id": "i",
    "flag": "i",
    "queue_offset": "q",
    "physical_offset": "q",
    "sys_flag": "i",
    "born_time": "q",
    "born_host": f"{IPV4_HOST_SIZE}s",
    "store_time": "q",
    "store_host": f"{IPV4_HOST_SIZE}s",
    "reconsume_times": "i",
    "prepared_transaction_offset": "q",
    "body_size": "i",
}
"""The fields before the body, big-endian, in the notation of `struct`; times are epoch ms."""


def head_struct(*names: str, hosts: int = 0) -> Struct:
    """Make the struct of these fields, named in their order: from the record's first byte to the last field's end.

    `hosts` says which hosts are IPv6, by the bits of sysFlag.
    """
    code, skipped = ">", 0
    for name, field in HEAD_FORMATS.items():
        if (name == "born_host" and hosts & BORN_HOST_IPV6) or (
            name == "store_host" and hosts & STORE_HOST_IPV6
        ):
            field = f"{IPV6_HOST_SIZE}s"
        if name in names:
            code += f"{skipped}x{field}" if skipped else field
            skipped = 0
        else:
            skipped += calcsize(">" + field)
    return Struct(code)


def head_structs(*names: str) -> dict[int, Struct]:
    """Make the structs of these fields, by the bits of sysFlag in HOSTS_IPV6_MASK."""
    bits = (0, BORN_HOST_IPV6, STORE_HOST_IPV6, HOSTS_IPV6_MASK)
    return {hosts: head_struct(*names, hosts=hosts) for hosts in bits}


HEAD_OFFSETS: Final = {
    name: head_struct(name).size - calcsize(">" + field) for name, field in HEAD_FORMATS.items()
}
"""Where each field of the head begins; those behind an IPv6 host lie IPV6_EXTRA bytes further."""

HEAD_SIZE: Final = head_struct("body_size").size
"""Bytes before the body, where both hosts are IPv4."""
BEFORE_BODY: Final = {name: HEAD_SIZE - at for name, at in HEAD_OFFSETS.items()}
"""How many bytes before the body a field begins; of fields behind the hosts, whatever the hosts are."""
BODY_STARTS: Final = {hosts: head.size for hosts, head in head_structs("body_size").items()}
"""Where the body begins, by the bits of sysFlag in HOSTS_IPV6_MASK."""
SYS_FLAG_END: Final = head_struct("sys_flag").size - 1
"""Where the last byte of sysFlag lies, which says whether the body is compressed."""
MIN_TAIL_SIZE: Final = 3
"""Bytes of a V1 record behind its body, where topic and properties are empty."""
RECORD_OVERHEAD: Final = HEAD_SIZE + MIN_TAIL_SIZE
"""Bytes of a V1 record with IPv4 hosts beyond its body, topic and properties."""

SIZE_AND_MAGIC: Final = head_struct("size", "magic")
PADDING_HEAD_SIZE: Final = SIZE_AND_MAGIC.size

# Above it `str(int)` is slower than the table for the dotted form, which is read once a message.
_OCTETS: Final = tuple(str(number) for number in range(256))


def pack_host(ip: str, port: int) -> bytes:
    """Return the stored form of an address: 8 bytes for IPv4, 20 for IPv6."""
    if not 0 <= port <= 0x7FFFFFFF:
        raise LocalProtocolError(f"port {port} does not fit a stored host")
    try:
        return ip_address(ip).packed + port.to_bytes(4)
    except ValueError as error:
        raise LocalProtocolError(f"{ip!r} is not an IP address; resolve names first") from error


def unpack_host(packed: bytes | bytearray | memoryview) -> tuple[str, int]:
    """Return the address as text, and the port."""
    size = len(packed)
    port = int.from_bytes(packed[-4:], signed=True)
    if size == IPV4_HOST_SIZE:
        return (
            f"{_OCTETS[packed[0]]}.{_OCTETS[packed[1]]}.{_OCTETS[packed[2]]}.{_OCTETS[packed[3]]}",
            port,
        )
    if size == IPV6_HOST_SIZE:
        return str(ip_address(bytes(packed[:16]))), port
    raise RemoteProtocolError(f"a stored host has 8 or 20 bytes, not {size}")
