"""Sums of the ends of topics and of the offsets of groups, on each broker, and how fast they grow between rounds."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import attrs

from rocketrio.admin.lag_values import GroupLag, QueueLag
from rocketrio.exporter.details import Answers

OnTopic = tuple[str, str]
"""Broker name and topic."""
OnGroup = tuple[str, str, str]
"""Broker name, topic and group."""


@attrs.frozen
class Total:
    """A sum of offsets."""

    value: int
    at: float
    """When it was read, by trio's clock."""
    per_second: float | None = None
    """How fast it grew since it was read before; None if it was not, or if it fell."""


class Offsets:
    """The sums of the last round. What is unknown in one queue is unknown in the sum."""

    def __init__(self) -> None:
        self.ends: Mapping[OnTopic, Total] = {}
        self.committed: Mapping[OnGroup, Total] = {}

    def update(
        self, rows: Iterable[GroupLag], details: Mapping[str, Answers], *, at: float
    ) -> None:
        """Take the sums of a round that was read at this time."""
        ends: dict[OnTopic, Total] = {
            (name, topic): Total(end, when)
            for name, answers in details.items()
            for topic, (end, when) in answers.ends.items()
        }
        committed: dict[OnGroup, Total] = {}
        for row in rows:
            topic = row.topic or ""
            for name, queues in by_broker(row).items():
                end = known_sum(queue.max_offset for queue in queues)
                if end is not None:
                    ends[name, topic] = Total(end, at)
                offset = known_sum(map(_committed, queues))
                if offset is not None:
                    committed[name, topic, row.group] = Total(offset, at)
        self.ends = {key: _grown(total, self.ends.get(key)) for key, total in ends.items()}
        self.committed = {
            key: _grown(total, self.committed.get(key)) for key, total in committed.items()
        }


def _grown(total: Total, before: Total | None) -> Total:
    if before is None or total.value < before.value:
        return total
    if total.at <= before.at:
        return before
    speed = (total.value - before.value) / (total.at - before.at)
    return attrs.evolve(total, per_second=speed)


def by_broker(row: GroupLag) -> dict[str, list[QueueLag]]:
    """Return the queues of a row by the broker that has them."""
    found: defaultdict[str, list[QueueLag]] = defaultdict(list)
    for queue in row.queues:
        found[queue.queue.broker_name].append(queue)
    return found


def known_sum(numbers: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one is unknown."""
    found: Sequence[int | None] = list(numbers)
    known = [number for number in found if number is not None]
    return sum(known) if len(known) == len(found) else None


def _committed(queue: QueueLag) -> int | None:
    """Return the committed offset; members begin an empty queue at 0."""
    return 0 if queue.max_offset == 0 else queue.committed_offset
