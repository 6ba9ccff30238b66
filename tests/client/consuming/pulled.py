"""Records as a broker stores them, and answers to pulls that hold them."""

from tests.support.records import plain_record

from rocketrio.consuming.process_queue import ProcessQueue
from rocketrio.consuming.pull_result import PullResult, PullStatus
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import pack_host


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


HOST = pack_host("10.0.0.1", 1)
PAIRS = b"TAGS\x01even\x02KEYS\x01k 1\x02UNIQ_KEY\x01AB\x02RETRY_TOPIC\x01orders\x02"


def stored(count: int, *, topic: bytes = b"orders", size: int = 8) -> bytes:
    return b"".join(
        encode_record(
            queue_id=3, flag=0, queue_offset=number, physical_offset=number * 200, sys_flag=0,
            born_time_ms=number, born_host=HOST, store_time_ms=number, store_host=HOST,
            reconsume_times=0, prepared_transaction_offset=0,
            body=b"%0*d" % (size, number), topic=topic, properties=PAIRS,
        )
        for number in range(count)
    )  # fmt: skip
