"""A topic's deletion as a record in the log: the last one of this incarnation of the topic; consumers do not see it.

    a record of the topic, queue 0, empty, flagged as prepared      such records have no queue entry, on Apache either
    properties: rocketrioDeleted 0x01 <the floor of the topic's offsets>

It lies between the messages of one incarnation of the topic and those of the next. Slaves meet it as it arrives, a
recovery or a rebuild of the queues as it reads the log. So it is replicated, flushed, cut and expired like messages,
and it leaves the log after all the messages of the incarnation that it ended.

Invariant: a queue with a message after the deletion belongs to a later incarnation, and is kept.
Answers to: nothing; Apache's slaves are not notified of deletions, and rebuilt queues contain every incarnation.
"""

from typing import Final, NamedTuple

from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.properties import encode_properties, stored_value

DELETED_PROPERTY: Final = "rocketrioDeleted"
_LABEL: Final = f"{DELETED_PROPERTY}\x01".encode()
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)


class Deletion(NamedTuple):
    """A deletion that was found in the log."""

    topic: str
    floor: str
    """The topic's committed offsets below it are void; the text is in the format of the table of offsets."""
    is_undone: bool = False
    """Whether it was cut off the log again: the topic goes on without it."""


def deletion_record(topic: str, floor: str, *, host: bytes, now_ms: int) -> PutMessage:
    """Return the record to append when a topic is deleted; `host` is this broker's packed address."""
    return PutMessage(
        topic=topic,
        queue_id=0,
        properties=encode_properties({DELETED_PROPERTY: floor}).encode(),
        # No broker, Apache's included, makes a queue entry of a prepared record.
        sys_flag=_PREPARED,
        born_time_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def deletion_in(topic: bytes, properties: bytes) -> Deletion | None:
    """Return the deletion that a record without a queue entry describes, or None if it is an ordinary record."""
    floor = stored_value(properties, _LABEL)
    return (
        Deletion(topic.decode("utf-8", "replace"), floor.decode("utf-8", "replace"))
        if floor
        else None
    )
