"""A host as stored records and message ids hold it: packed address, then the port.

    IPv4   4 bytes address   i32 port      8 bytes
    IPv6  16 bytes address   i32 port     20 bytes

Answers to: MessageExt.socketAddress2ByteBuffer, MessageDecoder's host parsing.
"""

from ipaddress import ip_address
from typing import Final

from rocketrio_protocol.errors import LocalProtocolError, RemoteProtocolError

IPV4_HOST_SIZE: Final = 8
IPV6_HOST_SIZE: Final = 20

# Above it `str(int)` is slower than the table for the dotted form, which is read once a message.
_OCTETS: Final = tuple(str(number) for number in range(256))


def pack_host(ip: str, port: int) -> bytes:
    """The stored form of an address; the length of the result tells IPv4 from IPv6."""
    if not 0 <= port <= 0x7FFFFFFF:
        raise LocalProtocolError(f"port {port} does not fit a stored host")
    try:
        return ip_address(ip).packed + port.to_bytes(4)
    except ValueError as error:
        raise LocalProtocolError(f"{ip!r} is not an IP address; resolve names first") from error


def unpack_host(packed: bytes | bytearray | memoryview) -> tuple[str, int]:
    """The address as text and the port."""
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
