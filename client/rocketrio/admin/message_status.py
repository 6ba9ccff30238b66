"""Whether groups have consumed one message: `admin.message_status()`.

`judged` is a function of what brokers answered about a group. The statuses are those of Apache's tools. A group has
consumed a message if its committed offset is beyond it; whether its handler did so without an error is in the trace
(message_trace.py) and among its dead letters.

Invariant: a group whose members or offset could not be read is `UNKNOWN`, never "not consumed yet".
Answers to: DefaultMQAdminExtImpl.messageTrackDetail, MessageTrack, TrackType.
Unlike Java: each status has its reason, and a group without members also says whether it had come past the message.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

import attrs

from rocketrio_protocol.bodies.heartbeat import SubscriptionData
from rocketrio_protocol.bodies.stats import ConsumerConnection
from rocketrio_protocol.message import MessageExt

_ACTIVELY: Final = "CONSUME_ACTIVELY"
_BROADCASTING: Final = "BROADCASTING"
_TAG: Final = "TAG"


class Track(StrEnum):
    """The words of Apache's tools (TrackType)."""

    CONSUMED = "CONSUMED"
    CONSUMED_BUT_FILTERED = "CONSUMED_BUT_FILTERED"
    PULL = "PULL"
    NOT_CONSUME_YET = "NOT_CONSUME_YET"
    NOT_ONLINE = "NOT_ONLINE"
    CONSUME_BROADCASTING = "CONSUME_BROADCASTING"
    UNKNOWN = "UNKNOWN"


@attrs.frozen
class GroupTrack:
    """What a group has done with a message."""

    group: str
    status: Track
    why: str
    committed_offset: int | None
    """The group's offset in the message's queue; None if there is none, or no broker could report it."""


@attrs.frozen
class GroupAnswers:
    """What brokers answered about a group."""

    members: ConsumerConnection | None
    """None without members."""
    committed_offset: int | None
    """None if nothing is committed."""
    problem: str | None = None
    """Why one of them is not known; the others mean nothing then."""


def judged(group: str, message: MessageExt, answers: GroupAnswers) -> GroupTrack:
    """Return what a group has done with a message that is in one of its topics."""
    committed = answers.committed_offset
    queue = f"queue {message.queue_id} of {message.broker_name}"
    is_past = committed is not None and committed > message.queue_offset
    if committed is None:
        place = f"nothing is committed in {queue}"
    else:
        place = f"{queue} is committed up to {committed}, the message is at {message.queue_offset}"

    def track(status: Track, why: str) -> GroupTrack:
        return GroupTrack(group, status, why, committed)

    if answers.problem is not None:
        return GroupTrack(group, Track.UNKNOWN, answers.problem, None)
    members = answers.members
    if members is None:
        return track(Track.NOT_ONLINE, f"it has no members; {place}")
    if members.message_model == _BROADCASTING:
        return track(
            Track.CONSUME_BROADCASTING, "each member keeps its own offsets, which no broker knows"
        )
    if members.consume_type == _ACTIVELY:
        return track(Track.PULL, f"its members pull when they like; {place}")
    if not is_past:
        return track(Track.NOT_CONSUME_YET, place)
    reason = _filtered(message, members.subscription_table)
    if reason is not None:
        return track(Track.CONSUMED_BUT_FILTERED, f"{place}; {reason}")
    return track(Track.CONSUMED, place)


def _filtered(message: MessageExt, subscriptions: Mapping[str, SubscriptionData]) -> str | None:
    """Return why a subscription leaves the message out; None if it does not, or that is not known here."""
    subscription = subscriptions.get(message.topic)
    if subscription is None or (subscription.expression_type or _TAG) != _TAG:
        return None
    tags = set(subscription.tags_set)
    if not tags or "*" in tags or message.tags in tags:
        return None
    return f"its members subscribe to {subscription.sub_string!r}, and the tag is {message.tags!r}"
