"""Header classes and their text: names, required fields, defaults; checked on what Java really sent."""

from typing import ClassVar

import msgspec
import pytest
from tests.golden.golden import remoting_frames
from tests.support.raw_frames import is_answer
from tests.support.request_headers import COMMANDS

from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.access import UpdateAccessConfigRequestHeader
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullMessageResponseHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeader, SendMessageRequestHeaderV2
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.headers import Header, RequestHeader, true_text

RUNS = ("4.9.7", "5.3.3", "5.3.3-split")

IGNORED = {
    "bname",  # the broker's name, in requests of 4.9 and later
    "ReqT",  # a pull consumer's hook
    "enableActingMaster",
    "groupSysFlag",
    "topicSysFlag",
    "IS_SUB_CHANGE",
    "IS_SUPPORT_HEART_BEAT_V2",
}
"""What real peers send and no header class of rocketrio reads (RocketMQ reference, sections 2.1 and 2.14)."""


class _Example(RequestHeader):
    code: ClassVar = RequestCode.SEND_MESSAGE
    topic: str
    queue_id: int
    batch: bool
    producer_group: str = msgspec.field(name="a", default="G")
    max_offset: int | None = None
    is_lite: bool | None = None


def test_names_are_camel_case_by_default() -> None:
    names = [field.encode_name for field in msgspec.structs.fields(_Example)]
    assert names == ["topic", "queueId", "batch", "a", "maxOffset", "isLite"]


def test_values_are_text_and_none_is_left_out() -> None:
    assert _Example("T", 3, batch=False).to_ext_fields() == {
        "topic": "T",
        "queueId": "3",
        "batch": "false",
        "a": "G",
    }
    assert _Example("T", -1, True, "g", 2**60, True).to_ext_fields() == {
        "topic": "T",
        "queueId": "-1",
        "batch": "true",
        "a": "g",
        "maxOffset": str(2**60),
        "isLite": "true",
    }


def test_fields_come_back_as_they_were() -> None:
    for header in (_Example("T", 3, batch=False), _Example("", -1, True, "g", 2**60, False)):
        assert _Example.from_ext_fields(header.to_ext_fields()) == header


def test_unknown_fields_are_ignored() -> None:
    fields = {"topic": "T", "queueId": "3", "batch": "true", "later": "x"}
    assert _Example.from_ext_fields(fields) == _Example("T", 3, batch=True)


@pytest.mark.parametrize("missing", ["topic", "queueId", "batch"])
def test_missing_field_is_named(missing: str) -> None:
    fields = _Example("T", 3, batch=True).to_ext_fields()
    del fields[missing]
    with pytest.raises(RemoteProtocolError, match=f"_Example: the required field '{missing}'"):
        _Example.from_ext_fields(fields)


@pytest.mark.parametrize("name", ["queueId", "maxOffset"])
@pytest.mark.parametrize(
    "text",
    ["", "three", "3.5", "0x3", " 3", "3 ", "\t3", "1_0", "+-3", "-", "+", "\u00b3", "9" * 5000],
)
def test_wrong_number_is_named(name: str, text: str) -> None:
    fields = {"topic": "T", "queueId": "3", "batch": "true", "maxOffset": "1", name: text}
    with pytest.raises(RemoteProtocolError) as caught:
        _Example.from_ext_fields(fields)
    assert f"_Example: the field {name!r} is {text[:80]!r}, which is not a number" in str(
        caught.value
    )


@pytest.mark.parametrize(("name", "bits"), [("queueId", 32), ("maxOffset", 64)])
def test_number_reaches_to_java_s_limits_and_not_beyond(name: str, bits: int) -> None:
    fields = {"topic": "T", "queueId": "3", "batch": "true", "maxOffset": "1"}
    limit = 1 << (bits - 1)
    for number in (limit - 1, -limit):
        header = _Example.from_ext_fields(fields | {name: str(number)})
        assert number in (header.queue_id, header.max_offset)
    for number in (limit, -limit - 1, 10**30):
        with pytest.raises(RemoteProtocolError, match=f"{name}.*which does not fit in {bits} bits"):
            _Example.from_ext_fields(fields | {name: str(number)})


@pytest.mark.parametrize("text", ["+7", "007", "\u0667", "0000000000000000000000007"])
def test_numbers_that_java_reads_are_read(text: str) -> None:
    fields = {"topic": "T", "queueId": text, "batch": "true", "maxOffset": text}
    assert _Example.from_ext_fields(fields) == _Example("T", 7, True, max_offset=7)


