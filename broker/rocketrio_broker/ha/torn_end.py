"""Finds out whose copy of the log's end is damaged, and replaces it by an intact copy.

No checksum covers a record's head, topic and properties. After a power cut, or on a disk that does not keep its
promises, the last records of a log may have lost bytes there and still look whole. Another broker of the name has the
same records: they are read from its replication port, which Apache's slaves serve too, and compared.

    own     | record | record, damaged | record |
    peer    | record | record          | record |      same address and head, or nothing but zeros: copies of one record

Which copy is damaged:

    it is not a record, its properties are invalid, or it has zeros for data   that copy
    two copies agree against the third                                         the third
    this log was recovered after a crash                                       this broker's
    otherwise                                                                  undecided: see resync.py

Invariant: a record is only replaced by another copy of itself; a difference of any other kind changes nothing.
Invariant: before a record is replaced, the log from there on is in the folder `cut`, synced; other records stay.
Answers to: nothing in Apache's brokers; there a slave appends after whatever its log ends with.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.exchange import READER, ask_welcome
from rocketrio_broker.ha.history import FIRST_ADDRESS, WINDOWS, last_boundary
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.stream import TransferDecoder, encode_report
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.layout import HEAD_SIZE, MAGIC_PADDING, PADDING_HEAD_SIZE
from rocketrio_protocol.record.properties import can_be_properties
from rocketrio_protocol.remoting.ports import Dial, WallClock

logger = logging.getLogger("rocketrio_broker.ha")

COMPARED_SIZE: Final = WINDOWS[0]
"""The number of bytes at the end of the log that are compared."""

READ_LIMIT: Final = 3.0
"""Seconds that a peer may take to send them; what was received by then is compared."""

SILENCE_LIMIT: Final = 0.5
"""Seconds of silence after which a peer that has sent something has sent all that it has."""

_READ_SIZE: Final = 64 << 10
_PADDING_MAGIC: Final = MAGIC_PADDING.to_bytes(4, signed=True)
_TORN_RUN: Final = 2
"""The number of zeros that show damage; a single zero may be the true byte."""


@attrs.frozen
class PeerLog:
    """The log of another broker, and where that broker serves it."""

    ha_addr: str
    end: int
    knows_epochs: bool
    """Whether it is a rocketrio broker: then the greeting says that this broker is only a reader, not a slave."""
    addr: str = ""
    """Where the broker answers requests; empty if only its replication port is known."""


class Damage(Enum):
    """The result of a comparison, the first that applies."""

    OWN = "own"
    """Records of this log were damaged, and are replaced."""
    UNDECIDED = "undecided"
    PEER = "peer"
    NONE = "none"


@attrs.define
class EndJudgement:
    """What a comparison of one log's end with its peers' shows."""

    replacements: dict[int, bytes] = attrs.field(factory=dict)
    """Intact copies of this log's damaged records, by place."""
    damaged_peers: set[str] = attrs.field(factory=set)
    is_undecided: bool = False

    @property
    def damage(self) -> Damage:
        if self.replacements:
            return Damage.OWN
        if self.is_undecided:
            return Damage.UNDECIDED
        return Damage.PEER if self.damaged_peers else Damage.NONE


