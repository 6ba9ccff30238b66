"""The checked arguments of `open_consumer` in one value."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import attrs
from attrs.validators import optional

from rocketrio.arguments import checked, flag, instance, list_of, seconds, text, whole_number
from rocketrio.callables import plain_function
from rocketrio.consuming.allocate import AllocateStrategy
from rocketrio.consuming.process_queue import (
    PULL_THRESHOLD_FOR_QUEUE,
    PULL_THRESHOLD_SIZE_FOR_QUEUE,
)
from rocketrio.consuming.pull import PULL_BATCH_SIZE
from rocketrio.consuming.pull_budget import PULL_THRESHOLD_SIZE
from rocketrio.consuming.subscription import (
    Subscription,
    odd_tag,
    parse_subscription,
    parse_where,
)
from rocketrio.producing.delays import check_levels
from rocketrio.routing import ReadPolicy
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.names import group_name_problem, topic_name_problem

Tags: TypeAlias = str | Iterable[str] | None
Where: TypeAlias = str | Mapping[str, str] | None

Mode: TypeAlias = Literal["clustering", "broadcasting"]

StartFrom: TypeAlias = Literal["earliest", "latest", "end"] | datetime
"""Where a group begins on a queue on which it never committed; "latest" is RocketMQ's rule, "end" is exact."""

AUTO_COMMIT_INTERVAL: Final = 5.0  # persistConsumerOffsetInterval


def _count(default: int) -> Any:
    return attrs.field(default=default, validator=checked(whole_number, least=1))


@attrs.frozen(kw_only=True)
class Prefetch:
    """How far a consumer pulls ahead of your code. Raises ConfigError for a number below 1.

    A queue is pulled again while it holds fewer messages and bytes than its limits, so it may exceed them by one pull.
    """

    batch_size: int = _count(PULL_BATCH_SIZE)
    """Messages that one pull asks for; brokers give at most 32, or 256 KiB, by default."""
    queue_messages: int = _count(PULL_THRESHOLD_FOR_QUEUE)
    """Messages of one queue that were not handed out yet (pullThresholdForQueue)."""
    queue_bytes: int = _count(PULL_THRESHOLD_SIZE_FOR_QUEUE)
    """Bytes of these messages (pullThresholdSizeForQueue)."""
    total_bytes: int = _count(PULL_THRESHOLD_SIZE)
    """Bytes over all queues; one more message per queue is held if messages are large."""