def test_booleans_are_read_as_java_does() -> None:
    assert [true_text(text) for text in ("true", "TRUE", "True", "1")] == [True] * 4
    assert [true_text(text) for text in ("false", "0", "yes", "", "on")] == [False] * 5


def test_short_and_long_send_headers_have_the_same_attributes() -> None:
    long_names = [field.name for field in msgspec.structs.fields(SendMessageRequestHeader)]
    assert [
        field.name for field in msgspec.structs.fields(SendMessageRequestHeaderV2)
    ] == long_names


def test_every_command_has_a_header_class_of_its_code() -> None:
    for code, (request, answer) in COMMANDS.items():
        assert request.code == code
        assert issubclass(answer, Header)


@pytest.mark.parametrize("run", RUNS)
def test_recorded_requests_are_read_and_written_again_with_the_same_fields(run: str) -> None:
    read = 0
    for recorded in remoting_frames(run):
        (frame,) = FrameDecoder().feed(recorded.data)
        command = RemotingCommand.decode(frame)
        if is_answer(command) or command.code not in COMMANDS:
            continue
        request_class, _ = COMMANDS[RequestCode(command.code)]
        again = command.header(request_class).to_ext_fields()
        lost = {name: text for name, text in command.ext_fields.items() if again.get(name) != text}
        assert set(lost) <= IGNORED, (recorded, lost)
        read += 1
    assert read > 20


@pytest.mark.parametrize("run", RUNS)
def test_recorded_answers_are_read_and_written_again_with_the_same_fields(run: str) -> None:
    asked: dict[tuple[int, int, bool], int] = {}
    read = 0
    for recorded in remoting_frames(run):
        (frame,) = FrameDecoder().feed(recorded.data)
        command = RemotingCommand.decode(frame)
        key = (recorded.connection, command.opaque, recorded.from_dialer != is_answer(command))
        if not is_answer(command):
            asked[key] = command.code
            continue
        code = asked.get(key)
        if code is None or code not in COMMANDS or command.code != 0 or not command.ext_fields:
            continue
        _, answer_class = COMMANDS[RequestCode(code)]
        again = command.header(answer_class).to_ext_fields()
        lost = {name: text for name, text in command.ext_fields.items() if again.get(name) != text}
        assert set(lost) <= IGNORED, (RequestCode(code), lost)
        read += 1
    assert read > 5


def test_pull_header_is_read_from_fields_of_a_c_plus_plus_client() -> None:
    fields = dict.fromkeys(
        (
            "queueId",
            "queueOffset",
            "maxMsgNums",
            "sysFlag",
            "commitOffset",
            "suspendTimeoutMillis",
            "subVersion",
        ),
        "5",
    )
    header = PullMessageRequestHeader.from_ext_fields(
        {**fields, "consumerGroup": "G", "topic": "T"}
    )
    assert header.subscription is None
    assert header.queue_offset == 5


@pytest.mark.parametrize(
    ("field", "number", "bits"),
    [("queueId", 2**31, 32), ("maxOffset", -(2**63) - 1, 64)],
    ids=["an int", "a long"],
)
def test_number_that_java_cannot_hold_is_refused(field: str, number: int, bits: int) -> None:
    ext = {"topic": "T", "queueId": "1", "batch": "true", "maxOffset": "1"}
    with pytest.raises(
        RemoteProtocolError, match=rf"'{field}' is '{number}', which does not fit in {bits} bits"
    ):
        _Example.from_ext_fields({**ext, field: str(number)})


def test_largest_numbers_of_java_are_read() -> None:
    ext = {"topic": "T", "queueId": str(2**31 - 1), "batch": "true", "maxOffset": str(-(2**63))}
    header = _Example.from_ext_fields(ext)
    assert (header.queue_id, header.max_offset) == (2**31 - 1, -(2**63))


def test_error_of_a_monstrous_field_stays_short() -> None:
    with pytest.raises(RemoteProtocolError, match="not a number") as caught:
        PullMessageResponseHeader.from_ext_fields(
            {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": "\0" * 1_000_000,
                "minOffset": "0",
                "maxOffset": "0",
            }
        )
    assert len(str(caught.value)) < 1000


def test_secret_of_an_account_is_not_printed() -> None:
    header = UpdateAccessConfigRequestHeader("account-1", "marker-secret", topic_perms="orders=PUB")
    shown = repr(header)
    assert "account-1" in shown
    assert "orders=PUB" in shown
    assert "marker" not in shown
