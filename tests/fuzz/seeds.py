"""Good inputs and the words of the formats: recorded traffic of Apache peers, and made requests of every kind.

Invariant: what is not recorded is made here; nothing is copied from elsewhere.
"""

import functools
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from rocketrio_protocol.codes import RequestCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error
from rocketrio_protocol.headers import RequestHeader, value_type
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.record import compression
from tests.fuzz.lab import GROUP, PRODUCERS, TOPIC, half_address
from tests.fuzz.target import SEED_LIMIT
from tests.golden.golden import recorded_frames
from tests.support.raw_client import heartbeat
from tests.support.raw_frames import command_of
from tests.support.records import plain_record, plain_records
from tests.support.request_headers import COMMANDS

_RECORDING: Final = "5.3.3"

JSON_WORDS: Final = (
    b'{"', b'":', b'",', b"{", b"}", b"[", b"]", b"null", b"true", b"-1", b"0.5", b"1e999", b"9223372036854775808",
    b'"\\ud800"', b"{1:", b"{{", b'\\"', b'\\"{}', b'"extFields":{', b'"code":', b'"flag":1', b'"opaque":',
    b'"serializeTypeCurrentRPC":"ROCKETMQ"', b'"topic":"', b'"queueId":"', b'"%RETRY%"', b'"%DLQ%"', b"\xff",
)  # fmt: skip
FRAME_WORDS: Final = (
    *JSON_WORDS,
    b"\0\0\0\x04", b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x01\0\0\0", b"\x02\0\0\0", b"\x80", b"\xde\xff\xff",
    b"\xdf", *(b'"code":%d' % code for code in sorted(RequestCode)),
)  # fmt: skip
SQL_WORDS: Final = (
    b" AND ", b" OR ", b"NOT ", b" BETWEEN ", b" IN (", b" IS NULL", b"TRUE", b"'", b"''", b"--", b"\n", b"/*", b"*/",
    b"(", b")", b"1.5", b"1e9", b"-", b"<>", b">=", b"a", b"a = 1", b" CONTAINS ", b" STARTSWITH ", b" ENDSWITH ",
)  # fmt: skip
RECORD_WORDS: Final = (
    b"\xda\xa3\x20\xa7", b"\xda\xa3\x20\xab", b"\xcb\xd4\x31\x94", b"\0\0\0\x5b", b"UNIQ_KEY\x01", b"KEYS\x01",
    b"TAGS\x01", b"DELAY\x01", b"REAL_TOPIC\x01", b"REAL_QID\x01", b"\x02", b"INSTANCE_ID\x01", b"TIMER_DELIVER_MS\x01",
    b"TRAN_MSG\x01true\x02", b"PGROUP\x01p\x02", b"CORRELATION_ID\x01", b"MSG_TYPE\x01reply\x02", b"9" * 30, b"-1",
)  # fmt: skip

MEMBER: Final = heartbeat(
    "lab", producers=[PRODUCERS], consumers=[GROUP], topics=[TOPIC], expression="t || u", tagsSet=["t", "u"],
    codeSet=[116, 117],
)  # fmt: skip
"""A heartbeat of a client with a producer and a consumer."""
_QUEUES: Final = (
    b'{"clientId":"lab","consumerGroup":"g",'
    b'"mqSet":[{"brokerName":"broker-a","queueId":0,"topic":"orders"}]}'
)
_REPLY: Final = (
    "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01lab\x02CORRELATION_ID\x01x\x02CLUSTER\x01lab\x02"
)
_MESSAGE: Final = plain_record(
    topic=TOPIC.encode(), properties=b"UNIQ_KEY\x010A\x02PGROUP\x01p\x02TRAN_MSG\x01true\x02"
)
_REPLIES: Final = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
_BODIES: Final[dict[int, bytes]] = {
    RequestCode.HEART_BEAT: MEMBER,
    RequestCode.LOCK_BATCH_MQ: _QUEUES,
    RequestCode.UNLOCK_BATCH_MQ: _QUEUES,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: b'{"groupName":"g","retryQueueNums":1,"retryMaxTimes":16}',
    RequestCode.QUERY_DATA_VERSION: b'{"counter":1,"stateVersion":0,"timestamp":1}',
    RequestCode.UPDATE_NAMESRV_CONFIG: b"orderMessageEnable=true\n",
    RequestCode.SEND_MESSAGE: b"a message",
    RequestCode.SEND_REPLY_MESSAGE: b"a reply",
    RequestCode.SEND_REPLY_MESSAGE_V2: b"a reply",
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET: b'{"offsetTable":{{"brokerName":"broker-a","queueId":0,'
    b'"topic":"orders"}:5}}',
    RequestCode.CONSUME_MESSAGE_DIRECTLY: _MESSAGE,
    RequestCode.CHECK_TRANSACTION_STATE: _MESSAGE,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: b"a reply",
    RequestCode.CHECK_CLIENT_CONFIG: b'{"clientId":"c","group":"g","subscriptionData":{"topic":"orders",'
    b'"subString":"a>1","expressionType":"SQL92","subVersion":1,"tagsSet":[],"codeSet":[]}}',
}