@attrs.frozen(kw_only=True)
class ConsumerOptions:
    """A consumer's options. Raises ConfigError for contradictory or invalid ones."""

    group: str = attrs.field(validator=checked(text))
    subscriptions: Mapping[str, Subscription]
    """The subscription of each topic, in the caller's order."""
    queues: Sequence[MessageQueue] | None
    """Read exactly these queues, without becoming a member of the group."""
    mode: Mode = attrs.field()
    orderly: bool = attrs.field(validator=checked(flag))
    offsets_path: Path | None
    """The file for offsets when broadcasting; None for Java's place."""
    ignore_unreadable_offsets: bool = attrs.field(validator=checked(flag))
    """Whether a member that broadcasts begins at `start_from` if its file cannot be read."""
    max_reconsume_times: int | None = attrs.field(
        validator=optional(checked(whole_number, least=0))
    )
    """None for RocketMQ's rule."""
    delay_levels: tuple[timedelta, ...] = attrs.field(converter=check_levels)
    """The delays that the brokers' delay levels stand for."""
    start_from: StartFrom = attrs.field()
    wait_for_topic: float | None = attrs.field(validator=optional(checked(seconds)))
    """Seconds; None for the time in which a broker registers a topic that a send has just created."""
    auto_commit: bool = attrs.field(validator=checked(flag))
    auto_commit_interval: float = attrs.field(validator=checked(seconds))
    prefetch: Prefetch = attrs.field()
    policy: ReadPolicy
    strategy: AllocateStrategy = attrs.field(validator=checked(plain_function))

    @mode.validator
    def _check_mode(self, _: object, mode: Mode) -> None:
        if mode not in ("clustering", "broadcasting"):
            raise ConfigError(f"{mode=} is neither 'clustering' nor 'broadcasting'")

    @start_from.validator
    def _check_start(self, _: object, start: StartFrom) -> None:
        # A mistyped word that was taken for another one would skip messages.
        is_time = isinstance(start, datetime) and start.tzinfo is not None
        if not is_time and not (isinstance(start, str) and start in ("earliest", "latest", "end")):
            raise ConfigError(
                f"start_from={start!r} is neither 'earliest', 'latest', 'end' nor a datetime with a time zone"
            )

    @prefetch.validator
    def _check_prefetch(self, _: object, prefetch: Prefetch) -> None:
        instance(Prefetch, "prefetch", prefetch, hint="`Prefetch(queue_messages=100)`")

    def __attrs_post_init__(self) -> None:
        problem = group_name_problem(self.group)
        for topic in self.subscriptions:
            problem = problem or topic_name_problem(topic)
        if problem is not None:
            raise ConfigError(problem)
        if self.is_broadcasting and (self.queues is not None or self.orderly):
            raise ConfigError("a consumer that broadcasts has no queues= and no orderly=")
        if self.orderly and self.queues is not None:
            raise ConfigError("orderly= is for members of a group; with queues= order is as it is")
        if self.offsets_path is not None and not self.is_broadcasting:
            raise ConfigError("offsets_path= is for mode='broadcasting'; others commit to brokers")
        if self.ignore_unreadable_offsets and not self.is_broadcasting:
            raise ConfigError(
                "ignore_unreadable_offsets= is for mode='broadcasting', which has a file"
            )

    @property
    def is_broadcasting(self) -> bool:
        """Whether every member gets every message."""
        return self.mode == "broadcasting"

    @property
    def is_shared(self) -> bool:
        """Whether other members of the group may get the queues that this one has."""
        return self.queues is None and not self.is_broadcasting


def read_subscriptions(
    topics: str | Sequence[str],
    queues: Sequence[MessageQueue] | None,
    tags: Tags | Mapping[str, Tags],
    where: Where,
) -> dict[str, Subscription]:
    """Return the subscription of each topic.

    Raises ConfigError without a topic, and if an argument names a topic that is not consumed.
    """
    names = [topics] if isinstance(topics, str) else list_of(str, "topics", topics)
    names = list(dict.fromkeys(names))
    if queues is not None:
        list_of(MessageQueue, "queues", queues)
        names = names or sorted({queue.topic for queue in queues})
        _check_known("queues", {queue.topic for queue in queues}, names)
    if not names:
        raise ConfigError("name at least one topic: open_consumer('orders', group='billing')")
    if where is not None and not isinstance(where, str | Mapping):
        raise ConfigError(f"where={where!r} must be an SQL92 expression, or one for each topic")
    tags_of = tags if isinstance(tags, Mapping) else dict.fromkeys(names, tags)
    where_of = where if isinstance(where, Mapping) else dict.fromkeys(names, where)
    _check_known("tags", tags_of, names)
    _check_known("where", where_of, names)
    return {name: _subscription(name, tags_of.get(name), where_of.get(name)) for name in names}


def _subscription(topic: str, tags: Tags, where: str | None) -> Subscription:
    if where is None:
        subscription = parse_subscription(tags)
        if isinstance(tags, str) and (odd := odd_tag(subscription)) is not None:
            raise ConfigError(
                f"tags={tags!r} would select the tag {odd!r}; several tags are separated by ||, as in `a || b`,"
                " and a list takes each tag as it is"
            )
        return subscription
    if tags is not None:
        raise ConfigError(f"{topic} has tags= and where=: one of them can choose its messages")
    return parse_where(where)


def _check_known(argument: str, topics: Iterable[str], names: Sequence[str]) -> None:
    strangers = set(topics) - set(names)
    if strangers:
        raise ConfigError(f"{argument}= names topics that are not consumed: {', '.join(strangers)}")
