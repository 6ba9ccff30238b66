"""Parked and released messages against those of Apache's own log, byte for byte."""

from pathlib import Path

import pytest
from tests.broker.builders import as_put
from tests.broker.processors.asking import asking
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS
from tests.support.replay import golden_records
from trio.testing import MockClock

from rocketrio_broker.delay.delayed_puts import delay_level, released, stored_message
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.properties import decode_properties

PARKED_TOPICS = ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC")


def as_stored(message: MessageExt) -> tuple[object, ...]:
    """What does not depend on where and when it was stored."""
    return (
        message.topic,
        message.queue_id,
        message.flag,
        message.sys_flag,
        message.born_time_ms,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body_crc,
        message.stored_body,
        message.stored_properties,
    )


async def test_sends_are_parked_as_apache_parks_them(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    theirs = {
        message.property_value("UNIQ_KEY"): message
        for message in reversed(golden_records("4.9.7", tmp_path))
        if message.topic in PARKED_TOPICS and message.reconsume_times == 0
    }
    compared = 0
    async with asking() as broker:
        for exchange in exchanges_of("4.9.7", "broker", RequestCode.SEND_MESSAGE_V2):
            properties = decode_properties(exchange.request.ext_fields.get("i", ""))
            if not {"DELAY", "TRAN_MSG"} & properties.keys():
                continue
            answer = await broker.ask(exchange.request, bytes(exchange.request.body))
            assert answer.code == ResponseCode.SUCCESS
            assert answer.ext_fields["queueId"] == exchange.request.ext_fields["e"]
            address = int(answer.ext_fields["msgId"][-16:], 16)
            record = broker.broker.store.message_at(address)
            assert record is not None
            ours = MessageExt(record, 0, len(record))
            assert as_stored(ours) == as_stored(theirs[properties["UNIQ_KEY"]])
            compared += 1
    assert compared == 4


@pytest.mark.parametrize("run", VERSIONS)
def test_released_messages_are_as_apache_delivers_them(run: str, tmp_path: Path) -> None:
    records = golden_records(run, tmp_path)
    parked = [record for record in records if record.topic == "SCHEDULE_TOPIC_XXXX"]
    assert parked
    for message in parked:
        (delivered,) = [
            record
            for record in records
            if record.topic == message.property_value("REAL_TOPIC")
            and record.message_id == message.message_id
            and record.reconsume_times == message.reconsume_times
        ]
        put = released(message)
        assert put is not None
        assert as_put(put) == (
            delivered.topic,
            delivered.queue_id,
            delivered.flag,
            delivered.sys_flag,
            delivered.born_time_ms,
            pack_host(*delivered.born_host),
            pack_host(*delivered.store_host),
            delivered.reconsume_times,
            delivered.stored_body,
            delivered.stored_properties,
        )


async def test_damaged_message_is_none(autojump_clock: MockClock) -> None:
    async with asking() as broker:
        broker.put("orders", b"good", b"damaged")
        store = broker.broker.store
        entry = store.queues()["orders"][0].entry(1)
        assert entry is not None
        good, damaged = stored_message(store, 0), stored_message(store, entry[0])
        assert good is not None
        assert damaged is not None
        assert (good.body, damaged.body) == (b"good", b"damaged")
        (file,) = store.commit_log.files.files_between(0, store.max_physical_offset)
        length_at = entry[0] + 84
        file.view[length_at : length_at + 4] = b"\x7f\xff\xff\xff"
        assert stored_message(store, entry[0]) is None
        assert stored_message(store, 17) is None


@pytest.mark.parametrize(
    ("text", "level"), [("3", 3), ("0", 0), (None, 0), ("soon", 0), ("-1", 0), ("", 0)]
)
def test_level_of_a_property(text: str | None, level: int) -> None:
    assert delay_level(text) == level
