import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.registration import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import ProtocolError, RemoteProtocolError
from rocketrio_protocol.frame import Frame
from rocketrio_protocol.ha.exchange import Greeting, decode_exchange
from rocketrio_protocol.ha.link import decode_hello
from rocketrio_protocol.header_codec import json_ext_fields
from rocketrio_protocol.nesting import DEPTH_LIMIT, NestedTooDeeplyError, check_depth

SCALARS = st.none() | st.integers() | st.text(alphabet='a"\\[]{}\n', max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(alphabet='a"\\{[', max_size=3), inner, max_size=3)
    ),
    max_leaves=20,
)


def depth_of(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + max(map(depth_of, value.values()), default=0)
    if isinstance(value, list):
        return 1 + max(map(depth_of, value), default=0)
    return 0


def nested(depth: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    return opening * depth + b"1" + closing * depth


@given(value=VALUES, limit=st.integers(0, 6))
@example(value="[[[[", limit=1)
@example(value={"\\": [["]"]]}, limit=2)
def test_the_depth_of_any_json_is_counted_exactly(value: Any, limit: int) -> None:
    text = json.dumps(value).encode()
    if depth_of(value) > limit:
        with pytest.raises(NestedTooDeeplyError):
            check_depth(text, limit)
    else:
        check_depth(text, limit)
        check_depth(memoryview(text), limit)


@pytest.mark.parametrize("width", [1, 1_000])
def test_siblings_are_not_nested(width: int) -> None:
    check_depth(b"[" + b",".join([b'{"a":[{}]}'] * width) + b"]", limit=4)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'["\\"]",', b'["]",', b'{"a":"}","b":'])
def test_closing_brackets_in_strings_hide_nothing(opening: bytes) -> None:
    closing = b"]" if opening.startswith(b"[") else b"}"
    check_depth(nested(DEPTH_LIMIT, opening, closing))
    with pytest.raises(NestedTooDeeplyError):
        check_depth(nested(DEPTH_LIMIT + 1, opening, closing))


# ------------------------------------------------------------------------------- where it is asked

# Around the limit, around what Python's recursion limit leaves in a test and in a broker, and far beyond.
DEPTHS = [*range(DEPTH_LIMIT - 1, DEPTH_LIMIT + 3), *range(900, 1_000, 7), 5_000, 50_000]


def a_send(unknown: bytes) -> bytes:
    fields = '"a":"p","b":"t","c":"TBW102","d":"4","e":"0","f":"0","g":"1","h":"0","i":"","j":"0"'
    return b'{"code":310,"extFields":{%b},"x":%b}' % (fields.encode(), unknown)


HEADERS = {
    "an unknown member": lambda value: b'{"code":28,"x":%b}' % value,
    "the language": lambda value: b'{"code":28,"language":%b}' % value,
    "the remark": lambda value: b'{"code":28,"remark":%b}' % value,
    "the fields": lambda value: b'{"code":28,"extFields":%b}' % value,
    "a message's header": a_send,
}


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("place", HEADERS)
def test_header_is_refused_from_one_depth_on(place: str, depth: int) -> None:
    value = nested(depth)
    frame = Frame(0, HEADERS[place](value), b"")
    if depth + 1 > DEPTH_LIMIT:  # The header itself is one.
        with pytest.raises(RemoteProtocolError, match=f"more than {DEPTH_LIMIT} "):
            RemotingCommand.decode(frame)
        with pytest.raises(RemoteProtocolError, match=f"more than {DEPTH_LIMIT} "):
            json_ext_fields(frame.header)
    else:
        assert RemotingCommand.decode(frame).code in (RequestCode.HEART_BEAT, 28, 310)


@pytest.mark.parametrize("depth", DEPTHS)
def test_body_is_refused_from_one_depth_on(depth: int) -> None:
    body = b'{"x":%b}' % nested(depth)
    ways = (
        lambda: fastjson.loads(body, TopicConfigSerializeWrapper),
        lambda: fastjson.loads_bounded(body, TopicConfigSerializeWrapper, what="topics"),
        lambda: fastjson.loads(body, dict[str, Any]),
    )
    for decode in ways:
        if depth + 1 > DEPTH_LIMIT:
            with pytest.raises(RemoteProtocolError, match=f"more than {DEPTH_LIMIT} "):
                decode()
        else:
            decode()


@pytest.mark.parametrize("depth", DEPTHS[2:])
def test_messages_between_brokers_are_refused_from_one_depth_on(depth: int) -> None:
    body = b'{"x":%b}' % nested(depth)
    with pytest.raises(ProtocolError, match=f"more than {DEPTH_LIMIT} "):
        decode_exchange(body, Greeting)
    with pytest.raises(ProtocolError, match=f"more than {DEPTH_LIMIT} "):
        decode_hello(body, "slave")


def test_many_shallow_objects_take_no_more_than_a_few_times_their_decoding() -> None:
    locks = [{"brokerName": "b", "queueId": number, "topic": "t"} for number in range(10_000)]
    assert len(fastjson.loads(msgspec.json.encode(locks), list[dict[str, Any]])) == 10_000
