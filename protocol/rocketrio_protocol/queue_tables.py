"""Tables whose key is a queue: on the wire the queue's JSON is the key, here a `MessageQueue` is.

    {{"brokerName":"b","queueId":0,"topic":"t"}:12}

Answers to: the Map<MessageQueue, ...> fields of Java's bodies, as fastjson writes them.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from rocketrio_protocol import fastjson
from rocketrio_protocol.message import MessageQueue

T = TypeVar("T")


class _QueueKey(msgspec.Struct, rename="camel"):
    topic: str
    broker_name: str
    queue_id: int


def by_queue(table: Mapping[str, T]) -> dict[MessageQueue, T]:
    """A table as `fastjson.loads` gives it, with its keys read. Raises RemoteProtocolError."""
    read = {}
    for text, value in table.items():
        key = fastjson.loads(text.encode(), _QueueKey, what="message queue")
        read[MessageQueue(key.topic, key.broker_name, key.queue_id)] = value
    return read
