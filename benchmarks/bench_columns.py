"""Stored messages: CPU ns to decode one, as a view, as an object, as columns; to encode one; to check one.

To hold: lazy view 410 ns, columns 350; columns without properties 103, with keys and tags 315, with the whole map 397
(100 B bodies, five properties, blocks of 20,000).
`small` as an argument makes it a matter of a second.
"""

import json
import sys
import time
from collections.abc import Callable
from functools import partial

from rocketrio_protocol.columns.decode import decode_columns
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.batch import decode_batch, encode_batch
from rocketrio_protocol.record.decode import scan_record
from rocketrio_protocol.record.encode import encode_record
from rocketrio_protocol.record.layout import pack_host

ROUNDS = 7
HOST = pack_host("127.0.0.1", 10911)
PROPERTIES = (
    "KEYS\x01order-{0:08d}\x02TAGS\x01red\x02UNIQ_KEY\x017F00000100002A139A5505D0{0:08X}\x02"
    "WAIT\x01true\x02CLUSTER\x01DefaultCluster"
)
FIXED = ("topic", "queue_id", "queue_offset", "body", "store_time")
WANTED = {
    "no properties": FIXED,
    "keys and tags": (*FIXED, "keys", "tags"),
    "properties as text": (*FIXED, "properties_text"),
    "keys, tags and map": (*FIXED, "keys", "tags", "properties"),
}


def record(number: int, body: bytes) -> bytes:
    """One stored message with five properties."""
    return encode_record(
        queue_id=1,
        flag=0,
        queue_offset=number,
        physical_offset=300 * number,
        sys_flag=0,
        born_time_ms=1_700_000_000_000,
        born_host=HOST,
        store_time_ms=1_700_000_000_001,
        store_host=HOST,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=b"bench",
        properties=PROPERTIES.format(number).encode(),
    )


def report(name: str, work: Callable[[], object], count: int, **params: object) -> None:
    """Print the best of some rounds as CPU ns a message."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        work()
        best = min(best, time.process_time() - start)
    value = round(best / count * 1e9, 1)
    print(
        json.dumps({"name": name, "value": value, "unit": "ns/message", "params": params}),
        flush=True,
    )


def scan(chunk: bytes) -> None:
    """The walk of recovery."""
    position = 0
    while position < len(chunk):
        position += scan_record(chunk, position, len(chunk)).size


def read_bodies(chunk: bytes) -> list[bytes]:
    """What a consumer does at least."""
    return [message.body for message in decode_messages(chunk)]


def read_tags(messages: list[MessageExt]) -> list[str | None]:
    """One property each."""
    return [message.tags for message in messages]


def read_properties(messages: list[MessageExt]) -> list[dict[str, str]]:
    """All properties of each."""
    return [message.properties for message in messages]


def encode_many(body: bytes, count: int) -> list[bytes]:
    """As a broker appends them."""
    return [record(5, body) for _ in range(count)]


def main() -> int:
    """Measure 100 B and 1 KiB bodies."""
    count = 2_000 if "small" in sys.argv else 20_000
    for body_size in (100, 1024):
        body = b"x" * body_size
        records = [record(number, body) for number in range(count)]
        chunk = b"".join(records)
        messages = decode_messages(chunk)
        sizes = {"body": body_size, "stored": len(records[0])}
        report("copy the bytes", partial(bytearray, chunk), count, **sizes)
        report("views", partial(decode_messages, chunk), count, **sizes)
        report(
            "views, body read",
            partial(read_bodies, chunk),
            count,
            **sizes,
        )
        report("tags of a view", partial(read_tags, messages), count, **sizes)
        report(
            "properties of a view",
            partial(read_properties, messages),
            count,
            **sizes,
        )
        for what, wanted in WANTED.items():
            report(
                "columns",
                partial(decode_columns, chunk, wanted),
                count,
                columns=what,
                block=count,
                **sizes,
            )
        report("encode", partial(encode_many, body, count), count, **sizes)
        report("check for recovery", partial(scan, chunk), count, **sizes)
        entries = [(0, body, b"KEYS\x01k\x02WAIT\x01true")] * 100
        batch = encode_batch(entries)
        report("encode a batch of 100", partial(encode_batch, entries), 100, **sizes)
        report("decode a batch of 100", partial(decode_batch, batch), 100, **sizes)
    wanted = WANTED["keys, tags and map"]
    for block in (32, 100, 500, 2000):
        chunk = b"".join(record(number, b"x" * 100) for number in range(block))
        report(
            "columns",
            partial(decode_columns, chunk, wanted),
            block,
            block=block,
            body=100,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
