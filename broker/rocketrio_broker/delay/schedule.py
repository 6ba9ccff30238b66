"""Delivers delayed messages when they are due: from SCHEDULE_TOPIC_XXXX to the topics to which they were sent.

One task serves all levels. It reads the next entry of each queue, delivers in turns what is due, and sleeps until the
next message is due, at most `CHECK_INTERVAL`: no delay is shorter, so no message can become due unnoticed.

Invariant: a message is delivered at its time or later, at least once, in the order of its level, and only if it is
confirmed (read_gate.py).
Invariant: only a master delivers: this runs while the broker takes writes.
Invariant: progress beyond the end of a level is lowered once, before the first scan.
Answers to: ScheduleMessageService, DeliverDelayedMessageTimerTask; RocketMQ reference, section 5.10.
Unlike Java: one task instead of a timer for each level that polls every 100 ms; queues of levels that the table no
longer has are delivered too; progress is written only for deliveries that are on the disk. While store times are ahead
of the clock (it was ahead, or is set back) a delay counts from when this broker first saw the message, by the monotonic
clock: Java delivers all waiting messages at once, or keeps them for as long as the clock was ahead.
"""

import logging
from collections import defaultdict, deque
from math import ceil
from typing import Final

import attrs
import trio

from rocketrio_broker.delay.delayed_puts import released, stored_message
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.store.consume_queue import ENTRY, FILLER_SIZE, ConsumeQueue
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.dispatch import DelayLevels
from rocketrio_broker.store.errors import StoreError
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_message import REFUSED_FOR_NOW, PutStatus
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import RETRY_PREFIX, SCHEDULE_TOPIC, TRANS_HALF_TOPIC
from rocketrio_protocol.record.properties import PROPERTY_REAL_TOPIC
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.schedule")

CHECK_INTERVAL: Final = 1.0
"""Seconds between scans, the shortest possible delay; the wall clock may also have been set."""

TURN_MESSAGES: Final = 32
"""Messages of one level before other levels and tasks run: about half a millisecond."""

REFUSED_PAUSE: Final = 1.0
"""Seconds until a delivery that the store refused (a full disk) is tried again."""

LAST_WRITE_LIMIT: Final = 5.0
"""Seconds for the last sync when the broker stops or becomes a slave; otherwise messages are delivered twice."""


@attrs.define
class ScheduleStatistics:
    """What was delivered since this broker became master."""

    delivered: int = 0
    lost: int = 0
    """Entries whose message is no longer in the log, or cannot be delivered."""


