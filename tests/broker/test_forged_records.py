"""A message's body may hold what looks like another message: no request takes it for one, whatever address it names."""

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.support.caller import bodies
from tests.support.records import plain_record
from tests.support.transaction_producer import (
    COMMIT,
    GIVEN_UP,
    GROUP,
    HALF,
    Half,
    TransactionProducer,
    producing,
)
from trio.testing import MockClock

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.consumer import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerSendMsgBackRequestHeader,
)
from rocketrio_protocol.commands.query import ViewMessageRequestHeader
from rocketrio_protocol.commands.transaction import ResumeCheckHalfMessageRequestHeader
from rocketrio_protocol.record.layout import RECORD_OVERHEAD, pack_host
from rocketrio_protocol.record.message_id import offset_message_id

HOST = pack_host("10.0.0.1", 1)
BODY_AT = 88
"""Where the body begins in a record with IPv4 hosts."""


@asynccontextmanager
async def forged(
    topic: str, *, real_topic: str = "orders", real_queue_id: str = "0"
) -> AsyncGenerator[tuple[TransactionProducer, Half]]:
    """Send a message whose body is a record of this topic, with the address at which it will lie."""
    async with producing() as producer:
        address = producer.cluster.master.broker.store.max_physical_offset + BODY_AT
        properties = (
            f"TRAN_MSG\x01true\x02UNIQ_KEY\x01FORGED\x02PGROUP\x01{GROUP}\x02DELAY\x011\x02"
            f"REAL_TOPIC\x01{real_topic}\x02REAL_QID\x01{real_queue_id}"
        )
        record = plain_record(
            queue_id=0,
            queue_offset=1_000,
            physical_offset=address,
            body=b"forged",
            topic=topic.encode(),
            properties=properties.encode(),
        )
        await producer.call.send(producer.addr, record)
        # The bytes lie there, and name their own address.
        assert producer.cluster.master.broker.store.commit_log.record_at(address) == record
        yield producer, Half("FORGED", 1_000, address)


@pytest.mark.parametrize("real_topic", ["orders", "../../x", "/abs/x", "SCHEDULE_TOPIC_XXXX"])
async def test_end_of_a_forged_half_message_is_refused(
    autojump_clock: MockClock, real_topic: str
) -> None:
    async with forged(HALF, real_topic=real_topic, real_queue_id="4294967296") as (producer, half):
        queues = set(producer.cluster.master.broker.store.queue_table.by_key)
        answer = await producer.end(half, COMMIT)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "Find prepared transaction message failed" in (answer.remark or "")
        assert set(producer.cluster.master.broker.store.queue_table.by_key) == queues


async def test_forged_message_is_not_shown_sent_back_or_resumed(autojump_clock: MockClock) -> None:
    async with forged(GIVEN_UP) as (producer, half):
        end = producer.cluster.master.broker.store.max_physical_offset
        message_id = offset_message_id(HOST, half.physical_offset)
        for header in (
            ViewMessageRequestHeader(half.physical_offset),
            ConsumerSendMsgBackRequestHeader(half.physical_offset, "readers", 0),
            ResumeCheckHalfMessageRequestHeader(message_id),
            ConsumeMessageDirectlyRequestHeader("readers", "c1", message_id),
        ):
            answer = await producer.call.pool.call(producer.addr, header)
            assert answer.code == ResponseCode.SYSTEM_ERROR, header
            assert re.search("can not find|look message by|is not a message", answer.remark or "")
        assert producer.cluster.master.broker.store.max_physical_offset == end


async def test_message_around_a_forged_one_is_found(autojump_clock: MockClock) -> None:
    async with forged("orders") as (producer, half):
        whole = ViewMessageRequestHeader(half.physical_offset - BODY_AT)
        (body,) = bodies(await producer.call.pool.call(producer.addr, whole))
        assert len(body) > RECORD_OVERHEAD
