"""Brings a data directory back to a state that is true: finds the log's end and makes the queues match.

1. Choose where to start: what the checkpoint vouches for; without one of ours, by Apache's times.
2. Forget every queue entry for messages from there on.
3. Walk the log, adding entries, to the first thing that is not a whole record: that is the end.
   An entry that does not fit its queue means older entries are missing: start again further back.
4. After a crash, judge the last record: no checksum covers its properties. If they cannot be what somebody wrote
   (NUL, not UTF-8, no name), the log ends before it.
5. Cut the log at the end: what lies behind is saved, later files go, the rest of the last one becomes zeros.

Invariant: afterwards every record of the log has its entry and no entry names anything else.
Invariant: nothing that a checkpoint vouches for is cut, for a crash leaves what was flushed whole.
Invariant: after a crash nothing is cut before it lies in the folder `cut`.
Answers to: CommitLog.recoverNormally, recoverAbnormally, ConsumeQueue.recover, truncateDirtyLogicFiles.
Unlike Java: a last record with torn properties is not served; odd properties of any other record are, as some clients
write them.
Unlike Java: stale records behind the end are wiped, or a later recovery could take them for data.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs

from rocketrio_broker.store.checkpoint import Checkpoint
from rocketrio_broker.store.commit_log import CommitLog, store_timestamp
from rocketrio_broker.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.dispatch import QueueDispatcher, QueueGapError
from rocketrio_broker.store.log_walk import LogWalk
from rocketrio_protocol.record.decode import RecordStatus, scan_record
from rocketrio_protocol.record.properties import can_be_properties

_LOG: Final = logging.getLogger("rocketrio_broker.store")

TIME_SLACK_MS: Final = 3000
"""3 s, as StoreCheckpoint.getMinTimestamp: the times of a checkpoint are a little ahead of the syncs."""

_WALK_STEP: Final = 64 << 20  # bytes between writes of new queue entries to their files

_KEPT_SIZE: Final = 8 << 20
"""Bytes behind the end that are saved: twice the largest message."""

KeepBytes = Callable[[int, bytes], object]
"""Saves bytes that lay at an address of the log, synced; blocks."""


@attrs.frozen
class Recovered:
    """What recovery found."""

    start: int
    """From where the log was read again."""
    end: int
    message_count: int
    """Records read again."""
    last_store_time_ms: int


def recover(
    log: CommitLog,
    table: ConsumeQueueTable,
    dispatcher: QueueDispatcher,
    checkpoint: Checkpoint,
    *,
    clean: bool,
    check_crc: bool,
    keep: KeepBytes,
) -> Recovered:
    """Find the end of a loaded log and rebuild what the queues lack; blocks, and ends with everything synced.

    Raises OSError, with the log as it was, when the disk has no room for what `keep` saves.
    """
    if not log.files.files:
        table.clear()
        log.set_end(0)
        return Recovered(0, 0, 0, 0)
    log.begin_offset = _find_begin(log, checkpoint)
    loaded = frozenset(queue.key for queue in table)
    log.set_end(log.files.end_offset)  # for reading; the real end is what the walk finds
    start = _choose_start(log, table, checkpoint, clean=clean)
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
            # Queues that began in this attempt may begin earlier in the next.
            for queue in [queue for queue in table if queue.key not in loaded]:
                table.delete_queue(queue)
            _LOG.warning("event=recovery_goes_back to=%d reason=%s", start, gap)
    dispatcher.complete_queues = frozenset()
    if walk.problem:
        _LOG.info("event=log_end_found clean=%s at=%s", clean, walk.problem)
    end = walk.position
    if not clean:
        end = _end_before_torn(log, walk)
        _keep_rest(log, end, keep)
        if end < walk.position:
            _cut_queues(table, end)
    log.truncate(end)
    for file in log.files.files_between(start, end):
        file.flush()
    log.flushed.reset(end)
    table.raise_min(log.min_offset)
    return Recovered(start, end, count, last_ms)


def _find_begin(log: CommitLog, checkpoint: Checkpoint) -> int:
    """Where the data of the first file begins: a slave may have joined in the middle of it.

    Only the checkpoint can tell: after a crash the first records can be gone while later ones are there.
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
        # Somebody removed the queues to have them rebuilt, as Apache brokers do then.
        return lowest
    if checkpoint.positions is not None:
        position = checkpoint.positions.queue_position
        if lowest <= position <= log.files.end_offset:
            return position
    if clean:
        # Apache's clean stop: everything was dispatched, only the end of the last file is not known.
        start = _newest_file(log, before_ms=1 << 62)
        return max(lowest, min(start, table.last_physical_end()))
    return max(lowest, _newest_file(log, checkpoint.queue_timestamp_ms - TIME_SLACK_MS))


