"""Limits for all connections of one server together: places, and memory that peers cause.

    places       a host has a limit; when all places are taken, or the file descriptors that this process has for
                 connections, the host with most gives one up to a host with fewer
    unfinished   bytes of incomplete frames, and of requests that are not processed yet
    unsent       bytes of answers that peers do not read

Invariant: when a memory limit is exceeded, the connection that holds most is closed, never a small one.
Unlike Java: Java limits none of these, and a frame may take any time to arrive.
"""

from collections.abc import Iterable
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final, Protocol

import attrs
from attrs import validators

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.descriptors import descriptor_limit
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.remoting.rare_log import RareLog

CONNECTION_LIMIT: Final = 10_000
"""Connections that one server keeps; each takes two tasks and a file descriptor, some 20 KiB."""

HOST_CONNECTION_LIMIT: Final = 500
"""Connections of one host. A client has one to each server, so this is the number of its processes."""

UNFINISHED_SIZE_LIMIT: Final = 256 * 1024 * 1024
"""Bytes of incomplete frames: sixteen of the largest."""

UNPROVEN_SHARE: Final = 4
"""The divisor of UNFINISHED_SIZE_LIMIT for connections that have not sent a complete frame yet."""

UNSENT_SIZE_LIMIT: Final = 1024 * 1024 * 1024
"""Bytes of answers that wait for slow readers; connections below HIGH_WATER_MARK of `channel` do not count."""

_IPV6_SHARE: Final = 64
"""Bits of an IPv6 address that identify its owner, who may use all addresses with this prefix."""

_positive = validators.gt(0)


@attrs.frozen(kw_only=True)
class ServerLimits:
    """The limits of one server."""

    connections: int = attrs.field(default=CONNECTION_LIMIT, validator=_positive)
    host_connections: int = attrs.field(default=HOST_CONNECTION_LIMIT, validator=_positive)
    unfinished_size: int = attrs.field(default=UNFINISHED_SIZE_LIMIT, validator=_positive)
    unsent_size: int = attrs.field(default=UNSENT_SIZE_LIMIT, validator=_positive)
    descriptors: int = attrs.field(factory=lambda: descriptor_limit().for_connections)
    """The number of a file descriptor from which on no place is free, however few connections there are."""


class Occupant(Protocol):
    """The part of a connection that limits need."""

    remote_addr: str
    last_received: float

    def close(self, reason: str) -> None: ...


class SharedMemory:
    """Counts the bytes that connections hold together."""

    def __init__(self, limit: int, what: str, rare_log: RareLog) -> None:
        self.total = 0
        self._limit = limit
        self._what = what
        self._rare_log = rare_log
        self._held: dict[Occupant, int] = {}

    def hold(self, member: Occupant, size: int) -> None:
        """Record how much one connection holds now; while all hold too much, close the one that holds most."""
        self.total += size - self._held.pop(member, 0)
        if size:
            self._held[member] = size
        while self.total > self._limit:
            # The largest and not the newest: otherwise the host that fills the memory first would shut all others out.
            largest = max(self._held, key=self._held.__getitem__)
            held = self._held.pop(largest)
            self.total -= held
            self._rare_log.warning(
                "too much memory what=%s limit=%d closed=%s held=%d",
                self._what, self._limit, largest.remote_addr, held,
            )  # fmt: skip
            largest.close(f"it held {held} bytes of {self._what}, most of all connections")


class ChannelRoom:
    """The memory limits that the channels of one server share."""

    def __init__(self, limits: ServerLimits, rare_log: RareLog) -> None:
        self.unsent = SharedMemory(limits.unsent_size, "unsent answers", rare_log)
        self._unfinished = SharedMemory(limits.unfinished_size, "unfinished frames", rare_log)
        self._unproven = SharedMemory(
            limits.unfinished_size // UNPROVEN_SHARE, "unfinished first frames", rare_log
        )

    def hold_unfinished(self, member: Occupant, size: int, *, is_proven: bool) -> None:
        """Record how many bytes of a connection are not processed yet."""
        self._unproven.hold(member, 0 if is_proven else size)
        self._unfinished.hold(member, size)

    def leave(self, member: Occupant) -> None:
        """Release the bytes of a connection that has ended."""
        for memory in (self._unproven, self._unfinished, self.unsent):
            memory.hold(member, 0)


class ConnectionPlaces:
    """Decides which connections a server keeps."""

    def __init__(
        self, limits: ServerLimits, rare_log: RareLog, *, replaces_own: bool = False
    ) -> None:
        """With `replaces_own` a host that must not have more gives up its longest idle connection for a new one."""
        self._replaces_own = replaces_own
        self._limits = limits
        self._rare_log = rare_log
        self._by_host: dict[str, dict[Occupant, None]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def has_room(self, addr: str, descriptor: int = 0) -> bool:
        """Return whether a new connection may stay; if all places are taken, another one may be closed for it.

        `descriptor` is the number of the new connection's socket.
        """
        limits, members = self._limits, self._by_host.get(host_of(addr), {})
        own = len(members)
        if own >= limits.host_connections:
            largest, whose, limit = members, "one host", limits.host_connections
        elif self._count >= limits.connections or descriptor >= limits.descriptors:
            largest = max(self._by_host.values(), key=len, default={})
            whose, limit = "all hosts", min(limits.connections, limits.descriptors)
        else:
            return True
        # Afterwards the other host still has at least as many as the one that the new connection comes from.
        if len(largest) > own + 1:
            self._give_up_one(largest)
        elif self._replaces_own:
            self._give_up_one(members or largest)
        else:
            self._rare_log.warning(
                "too many connections of=%s limit=%d refused=%s", whose, limit, addr
            )
            return False
        return True

    def take(self, member: Occupant) -> None:
        """Take a place for a new connection."""
        self._by_host.setdefault(host_of(member.remote_addr), {})[member] = None
        self._count += 1

    def leave(self, member: Occupant) -> None:
        """Free the place of a connection that has ended or is about to end."""
        host = host_of(member.remote_addr)
        members = self._by_host.get(host, {})
        if member in members:
            del members[member]
            self._count -= 1
            if not members:
                del self._by_host[host]

    def _give_up_one(self, members: Iterable[Occupant]) -> None:
        idle = min(members, key=lambda member: member.last_received)
        self.leave(idle)
        idle.close("its host has the most connections, and another one needs a place")


def host_of(addr: str) -> str:
    """Return the owner of the address `host:port`: an IPv4 address, or the first half of an IPv6 address."""
    try:
        host = split_addr(addr)[0]
        ip = ip_address(host)
    except (ConfigError, ValueError):
        return addr
    if not isinstance(ip, IPv6Address):
        return host
    if ip.ipv4_mapped is not None:
        return str(ip.ipv4_mapped)
    return str(IPv6Network((int(ip), _IPV6_SHARE), strict=False))
