"""How far each group is on each topic, found in the tables of this broker when the page of metrics is read.

A group needs no members for that. What a broker cannot know has no number: where a group has committed nothing on a
queue with messages, only its members know where they begin, and members of a broadcasting group keep their progress
themselves.

Unlike Java: there a group without members has no lag, and nothing committed counts as lag 0.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs

from rocketrio_broker.clients.connected import BROADCASTING
from rocketrio_broker.offsets.ends import end_for
from rocketrio_broker.offsets.table import TopicAndGroup
from rocketrio_protocol.names import TRANSACTION_GROUP
from rocketrio_protocol.times import age_ms

if TYPE_CHECKING:
    from rocketrio_broker.state import BrokerState

Positions: TypeAlias = tuple[tuple[int, int], ...]
"""Two numbers for each of several queues."""
Key: TypeAlias = tuple[TopicAndGroup, Literal["unread", "unpulled"]]
Ages: TypeAlias = dict[Key, tuple[Positions, int | None]]


@attrs.frozen
class TopicLag:
    """One group on one topic; None is unknown."""

    topic: str
    group: str
    lag: int | None = None
    """Messages that are not committed."""
    lag_ms: int | None = None
    """The age of the oldest of them."""
    in_flight: int | None = None
    """Those of them that members have pulled."""
    ready: int | None = None
    """Those that are not pulled."""
    queueing_ms: int | None = None
    """The age of the oldest of these."""
    offsets: Positions = ()
    """The committed offset and the end of each queue."""
    is_deleted: bool = False
    """Whether messages that are not committed were deleted."""
    is_ahead: bool = False
    """Whether a committed offset lies beyond the end of its queue, so that the lag is unknown."""


class GroupLags:
    """Measures all groups, and remembers when the messages at which they stand were stored."""

    def __init__(self, broker: "BrokerState") -> None:
        self._broker = broker
        self._ages: Ages = {}
        """Where each group stood, and when the oldest of the messages there was stored: a group that stands costs no
        read of queues and log."""

    def measure(self) -> Iterator[TopicLag]:
        """Yield each group on each topic that it has committed on or subscribes to."""
        now_ms = self._broker.wall_clock.now_ms()
        known, self._ages = self._ages, {}
        for topic, group in self._pairs():
            config = self._broker.topics.topic_config(topic)
            if config is not None and self._consumes(group, topic):
                yield self._measured(topic, group, config.read_queue_nums, now_ms, known)

    def _pairs(self) -> list[TopicAndGroup]:
        pairs = dict.fromkeys(self._broker.consumer_offsets.table)
        for group, info in self._broker.consumers.consumer_table.items():
            pairs.update(dict.fromkeys((topic, group) for topic in info.subscription_table))
        return list(pairs)

    def _consumes(self, group: str, topic: str) -> bool:
        """Return whether the group reads the topic: what connected members no longer subscribe to is left out."""
        if group == TRANSACTION_GROUP:
            return False
        info = self._broker.consumers.group(group)
        return info is None or not info.subscription_table or topic in info.subscription_table

    def _measured(self, topic: str, group: str, queues: int, now_ms: int, known: Ages) -> TopicLag:
        info = self._broker.consumers.group(group)
        if info is not None and info.message_model == BROADCASTING:
            return TopicLag(topic, group)
        store, pulls = self._broker.store, self._broker.pull_offsets
        offsets = self._broker.consumer_offsets.table.offsets.get((topic, group), {})
        unread, unpulled, found, lag, in_flight = [], [], [], 0, 0
        is_deleted, is_known = False, True
        for queue_id in range(queues):
            low, end = store.queue_bounds(topic, queue_id) or (0, 0)
            committed = offsets.get(queue_id, -1)
            if committed < 0:
                is_known = is_known and end <= low
                committed = end
            elif committed > end:
                end = end_for(store, topic, queue_id, committed)
                if committed > end:
                    return TopicLag(topic, group, is_ahead=True)
            found.append((committed, end))
            if committed < end:
                pulled = pulls.of(group, topic, queue_id, committed=committed, end=end)
                lag += end - committed
                is_deleted = is_deleted or committed < low
                in_flight += pulled - committed
                unread.append((queue_id, max(committed, low)))
                if pulled < end:
                    unpulled.append((queue_id, max(pulled, low)))
        if not is_known:
            return TopicLag(topic, group)
        unread_ms = self._oldest(((topic, group), "unread"), tuple(unread), known)
        unpulled_ms = self._oldest(((topic, group), "unpulled"), tuple(unpulled), known)
        return TopicLag(
            topic,
            group,
            lag=lag,
            lag_ms=_age(unread, unread_ms, now_ms),
            in_flight=in_flight,
            ready=lag - in_flight,
            queueing_ms=_age(unpulled, unpulled_ms, now_ms),
            offsets=tuple(found),
            is_deleted=is_deleted,
        )

    def _oldest(self, key: Key, positions: Positions, known: Ages) -> int | None:
        """Return when the oldest of the messages at these positions was stored: that at the lowest address."""
        if not positions:
            return None
        before = known.get(key)
        if before is not None and before[0] == positions:
            stored_ms = before[1]
        else:
            (topic, _), _ = key
            store = self._broker.store
            found = [store.address_at(topic, queue_id, offset) for queue_id, offset in positions]
            addresses = [address for address in found if address is not None]
            is_whole = len(addresses) == len(positions)
            stored_ms = store.commit_log.store_timestamp_at(min(addresses)) if is_whole else None
        self._ages[key] = positions, stored_ms
        return stored_ms


def _age(positions: list[tuple[int, int]], stored_ms: int | None, now_ms: int) -> int | None:
    if not positions:
        return 0
    return None if stored_ms is None else age_ms(stored_ms, now_ms)