@functools.cache
def _known_fields() -> dict[str, Any]:
    """What the fields of requests hold so that the lab's broker has an answer; other numbers are 0, texts "x"."""
    address = half_address()
    return {
        "topic": TOPIC, "group": GROUP, "consumerGroup": GROUP, "producerGroup": PRODUCERS, "groupName": GROUP,
        "b": TOPIC, "a": PRODUCERS, "originTopic": TOPIC, "srcGroup": GROUP, "destGroup": "other",
        "brokerName": "broker-a", "brokerAddr": "10.0.0.7:10911", "clusterName": "lab", "brokerId": 1,
        "haServerAddr": "10.0.0.7:10912", "clientId": "lab", "clientID": "lab", "key": "k", "namespace": "n",
        "value": "v", "role": "slave", "cluster": "lab", "statsName": "TOPIC_PUT_NUMS", "statsKey": f"{TOPIC}@{GROUP}",
        "maxMsgNums": 32, "maxNum": 32, "sysFlag": 4, "subscription": "*", "c": "TBW102", "defaultTopic": "TBW102",
        "readQueueNums": 4, "writeQueueNums": 4, "perm": 6, "d": 4, "count": 8, "defaultTopicQueueNums": 4,
        "g": 1_700_000_000_000, "bornTimestamp": 1_700_000_000_000, "endTimestamp": 1 << 60,
        "topicFilterType": "SINGLE_TAG", "addr": "10.0.0.100:1", "dryRun": "true", "filterGroups": GROUP,
        "i": "KEYS\x01k\x02TAGS\x01t\x02", "properties": "KEYS\x01k\x02TAGS\x01t\x02", "commitOrRollback": 8,
        "offline": "false", "commitLogOffset": address, "msgId": f"0A00000A00002A9F{address:016X}",
    }  # fmt: skip


def fields_for(kind: type[RequestHeader]) -> dict[str, str]:
    """Return ext fields that the lab's broker can make sense of."""
    known, found = _known_fields(), {}
    for field in msgspec.structs.fields(kind):
        name = field.encode_name
        usual = {int: 0, str: "x", bool: "false"}[value_type(field)]
        if name in known or field.required:
            found[name] = str(known.get(name, usual))
    if kind.code in _REPLIES:
        found |= dict.fromkeys(found.keys() & {"i", "properties"}, _REPLY)
    return found


def made_request(code: int, serialize_type: SerializeType = SerializeType.JSON) -> bytes:
    """Return a request of one kind, as a frame."""
    kind = COMMANDS[RequestCode(code)][0]
    command = RemotingCommand(code=code, ext_fields=fields_for(kind), body=_BODIES.get(code, b""))
    command.serialize_type = serialize_type
    return command.encode()


@functools.cache
def _recorded(server: str) -> tuple[bytes, ...]:
    """The longest frame of each kind and direction."""
    found: dict[object, bytes] = {}
    for frame in recorded_frames(_RECORDING):
        key = frame.from_dialer, frame.data[8:24]
        if frame.server == server and len(found.get(key, b"")) < len(frame.data) <= SEED_LIMIT:
            found[key] = frame.data
    return tuple(found.values())


def frames() -> Sequence[bytes]:
    """Return requests and answers in each of the three encodings of headers."""
    recorded = (*_recorded("broker"), *_recorded("namesrv"))
    return (*recorded, *(_written_as(kind, data) for kind in SerializeType for data in recorded))


def _written_as(kind: SerializeType, data: bytes) -> bytes:
    command = command_of(data)
    command.serialize_type = kind
    return command.encode()


def questions(server: str) -> Sequence[bytes]:
    """Return requests of each kind, recorded ones and made ones that the lab's broker can act on."""
    recorded = {
        command_of(frame.data).code: frame.data
        for frame in recorded_frames(_RECORDING)
        if frame.server == server and frame.from_dialer
    }
    return (*recorded.values(), *map(made_request, COMMANDS))


def pushes() -> Sequence[bytes]:
    """Return a request of each kind that a broker makes of its clients."""
    return [made_request(code) for code in (39, 40, 220, 221, 307, 309, 326)]


def bodies(code: int | None = None) -> Sequence[bytes]:
    """Return recorded bodies, of a kind of request or of all."""
    commands = map(command_of, (*_recorded("broker"), *_recorded("namesrv")))
    return [
        bytes(command.body) for command in commands if command.body and code in (None, command.code)
    ]


def json_bodies() -> Sequence[bytes]:
    """Return recorded bodies in JSON."""
    return [body for body in bodies() if body[:1] in b"{["]


def records() -> Sequence[bytes]:
    """Return stored messages: recorded ones, and enough alike ones to be read as columns."""
    found = [
        plain_records(1),
        plain_records(20),
        plain_records(3, sys_flag=1, body=compression.compress(b"x" * 99)),
    ]
    for body in bodies():
        try:
            if decode_messages(body):
                found.append(body)
        except Error:
            continue
    return found


def properties() -> Sequence[bytes]:
    """Return stored properties."""
    return [message.stored_properties for body in records() for message in decode_messages(body)]


def replication() -> Sequence[bytes]:
    """Return recorded bytes of replication connections."""
    return [frame.data for frame in recorded_frames(_RECORDING) if frame.server == "ha"][:40]


def compressed() -> Sequence[bytes]:
    """Return a body compressed in each way, behind the number of the way."""
    return [
        bytes([kind]) + compression.compress(b"some text" * 9, kind)
        for kind in compression.CompressionType
    ]
