"""What a broker reports about itself in Apache's table of texts (28), as values with units.

`state_of` and `counts_of` are functions of the table. Both products write numbers, sizes as `1.5 GiB`, rates as three
numbers (of 10 seconds, a minute and ten minutes) and times as milliseconds, all as text.

Invariant: a key that is missing, -1 where that stands for "not measured", or unreadable is None, never zero.
Answers to: BrokerStatusSubCommand (`mqadmin brokerStatus`), which prints the texts.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Final, TypeAlias

import attrs

from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.times import time_of

Value: TypeAlias = int | float | str | bool | datetime | None

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?) ?([KMGTPE]?)(i?)B")
_CAPACITY: Final = re.compile(r"Total : (.+?), Free : (.+?)\.?")
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
_SPANS: Final = ("10s", "1m", "10m")


@attrs.frozen
class BrokerNumber:
    """One thing that a broker reported."""

    key: str
    value: Value
    unit: str | None = None


def state_of(runtime: Mapping[str, str], settings: Mapping[str, str]) -> list[BrokerNumber]:
    """Return who a broker is and how its store is, from its runtime table and its settings."""
    read = _Reader(runtime)
    own = _Reader(settings)
    begin, end = "commitLogMinOffset", "commitLogMaxOffset"
    total, free = read.capacity()
    return [
        BrokerNumber("cluster", settings.get("brokerClusterName")),
        BrokerNumber("broker_name", settings.get("brokerName")),
        BrokerNumber("broker_id", own.count("brokerId")),
        BrokerNumber("role", settings.get("brokerRole")),
        BrokerNumber("version", runtime.get("brokerVersionDesc")),
        BrokerNumber("started", read.time("bootTimestamp")),
        BrokerNumber("is_active", read.flag("brokerActive")),
        BrokerNumber("log_begin", read.count(begin), "offset"),
        BrokerNumber("log_end", read.count(end), "offset"),
        BrokerNumber("log_size", read.since(end, begin), "bytes"),
        BrokerNumber("oldest_message", read.time("earliestMessageTimeStamp")),
        BrokerNumber("kept_for", own.count("fileReservedTime"), "hours"),
        BrokerNumber("disk_size", total, "bytes"),
        BrokerNumber("disk_free", free, "bytes"),
        BrokerNumber("disk_used", read.ratio("commitLogDiskRatio"), "of 1"),
        BrokerNumber("not_flushed", read.size("remainHowManyDataToFlush"), "bytes"),
        BrokerNumber("not_dispatched", read.count("dispatchBehindBytes"), "bytes"),
        BrokerNumber("flush", settings.get("flushDiskType")),
    ]


def counts_of(runtime: Mapping[str, str]) -> list[BrokerNumber]:
    """Return what a broker has counted and measured, from its runtime table."""
    read = _Reader(runtime)
    transferred = "getTransferredTps" if "getTransferredTps" in runtime else "getTransferedTps"
    return [
        *read.rates("stored", "putTps"),
        *read.rates("delivered", transferred),
        *read.rates("pulls", "getTotalTps"),
        *read.rates("pulls_without_messages", "getMissTps"),
        BrokerNumber("stored_in_all", read.count("putMessageTimesTotal"), "messages"),
        BrokerNumber("stored_bytes_in_all", read.count("putMessageSizeTotal"), "bytes"),
        *read.days("stored", "msgPutTotal"),
        *read.days("delivered", "msgGetTotal"),
        BrokerNumber("sends_failed", read.count("putMessageFailedTimes"), "messages"),
        BrokerNumber("message_size", read.ratio("putMessageAverageSize"), "bytes"),
        BrokerNumber("store_time_max", read.count("putMessageEntireTimeMax"), "ms"),
        BrokerNumber("store_time_p99", read.ratio("putLatency99"), "ms"),
        BrokerNumber("store_time_p999", read.ratio("putLatency999"), "ms"),
        BrokerNumber("store_times", read.text("putMessageDistributeTime")),
    ]  # fmt: skip


@attrs.frozen
class _Reader:
    table: Mapping[str, str]

    def text(self, key: str) -> str | None:
        text = self.table.get(key, "").strip()
        return None if text in ("", "null") else text

    def count(self, key: str) -> int | None:
        return decimal_value(self.text(key))

    def ratio(self, key: str) -> float | None:
        return _decimal(self.text(key))

    def flag(self, key: str) -> bool | None:
        return {"true": True, "false": False}.get(self.table.get(key, "").lower())

    def time(self, key: str) -> datetime | None:
        ms = self.count(key)
        return None if ms is None else time_of(ms)

    def since(self, now: str, then: str) -> int | None:
        """Return the difference of two numbers; None if it is negative, as of totals of a broker that was restarted."""
        end, begin = self.count(now), self.count(then)
        if end is None or begin is None or end < begin:
            return None
        return end - begin

    def days(self, name: str, key: str) -> Iterator[BrokerNumber]:
        """Yield how much a total has grown today and yesterday."""
        now, morning, before = (
            f"{key}{when}" for when in ("TodayNow", "TodayMorning", "YesterdayMorning")
        )
        yield BrokerNumber(f"{name}_today", self.since(now, morning), "messages")
        yield BrokerNumber(f"{name}_yesterday", self.since(morning, before), "messages")

    def size(self, key: str) -> int | None:
        return size_of(self.text(key))

    def capacity(self) -> tuple[int | None, int | None]:
        found = _CAPACITY.fullmatch(self.text("commitLogDirCapacity") or "")
        return (None, None) if found is None else (size_of(found[1]), size_of(found[2]))

    def rates(self, name: str, key: str) -> Iterator[BrokerNumber]:
        parts = (self.text(key) or "").split(" ")
        for index, span in enumerate(_SPANS):
            value = _decimal(parts[index]) if index < len(parts) else None
            yield BrokerNumber(f"{name}_{span}", value, "a second")


def size_of(text: str | None) -> int | None:
    """Return the bytes that a text as `1.5 GiB` or `0B` means; None for another text. Java's units are binary."""
    found = _SIZE.fullmatch((text or "").strip())
    if found is None:
        return None
    return round(float(found[1]) * float(1024 ** _POWERS[found[2]]))


def _decimal(text: str | None) -> float | None:
    if text is None or re.fullmatch(r"[0-9]+(\.[0-9]+)?(E-?[0-9]+)?", text) is None:
        return None
    return float(text)
