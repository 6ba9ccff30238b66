"""Bodies about single queues and clients, in the forms that Java and C++ write and read."""

import pytest
from tests.golden.exchanges import exchanges_of
from tests.support.request_headers import COMMANDS

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import (
    ConsumerStatusBody,
    LockBatch,
    LockedBatch,
    QueueName,
    ResetOffsetBody,
)
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

QUEUE = MessageQueue("T", "broker-a", 0)


def test_a_lock_is_written_as_java_5_writes_it() -> None:
    for exchange in exchanges_of("5.3.3", "broker", RequestCode.LOCK_BATCH_MQ):
        read = fastjson.loads(exchange.request.body, LockBatch)
        assert fastjson.dumps(read) == bytes(exchange.request.body)
        assert exchange.answer is not None
        held = fastjson.loads(exchange.answer.body, LockedBatch)
        assert held.lock_ok_mq_set == read.mq_set
        assert fastjson.dumps(held) == bytes(exchange.answer.body)


def test_a_reset_is_written_as_java_writes_it() -> None:
    (exchange,) = exchanges_of("5.3.3", "broker", RequestCode.INVOKE_BROKER_TO_RESET_OFFSET)
    assert exchange.answer is not None
    body = ResetOffsetBody.from_json(exchange.answer.body)
    assert {queue.topic for queue in body.offset_table} == {"orders"}
    assert ResetOffsetBody.from_json(body.to_json()) == body
    assert sorted(body.to_json()) == sorted(bytes(exchange.answer.body))


def test_a_reset_for_cpp_clients_is_a_list() -> None:
    body = ResetOffsetBody({QUEUE: 7})
    written = body.to_list_json()
    assert written == (
        b'{"offsetTable":[{"brokerName":"broker-a","offset":7,"queueId":0,"topic":"T"}]}'
    )
    assert ResetOffsetBody.from_json(written) == body


def test_offsets_of_clients_are_read_back() -> None:
    one = ConsumerStatusBody(message_queue_table={QUEUE: 3})
    assert one.to_json() == (
        b'{"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"T"}:3}}'
    )
    assert ConsumerStatusBody.from_json(one.to_json()).message_queue_table == {QUEUE: 3}
    all_of_them = ConsumerStatusBody(consumer_table={"c1": {QUEUE: 3}})
    assert ConsumerStatusBody.from_json(all_of_them.to_json()).consumer_table == {"c1": {QUEUE: 3}}


def test_direct_consumption_reports_its_result() -> None:
    body = (
        b'{"autoCommit":true,"consumeResult":"CR_LATER","order":false,"remark":"r",'
        b'"spentTimeMills":12}'
    )
    read = fastjson.loads(body, ConsumeMessageDirectlyResult)
    assert (read.consume_result, read.spent_time_mills) == ("CR_LATER", 12)
    assert fastjson.dumps(read) == body


def test_a_queue_has_one_form_as_value_and_as_json() -> None:
    assert QueueName.of(QUEUE).queue == QUEUE


@pytest.mark.parametrize("code", [36, 41, 42, 220, 221, 222, 223, 307, 309, 324, 325, 326])
def test_every_code_has_its_headers(code: int) -> None:
    assert RequestCode(code) in COMMANDS


def test_a_body_that_is_none_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="ResetOffsetBody"):
        ResetOffsetBody.from_json(b'{"offsetTable":7}')
