"""What a consumer says of itself, as Java's consumers of both versions wrote it."""

import pytest
from tests.golden.exchanges import exchanges_of

from rocketrio_protocol.bodies.running_info import (
    ConsumerRunningInfo,
    ConsumeStatus,
    ProcessQueueInfo,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

FIRST = MessageQueue("orders", "broker-a", 0)


def recorded(version: str) -> bytes:
    (exchange,) = [
        exchange
        for exchange in exchanges_of(version, "broker", RequestCode.GET_CONSUMER_RUNNING_INFO)
        if exchange.frame.from_dialer
    ]
    assert exchange.answer is not None
    return bytes(exchange.answer.body)


@pytest.mark.parametrize("version", ["4.9.7", "5.3.3"])
def test_what_java_wrote_is_written_again_to_the_byte(version: str) -> None:
    body = recorded(version)
    assert ConsumerRunningInfo.from_json(body).to_json() == body


def test_what_java_wrote_is_read() -> None:
    info = ConsumerRunningInfo.from_json(recorded("4.9.7"))
    assert info.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
    assert [data.topic for data in info.subscription_set] == ["%RETRY%pushers", "orders"]
    queue = info.mq_table[FIRST]
    assert (queue.commit_offset, queue.locked, queue.last_pull_timestamp) == (
        9,
        True,
        1795269029963,
    )
    assert info.status_table["orders"] == ConsumeStatus()
    assert (info.mq_pop_table, info.user_consumer_info, info.jstack) == (None, None, None)
    of_5 = ConsumerRunningInfo.from_json(recorded("5.3.3"))
    assert (of_5.mq_pop_table, of_5.user_consumer_info) == ({}, {})


def test_every_field_of_a_queue_and_a_topic_has_javas_name() -> None:
    info = ConsumerRunningInfo(
        mq_table={FIRST: ProcessQueueInfo(cached_msg_size_in_mib=3, droped=True)},
        status_table={"orders": ConsumeStatus(1.5, 2.0, 0.25, 3.0, 0.5, 7)},
        jstack="task main\n",
    )
    assert info.to_json() == (
        b'{"jstack":"task main\\n","mqTable":{{"brokerName":"broker-a","queueId":0,"topic":"orders"}:'
        b'{"cachedMsgCount":0,"cachedMsgMaxOffset":0,"cachedMsgMinOffset":0,"cachedMsgSizeInMiB":3,"commitOffset":0,'
        b'"droped":true,"lastConsumeTimestamp":0,"lastLockTimestamp":0,"lastPullTimestamp":0,"locked":false,'
        b'"transactionMsgCount":0,"transactionMsgMaxOffset":0,"transactionMsgMinOffset":0,"tryUnlockTimes":0}},'
        b'"properties":{},"statusTable":{"orders":{"consumeFailedMsgs":7,"consumeFailedTPS":0.5,"consumeOKTPS":3.0,'
        b'"consumeRT":0.25,"pullRT":1.5,"pullTPS":2.0}},"subscriptionSet":[]}'
    )
    assert ConsumerRunningInfo.from_json(info.to_json()) == info


def test_a_body_that_is_none_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="ConsumerRunningInfo"):
        ConsumerRunningInfo.from_json(b'{"mqTable":7}')
