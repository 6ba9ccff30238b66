"""Recovers a data directory: finds the log's end and makes the queues match the log.

1. Choose where to start: at the checkpoint's position, or before the first entry that it covers and that the files of a
   queue lack; without a rocketrio checkpoint, by Apache's times.
2. Remove every queue entry for messages from there on.
3. Walk the log and add entries, up to the first bytes that are not a whole record: that is the end.
   An entry that does not fit its queue means that older entries are missing: start again at an earlier address.
4. After a crash check the last record, as no checksum covers its properties. If no client can have written them
   (NUL, not UTF-8, no name), the log ends before it.
5. Cut the log at the end: what follows is saved, later files are deleted, the rest of the last one becomes zeros.

Invariant: afterwards every record of the log has its entry, and all entries are for such records.
Invariant: nothing that a checkpoint covers is cut, as a crash leaves what was flushed whole.
Invariant: after a crash nothing is cut before it is saved in the folder `cut`.
Answers to: CommitLog.recoverNormally, recoverAbnormally, ConsumeQueue.recover, truncateDirtyLogicFiles.
Unlike Java: a last record with torn properties is not served; odd properties of any other record are, as some clients
write such properties.
Unlike Java: stale records after the end are erased; otherwise a later recovery could take them for data.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs

from rocketrio_broker.store.checkpoint import Checkpoint
from rocketrio_broker.store.commit_log import CommitLog, store_timestamp
from rocketrio_broker.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.deletion import deletion_in
from rocketrio_broker.store.dispatch import QueueDispatcher, QueueGapError, has_queue_entry
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.properties import can_be_properties
from rocketrio_protocol.steps import all_at_once

_LOG: Final = logging.getLogger("rocketrio_broker.store")

TIME_SLACK_MS: Final = 3000
"""3 s, as StoreCheckpoint.getMinTimestamp: the times of a checkpoint are a little ahead of the syncs."""

_WALK_STEP: Final = 64 << 20  # bytes between writes of new queue entries to their files

LOST_SHOWN: Final = 20
"""The most log lines for queues that lack entries; each line has their count."""

_KEPT_SIZE: Final = 8 << 20
"""Bytes after the end that are saved: twice the largest message."""

KeepBytes = Callable[[int, bytes], object]
"""Saves bytes from an address of the log, synced; blocks."""


@attrs.frozen
class Recovered:
    """The result of a recovery."""

    start: int
    """The address from which the log was read again."""
    end: int
    message_count: int
    """The number of records read again."""
    last_store_time_ms: int


def recover(
    log: CommitLog,
    table: ConsumeQueueTable,
    dispatcher: QueueDispatcher,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    check_crc: bool,
    has_bounds: bool,
    keep: KeepBytes,
    lower: Callable[[int], None],
) -> Recovered:
    """Find the end of a loaded log and rebuild what the queues lack; blocks, and ends with everything synced.

    `has_bounds` says whether the table knows what the queues should have. `lower` moves the checkpoint's position down.
    Raises OSError, with the log unchanged, if the disk has no room for what `keep` saves.
    """
    if not log.files.files:
        table.clear()
        log.set_end(0)
        return Recovered(0, 0, 0, 0)
    log.begin_offset = _find_begin(log, checkpoint)
    log.set_end(log.files.end_offset)  # for reading; the walk finds the real end
    start = _choose_start(log, table, checkpoint, clean=clean)
    if checkpoint.positions is not None:
        lost = _lost_entries(log, table, start, is_lowered=checkpoint.is_lowered)
        if not has_bounds and start > log.min_offset:
            _LOG.warning("queue table missing or damaged, all queues are made from the log again")
            lost_from = log.min_offset
        else:
            lost_from = min((one.address for one in lost), default=start)
        if lost_from < start:
            # First: a power cut during the rebuild can leave holes before entries that are whole.
            lower(lost_from)
            start = lost_from
        for one in lost:
            one.cut()
    loaded = frozenset(queue.key for queue in table)
    files_back = 1
    while True:
        try:
            walk, count, last_ms = _rebuild(
                log, table, dispatcher, start, loaded=loaded, check_crc=check_crc
            )
            break
        except QueueGapError as gap:
            first_file = start // log.file_size * log.file_size - files_back * log.file_size
            start = max(log.min_offset, first_file)
            files_back *= 2
            # Queues that began in this attempt may begin earlier in the next one.
            for queue in [queue for queue in table if queue.key not in loaded]:
                table.delete_queue(queue)
            _LOG.warning("recovery from earlier to=%d reason=%s", start, gap)
    dispatcher.complete_queues = frozenset()
    if walk.problem:
        _LOG.info("log end found clean=%s at=%s", clean, walk.problem)
    end = walk.position
    if not clean:
        end = _end_before_torn(log, walk)
        # Before `truncate` fills it with zeros; if the disk has no room for it, the log stays as it is.
        _keep_rest(log, end, keep)
        if end < walk.position:
            _cut_queues(table, end)
    log.truncate(end)
    for file in log.files.files_between(start, end):
        file.flush()
    # Only now: what the crashed process had appended was in the page cache, and a power cut could still take it.
    log.flushed.reset(end)
    all_at_once(table.raise_min(log.min_offset))
    return Recovered(start, end, count, last_ms)


def _find_begin(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Return where the data of the first file begins: a slave may have joined in the middle of the file.

    Only the checkpoint knows: after a crash the first records can be missing while later ones are there.
    """
    first = log.files.files[0]
    if checkpoint.positions is not None:
        begin = checkpoint.positions.log_begin
        if first.start_offset <= begin < first.end_offset:
            return begin
    return first.start_offset


