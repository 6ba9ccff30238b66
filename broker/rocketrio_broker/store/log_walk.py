"""Walks the log record by record, over padding and from file to file.

The usual record (version 1, IPv4 hosts) is parsed here, in a third of the time that the protocol's parser needs. A
record that looks unusual in any way is passed to that parser, whose result counts.

Invariant: a returned position is the beginning of a record, the end of padding, or the end of the log.
Recovery ends the log at the first bytes that are not a record; later such bytes are damage, and an error.
Answers to: ReputMessageService.doReput's loop, and that of CommitLog's recovery.
Unlike Java: a record whose topic or properties lost sectors does not count as whole; the checksum covers the body only.
"""

from collections.abc import Iterator
from mmap import mmap
from typing import Final, TypeAlias
from zlib import crc32

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.errors import LogDamagedError
from rocketrio_broker.store.mapped_file import MappedFile
from rocketrio_protocol.record.decode import RecordHeader, RecordStatus, scan_record
from rocketrio_protocol.record.layout import (
    HEAD_SIZE,
    HOSTS_IPV6_MASK,
    MAGIC_V1,
    PADDING_HEAD_SIZE,
    RECORD_OVERHEAD,
    head_struct,
)

LogRecord: TypeAlias = tuple[int, int, bytes, int, int, int, int, bytes]
"""(physical offset, size, topic, queue id, queue offset, sys flag, store time in ms, properties)."""

_HEAD: Final = head_struct(
    "size",
    "magic",
    "body_crc",
    "queue_id",
    "queue_offset",
    "physical_offset",
    "sys_flag",
    "store_time",
    "body_size",
)

_SECTOR: Final = 512
"""Bytes that a disk writes as one: what a power cut loses of a record begins and ends at multiples of it."""


class LogWalk:
    """A position that moves through the appended part of the log, from record to record."""

    def __init__(
        self,
        log: CommitLog,
        position: int,
        *,
        check_crc: bool = False,
        stop_at_damage: bool = False,
    ) -> None:
        self.log = log
        self.check_crc = check_crc
        self.stop_at_damage = stop_at_damage
        self.problem = ""
        """Why the walk stopped, if damage stopped it."""
        self.position = position
        """Everything before it was returned."""
        self.last_record: int | None = None
        """The address of the last record that was returned."""

    def records(self, max_bytes: int) -> Iterator[LogRecord]:
        """Yield the next records, about `max_bytes` of them; end early where a record is not complete yet."""
        log = self.log
        stop = self.position + max_bytes
        while self.position < min(stop, log.max_offset):
            file = log.files.file_at(self.position)
            if file is None:
                raise LogDamagedError(self.position, "no file of the log holds this address")
            limit = min(log.max_offset - file.start_offset, file.size)
            yield from self._usual_records(file.mapping, file.start_offset, limit, stop)
            if self.position >= stop:
                return
            at = self.position - file.start_offset
            # The address in it decides: a body may contain what looks like a record.
            record = scan_record(file.view, at, limit, check_crc=self.check_crc)
            if record.status is RecordStatus.RECORD and record.physical_offset == self.position:
                unusual = _as_log_record(record)
                if self.stop_at_damage and is_torn(unusual):
                    self._stop("sectors of its topic or properties were never written")
                    return
                self.last_record = self.position
                self.position += record.size
                yield unusual
            elif not self._pass_padding(file, record, limit):
                return

    def _usual_records(self, data: mmap, base: int, limit: int, stop: int) -> Iterator[LogRecord]:
        """Yield the records from `position` on, up to the first unusual one."""
        unpack, check_crc, check_tears = _HEAD.unpack_from, self.check_crc, self.stop_at_damage
        last_head = limit - RECORD_OVERHEAD
        at = self.position - base
        stop -= base
        while at <= last_head and at < stop:
            size, magic, crc, queue_id, queue_offset, address, sys_flag, store_ms, body_size = (
                unpack(data, at)
            )
            end = at + size
            body_at = at + HEAD_SIZE
            topic_at = body_at + body_size + 1
            if (
                magic != MAGIC_V1
                or sys_flag & HOSTS_IPV6_MASK
                or end > limit
                or not 0 <= body_size <= size - RECORD_OVERHEAD
                or address != base + at
            ):
                return
            properties_at = topic_at + data[topic_at - 1] + 2
            if (
                properties_at > end
                or properties_at + (data[properties_at - 2] << 8 | data[properties_at - 1]) != end
            ):
                return
            if check_crc and crc32(data[body_at : body_at + body_size]) & 0x7FFFFFFF != crc:
                return
            topic, properties = data[topic_at : properties_at - 2], data[properties_at:end]
            record = address, size, topic, queue_id, queue_offset, sys_flag, store_ms, properties
            # The checksum covers the body only: a record whose topic or properties lost sectors has a right one.
            if check_tears and (0 in properties or 0 in topic) and is_torn(record):
                return
            at = end
            self.last_record = address
            self.position = base + end
            yield record

    def _pass_padding(self, file: MappedFile, record: RecordHeader, limit: int) -> bool:
        """Step over padding and return True; otherwise return False, after noting or raising any damage."""
        at = self.position - file.start_offset
        if record.status is RecordStatus.PADDING and at + record.size == file.size:
            self.position += record.size
            return True
        # Replication may split a record: then later bytes will complete the one that begins here.
        is_unfinished = record.status is RecordStatus.INCOMPLETE or (
            record.status is RecordStatus.END and limit - at < PADDING_HEAD_SIZE
        )
        if record.status is RecordStatus.RECORD:
            self._stop(f"the record there says it lies at {record.physical_offset}")
        elif not is_unfinished:
            self._stop(record.problem or "zeros or wrong padding where data was appended")
        return False

    def _stop(self, problem: str) -> None:
        self.problem = f"{self.position}: {problem}"
        if not self.stop_at_damage:
            raise LogDamagedError(self.position, problem)


def _as_log_record(record: RecordHeader) -> LogRecord:
    return (
        record.physical_offset,
        record.size,
        record.topic.encode(),
        record.queue_id,
        record.queue_offset,
        record.sys_flag,
        record.store_time_ms,
        record.properties,
    )


def is_torn(record: LogRecord) -> bool:
    """Return whether sectors of the topic or the properties were lost."""
    physical_offset, size, topic, *_, properties = record
    if 0 in topic:
        return True
    if 0 not in properties:
        return False
    end = physical_offset + size
    start = end - len(properties)
    for at in range(start - start % _SECTOR, end, _SECTOR):
        if at >= start and not properties[at - start : at + _SECTOR - start].strip(b"\0"):
            return True
    return False
