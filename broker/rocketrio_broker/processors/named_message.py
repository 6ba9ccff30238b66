"""Refuses requests of clients that do not mean the message that lies at the place they give.

After a failover that lost the end of an asynchronous master's log, another message may lie where a client got or stored
its own.

Answers to: nothing of Java's, which compares the place alone.
"""

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.properties import PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_UNIQUE_KEY


def refuse_other_message(message: MessageExt, name: str | None, *, failed: str) -> None:
    """Raise RefusedError if `name` is the id of another message than this one; `failed` is how Java says it.

    Clients name a message by its UNIQ_KEY, by its place, or by its first place if it was sent back before; some name
    none.
    """
    unique_key = message.property_value(PROPERTY_UNIQUE_KEY)
    if not name or not unique_key:
        return
    first_place = message.property_value(PROPERTY_ORIGIN_MESSAGE_ID)
    if name not in (unique_key, message.offset_message_id, first_place):
        raise RefusedError(
            ResponseCode.SYSTEM_ERROR,
            f"{failed}: {name} is lost, another message lies in its place",
        )
