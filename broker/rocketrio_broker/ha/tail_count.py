"""Counts the messages of a log beyond its boundary with the master, for the operator who decides what to do with them.

Answers to: nothing; Apache's brokers in controller mode truncate it.
"""

from collections import Counter
from typing import Final

import attrs

from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.dispatch import has_queue_entry
from rocketrio_broker.store.log_walk import LogWalk

COUNTED_SIZE: Final = 32 << 20
"""The most bytes to scan, which takes some 0.1 s; a longer end is reported as `and more`."""
TOPICS_SHOWN: Final = 10


@attrs.frozen
class Beyond:
    """The end of a log that its master does not have."""

    start: int
    end: int
    messages: int
    topics: dict[str, int]
    """The number of messages of each topic."""
    is_counted_whole: bool
    why_kept: str | None
    """Why it is not cut off automatically; None if it is."""

    def __str__(self) -> str:
        more = "" if self.is_counted_whole else " and more"
        names = [f"{topic} {count}" for topic, count in self.topics.items()]
        if len(names) > TOPICS_SHOWN:
            names[TOPICS_SHOWN:] = [f"{len(names) - TOPICS_SHOWN} more topics"]
        return f"{self.messages}{more} messages, {self.end - self.start} bytes ({', '.join(names)})"


def count_beyond(log: CommitLog, start: int, why_kept: str | None) -> Beyond:
    """Count the messages from the record at `start` to the end of the log."""
    end = log.max_offset
    walk = LogWalk(log, start, stop_at_damage=True)
    topics: Counter[str] = Counter(
        topic.decode(errors="replace")
        for _, _, topic, _, _, sys_flag, _, _ in walk.records(min(end - start, COUNTED_SIZE))
        if has_queue_entry(sys_flag)
    )
    return Beyond(
        start,
        end,
        topics.total(),
        dict(topics.most_common()),
        end - start <= COUNTED_SIZE,
        why_kept,
    )