def _choose_start(
    log: CommitLog, table: ConsumeQueueTable, checkpoint: Checkpoint, *, clean: bool
) -> int:
    lowest = log.min_offset
    if not len(table):
        # An operator removed the queues to have them rebuilt, as Apache's brokers do in that case.
        return lowest
    if checkpoint.positions is not None:
        position = checkpoint.positions.queue_position
        if lowest <= position <= log.files.end_offset:
            return position
    if clean and checkpoint.queue_timestamp_ms:
        # After Apache's clean stop everything was dispatched; only the end of the last file is unknown.
        start = _newest_file(log, before_ms=1 << 62)
        return max(lowest, min(start, table.last_physical_end()))
    return max(lowest, _newest_file(log, checkpoint.queue_timestamp_ms - TIME_SLACK_MS))


@attrs.frozen
class _LostEntries:
    """Entries that a checkpoint covers and that the files of their queue lack."""

    queue: ConsumeQueue
    first: int
    address: int
    """The log has their records from here on."""

    def cut(self) -> None:
        """Keep the entries before them."""
        if self.first == self.queue.min_offset:
            self.queue.clear()
        else:
            self.queue.truncate(self.first)


def _lost_entries(
    log: CommitLog, table: ConsumeQueueTable, start: int, *, is_lowered: bool
) -> list[_LostEntries]:
    """Compare the files of each queue with its recorded bounds; return what they lack of what lies before `start`.

    If the checkpoint was lowered, the log may have been cut since, and the newest entries with it.
    """
    lost: list[_LostEntries] = []
    for queue in table:
        if not queue.is_trusted or start <= log.min_offset:
            continue
        is_cut = is_lowered and queue.last_physical_end > start
        end = queue.first_at_or_after(start) if is_cut else queue.max_offset
        first = queue.first_lost(end)
        if first < end:
            is_whole = first == queue.min_offset
            address = log.min_offset if is_whole else queue.end_of_entry(first - 1)
            lost.append(_LostEntries(queue, first, address))
    deleted = _topics_deleted_from(log, start) if lost else set()
    for one in lost:
        if one.queue.key[0] in deleted:
            # The files went with their topic, whose deletion the walk meets.
            table.delete_queue(one.queue)
    lost = [one for one in lost if one.queue.key[0] not in deleted]
    for one in lost[:LOST_SHOWN]:
        topic, queue_id = one.queue.key
        _LOG.warning(
            "queue lacks entries, they are made from the log again topic=%s queue_id=%d from=%d to=%d queues=%d",
            topic, queue_id, one.first, one.queue.max_offset, len(lost),
        )  # fmt: skip
    return lost


def _topics_deleted_from(log: CommitLog, start: int) -> set[str]:
    """Return the topics whose deletion is in the log from `start` on."""
    walk = LogWalk(log, start, stop_at_damage=True)
    return {
        deletion.topic
        for _, _, topic, _, _, sys_flag, _, properties in walk.records(log.max_offset - start)
        if not has_queue_entry(sys_flag)
        and (deletion := deletion_in(topic, properties)) is not None
    }


def _newest_file(log: CommitLog, before_ms: int) -> int:
    """Return the start of the newest file whose first message was stored by then, or of the first file."""
    for file in reversed(log.files.files):
        if scan_record(file.view, 0, file.size).status is not RecordStatus.RECORD:
            continue
        if 0 < store_timestamp(file.view) <= before_ms:
            return file.start_offset
    return log.files.first_offset