class TornEnd:
    """Compares the end of one broker's log with its peers', and repairs it."""

    def __init__(self, store: MessageStore, *, dial: Dial, wall_clock: WallClock) -> None:
        """`dial` reaches replication ports."""
        self._store = store
        self._dial = dial
        self._wall_clock = wall_clock

    def __repr__(self) -> str:
        return f"<TornEnd of {self._store!r}>"

    async def compare(self, peers: Sequence[PeerLog]) -> Damage:
        """Compare with these peers, and replace what is damaged here.

        A peer that cannot be read is omitted. Raises OSError, and changes nothing, when the disk has no room for what
        is replaced; a cancel changes nothing either.
        """
        log = self._store.commit_log
        end, truncations = log.max_offset, log.truncations
        start = last_boundary(log, log.min_offset, max(log.min_offset, end - COMPARED_SIZE))
        found: dict[str, bytes] = {}
        async with trio.open_nursery() as nursery:
            for peer in peers:
                if start < min(end, peer.end):
                    nursery.start_soon(self._read, peer, start, min(end, peer.end), found)
        # The log may have been cut while the peers were read: what they sent belongs to other bytes then.
        if not found or truncations != log.truncations:
            return Damage.NONE
        own = bytes_of(log, start, end)
        if all(own.startswith(data) for data in found.values()):
            return Damage.NONE
        records = records_of([own, *found.values()], start, log.file_size)
        judgement = judge(own, found, start, records, crashed_end=self._store.doubtful_end)
        if judgement.replacements:
            await self._replace(start, own, judgement.replacements)
        for addr in sorted(judgement.damaged_peers):
            logger.warning("the end of another log is damaged, this one's is whole peer=%s", addr)
        return judgement.damage

    async def _read(self, peer: PeerLog, start: int, end: int, found: dict[str, bytes]) -> None:
        try:
            found[peer.ha_addr] = await read_log(self._dial, peer, start, end)
        except Error as error:
            logger.info(
                "the end of a log could not be compared peer=%s reason=%s", peer.ha_addr, error
            )

    async def _replace(self, start: int, own: bytes, replacements: Mapping[int, bytes]) -> None:
        store, first = self._store, min(replacements)
        repaired = bytearray(own)
        moved: set[tuple[str, int]] = set()
        for at, whole in replacements.items():
            repaired[at : at + len(whole)] = whole
            damaged = own[at : at + len(whole)]
            # Bytes that were not a record have no queue entry.
            if _is_record(damaged, start + at):
                places = [_place(damaged), _place(whole)]
                if places[0] != places[1]:
                    moved.update(place[:2] for place in places)
        # First into the folder `cut`, synced: if the process dies before the next
        # line, the records are there, and a peer has them.
        path = await store.cut_tail(start + first, now_ms=self._wall_clock.now_ms(), rebuilt=moved)
        store.append_raw(start + first, repaired[first:])
        logger.warning(
            "damaged records at the log's end are replaced by another broker's offset=%d records=%d "
            "kept_in=%s",
            start + first, len(replacements), path,
        )  # fmt: skip
        await store.flush()


# --- bytes of logs ---------------------------------------------------------------------------


def bytes_of(log: CommitLog, start: int, end: int) -> bytes:
    """Return the bytes between two addresses of a log, as far as it has them."""
    parts = []
    while start < end and (block := log.read(start, end - start)):
        parts.append(bytes(block))
        start += len(block)
    return b"".join(parts)


async def read_log(dial: Dial, peer: PeerLog, start: int, end: int) -> bytes:
    """Return the bytes between two addresses of a peer's log, as far as the peer sends them in time."""
    asked = max(start, FIRST_ADDRESS)
    # A reader that asks from 0 reports an empty log, so byte 0 is not requested; it is 0, because no record is so
    # large that its size begins with another byte.
    data = bytearray(asked - start)
    with trio.move_on_after(READ_LIMIT):
        transport = await dial(peer.ha_addr)
        try:
            if peer.knows_epochs:
                await ask_welcome(transport, READER)
            await transport.send_all(encode_report(asked))
            buffer = memoryview(bytearray(_READ_SIZE))
            decoder = TransferDecoder(confirms=peer.knows_epochs)
            while start + len(data) < end:
                received = 0
                with trio.move_on_after(SILENCE_LIMIT if start + len(data) > asked else READ_LIMIT):
                    received = await transport.receive_into(buffer)
                if not received:
                    break
                for part in decoder.feed(buffer[:received]):
                    if part.body and part.physical_offset == start + len(data):
                        data += part.body
        finally:
            await transport.aclose()
    return bytes(data[: end - start]) if start + len(data) > asked else b""


# --- whose copy is damaged -------------------------------------------------------------------


def records_of(logs: Sequence[bytes], start: int, file_size: int) -> list[tuple[int, int]]:
    """Return places and sizes of the records in the same part of some logs.

    Each is taken from the first log in which it is whole. The head of padding counts as a record. `start` is the
    address of the logs' first byte, where a record begins.
    """
    found = []
    at = 0
    while True:
        file_end = file_size - (start + at) % file_size + at
        for data in logs:
            record = scan_record(data, at, min(len(data), file_end))
            if record.status is RecordStatus.RECORD and record.physical_offset == start + at:
                found.append((at, record.size))
            elif record.status is RecordStatus.PADDING and at + record.size == file_end:
                found.append((at, PADDING_HEAD_SIZE))
            else:
                continue
            at += record.size
            break
        else:
            return found


