"""What happens to a message whose handler failed, depending on the kind of consumer."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import TypeAlias

import attrs

from rocketrio.client import ClientInstance
from rocketrio.cluster.heartbeat import BROADCASTING, ConsumerMembership
from rocketrio.consuming.send_back import MAX_RECONSUME_TIMES, SendBack
from rocketrio_protocol.message import MessageExt

HandBack: TypeAlias = Callable[[MessageExt, int], Awaitable[None]]
"""Returns when the group has the message again; the number is the delay level."""

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class Delivery:
    """The redelivery rules of one consumer."""

    send_back: SendBack | None
    """None if no group takes messages back."""
    hand_back: HandBack | None
    """What `run` does with a message whose handler failed; None if the failure ends the run."""
    max_reconsume_times: int | None
    delay_levels: tuple[timedelta, ...]

    @classmethod
    def of(
        cls,
        client: ClientInstance,
        member: ConsumerMembership | None,
        times: int | None,
        delay_levels: tuple[timedelta, ...],
    ) -> "Delivery":
        """Return the rules for a member of a group, a broadcasting member, or a consumer of named queues."""
        if member is None:
            return cls(None, None, times, delay_levels)
        if member.message_model == BROADCASTING:
            return cls(None, _drop, times, delay_levels)
        send_back = SendBack(client, member, MAX_RECONSUME_TIMES if times is None else times)
        return cls(send_back, send_back.send_back, times, delay_levels)


async def _drop(message: MessageExt, delay_level: int) -> None:
    # As in Java: no group takes it back, because it failed at this member only.
    logger.warning("dropped, as its consumer broadcasts message_id=%s", message.message_id)
