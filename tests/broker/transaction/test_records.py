"""The records that decide half messages against those of Apache's own log, byte for byte."""

from pathlib import Path

import pytest
from tests.broker.builders import as_put
from tests.golden.golden import VERSIONS, remoting_frames
from tests.support.replay import golden_records, put_of

from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_broker.transaction.records import (
    check_request,
    committed,
    copied,
    given_up,
    half_offsets_of,
    operation,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.transaction import CheckTransactionStateRequestHeader
from rocketrio_protocol.frame import FrameDecoder
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.layout import pack_host

HALF, OPERATIONS = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"


@pytest.mark.parametrize(("run", "count"), [("4.9.7", 2), ("5.3.3", 4)])
def test_committed_messages_are_apaches(run: str, count: int, tmp_path: Path) -> None:
    records = {record.physical_offset: record for record in golden_records(run, tmp_path)}
    theirs = [record for record in records.values() if record.sys_flag & 0xC == 8]
    assert len(theirs) == count
    for record in theirs:
        ours = committed(records[record.prepared_transaction_offset])
        assert ours is not None
        assert as_put(ours) == as_put(put_of(record))
        assert ours.prepared_transaction_offset == record.prepared_transaction_offset


def test_operation_message_is_apaches(tmp_path: Path) -> None:
    theirs = [each for each in golden_records("4.9.7", tmp_path) if each.topic == OPERATIONS]
    assert [half_offsets_of(record) for record in theirs] == [[0], [1], [3]]
    for record in theirs:
        (half_offset,) = half_offsets_of(record)
        host = pack_host(*record.store_host)
        ours = operation(half_offset, host=host, now_ms=record.born_time_ms)
        assert as_put(ours) == as_put(put_of(record))


def test_operations_of_5_x_decide_many(tmp_path: Path) -> None:
    (record,) = [each for each in golden_records("5.3.3", tmp_path) if each.topic == OPERATIONS]
    assert half_offsets_of(record) == [0, 1, 3, 5, 4]


def test_other_records_of_the_operations_topic_decide_nothing(tmp_path: Path) -> None:
    (delayed, *_) = golden_records("4.9.7", tmp_path)
    assert half_offsets_of(delayed) == []


def halves(run: str, tmp_path: Path) -> list[MessageExt]:
    return [record for record in golden_records(run, tmp_path) if record.topic == HALF]


def test_copied_half_message_is_apaches(tmp_path: Path) -> None:
    originals = {record.message_id: record for record in reversed(halves("4.9.7", tmp_path))}
    copies = [record for record in originals.values() if record.queue_offset == 2]
    (theirs,) = [record for record in halves("4.9.7", tmp_path) if record.queue_offset == 3]
    assert as_put(copied(copies[0], check_times=1)) == as_put(put_of(theirs))


def test_copy_without_a_question_is_the_same_again(tmp_path: Path) -> None:
    for half in halves("5.3.3", tmp_path):
        assert as_put(copied(half)) == as_put(put_of(half))


def test_given_up_message_is_the_half_message_under_another_topic(tmp_path: Path) -> None:
    half = halves("4.9.7", tmp_path)[0]
    put = given_up(half)
    assert (put.topic, put.queue_id) == ("TRANS_CHECK_MAX_TIME_TOPIC", 0)
    assert put.properties == half.stored_properties


@pytest.mark.parametrize("run", VERSIONS)
def test_checks_ask_what_apache_asks(run: str, tmp_path: Path) -> None:
    records = halves(run, tmp_path)
    by_offset = {record.queue_offset: record for record in records}
    asked = 0
    for frame in remoting_frames(run):
        (decoded,) = FrameDecoder().feed(frame.data)
        command = RemotingCommand.decode(decoded)
        if command.code != RequestCode.CHECK_TRANSACTION_STATE:
            continue
        theirs = command.header(CheckTransactionStateRequestHeader)
        copy = by_offset[theirs.tran_state_table_offset]
        half = next(record for record in records if record.message_id == copy.message_id)
        result = AppendResult(
            PutStatus.PUT_OK, physical_offset=copy.physical_offset, queue_offset=copy.queue_offset
        )
        ours, body = check_request(half, put_of(copy), result, broker_name="broker-a")
        if run == "4.9.7":
            assert body == bytes(command.body)
            ours.topic = ours.broker_name = None
        else:
            their_body = MessageExt(bytes(command.body), 0, len(command.body))
            our_body = MessageExt(body, 0, len(body))
            assert our_body.properties == their_body.properties
            assert body[4:88] == their_body.record[4:88]
        assert ours == theirs
        asked += 1
    assert asked == {"4.9.7": 1, "5.3.3": 3}[run]
