"""Header codecs: CPU µs to encode and decode whole commands in each encoding, and header objects from and to fields.

To hold, µs to encode + to decode: JSON 0.6 + 1.0, ROCKETMQ 2.3-6 + 6-10, MSGPACK 1.1-1.7 + 2.2 for the bare header.
"""

import json
import sys
import time
from collections.abc import Callable

from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.header_codec import decode_header, encode_header
from rocketrio_protocol.headers import Header

ROUNDS = 5
CALLS = 20_000

SEND = SendMessageRequestHeaderV2(
    producer_group="producers",
    topic="orders",
    default_topic="TBW102",
    default_topic_queue_nums=4,
    queue_id=3,
    sys_flag=0,
    born_timestamp=1_700_000_000_000,
    flag=0,
    properties="KEYS\x01key-1\x02UNIQ_KEY\x017F000001000018B4AAC2000000000001\x02TAGS\x01A\x02WAIT\x01true",
    reconsume_times=0,
    unit_mode=False,
    batch=False,
)
SENT = SendMessageResponseHeader("7F00000100002A9F0000000000000123", 3, 1234)
PULL = PullMessageRequestHeader(
    consumer_group="billing",
    topic="orders",
    queue_id=3,
    queue_offset=1234,
    max_msg_nums=32,
    sys_flag=2,
    commit_offset=0,
    suspend_timeout_millis=15_000,
    sub_version=1_700_000_000_000,
    subscription="*",
    expression_type="TAG",
)
PULLED = PullMessageResponseHeader(0, 1266, 0, 2000)


def cpu_us(work: Callable[[], object], calls: int) -> float:
    """The best of a few rounds, in CPU µs a call."""
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.process_time()
        for _ in range(calls):
            work()
        best = min(best, time.process_time() - start)
    return best / calls * 1e6


def report(name: str, value: float, **more: str) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": "us", **more}), flush=True)


def measure(name: str, header: Header, calls: int) -> None:
    fields = header.to_ext_fields()
    report("header.to_fields", cpu_us(header.to_ext_fields, calls), header=name)
    report(
        "header.from_fields",
        cpu_us(lambda: type(header).from_ext_fields(fields), calls),
        header=name,
    )
    for encoding in SerializeType:
        command = RemotingCommand(310, 77, ext_fields=fields, serialize_type=encoding)
        raw = encode_header(command)
        command.body = bytes(128)
        frame = command.encode()
        more = {"header": name, "encoding": encoding.name}

        def decode(frame: bytes = frame) -> None:
            for cut in FrameDecoder().feed(frame):
                RemotingCommand.decode(cut)

        def encode_bare(command: RemotingCommand = command) -> bytes:
            return encode_header(command)

        def decode_bare(encoding: int = encoding, raw: bytes = raw) -> object:
            return decode_header(encoding, raw)

        report("codec.header_encode", cpu_us(encode_bare, calls), **more)
        report("codec.header_decode", cpu_us(decode_bare, calls), **more)
        report("codec.frame_encode", cpu_us(command.encode, calls), **more)
        report("codec.frame_decode", cpu_us(decode, calls), **more)


def main(calls: int = CALLS) -> None:
    """`calls` is how often each work is done in one round."""
    for name, header in (("send", SEND), ("sent", SENT), ("pull", PULL), ("pulled", PULLED)):
        measure(name, header, calls)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
