"""Bodies with queues as keys, from the recorded runs and back to the byte."""

import pytest
from tests.golden.exchanges import exchanges_of

from rocketrio_protocol.bodies.stats import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
    QueueTimeSpan,
    TopicStatsTable,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageQueue

ORDERS = MessageQueue("orders", "broker-a", 0)


def recorded(run: str, code: RequestCode) -> bytes:
    answer = exchanges_of(run, "broker", code)[0].answer
    assert answer is not None
    return bytes(answer.body)


def test_a_topics_statistics_are_written_again_to_the_byte() -> None:
    body = recorded("4.9.7", RequestCode.GET_TOPIC_STATS_INFO)
    table = TopicStatsTable.from_json(body)
    assert table.offset_table[ORDERS].max_offset == 9
    assert table.to_json() == body


def test_a_groups_progress_is_written_again_to_the_byte() -> None:
    body = recorded("4.9.7", RequestCode.GET_CONSUME_STATS)
    stats = ConsumeStats.from_json(body)
    assert stats.offset_table[ORDERS].consumer_offset == 9
    assert stats.consume_tps == 0.75
    assert stats.to_json() == body


def test_members_that_only_5_x_has_are_read_past() -> None:
    table = TopicStatsTable.from_json(recorded("5.3.3", RequestCode.GET_TOPIC_STATS_INFO))
    assert table.offset_table[ORDERS].max_offset == 6
    stats = ConsumeStats.from_json(recorded("5.3.3", RequestCode.GET_CONSUME_STATS))
    assert stats.offset_table[ORDERS].broker_offset == 6


@pytest.mark.parametrize("run", ["4.9.7", "5.3.3"])
def test_connections_are_read(run: str) -> None:
    found = ConsumerConnection.from_json(recorded(run, RequestCode.GET_CONSUMER_CONNECTION_LIST))
    assert [each.client_id for each in found.connection_set] == ["192.0.2.2@push"]
    assert found.subscription_table["orders"].sub_string == "TagA || TagB || Tx"
    again = ConsumerConnection.from_json(found.to_json())
    assert again == found


def test_what_a_group_lags_behind_is_never_negative() -> None:
    table = {ORDERS: OffsetWrapper(9, 4), MessageQueue("T", "b", 1): OffsetWrapper(2, 5)}
    assert ConsumeStats(table).total_diff == 5


def test_a_span_and_statistics_have_javas_names() -> None:
    assert QueueTimeSpan.of(ORDERS).to_json() == (
        b'{"consumeTimeStamp":-1,"delayTime":-1,"maxTimeStamp":-1,'
        b'"messageQueue":{"brokerName":"broker-a","queueId":0,"topic":"orders"},"minTimeStamp":-1}'
    )
    item = BrokerStatsItem(6, 0.5, 2.0)
    body = BrokerStatsData(item, item, item).to_json()
    assert body.startswith(b'{"statsDay":{"avgpt":2.0,"sum":6,"tps":0.5}')


@pytest.mark.parametrize(
    "body", [b"", b'{"offsetTable":{"x":{}}}', b'{"offsetTable":{{"topic":1}:{}}}']
)
def test_a_damaged_table_is_the_peers_fault(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        TopicStatsTable.from_json(body)
