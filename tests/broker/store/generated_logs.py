"""Logs as they may be found on a disk: usual and unusual records, file ends, damage; made from a seed."""

import random
from pathlib import Path

import pytest

from rocketrio_broker.store import dispatch, record_columns
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.encode import encode_padding, encode_record
from rocketrio_protocol.record.layout import RECORD_OVERHEAD, pack_host

FOLDER = Path("/data/commitlog")
FILE_SIZE = 16 << 10
V4, V6 = pack_host("127.0.0.1", 10911), pack_host("2001:db8::1", 10911)
SECTOR = 512

TOPICS = [b"t", b"orders", b"payments", "téléphone".encode(), b"x" * 127, b"SCHEDULE_TOPIC_XXXX"]
TAGS = ["", "a", "TagB", "one || two", "é", "x" * 40]
ODD_PROPERTIES = [
    b"",
    b"\1\2\1\2",
    b"KEYS\1",
    b"KEYS\1\2TAGS\1\2",
    b"TAGS\1first\2TAGS\1second\2KEYS\1a\2KEYS\1\2",
    b"MYTAGS\1x\2YOUR_KEYS\1y\2MY_UNIQ_KEY\1z",
    b"A\1TAGS\1x\2UNIQ_KEY\1a\1b\2",
    b"KEYS\1  a  b \2",
    b"\2\2TAGS\1\xff\xfe\2KEYS\1\xff \xfea",
    b"UNIQ_KEY\1TAGS\2KEYS\1\0\0",
    b"TAGS\1" + b"t" * 700 + b"\2",
    b"BIG\1" + bytes(1100) + b"\2",
    b"rocketrioDeleted\x011.0\2",
]


class LogWriter:
    """Puts records of a few queues one behind the other, with padding where a file ends."""

    def __init__(self, seed: int, file_size: int = FILE_SIZE) -> None:
        self.file_size = file_size
        self.rng = random.Random(seed)
        self.data = bytearray()
        self.starts: list[int] = []
        self._offsets: dict[tuple[bytes, int], int] = {}
        self._count = 0
        # Some logs are all alike, some are a jumble.
        self._oddness = self.rng.choice((0.0, 0.0, 0.03, 0.3))
        self._topics = self.rng.sample(TOPICS, self.rng.choice((1, 1, 2, 6)))
        self._body_sizes = self.rng.choice(((40,), (0, 7, 40), (0, 300, 900)))
        self._store_ms = 1_700_000_000_000

    def is_odd(self) -> bool:
        return self.rng.random() < self._oddness

    def write(self, count: int) -> None:
        for _ in range(count):
            self._write_one()

    def _write_one(self) -> None:
        rng = self.rng
        self._store_ms += rng.choice((0, 0, 1, 700, 5000))
        topic, queue_id = rng.choice(self._topics), rng.randrange(3)
        sys_flag = rng.choice((4, 8, 12)) if self.is_odd() else 0
        has_entry = sys_flag & 4 == 0
        offset = self._offsets.get((topic, queue_id), 0) if has_entry else 0
        if has_entry and self.is_odd():
            offset = rng.choice((0, offset + 1, offset + 7, max(offset - 1, 0)))
        if has_entry:
            self._offsets[topic, queue_id] = offset + 1

        def record(address: int) -> bytes:
            return encode_record(
                queue_id=queue_id,
                flag=0,
                queue_offset=offset,
                physical_offset=address,
                sys_flag=sys_flag,
                born_time_ms=1,
                born_host=born_host,
                store_time_ms=self._store_ms,
                store_host=V4,
                reconsume_times=0,
                prepared_transaction_offset=0,
                body=body,
                topic=topic,
                properties=properties,
            )

        born_host = V6 if self.is_odd() else V4
        body = rng.randbytes(rng.choice(self._body_sizes))
        properties = self._properties()
        rest = self.file_size - len(self.data) % self.file_size
        if len(record(0)) + 8 > rest:
            self.data += encode_padding(rest) + rng.randbytes(rest - 8)
        self.starts.append(len(self.data))
        self.data += record(len(self.data))

    def _properties(self) -> bytes:
        rng = self.rng
        if self.is_odd():
            return rng.choice(ODD_PROPERTIES)
        self._count += 1
        parts = [f"UNIQ_KEY\1{self._count:032X}", f"TAGS\1{rng.choice(TAGS)}", "WAIT\1true"]
        if rng.random() < 0.5:
            parts.append("KEYS\1" + rng.choice(("k", f"key{self._count}", "two keys", "ümläut b")))
        if rng.random() < 0.2:
            parts.append(f"DELAY\1{rng.randrange(4)}")
        return "\2".join(parts).encode() + rng.choice((b"", b"\2"))

    def damage(self) -> None:
        """What a crash, a bad disk or a transfer under way leaves."""
        rng = self.rng
        at = rng.randrange(len(self.data))
        kind = rng.randrange(6)
        if kind == 0:
            del self.data[at:]
        elif kind == 1:
            self.data[at] ^= 1 << rng.randrange(8)
        elif kind == 2:
            start = at - at % SECTOR
            self.data[start : start + SECTOR] = bytes(len(self.data[start : start + SECTOR]))
        elif kind == 3:
            self.data[at:] = bytes(len(self.data) - at)
        elif kind == 4:
            at = rng.choice(self.starts) + rng.choice((0, 4, 8, 20, 28, 36, 84))
            self.data[at : at + 4] = rng.randbytes(len(self.data[at : at + 4]))


def usual_log(count: int, file_size: int = 1 << 20) -> LogWriter:
    """A log without anything unusual."""
    seed = 0
    while (writer := LogWriter(seed, file_size))._oddness:
        seed += 1
    writer.write(count)
    return writer


def use_columns_from(patch: pytest.MonkeyPatch, few: int) -> None:
    """Let stretches of this many records be read as columns, and shorter ones record by record."""
    patch.setattr(record_columns, "FEW_RECORDS", few)
    for module in (record_columns, dispatch):
        patch.setattr(module, "LEAST_STRETCH", RECORD_OVERHEAD * few)


def log_of(data: bytes | bytearray, file_size: int = FILE_SIZE) -> CommitLog:
    """A log with these bytes, as replication writes it."""
    disk = MemoryDisk()
    disk.make_directory(FOLDER)
    log = CommitLog(FOLDER, file_size, disk=disk)
    if data:
        log.append_raw(0, data)
    return log


def generated(seed: int, *, damaged: bool) -> CommitLog:
    """A log of some dozens of records, whole or damaged."""
    writer = LogWriter(seed)
    writer.write(writer.rng.randrange(1, 250))
    if damaged:
        writer.damage()
    return log_of(writer.data)