def _newest_file(log: CommitLog, before_ms: int) -> int:
    """The start of the newest file whose first message was stored by that time; else of the first file."""
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
    """Redo the queues from `start`; returns the walk (its position is the end), records and the last store time."""
    complete = {queue.key for queue in table if not _begins_behind(log, queue, start)} & loaded
    for queue in table:
        _cut_queue(log, queue, start)
    walk = LogWalk(log, start, check_crc=check_crc, stop_at_damage=True)
    count = 0
    last_ms = 0
    # A queue without a folder is another matter: its topic was deleted, or it begins here.
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
    """The end of the log without its last record, if the properties of that cannot be.

    One record is enough: a tear that reaches further breaks the head of the next one.
    """
    last = walk.last_record
    file = None if last is None else log.files.file_at(last)
    if last is None or file is None:
        return walk.position
    record = scan_record(file.view, last - file.start_offset, file.size, check_crc=False)
    if can_be_properties(record.properties):
        return walk.position
    _LOG.warning(
        "event=log_end_torn at=%d size=%d topic=%s queue_id=%d queue_offset=%d",
        last, record.size, record.topic, record.queue_id, record.queue_offset,
    )  # fmt: skip
    return last


def _keep_rest(log: CommitLog, end: int, keep: KeepBytes) -> None:
    """Save what lies behind the end, in its file: the torn record, and what nobody can reach any more."""
    file = log.files.file_at(end)
    if file is None:
        return
    data = file.pread(end - file.start_offset, _KEPT_SIZE).rstrip(b"\0")
    if data:
        kept_in = keep(end, data)
        _LOG.warning("event=log_end_cut at=%d size=%d kept_in=%s", end, len(data), kept_in)


def _cut_queues(table: ConsumeQueueTable, end: int) -> None:
    for queue in table:
        if queue.last_physical_end > end:
            queue.truncate(queue.first_at_or_after(end))


def _begins_behind(log: CommitLog, queue: ConsumeQueue, start: int) -> bool:
    """Whether its topic was made anew there: of an earlier life nothing has to be found before `start`."""
    if _is_before(queue, start):
        return False
    entry = queue.entry(0) if queue.min_offset == 0 else None
    return entry is not None and entry[0] >= start and _is_true(log, queue, 0)


def _is_before(queue: ConsumeQueue, start: int) -> bool:
    """Whether the checkpoint vouches for all of it, so that nobody has to look into its files."""
    return queue.is_trusted and queue.last_physical_end <= start


def _cut_queue(log: CommitLog, queue: ConsumeQueue, start: int) -> None:
    """Keep only entries for messages before `start`, as far as they tell the truth."""
    if _is_before(queue, start):
        return
    keep = queue.first_at_or_after(start)
    while keep > queue.min_offset and not _is_true(log, queue, keep - 1):
        keep -= 1
    if keep < queue.max_offset:
        queue.truncate(keep)


def _is_true(log: CommitLog, queue: ConsumeQueue, queue_offset: int) -> bool:
    """Whether an entry names the record it should; one whose record has been deleted cannot be asked."""
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
