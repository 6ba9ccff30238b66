"""Patterns of the addresses that 4.x's access control trusts without a signature.

    *    10.1.2.3    10.1.2.3,10.1.2.4    10.1.2.{3,4}    10.1.2.*    10.1.*.*    10.1.2.4-20    the same for IPv6

Answers to: RemoteAddressStrategyFactory, AclUtils.
Unlike Java: a pattern that cannot match is an error, and so is one of another form.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final, Self

import attrs

from rocketrio_protocol.errors import ConfigError

PATTERN_LENGTH_LIMIT: Final = 1000
"""The most characters of one text of patterns."""
_HOSTS_KEPT: Final = 4096
"""Hosts whose numeric address is remembered."""

Span = tuple[int, int]

_LAST_SET: Final = re.compile(r"(?P<head>.*[.:])\{(?P<choices>[^{}]*)\}")


@lru_cache(_HOSTS_KEPT)
def numeric_address(host: str) -> IPv4Address | IPv6Address | None:
    """Return the address of a connection's host; None if it is a name."""
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return mapped or address


@attrs.frozen
class AddressPattern:
    """One pattern: for each part of an address the smallest and the largest number."""

    text: str
    spans: tuple[Span, ...] = ()
    """Four parts for IPv4, eight for IPv6; none for all addresses."""

    @classmethod
    def parse_all(cls, text: str) -> tuple[Self, ...]:
        """Parse a text of one or more patterns. Raises ConfigError that quotes it."""
        text = text.strip()
        if len(text) > PATTERN_LENGTH_LIMIT:
            raise ConfigError(f"An address pattern has more than {PATTERN_LENGTH_LIMIT} characters")
        try:
            return tuple(cls(each, _spans(each)) for each in _single_patterns(text))
        except ValueError:
            raise ConfigError(
                f"{text[:100]!r} is not a pattern of addresses like 10.1.2.3, 10.1.2.*, 10.1.2.{{3,4}} or 10.1.2.4-20"
            ) from None

    def matches(self, host: str) -> bool:
        if not self.spans:
            return True
        address = numeric_address(host)
        if address is None:
            return False
        size = 1 if address.version == 4 else 2
        packed = address.packed
        if len(packed) != len(self.spans) * size:
            return False
        parts = (packed[start : start + size] for start in range(0, len(packed), size))
        return all(
            low <= int.from_bytes(part) <= high
            for part, (low, high) in zip(parts, self.spans, strict=True)
        )


def _single_patterns(text: str) -> Iterator[str]:
    """Yield the patterns that a text means, without sets and lists."""
    match = _LAST_SET.fullmatch(text)
    if match is not None:
        yield from (match["head"] + choice.strip() for choice in match["choices"].split(","))
    else:
        yield from (each.strip() for each in text.split(","))


def _spans(text: str) -> tuple[Span, ...]:
    """Return the numbers that each part may have. Raises ValueError."""
    if text in ("*", "*.*.*.*", "*:*:*:*:*:*:*:*"):
        return ()
    if ":" in text:
        parts = _expanded(text)
        return tuple(_span(part, 16, 0xFFFF) for part in parts)
    parts = text.split(".")
    if len(parts) != 4:
        raise ValueError(text)
    return tuple(_span(part, 10, 0xFF) for part in parts)


def _expanded(text: str) -> list[str]:
    """Return the eight parts of a pattern for IPv6, in which `::` stands for zeros."""
    head, gap, tail = text.partition("::")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    zeros = 8 - len(before) - len(after)
    if zeros < 0 or (zeros > 0) != bool(gap):
        raise ValueError(text)
    return before + ["0"] * zeros + after


def _span(part: str, base: int, largest: int) -> Span:
    if part == "*":
        return 0, largest
    first, dash, last = part.partition("-")
    if not (first.isalnum() and (last.isalnum() or not dash)):
        raise ValueError(part)
    low = int(first, base)
    high = int(last, base) if dash else low
    if not 0 <= low <= high <= largest:
        raise ValueError(part)
    return low, high