def _rebuild(
    log: CommitLog,
    table: ConsumeQueueTable,
    dispatcher: QueueDispatcher,
    start: int,
    *,
    loaded: frozenset[tuple[str, int]],
    check_crc: bool,
) -> tuple[LogWalk, int, int]:
    """Rebuild the queues from `start`; return the walk, whose position is the end, records and last store time."""
    complete = {queue.key for queue in table if not _begins_after(log, queue, start)} & loaded
    is_whole = start <= log.min_offset
    for queue in table:
        if is_whole and queue.last_physical_end > start:
            queue.clear()  # Its first entries may be lost: where it begins stands in the log.
        else:
            _cut_queue(log, queue, start)
    walk = LogWalk(log, start, check_crc=check_crc, stop_at_damage=True)
    count = 0
    last_ms = 0
    # A queue without a folder is different: its topic was deleted, or it begins here.
    dispatcher.complete_queues = frozenset(complete if start > log.min_offset else ())
    while True:
        before = walk.position
        records, step_ms = dispatcher.dispatch_from(walk, _WALK_STEP)
        count += records
        last_ms = step_ms or last_ms
        for queue in list(table.unwritten):
            queue.write_tail()
        if walk.position == before or walk.problem:
            break
    return walk, count, last_ms


def _end_before_torn(log: CommitLog, walk: LogWalk) -> int:
    """Return the end of the log without its last record, if the properties of that are impossible.

    Checking one record is enough: a tear that extends further breaks the head of the next record.
    """
    last = walk.last_record
    file = None if last is None else log.files.file_at(last)
    if last is None or file is None:
        return walk.position
    record = scan_record(file.view, last - file.start_offset, file.size, check_crc=False)
    if can_be_properties(record.properties):
        return walk.position
    _LOG.warning(
        "log end torn at=%d size=%d topic=%s queue_id=%d queue_offset=%d",
        last, record.size, record.topic, record.queue_id, record.queue_offset,
    )  # fmt: skip
    return last


def _keep_rest(log: CommitLog, end: int, keep: KeepBytes) -> None:
    """Save what follows the end in its file: the torn record, and bytes that cannot be reached any more."""
    file = log.files.file_at(end)
    if file is None:
        return
    rest = file.pread(end - file.start_offset, _KEPT_SIZE)
    # Mostly nothing follows, which rstrip takes ten times as long to find.
    if rest != bytes(len(rest)):
        data = rest.rstrip(b"\0")
        kept_in = keep(end, data)
        _LOG.warning("log end cut at=%d size=%d kept_in=%s", end, len(data), kept_in)


def _cut_queues(table: ConsumeQueueTable, end: int) -> None:
    for queue in table:
        if queue.last_physical_end > end:
            queue.truncate(queue.first_at_or_after(end))


def _begins_after(log: CommitLog, queue: ConsumeQueue, start: int) -> bool:
    """Return whether the queue's topic was created again after `start`, so that it needs no entries before."""
    if _is_before(queue, start):
        return False
    entry = queue.entry(0) if queue.min_offset == 0 else None
    return entry is not None and entry[0] >= start and _is_true(log, queue, 0)


def _is_before(queue: ConsumeQueue, start: int) -> bool:
    """Return whether the checkpoint covers all of the queue, so that its files need not be read."""
    return queue.is_trusted and queue.last_physical_end <= start


def _cut_queue(log: CommitLog, queue: ConsumeQueue, start: int) -> None:
    """Keep only the entries for messages before `start` that are correct."""
    if _is_before(queue, start):
        return
    keep = queue.first_at_or_after(start)
    while keep > queue.min_offset and not _is_true(log, queue, keep - 1):
        keep -= 1
    if keep < queue.max_offset:
        queue.truncate(keep)


def _is_true(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Return whether an entry names the right record; True if the record has been deleted."""
    entry = queue.entry(queue_offset)
    if entry is None or entry[1] <= 0:
        return False
    physical_offset, size, _ = entry
    if size == FILLER_SIZE or physical_offset < log.min_offset:
        return True
    data = log.record(physical_offset, size)
    if data is None:
        return False
    record = scan_record(data, 0, size, check_crc=False)
    return (
        record.status is RecordStatus.RECORD
        and (record.topic, record.queue_id) == queue.key
        and record.queue_offset == queue_offset
        and record.physical_offset == physical_offset
    )