class _Arrivals:
    """Records when entries of one level were first seen, while store times were ahead of the clock.

    It has at most one mark for each `CHECK_INTERVAL`, for as long as the level's delay: 7,200 for two hours.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[int, float]] = deque()

    def note(self, end_offset: int, now: float) -> None:
        """Record that all entries before this offset exist now."""
        known, at = self._marks[-1] if self._marks else (0, -CHECK_INTERVAL)
        # An entry between two marks counts from the later one: from the earlier one it would be delivered too soon.
        if end_offset > known and now - at >= CHECK_INTERVAL:
            self._marks.append((end_offset, now))

    def age(self, offset: int, now: float) -> float:
        """Return the seconds since the entry at this offset was seen, or 0; drop the marks of entries before it."""
        marks = self._marks
        while marks and marks[0][0] <= offset:
            marks.popleft()
        return now - marks[0][1] if marks else 0.0


class ScheduleMessageService:
    """Delivers delayed messages for as long as it runs."""

    def __init__(
        self,
        store: MessageStore,
        *,
        levels: DelayLevels,
        offsets: DelayOffsets,
        disk: Disk,
        wall_clock: WallClock,
        flush_interval: float,
    ) -> None:
        """Create it; `flush_interval` is the time between writes of the progress, in seconds."""
        self._store = store
        self._levels = levels
        self._offsets = offsets
        self._disk = disk
        self._wall_clock = wall_clock
        self._flush_interval = flush_interval
        self._refusal = ""
        self._arrivals: defaultdict[int, _Arrivals] = defaultdict(_Arrivals)
        self._ends: defaultdict[int, int] = defaultdict(int)
        """Where each level ended at the last scan."""
        self.statistics = ScheduleStatistics()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Deliver until cancelled; then write the progress."""
        # Once, before the first scan: later what was parked since the scan before would be passed over.
        self._offsets.begin()
        self._check_progress()
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._keep_progress)
                task_status.started()
                await self._deliver()
        finally:
            with trio.move_on_after(LAST_WRITE_LIMIT, shield=True):
                if self._store.read_gate.end.value >= self._offsets.log_end:
                    await self._write_progress()
            self._offsets.end()

    def _check_progress(self) -> None:
        """Lower progress beyond the end of its level, and go back to messages that cannot have been delivered in this
        log, because they are due after its last store time.

        The file may belong to another log, and progress from an Apache master comes without the length of the log for
        which it is valid. A level without a queue ends at 0.
        """
        queues = {queue.key[1] + 1: queue for queue in self._queues()}
        for level, before in sorted(
            {**dict.fromkeys(queues, 0), **self._offsets.offset_table}.items()
        ):
            queue = queues.get(level)
            end = self._ends[level] = 0 if queue is None else queue.max_offset
            if before > end:
                logger.warning(
                    "delay progress lay beyond the end of its level delay_level=%d before=%d end=%d",
                    level, before, end,
                )  # fmt: skip
            kept = min(before, end)
            offset = kept if queue is None else self._undelivered(queue, kept)
            if offset < kept:
                logger.warning(
                    "delayed messages are delivered again delay_level=%d from=%d before=%d",
                    level, offset, kept,
                )  # fmt: skip
            if offset != before:
                self._offsets.advance(level, offset, 0)

    def _undelivered(self, queue: ConsumeQueue, offset: int) -> int:
        """Return the first entry before `offset` that this log shows not to be delivered, or `offset`."""
        last_ms = self._store.dispatched.store_time_ms
        latest_ms = last_ms + self._delay_ms(queue.key[1] + 1)
        if last_ms > self._wall_clock.now_ms():
            return offset  # Store times that are ahead do not show what is due: much of it may be delivered.
        while offset > queue.min_offset:
            entry = queue.entry(offset - 1)
            if entry is None or not last_ms < entry[2] <= latest_ms:
                break
            offset -= 1
        return offset

    def _queues(self) -> list[ConsumeQueue]:
        queues = self._store.queues().get(SCHEDULE_TOPIC, {})
        return [queues[queue_id] for queue_id in sorted(queues)]

    def _delay_ms(self, level: int) -> int:
        return self._levels.deliver_time_ms(level, 0)

    # ----------------------------------------------------------------------------------- delivering

    async def _deliver(self) -> None:
        while True:
            now_ms, now = self._wall_clock.now_ms(), trio.current_time()
            waits = [self._deliver_level(queue, now_ms, now) for queue in self._queues()]
            wait = min(waits, default=CHECK_INTERVAL)
            if wait > 0:
                await trio.sleep(min(wait, CHECK_INTERVAL))
            else:
                await trio.lowlevel.checkpoint()

    def _deliver_level(self, queue: ConsumeQueue, now_ms: int, now: float) -> float:
        """Deliver the due messages of one level; return the seconds until there is more to do."""
        level = queue.key[1] + 1
        before = self._offsets.offset_table.get(level, 0)
        offset = max(before, queue.min_offset)
        if offset > queue.max_offset:
            offset = self._last_known_end(queue, before)
        self._ends[level] = queue.max_offset
        # Store times do not decrease when the clock is set back, nor do the delivery times that come from them.
        last_ms, delay_ms = self._store.dispatched.store_time_ms, self._delay_ms(level)
        latest_ms = max(now_ms, last_ms) + delay_ms
        arrivals = self._arrivals[level]
        if last_ms > now_ms:
            arrivals.note(queue.max_offset, now)
        wait, log_end = CHECK_INTERVAL, 0
        # Only confirmed messages: a change of master may take the others away, after they were delivered.
        seen_end = self._store.seen_queue_end(*queue.key)
        entries = queue.entries(offset, min(TURN_MESSAGES, seen_end - offset))
        for physical_offset, size, due_ms in ENTRY.iter_unpack(entries):
            # A time beyond the level's delay comes from an older table: due at once, as in Java.
            if now_ms < due_ms <= latest_ms:
                wait_ms = min(due_ms - now_ms, delay_ms - arrivals.age(offset, now) * 1000)
                # Whole milliseconds: a clock need not advance within a remainder from rounding.
                wait = ceil(wait_ms) / 1000
                if wait > 0:
                    break
            end = self._deliver_message(physical_offset, size)
            if end is None:
                wait = REFUSED_PAUSE
                break
            offset, log_end = offset + 1, max(end, log_end)
        else:
            wait = 0.0 if len(entries) == TURN_MESSAGES * ENTRY.size else CHECK_INTERVAL
        if offset != before:
            self._offsets.advance(level, offset, log_end)
        return wait

    def _last_known_end(self, queue: ConsumeQueue, progress: int) -> int:
        """Return where to continue a level whose progress lies beyond its end: what came since the last scan waits."""
        end = self._ends[queue.key[1] + 1]
        # If even that is beyond the end, the queue was deleted and began again: all of it waits.
        offset = end if queue.min_offset <= end <= queue.max_offset else queue.min_offset
        logger.error(
            "delay progress lies beyond the end of its level delay_level=%d before=%d end=%d from=%d",
            queue.key[1] + 1, progress, queue.max_offset, offset,
        )  # fmt: skip
        return offset

    def _deliver_message(self, physical_offset: int, size: int) -> int | None:
        """Store one message under its real topic; return the address after it, 0 if it is lost, None to try again."""
        message = None if size == FILLER_SIZE else stored_message(self._store, physical_offset)
        if message is None:
            return self._lost(physical_offset, "it is not in the log any more, or damaged")
        put = released(message)
        if put is None or put.topic in (TRANS_HALF_TOPIC, SCHEDULE_TOPIC):
            return self._lost(
                physical_offset, "it names no topic that it could be delivered to", message
            )
        result = self._store.append(put)
        if result.status is PutStatus.PUT_OK:
            self.statistics.delivered += 1
            self._refusal = ""
            return result.end_offset
        if result.status not in REFUSED_FOR_NOW:
            return self._lost(
                physical_offset, f"the store can never take it: {result.remark}", message
            )
        if result.remark != self._refusal:
            logger.warning("delayed message not delivered, will retry reason=%s", result.remark)
            self._refusal = result.remark
        return None

    def _lost(self, physical_offset: int, why: str, message: MessageExt | None = None) -> int:
        self.statistics.lost += 1
        topic = "unknown" if message is None else message.property_value(PROPERTY_REAL_TOPIC) or ""
        logger.error(
            "delayed message cannot be delivered topic=%s group=%s message_id=%s physical_offset=%d reason=%s",
            topic,
            topic.removeprefix(RETRY_PREFIX) if topic.startswith(RETRY_PREFIX) else "none",
            "unknown" if message is None else message.message_id,
            physical_offset,
            why,
        )
        return 0

    # -------------------------------------------------------------------------------------- progress

    async def _keep_progress(self) -> None:
        async for _ in every(self._flush_interval, first_after=self._flush_interval):
            await self._write_progress()

    async def _write_progress(self) -> None:
        offsets = self._offsets
        try:
            offsets.file.renew()
            if offsets.has_unwritten:
                wrapper, log_end, change_count = offsets.snapshot()
                if self._store.flushed.value < log_end:
                    await self._store.flush()
                # After flush and gate: progress for a delivery that is lost would pass over its message.
                await self._store.read_gate.end.wait_reached(log_end)
                offsets.write(wrapper, change_count)
            await self._disk.run(offsets.file.sync)
        except (ConfigFileError, StoreError) as error:
            # It stays in memory and is written in the next round; a failed sync of the log itself ends the store.
            logger.debug("delay offsets not written, will retry error=%s", error)
