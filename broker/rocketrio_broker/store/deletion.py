"""A topic's deletion as it stands in the log: the last record of the topic's life, which no consumer sees.

    a record of the topic, queue 0, empty, flagged as prepared      such records have no queue entry, on Apache either
    properties: rocketrioDeleted 0x01 <the floor of the topic's offsets>

Whoever reads the log comes past it in its place, between the messages of one life and those of the next: slaves as it
arrives, a recovery or a rebuild of the queues as it walks. So it is replicated, flushed, cut and aged out as messages
are, and goes from the log after all that it ended.

Invariant: a queue that has a message behind it is of a later life, and stays.
Answers to: nothing; on Apache's brokers a slave never hears of it, and rebuilt queues hold all lives of a topic.
"""

from typing import Final, NamedTuple

from rocketrio_broker.store.put_message import PutMessage
from rocketrio_protocol.record.layout import SysFlag
from rocketrio_protocol.record.properties import encode_properties, stored_value

DELETED_PROPERTY: Final = "rocketrioDeleted"
_LABEL: Final = f"{DELETED_PROPERTY}\x01".encode()
_PREPARED: Final = int(SysFlag.TRANSACTION_PREPARED)


class Deletion(NamedTuple):
    """One that was met in the log."""

    topic: str
    floor: str
    """Below which the topic's committed offsets are void, in the words of whoever keeps those."""


def deletion_record(topic: str, floor: str, *, host: bytes, now_ms: int) -> PutMessage:
    """What to append when a topic is deleted; `host` is this broker's, packed."""
    return PutMessage(
        topic=topic,
        queue_id=0,
        properties=encode_properties({DELETED_PROPERTY: floor}).encode(),
        sys_flag=_PREPARED,
        born_time_ms=now_ms,
        born_host=host,
        store_host=host,
    )


def deletion_in(topic: bytes, properties: bytes) -> Deletion | None:
    """What a record without a queue entry says, if it is one of these."""
    floor = stored_value(properties, _LABEL)
    return (
        Deletion(topic.decode("utf-8", "replace"), floor.decode("utf-8", "replace"))
        if floor
        else None
    )
