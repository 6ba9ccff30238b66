"""Tells whether a client means the message that lies at the place it gives.

After a failover that lost the end of an asynchronous master's log, another message may lie where a client got or stored
its own.

Answers to: nothing of Java's, which compares the place alone.
"""

from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.properties import PROPERTY_ORIGIN_MESSAGE_ID, PROPERTY_UNIQUE_KEY


def is_other_message(message: MessageExt, name: str | None) -> bool:
    """Return whether `name` is the id of another message than this one; False if that cannot be known.

    Clients name a message by its UNIQ_KEY, by its place, or by its first place if it was sent back before; some name
    none.
    """
    unique_key = message.property_value(PROPERTY_UNIQUE_KEY)
    if not name or not unique_key:
        return False
    first_place = message.property_value(PROPERTY_ORIGIN_MESSAGE_ID)
    return name not in (unique_key, message.offset_message_id, first_place)