def judge(
    own: bytes,
    peers: Mapping[str, bytes],
    start: int,
    records: Sequence[tuple[int, int]],
    *,
    crashed_end: int,
) -> EndJudgement:
    """Compare the end of a log, from the address `start` on, with the same part of its peers' logs.

    `records`: their places and sizes. `crashed_end`: what lies before this address was in the log when it crashed.
    """
    judgement = EndJudgement()
    copies = {}
    for addr, data in peers.items():
        if have_same_records(own, data, start, records):
            copies[addr] = data
        else:
            judgement.is_undecided = True
    for at, size in records:
        end = at + size
        others = {addr: data[at:end] for addr, data in copies.items() if len(data) >= end}
        if any(other != own[at:end] for other in others.values()):
            is_doubtful = start + end <= crashed_end
            _judge_record(judgement, start, at, own[at:end], others, is_doubtful=is_doubtful)
    return judgement


def _judge_record(
    judgement: EndJudgement,
    start: int,
    at: int,
    own: bytes,
    others: Mapping[str, bytes],
    *,
    is_doubtful: bool,
) -> None:
    """Decide about one record of which not all copies are equal."""
    in_doubt: dict[str, bytes] = {}
    for addr, other in others.items():
        damaged = _damaged_of(own, other, start + at)
        if damaged is own:
            judgement.replacements[at] = other
            return
        if damaged is other:
            judgement.damaged_peers.add(addr)
        else:
            in_doubt[addr] = other
    counts = Counter([own, *in_doubt.values()])
    # The majority decides. Without one, the copy that was there at a crash is the damaged one.
    best, count = max(counts.items(), key=lambda item: (item[1], item[0] != own and is_doubtful))
    if count == 1 and len(counts) > 1 and not is_doubtful:
        judgement.is_undecided = True
    elif best != own:
        judgement.replacements[at] = best
    else:
        judgement.damaged_peers.update(addr for addr, other in in_doubt.items() if other != own)


def have_same_records(
    own: bytes, data: bytes, start: int, records: Sequence[tuple[int, int]]
) -> bool:
    """Return whether two logs contain copies of the same records, perhaps damaged, as far as both go."""
    covered = [(at, size) for at, size in records if at + size <= len(data)]
    end = sum(covered[-1]) if covered else 0
    patched = bytearray(own[: len(data)])
    for at, size in covered:
        one, other = own[at : at + size], data[at : at + size]
        if one != other:
            if not _is_same_record(one, other, start + at):
                return False
            patched[at : at + size] = other
    # Bytes between records, and the part of a record at the end, must be equal too.
    return patched[:end] == data[:end] and (bool(covered) or patched == data)


def _is_same_record(one: bytes, other: bytes, address: int) -> bool:
    """Return whether two copies that differ are one record: only damage can have made the difference."""
    if not any(_is_record(copy, address) for copy in (one, other)):
        return False
    differing = _differing(one, other)
    return (
        # The same head was stored by one broker at one time: two masters would have written different times.
        differing[0] >= HEAD_SIZE
        or len(differing) == 1
        or _are_zeros(one, differing)
        or _are_zeros(other, differing)
    )


def _damaged_of(one: bytes, other: bytes, address: int) -> bytes | None:
    """Return which of two copies is evidently damaged; None if neither is, or if they are equal."""
    if one == other:
        return None
    for is_good in (_is_record, _has_properties):
        good = is_good(one, address), is_good(other, address)
        if good[0] != good[1]:
            return other if good[0] else one
    differing = _differing(one, other)
    if len(differing) >= _TORN_RUN:
        if _are_zeros(one, differing):
            return one
        if _are_zeros(other, differing):
            return other
    return None


def _place(copy: bytes) -> tuple[str, int, int, int]:
    """Return the topic, queue, queue offset and flags of a record."""
    record = scan_record(copy, 0, len(copy))
    return record.topic, record.queue_id, record.queue_offset, record.sys_flag


def _is_record(copy: bytes, address: int) -> bool:
    if len(copy) == PADDING_HEAD_SIZE:
        return copy.endswith(_PADDING_MAGIC)
    record = scan_record(copy, 0, len(copy))
    return (
        record.status is RecordStatus.RECORD
        and record.size == len(copy)
        and record.physical_offset == address
    )


def _has_properties(copy: bytes, address: int) -> bool:
    return _is_record(copy, address) and can_be_properties(
        scan_record(copy, 0, len(copy)).properties
    )


def _differing(one: bytes, other: bytes) -> list[int]:
    return [at for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]]


def _are_zeros(copy: bytes, places: Sequence[int]) -> bool:
    return not any(copy[at] for at in places)
