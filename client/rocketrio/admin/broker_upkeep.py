"""Has a broker delete files that it does not need any more: `mqadmin cleanExpiredCQ`, `cleanUnusedTopic`,
`deleteExpiredCommitLog`.

Brokers do it by themselves once a day or when a disk is full. What would be deleted is not known before: `expected`
judges by the retention and the age of the oldest message.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import attrs

from rocketrio.admin.admin import Admin
from rocketrio.admin.broker_numbers import BrokerNumber, state_of
from rocketrio_protocol.commands.admin import (
    CleanExpiredQueuesRequestHeader,
    CleanUnusedTopicsRequestHeader,
    DeleteExpiredLogRequestHeader,
)
from rocketrio_protocol.headers import RequestHeader

CLEAN_TIMEOUT: Final = 30.0
"""Seconds for a broker to delete files."""
_SHOWN = ("log_begin", "log_size", "oldest_message", "disk_free")


class Cleaning(StrEnum):
    """What is deleted."""

    QUEUES = "queues"
    """Files of queues whose messages are no longer in the log."""
    TOPICS = "topics"
    """Queues of topics that the broker does not have any more."""
    LOG = "log"
    """Files of the log that are older than the retention."""


_REQUESTS: Final[Mapping[Cleaning, type[RequestHeader]]] = {
    Cleaning.QUEUES: CleanExpiredQueuesRequestHeader,
    Cleaning.TOPICS: CleanUnusedTopicsRequestHeader,
    Cleaning.LOG: DeleteExpiredLogRequestHeader,
}


@attrs.frozen
class Cleaned:
    """One number of a broker before and after it; `after` is None in a dry run, or if it was not reported."""

    what: str
    before: object
    after: object
    unit: str | None


async def clean(
    admin: Admin, addr: str, cleaning: Cleaning, *, dry_run: bool = False
) -> list[Cleaned]:
    """Have the broker at an address delete files; return its numbers before and after, with `dry_run` only before.

    Apache's brokers delete files of the log within the next ten seconds, so `after` may not show it yet. Raises
    NotReachableError, BrokerError.
    """
    before = await _numbers(admin, addr)
    after: Mapping[str, BrokerNumber] = {}
    if not dry_run:
        header = _REQUESTS[cleaning]()
        await admin.calls.ask(addr, header, f"{cleaning.value} not cleaned", timeout=CLEAN_TIMEOUT)
        after = await _numbers(admin, addr)
    return [
        Cleaned(key, before[key].value, after[key].value if after else None, before[key].unit)
        for key in _SHOWN
    ]


async def _numbers(admin: Admin, addr: str) -> dict[str, BrokerNumber]:
    state = state_of(await admin.calls.runtime_info(addr), await admin.calls.broker_config(addr))
    return {one.key: one for one in state}


def expected(cleaning: Cleaning, oldest: object, kept_hours: object, now: datetime) -> str:
    """Return a sentence on what a broker would delete, by its oldest message and its retention."""
    if cleaning is Cleaning.TOPICS:
        return "queues of topics that it does not have any more would go; it does not report which"
    if not isinstance(oldest, datetime) or not isinstance(kept_hours, int):
        return (
            "it does not report its oldest message and its retention, so what would go is unknown"
        )
    kept = timedelta(hours=kept_hours)
    if cleaning is Cleaning.QUEUES:
        return "files of queues whose messages are no longer in the log would go"
    if now - oldest > kept:
        return f"files of the log whose messages are all older than {kept_hours} hours would go"
    return f"nothing would go: the oldest message is younger than {kept_hours} hours"
