"""Records as a broker stores them, and answers to pulls that hold them."""

from tests.support.records import plain_record

from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio_protocol.message import MessageQueue


def record(queue_offset: int) -> bytes:
    return plain_record(queue_offset=queue_offset, body=b"x" * 100, topic=b"t", properties=b"")


def pulled(*offsets: int, next_offset: int) -> PullResult:
    body = b"".join(record(offset) for offset in offsets)
    status = PullStatus.FOUND if offsets else PullStatus.NO_MATCHED_MSG
    return PullResult(status, next_offset, 0, 100, 0, body, "a:1")


def started(offset: int = 0, **thresholds: int) -> ProcessQueue:
    queue = ProcessQueue(MessageQueue("t", "b", 0), **thresholds)
    queue.start(offset)
    return queue


PAIRS = b"TAGS\x01even\x02KEYS\x01k 1\x02UNIQ_KEY\x01AB\x02RETRY_TOPIC\x01orders\x02"


def stored(count: int, *, topic: bytes = b"orders", size: int = 8) -> bytes:
    return b"".join(
        plain_record(
            queue_offset=number, body=b"%0*d" % (size, number), topic=topic, properties=PAIRS
        )
        for number in range(count)
    )
