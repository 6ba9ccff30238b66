"""A connection without I/O: what goes in, what comes out, what it remembers."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import RecordedFrame, remoting_frames
from tests.support.raw_frames import commands_of

from rocketrio_protocol.codes import LanguageCode, SerializeType
from rocketrio_protocol.command import FLAG_ONEWAY, FLAG_RESPONSE, RemotingCommand
from rocketrio_protocol.connection import CODECS_FIELD, TAKE_SIZE, RemotingConnection
from rocketrio_protocol.errors import LocalProtocolError, TooManyRequestsError
from rocketrio_protocol.signature import Signer

JSON, MSGPACK = SerializeType.JSON, SerializeType.MSGPACK


@cache
def recorded_split() -> list[RecordedFrame]:
    return remoting_frames("5.3.3-split")[:60]


def answer_to(opaque: int, **more: object) -> RemotingCommand:
    return RemotingCommand(0, opaque=opaque, flag=FLAG_RESPONSE, **more)  # type: ignore[arg-type]


def sent_by(connection: RemotingConnection[str]) -> list[RemotingCommand]:
    return commands_of(connection.take_output())


def exchange(
    asker: RemotingConnection[str], server: RemotingConnection[str], request: RemotingCommand
) -> tuple[RemotingCommand, RemotingCommand]:
    """One call from end to end: the request as the server saw it, and the answer as it arrived."""
    asker.start_call(request, "call")
    (seen,), _ = server.receive(asker.take_output())
    server.send_answer(seen.response())
    _, [(call, answer)] = asker.receive(server.take_output())
    assert call == "call"
    return seen, answer


# ------------------------------------------------------------------------------------------ calling


def test_answers_finish_their_calls_in_any_order() -> None:
    connection = RemotingConnection[str]()
    opaques = [connection.start_call(RemotingCommand(10), name) for name in "abc"]
    assert [request.opaque for request in sent_by(connection)] == opaques
    data = b"".join(answer_to(opaque).encode() for opaque in reversed(opaques))
    requests, finished = connection.receive(data)
    assert requests == []
    assert [(call, answer.opaque) for call, answer in finished] == list(
        zip("cba", reversed(opaques), strict=True)
    )
    assert connection.response_table == {}


def test_late_unknown_and_repeated_answers_are_dropped_and_counted() -> None:
    connection = RemotingConnection[str]()
    given_up = connection.start_call(RemotingCommand(10), "a")
    answered = connection.start_call(RemotingCommand(10), "b")
    assert connection.forget_call(given_up) == "a"
    assert connection.forget_call(given_up) is None
    data = b"".join(answer_to(n).encode() for n in (given_up, answered, answered, 4711))
    _, finished = connection.receive(data)
    assert [call for call, _ in finished] == ["b"]
    assert connection.late_answer_count == 3
    assert connection.error is None


def test_requests_of_the_peer_may_use_the_numbers_of_our_calls() -> None:
    connection = RemotingConnection[str]()
    opaque = connection.start_call(RemotingCommand(10), "ours")
    requests, finished = connection.receive(
        RemotingCommand(40, opaque=opaque).encode() + answer_to(opaque).encode()
    )
    assert [request.code for request in requests] == [40]
    assert [call for call, _ in finished] == ["ours"]


def test_opaque_wraps_and_steps_over_calls_that_still_wait() -> None:
    connection = RemotingConnection[str](first_opaque=2**31 - 2)
    opaques = [connection.start_call(RemotingCommand(10), "a") for _ in range(3)]
    assert opaques == [2**31 - 2, 2**31 - 1, 0]
    again = RemotingConnection[str](first_opaque=2**31 - 1)
    again.response_table.update({2**31 - 1: "long", 0: "longer"})
    assert again.start_call(RemotingCommand(10), "b") == 1
    assert [request.opaque for request in sent_by(connection)] == opaques


def test_response_table_has_a_limit_and_nothing_is_sent_over_it() -> None:
    connection = RemotingConnection[str](response_table_limit=2)
    first = connection.start_call(RemotingCommand(10), "a")
    connection.start_call(RemotingCommand(10), "b")
    with pytest.raises(TooManyRequestsError, match="2 requests already wait"):
        connection.start_call(RemotingCommand(10), "c")
    assert len(sent_by(connection)) == 2
    connection.receive(answer_to(first).encode())
    connection.start_call(RemotingCommand(10), "c")


def test_unsent_bytes_have_a_limit() -> None:
    connection = RemotingConnection[str](out_size_limit=1000)
    connection.send_oneway(RemotingCommand(10, body=bytes(700)))
    for refused in (connection.send_oneway, connection.send_answer):
        with pytest.raises(TooManyRequestsError, match="wait to be sent"):
            refused(RemotingCommand(10, body=bytes(700)))
    with pytest.raises(TooManyRequestsError):
        connection.start_call(RemotingCommand(10, body=bytes(700)), "a")
    assert connection.response_table == {}
    assert len(sent_by(connection)) == 1
    connection.send_oneway(RemotingCommand(10, body=bytes(700)))


def test_request_that_cannot_be_encoded_is_not_waited_for() -> None:
    connection = RemotingConnection[str](serialize_type=SerializeType.ROCKETMQ)
    with pytest.raises(LocalProtocolError):
        connection.start_call(RemotingCommand(200_050), "a")
    assert connection.response_table == {}
    assert connection.out_size == 0


def test_calls_that_cannot_be_answered_any_more_are_handed_back() -> None:
    connection = RemotingConnection[str]()
    for name in "abc":
        connection.start_call(RemotingCommand(10), name)
    assert connection.forget_all_calls() == ["a", "b", "c"]
    assert connection.response_table == {}


def test_oneway_is_flagged_and_not_waited_for() -> None:
    connection = RemotingConnection[str]()
    connection.send_oneway(RemotingCommand(10))
    assert [request.flag for request in sent_by(connection)] == [FLAG_ONEWAY]
    assert connection.response_table == {}


# ------------------------------------------------------------------------------- sending, receiving


def test_output_is_taken_once_in_order_and_what_was_not_sent_stays_first() -> None:
    connection = RemotingConnection[str]()
    connection.send_frame(b"one")
    connection.send_frame(b"two")
    assert connection.out_size == 6
    data = connection.take_output()
    assert (data, connection.out_size, connection.take_output()) == (b"onetwo", 0, b"")
    connection.send_frame(b"three")
    connection.put_back(memoryview(data)[2:])
    assert connection.out_size == 9
    assert connection.take_output() == b"etwothree"


def test_much_output_is_taken_in_parts_and_a_large_frame_is_not_copied() -> None:
    connection = RemotingConnection[str]()
    large = bytes(TAKE_SIZE)
    frames = [b"a" * 100_000] * 4 + [large] + [b"b" * 200_000] * 2
    for frame in frames:
        connection.send_frame(frame)
    taken = [connection.take_output() for _ in range(5)]
    assert [len(part) for part in taken] == [200_000, 200_000, TAKE_SIZE, 200_000, 200_000]
    assert taken[2] is large
    assert b"".join(taken) == b"".join(frames)
    assert (connection.take_output(), connection.out_size) == (b"", 0)


def test_peer_is_known_by_its_last_request() -> None:
    connection = RemotingConnection[str]()
    assert (connection.peer_language, connection.peer_version) == (None, None)
    connection.receive(RemotingCommand(34, language=LanguageCode.CPP, version=293).encode())
    assert (connection.peer_language, connection.peer_version) == (LanguageCode.CPP, 293)


@pytest.mark.parametrize(
    "bad",
    [
        b"GET / HTTP/1.1",
        b"\x00\x00\x00\x06\x00\x00\x00\x02{]",
        b"\x00\x00\x00\x06\x09\x00\x00\x02{}",
    ],
)
def test_what_is_whole_before_bad_bytes_is_given_and_nothing_after(bad: bytes) -> None:
    connection = RemotingConnection[str]()
    opaque = connection.start_call(RemotingCommand(10), "a")
    good = RemotingCommand(40, body=b"good").encode()
    requests, finished = connection.receive(good + answer_to(opaque).encode() + bad + good)
    assert [request.body for request in requests] == [b"good"]
    assert [call for call, _ in finished] == ["a"]
    assert connection.error is not None
    assert connection.receive(good) == ([], [])


def test_end_is_an_error_inside_a_frame_and_not_between_frames() -> None:
    whole, half = RemotingConnection[str](), RemotingConnection[str]()
    frame = RemotingCommand(40).encode()
    whole.receive(frame)
    whole.receive_eof()
    assert whole.error is None
    half.receive(frame + frame[:9])
    half.receive_eof()
    assert "ended 9 bytes into a frame" in str(half.error)


def test_receive_buffer_may_be_used_again() -> None:
    connection = RemotingConnection[str]()
    frame = RemotingCommand(40, body=b"payload" * 20, ext_fields={"a": "b"}).encode()
    buffer = bytearray(frame + frame[:50])
    (request,), _ = connection.receive(memoryview(buffer))
    buffer[:] = b"\xff" * len(buffer)
    assert request.body == b"payload" * 20
    (request,), _ = connection.receive(frame[50:])
    assert (request.body, request.ext_fields) == (b"payload" * 20, {"a": "b"})


@given(st.lists(st.integers(1, 30_000), min_size=1, max_size=8))
def test_any_split_of_recorded_traffic_gives_the_same_requests(sizes: list[int]) -> None:
    stream = b"".join(frame.data for frame in recorded_split() if frame.from_dialer)
    whole, connection = RemotingConnection[str](), RemotingConnection[str]()
    expected, _ = whole.receive(stream)
    found: list[RemotingCommand] = []
    position = 0
    while position < len(stream):
        for size in sizes:
            found += connection.receive(stream[position : position + size])[0]
            position += size
    assert found == expected
    assert connection.late_answer_count == whole.late_answer_count


# ------------------------------------------------------------------------------------------ codecs


def test_client_that_prefers_msgpack_announces_it_and_uses_it_once_answered_in_it() -> None:
    client, server = RemotingConnection[str](serialize_type=MSGPACK), RemotingConnection[str]()
    request = RemotingCommand(10, ext_fields={"a": "b"})
    seen, answer = exchange(client, server, request)
    assert seen.ext_fields == {"a": "b"}  # The announcement is not a processor's affair.
    assert request.ext_fields == {"a": "b"}
    assert answer.serialize_type is MSGPACK
    client.start_call(RemotingCommand(10, ext_fields={"a": "b"}), "second")
    (second,) = sent_by(client)
    assert second.serialize_type is MSGPACK
    assert second.ext_fields == {"a": "b"}


def test_first_requests_are_json_with_the_announcement() -> None:
    client = RemotingConnection[str](serialize_type=MSGPACK)
    client.start_call(RemotingCommand(10), "a")
    client.send_oneway(RemotingCommand(10, ext_fields={"a": "b"}))
    first, second = sent_by(client)
    assert first.serialize_type is second.serialize_type is JSON
    assert first.ext_fields == {CODECS_FIELD: "MSGPACK"}
    assert second.ext_fields == {"a": "b", CODECS_FIELD: "MSGPACK"}


def test_apache_peer_sees_one_announcement_and_only_json() -> None:
    client = RemotingConnection[str](serialize_type=MSGPACK)
    opaque = client.start_call(RemotingCommand(10), "a")
    sent_by(client)
    client.receive(answer_to(opaque).encode())
    client.start_call(RemotingCommand(10, ext_fields={"a": "b"}), "b")
    (request,) = sent_by(client)
    assert (request.serialize_type, request.ext_fields) == (JSON, {"a": "b"})
    assert not client.peer_reads_msgpack


def test_server_asks_in_msgpack_once_its_client_announced_it() -> None:
    client, server = RemotingConnection[str](serialize_type=MSGPACK), RemotingConnection[str]()
    server.send_oneway(RemotingCommand(40))
    assert [request.serialize_type for request in sent_by(server)] == [JSON]
    exchange(client, server, RemotingCommand(10))
    server.send_oneway(RemotingCommand(40))
    assert [request.serialize_type for request in sent_by(server)] == [MSGPACK]


def test_server_that_does_not_allow_msgpack_answers_in_json() -> None:
    client = RemotingConnection[str](serialize_type=MSGPACK)
    server = RemotingConnection[str](msgpack_allowed=False)
    seen, answer = exchange(client, server, RemotingCommand(10))
    assert seen.ext_fields == {}
    assert answer.serialize_type is JSON
    assert client.request_type is server.request_type is JSON


def test_codecs_that_are_not_known_are_ignored() -> None:
    server = RemotingConnection[str]()
    codecs = {CODECS_FIELD: "CBOR,PROTOBUF"}
    (seen,), _ = server.receive(RemotingCommand(10, ext_fields=codecs).encode())
    assert seen.serialize_type is JSON
    codecs = {CODECS_FIELD: "CBOR,MSGPACK"}
    (seen,), _ = server.receive(RemotingCommand(10, ext_fields=codecs).encode())
    assert seen.serialize_type is MSGPACK


def test_msgpack_never_goes_to_a_peer_that_has_not_shown_that_it_reads_it() -> None:
    connection = RemotingConnection[str]()
    with pytest.raises(LocalProtocolError, match="MSGPACK"):
        connection.send_answer(answer_to(1, serialize_type=MSGPACK))
    connection.send_oneway(RemotingCommand(40, serialize_type=MSGPACK))
    assert [request.serialize_type for request in sent_by(connection)] == [JSON]


def test_each_answer_is_in_the_encoding_of_its_request() -> None:
    server = RemotingConnection[str]()
    for serialize_type in SerializeType:
        request = RemotingCommand(10, serialize_type=serialize_type)
        (seen,), _ = server.receive(request.encode())
        server.send_answer(seen.response())
    assert [answer.serialize_type for answer in sent_by(server)] == list(SerializeType)


class Prepared:
    """A request whose JSON frame says so."""

    code = 310

    def json_frame(self, opaque: int, signer: Signer | None) -> bytes:
        return RemotingCommand(self.code, opaque, ext_fields={"made": "before"}).encode()

    def command(self) -> RemotingCommand:
        return RemotingCommand(self.code, ext_fields={"made": "now"})


@pytest.mark.parametrize(
    ("serialize_type", "made"),
    [
        (SerializeType.JSON, "before"),
        (SerializeType.ROCKETMQ, "now"),
        (SerializeType.MSGPACK, "now"),  # JSON until agreed, with the announcement in it
    ],
)
def test_prepared_request_is_used_where_its_encoding_is(
    serialize_type: SerializeType, made: str
) -> None:
    connection = RemotingConnection[str](serialize_type=serialize_type, first_opaque=7)
    assert connection.start_call(Prepared(), "a") == 7
    assert connection.start_call(Prepared(), "b") == 8
    first, second = sent_by(connection)
    assert (first.opaque, second.opaque) == (7, 8)
    assert first.ext_fields["made"] == second.ext_fields["made"] == made
    assert connection.response_table == {7: "a", 8: "b"}
