"""What a reset of a group's offsets would do, before it is done: the target of each queue, and the way to get there.

    offline   commit the target for each queue (15)                 the group has no members
    online    have the brokers direct the members to a time (222)   the group has members
    both      first online; then offline for queues that did not move, because no member owns them

Apache's brokers direct members to times only, and their members commit their own offsets again, whatever was committed
meanwhile. So an exact offset needs a group without members, or a user who insists.

Invariant: a plan is computed for every queue before the first one is changed.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

import attrs

from rocketrio.counts import counted
from rocketrio.queue_positions import AtOffset, AtTime, FromFirst, FromLast, check_time_ms, place_of
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue

FIRST_TIME: Final = 0
"""The time that brokers understand as the first message, in ms."""
LAST_TIME: Final = -1
"""The time that brokers understand as the end."""


class PlanChangedError(Error):
    """What a plan was made for has changed, and nothing was done."""

    remedy = "Make a new plan"


class Way(StrEnum):
    """How a reset is done."""

    OFFLINE = "offline"
    ONLINE = "online"
    BOTH = "both"


@attrs.frozen
class Target:
    """Where a group shall continue: exactly one of these is given."""

    from_first: int | None = None
    """Messages after the first of each queue."""
    from_last: int | None = None
    """Messages before the end of each queue."""
    offset: int | None = None
    """This offset in each queue."""
    time_ms: int | None = None
    """The first message of each queue that was stored then or later."""
    shift: int | None = None
    """Messages after the committed offset, or before it if negative."""
    offsets: Mapping[MessageQueue, int] | None = None
    """One offset for each queue; queues that are missing stay."""

    def __attrs_post_init__(self) -> None:
        """Raise ConfigError for a time that is given in seconds."""
        if self.time_ms is not None:
            check_time_ms("time_ms", self.time_ms)

    @property
    def broker_time(self) -> int | None:
        """The time that brokers can direct members to; None if they cannot be directed there."""
        if self.from_first == 0:
            return FIRST_TIME
        return LAST_TIME if self.from_last == 0 else self.time_ms


@attrs.frozen
class QueueReset:
    """A queue in a plan."""

    queue: MessageQueue
    from_offset: int | None
    """None if nothing was committed, or no broker could report it."""
    to_offset: int
    way: Way
    after: int | None = None
    """What was committed after the reset; None before it, or if no broker could report it."""
    end: int | None = None
    """Where the queue ends. An offset beyond it counts messages that are not there any more, and none come again."""

    @property
    def messages_again(self) -> int | None:
        """The number of messages that the group receives again; None if nothing was committed."""
        if self.from_offset is None:
            return None
        last = self.from_offset if self.end is None else min(self.from_offset, self.end)
        return last - self.to_offset if last > self.to_offset else 0

    @property
    def messages_skipped(self) -> int | None:
        """The number of messages that the group never receives; None if nothing was committed."""
        if self.from_offset is None:
            return None
        return self.to_offset - self.from_offset if self.to_offset > self.from_offset else 0

    @property
    def has_arrived(self) -> bool:
        """Whether the group was seen at the target, or beyond it on its way from there."""
        if self.after is None:
            return False
        if self.from_offset is None or self.to_offset >= self.from_offset:
            return self.after >= self.to_offset
        return self.to_offset <= self.after < self.from_offset


@attrs.frozen
class ResetPlan:
    """A reset of one group."""

    group: str
    members: int
    way: Way
    time_ms: int | None
    """The time that members are directed to, if they are."""
    queues: Sequence[QueueReset]


@attrs.frozen
class QueueNow:
    """A queue as it is now."""

    queue: MessageQueue
    first: int
    end: int
    """The last offset at which the group may stand."""
    committed: int | None
    at_time: int | None = None
    """The offset of the first message that was stored at the target's time or later, if the target is a time."""


def planned(
    group: str, members: int, target: Target, places: Sequence[QueueNow], *, offline: bool = False
) -> ResetPlan:
    """Return the plan. Raises ConfigError for a target outside a queue, or one that members would undo."""
    time_ms = target.broker_time
    way = Way.OFFLINE
    if members and not offline:
        if time_ms is None:
            raise ConfigError(
                f"{group} has {counted(members, 'member')}, and brokers direct members to a time only",
                remedy="Stop them first, or give a time; with --offline their next commit may undo the reset",
            )
        way = Way.ONLINE
    queues = [
        QueueReset(place.queue, place.committed, to_offset, way, end=place.end)
        for place in places
        if (to_offset := _to_offset(target, place)) is not None
    ]
    if not queues:
        raise ConfigError("the target names none of the group's queues")
    return ResetPlan(group, members, way, None if way is Way.OFFLINE else time_ms, queues)


def _to_offset(target: Target, place: QueueNow) -> int | None:
    """Return the offset of one queue; None if the target omits it."""
    end = place.end
    if target.from_first is not None:
        return min(place.first + target.from_first, end)
    if target.from_last is not None:
        return max(end - target.from_last, place.first)
    if target.time_ms is not None:
        if place.at_time is None:
            raise ConfigError(f"no broker could find the time in {place.queue}")
        return min(max(place.at_time, place.first), end)
    if target.shift is not None:
        if place.committed is None:
            raise ConfigError(f"nothing is committed in {place.queue}, so it cannot be shifted")
        return min(max(place.committed + target.shift, place.first), end)
    wanted = target.offset
    if target.offsets is not None:
        wanted = target.offsets.get(place.queue)
    if wanted is not None and not place.first <= wanted <= end:
        raise ConfigError(f"{wanted} is not within {place.first} and {end} of {place.queue}")
    return wanted


def target_of(text: str, now_ms: int) -> Target:
    """Return the target that a text means (`queue_positions.py`). Raises ConfigError for any other text."""
    match place_of(text, now_ms):
        case FromFirst(messages):
            return Target(from_first=messages)
        case FromLast(messages):
            return Target(from_last=messages)
        case AtOffset(offset):
            return Target(offset=offset)
        case AtTime(time_ms):
            return Target(time_ms=time_ms)
