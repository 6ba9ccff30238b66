"""Which replica a reader reads from.

What a consumer may ask for:

    suggested   the one that the last pull answer of this queue suggested, initially the master (RocketMQ's way)
    master      only the master: while it is away nothing is read
    nearest     the replica with the shortest measured round trip
    replica     a slave that is within a bound behind the master; otherwise the master

What a Spark task may (`readFrom`), whose messages were there when it was planned, so that it waits for no replica while
another one has them:

    auto        the one that the last answer for this range suggested, initially the one that planning found
    master      only the master
    slave       a slave, or the master if there is none that may be read

A bound is a number of messages (the end of the queue that the master last reported, minus the slave's) or of seconds
(since the slave last had everything that its master had, as rocketrio slaves report). Unknown staleness counts as too
stale.

Unlike Java: Java only has `suggested`.
"""

from math import inf
from typing import Final, Literal, TypeAlias, get_args

import attrs

from rocketrio.arguments import seconds, whole_number
from rocketrio.routing.replica_views import ReplicaViews
from rocketrio_protocol.errors import ConfigError

ReadFrom: TypeAlias = Literal["suggested", "master", "nearest", "replica"]
READ_FROM: Final[tuple[str, ...]] = get_args(ReadFrom)


@attrs.frozen
class StalenessBound:
    """How far behind its master a slave may be and still be read: in seconds, in messages, or both."""

    seconds: float | None = None
    messages: int | None = None

    def allows(self, views: ReplicaViews, broker_id: int, now: float) -> bool:
        """Return whether a replica is known to be within the bound; the master always is."""
        if self.seconds is not None:
            seconds = views.staleness(broker_id, now)
            if seconds is None or seconds > self.seconds:
                return False
        if self.messages is not None:
            messages = views.staleness_messages(broker_id, now)
            if messages is None or messages > self.messages:
                return False
        return True

    def __str__(self) -> str:
        texts = [] if self.seconds is None else [f"{self.seconds:g}s"]
        texts += [] if self.messages is None else [f"{self.messages} messages"]
        return " and ".join(texts)


@attrs.frozen
class ReplicaPolicy:
    """The policy by which a reader chooses a replica."""

    read_from: ReadFrom | Literal["auto", "slave"] = "suggested"
    bound: StalenessBound | None = None
    """How stale a slave may be; None: it does not matter."""

    @property
    def is_bounded(self) -> bool:
        """Whether there is a bound on staleness."""
        return self.bound is not None

    @property
    def waits(self) -> bool:
        """Whether the reader waits at the end of a queue, as consumers do, instead of reading up to a planned end."""
        return self.read_from not in ("auto", "slave")

    @property
    def uses_views(self) -> bool:
        """Whether the choice depends on what replicas reported of themselves."""
        return self.read_from not in ("suggested", "master")

    @property
    def needs_probes(self) -> bool:
        """Whether replicas must be probed periodically, including those that are not read."""
        return self.uses_views and (self.read_from == "nearest" or self.is_bounded)


def _bound_of(policy: "ReadPolicy") -> StalenessBound | None:
    seconds, messages = policy.max_staleness, policy.max_staleness_messages
    return None if seconds is None and messages is None else StalenessBound(seconds, messages)


@attrs.frozen
class ReadPolicy(ReplicaPolicy):
    """A consumer's policy, checked at construction. Raises ConfigError."""

    max_staleness: float | None = None
    """Maximum staleness in seconds."""
    max_staleness_messages: int | None = None
    bound: StalenessBound | None = attrs.field(
        init=False, default=attrs.Factory(_bound_of, takes_self=True)
    )
    """Both limits together; None if there is neither."""

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.read_from, str) or self.read_from not in READ_FROM:
            raise ConfigError(
                f"read_from={self.read_from!r} must be one of {', '.join(map(repr, READ_FROM))}"
            )
        if self.read_from == "replica" and not self.is_bounded:
            raise ConfigError(
                "read_from='replica' needs a bound: max_staleness= in seconds, or max_staleness_messages="
            )
        if self.read_from in ("suggested", "master") and self.is_bounded:
            raise ConfigError(
                f"a bound on staleness has no effect with read_from={self.read_from!r},"
                " only with 'nearest' and 'replica'"
            )
        if self.max_staleness is not None:
            seconds("max_staleness", self.max_staleness)
            if self.max_staleness == inf:
                raise ConfigError("max_staleness=inf bounds nothing: omit it")
        if self.max_staleness_messages is not None:
            whole_number("max_staleness_messages", self.max_staleness_messages, least=0)


SUGGESTED: Final = ReadPolicy()
