"""The values that describe lag; None means unknown."""

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import attrs

from rocketrio_protocol.lag import Judgement, Owner, Verdict
from rocketrio_protocol.message import MessageQueue


@attrs.frozen
class QueueLag:
    """A group's progress in one queue."""

    queue: MessageQueue
    committed_offset: int | None
    """None if nothing was committed, or no broker could report it."""
    max_offset: int | None
    owner: str | Owner
    """The client id of the member that reads it, if it is known."""
    oldest_seconds: float | None
    """How long ago the first unread message was stored; 0 if nothing is unread."""
    judgement: Judgement

    @property
    def lag(self) -> int | None:
        """The number of messages that are stored and not committed."""
        return self.judgement.lag


@attrs.frozen
class GroupLag:
    """A group's progress in one topic."""

    group: str
    topic: str | None
    """None for a group that has never committed anything anywhere."""
    judgement: Judgement
    members: int | None
    """None if they were not asked for, or no broker could report them."""
    oldest_seconds: float | None
    """How long ago the first unread message of any queue was stored; 0 if nothing is unread."""
    queues: Sequence[QueueLag]
    source: Literal["window", "counters"]
    """Whether rates and verdict are those of several samples, or of what brokers counted in their last minute."""

    @property
    def name(self) -> str:
        """The group and its topic, as texts name them."""
        return self.group if self.topic is None else f"{self.group} in {self.topic}"

    @property
    def verdict(self) -> Verdict:
        """How the group keeps up, by its worst queue."""
        return self.judgement.verdict

    @property
    def lag(self) -> int | None:
        """The number of messages that are stored and not committed; None if it is unknown for one queue."""
        return self.judgement.lag

    @property
    def lag_at_least(self) -> int:
        """The lag of the queues whose lag is known."""
        return sum(queue.lag for queue in self.queues if queue.lag is not None)

    @property
    def needs_samples(self) -> bool:
        """Whether the verdict is unknown although all numbers are known: one sample does not show it."""
        return (
            self.verdict == Verdict.UNKNOWN and self.source == "counters" and self.lag is not None
        )

    @property
    def catches_up(self) -> bool | None:
        """Whether the group will have caught up at some time, at these rates."""
        eta = self.judgement.eta
        return None if eta is None else eta < math.inf


@attrs.frozen
class LagReport:
    """How all groups that were asked for keep up, the worst first."""

    rows: Sequence[GroupLag]
    rows_in_all: int
    """The number of rows that there are, of which `rows` may be the worst only."""
    silent: Mapping[str, str]
    """Why brokers could not be asked, by broker name: what they store is unknown."""
    window: float
    """Seconds between the first and the last sample."""
    samples: int

    @property
    def worst(self) -> Verdict | None:
        """The worst verdict; None without rows."""
        return self.rows[0].verdict if self.rows else None
