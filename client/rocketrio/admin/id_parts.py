"""What is inside the id of a message, without asking anybody: `message get --decode-only`.

Both ids have 32 or 56 digits, so either reading may be the right one; a reading that cannot be is None.

Answers to: DecodeMessageIdCommond (`mqadmin DecodeMessageId`), MessageClientIDSetter.getNearlyTimeFromID.
"""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import attrs

from rocketrio_protocol.record.message_id import parse_offset_message_id
from rocketrio_protocol.remoting.ports import join_addr

_TAIL = 24
"""Digits of a producer's id after its address: process, instance, time and counter."""


@attrs.frozen
class IdParts:
    """The two readings of an id."""

    message_id: str
    broker_address: str | None
    """As an offset id: the broker that stored it. None if no broker can have this port, as for the next."""
    physical_offset: int | None
    producer_host: str | None
    """As a producer's id: its address. None for an id of another form, as for the next."""
    process_id: int | None
    """The lower 16 bits."""
    created: datetime | None
    """When it was made: the month is not in the id, so the last month in which that time has passed is taken."""


def id_parts(message_id: str, now: datetime) -> IdParts:
    """Return what is inside an id. Raises LocalProtocolError for a text that is neither."""
    ip, port, offset = parse_offset_message_id(message_id)
    is_place = 0 < port < 65_536 and offset >= 0
    head = message_id[:-_TAIL]
    host = str(ip_address(bytes.fromhex(head))) if len(head) in (8, 32) else None
    digits = message_id[-_TAIL:]
    millis = int(digits[12:20], 16)
    created = None if host is None else _time(millis, now)
    return IdParts(
        message_id,
        join_addr(ip, port) if is_place else None,
        offset if is_place else None,
        host if created is not None else None,
        int(digits[:4], 16) if created is not None else None,
        created,
    )


def _time(millis: int, now: datetime) -> datetime | None:
    """Return the time this long after the begin of this month, or of the last one if that is still to come."""
    month = now.astimezone(UTC).replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    # Java begins the month in its own time zone.
    for start in (month, (month - timedelta(days=1)).replace(day=1)):
        time = start + timedelta(milliseconds=millis)
        if time <= now + timedelta(days=1):
            return time
    return None
