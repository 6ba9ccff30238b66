import pytest
from tests.support.raw_frames import command_of

from rocketrio_broker.processors.answers import SendAnswers, pull_answer_frame
from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_broker.waiting.answers import with_code
from rocketrio_protocol.codes import ResponseCode, SerializeType
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageResponseHeader
from rocketrio_protocol.commands.send import SendMessageResponseHeader
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.message_id import offset_message_id

HOST = pack_host("127.0.0.1", 10911)


def result(*physical_offsets: int) -> AppendResult:
    return AppendResult(
        PutStatus.PUT_OK,
        physical_offsets[0],
        queue_offset=1 << 40,
        physical_offsets=list(physical_offsets) if len(physical_offsets) > 1 else None,
    )


@pytest.mark.parametrize("serialize_type", list(SerializeType))
@pytest.mark.parametrize("region", ["DefaultRegion", 'quo"ted %s', "köln"])
@pytest.mark.parametrize("physical_offsets", [(7,), (1 << 40, 200, 300)])
@pytest.mark.parametrize("transaction_id", ["", "7F000001", 'quo"ted %b', "köln"])
def test_send_answer_is_the_ordinary_answer(
    serialize_type: SerializeType,
    region: str,
    physical_offsets: tuple[int, ...],
    transaction_id: str,
) -> None:
    request = RemotingCommand(310, opaque=77, serialize_type=serialize_type)
    ids = ",".join(offset_message_id(HOST, offset) for offset in physical_offsets)
    header = SendMessageResponseHeader(
        ids, 3, 1 << 40, transaction_id or None, region_id=region, trace_on=True
    )
    answers = SendAnswers(HOST, region_id=region, trace_on=True)
    frame = answers.frame(77, serialize_type, 3, result(*physical_offsets), transaction_id.encode())
    assert command_of(frame) == request.response(header)
    late = with_code(frame, ResponseCode.FLUSH_DISK_TIMEOUT, "not yet")
    assert command_of(late) == request.response(
        header, code=ResponseCode.FLUSH_DISK_TIMEOUT, remark="not yet"
    )


@pytest.mark.parametrize("serialize_type", list(SerializeType))
def test_pull_answer_is_the_ordinary_answer(serialize_type: SerializeType) -> None:
    request = RemotingCommand(11, opaque=78, serialize_type=serialize_type)
    header = PullMessageResponseHeader(1, 1 << 33, 0, 1 << 34)
    frame = pull_answer_frame(request, 0, "FOUND", header, [b"abc", memoryview(b"de")], 5)
    assert command_of(frame) == request.response(header, b"abcde", remark="FOUND")


def test_pull_answer_without_messages_has_an_empty_body() -> None:
    request = RemotingCommand(11, opaque=1)
    header = PullMessageResponseHeader(0, 7, 0, 7)
    frame = pull_answer_frame(request, 19, "OFFSET_OVERFLOW_ONE", header)
    assert command_of(frame) == request.response(header, code=19, remark="OFFSET_OVERFLOW_ONE")
