"""What becomes of a message that a consumer's handler could not deal with, by the kind of consumer."""

import logging
from datetime import timedelta

import attrs

from rocketrio.consuming.running import HandBack
from rocketrio.consuming.send_back import MAX_RECONSUME_TIMES, SendBack
from rocketrio.heartbeat import BROADCASTING, ConsumerMembership
from rocketrio.instance import ClientInstance
from rocketrio_protocol.message import MessageExt

logger = logging.getLogger("rocketrio.consumer")


@attrs.define(eq=False)
class Delivery:
    """One consumer's rules."""

    send_back: SendBack | None
    """None where there is no group to hand a message back to."""
    hand_back: HandBack | None
    """What `run` does with a message whose handler failed; None: it ends."""
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
        """Those of a group's member, of one that broadcasts, or of a consumer of named queues."""
        if member is None:
            return cls(None, None, times, delay_levels)
        if member.message_model == BROADCASTING:
            return cls(None, _drop, times, delay_levels)
        send_back = SendBack(client, member, MAX_RECONSUME_TIMES if times is None else times)
        return cls(send_back, send_back.send_back, times, delay_levels)


async def _drop(message: MessageExt, delay_level: int) -> None:
    # As in Java: there is nobody to hand it to, and it is here alone that it failed.
    logger.warning("dropped, as its consumer broadcasts message_id=%s", message.message_id)
