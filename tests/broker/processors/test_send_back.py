"""Messages sent back (36): what is stored for their next time, and what is refused."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import msgspec
import pytest
import trio
from tests.support.caller import Caller, caller_of, messages
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.record.message_id import parse_offset_message_id


@attrs.define
class Back:
    """A broker with one message that can be sent back."""

    cluster: EmbeddedCluster
    caller: Caller
    offset: int

    @property
    def addr(self) -> str:
        return self.cluster.master.broker.address

    async def send_back(
        self, delay_level: int = 0, *, offset: int | None = None, **fields: Any
    ) -> RemotingCommand:
        header = ConsumerSendMsgBackRequestHeader(
            self.offset if offset is None else offset, "billing", delay_level
        )
        return await self.caller.pool.call(self.addr, msgspec.structs.replace(header, **fields))

    async def dead_letter(self) -> MessageExt:
        (message,) = messages(await self.caller.pull(self.addr, 0, topic="%DLQ%billing"))
        return message

    def last_record(self) -> MessageExt:
        store = self.cluster.master.broker.store
        at = self.offset
        record = store.message_at(at)
        assert record is not None
        while at + len(record) < store.max_physical_offset:
            at += len(record)
            record = store.message_at(at)
            assert record is not None
        return MessageExt(bytes(record), 0, len(record))


@asynccontextmanager
async def sent(**settings: Any) -> AsyncGenerator[Back]:
    async with EmbeddedCluster(**settings) as cluster, caller_of(cluster) as caller:
        answer = await caller.send(
            cluster.master.broker.address,
            b"work",
            properties="KEYS\x01k\x02WAIT\x01true\x02TAGS\x01t\x02mine\x017",
            flag=5,
        )
        offset = parse_offset_message_id(answer.ext_fields["msgId"])[2]
        yield Back(cluster, caller, offset)


async def test_a_dead_letter_keeps_body_and_properties_and_names_its_origin(
    autojump_clock: MockClock,
) -> None:
    async with sent() as back:
        assert (await back.send_back(-1)).code == ResponseCode.SUCCESS
        letter = await back.dead_letter()
        assert (letter.body, letter.flag, letter.tags) == (b"work", 5, "t")
        assert letter.reconsume_times == 1
        assert letter.born_host[0] == "10.0.0.100"
        assert letter.born_time_ms == 1_700_000_000_000
        first = back.cluster.master.broker.store.message_at(back.offset)
        assert first is not None
        assert letter.properties == {
            "KEYS": "k",
            "TAGS": "t",
            "mine": "7",
            "CLUSTER": "DefaultCluster",
            "RETRY_TOPIC": "orders",
            "ORIGIN_MESSAGE_ID": MessageExt(bytes(first), 0, len(first)).offset_message_id,
            "WAIT": "false",
            "DELAY": "0",
        }
        topic = back.cluster.master.broker.state.topics.topic_config("%DLQ%billing")
        assert topic is not None
        assert (topic.read_queue_nums, topic.perm) == (1, 6)


@pytest.mark.parametrize(("asked_level", "stored_level"), [(0, "3"), (5, "5")])
async def test_the_level_of_a_retry_is_asked_for_or_grows_with_its_times(
    autojump_clock: MockClock, asked_level: int, stored_level: str
) -> None:
    async with sent() as back:
        assert (await back.send_back(asked_level)).code == ResponseCode.SUCCESS
        stored = back.last_record()
        assert stored.property_value("DELAY") == stored_level
        assert stored.property_value("RETRY_TOPIC") == "orders"
        assert stored.reconsume_times == 1
        # Sent back again from there, it remembers where it comes from.
        assert (await back.send_back(asked_level, offset=stored.physical_offset)).code == 0
        again = back.last_record()
        assert again.property_value("RETRY_TOPIC") == "orders"
        origin = stored.property_value("ORIGIN_MESSAGE_ID")
        assert again.property_value("ORIGIN_MESSAGE_ID") == origin
        assert again.reconsume_times == 2
        assert again.property_value("DELAY") == ("4" if asked_level == 0 else "5")


async def test_after_the_group_s_most_times_it_is_a_dead_letter(autojump_clock: MockClock) -> None:
    async with sent() as back:
        back.cluster.master.broker.state.groups.update(
            SubscriptionGroupConfig("billing", retry_max_times=1)
        )
        await back.send_back(1)
        await back.send_back(1, offset=back.last_record().physical_offset)
        assert (await back.dead_letter()).reconsume_times == 2


async def test_the_client_s_own_limit_counts_from_3_4_9_on(autojump_clock: MockClock) -> None:
    async with sent() as back:
        header = ConsumerSendMsgBackRequestHeader(back.offset, "billing", 0, max_reconsume_times=0)
        old = attrs.evolve(RemotingCommand.request(header), version=120)
        await back.caller.pool.call(back.addr, old)
        assert back.last_record().property_value("DELAY") == "3"
        await back.caller.pool.call(back.addr, header)
        assert (await back.dead_letter()).reconsume_times == 1


async def test_a_group_without_retry_queues_drops_it(autojump_clock: MockClock) -> None:
    async with sent() as back:
        back.cluster.master.broker.state.groups.update(
            SubscriptionGroupConfig("billing", retry_queue_nums=0)
        )
        before = back.cluster.master.broker.store.max_physical_offset
        assert (await back.send_back()).code == ResponseCode.SUCCESS
        assert back.cluster.master.broker.store.max_physical_offset == before


async def test_retry_queues_are_as_many_as_the_group_wants(autojump_clock: MockClock) -> None:
    async with sent() as back:
        state = back.cluster.master.broker.state
        state.groups.update(SubscriptionGroupConfig("billing", retry_queue_nums=3))
        await back.send_back(unit_mode=True)
        retry = state.topics.topic_config("%RETRY%billing")
        assert retry is not None
        assert (retry.read_queue_nums, retry.write_queue_nums, retry.topic_sys_flag) == (3, 3, 2)


async def test_impossible_send_back_is_refused(autojump_clock: MockClock) -> None:
    async with sent(auto_create_subscription_group=False) as back:
        answer = await back.send_back()
        assert answer.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
        state = back.cluster.master.broker.state
        state.groups.update(SubscriptionGroupConfig("billing"))
        answer = await back.send_back(offset=back.offset + 1)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark == f"look message by offset failed, {back.offset + 1}"
        state.config.replace(attrs.evolve(state.config.broker, broker_permission=4))
        assert (await back.send_back()).code == ResponseCode.NO_PERMISSION


async def test_only_the_message_that_is_named_is_sent_back(autojump_clock: MockClock) -> None:
    """Another may lie in its place, if a failover lost the end of the log."""
    async with sent() as back:
        named = await back.caller.send(back.addr, b"named", properties="UNIQ_KEY\x01K1\x02")
        place = named.ext_fields["msgId"]
        offset = parse_offset_message_id(place)[2]
        end = back.cluster.master.broker.store.max_physical_offset
        answer = await back.send_back(-1, offset=offset, origin_msg_id="K2")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "K2 is lost" in (answer.remark or "")
        assert back.cluster.master.broker.store.max_physical_offset == end
        for name in ("K1", place, None, ""):
            answer = await back.send_back(-1, offset=offset, origin_msg_id=name)
            assert answer.code == ResponseCode.SUCCESS
        again = back.last_record().physical_offset
        answer = await back.send_back(-1, offset=again, origin_msg_id=place)
        assert answer.code == ResponseCode.SUCCESS
        # A message without a name is the one at its place.
        assert (await back.send_back(-1, origin_msg_id="K2")).code == ResponseCode.SUCCESS


async def test_slave_refuses_messages_sent_back(autojump_clock: MockClock) -> None:
    async with sent(slaves=1) as back:
        await trio.sleep(12)
        slave = back.cluster.slaves[0].broker
        header = ConsumerSendMsgBackRequestHeader(back.offset, "billing", 0)
        answer = await back.caller.pool.call(slave.address, header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "slave" in (answer.remark or "")
        assert slave.state.topics.topic_config("%RETRY%billing") is None


async def test_the_answer_waits_for_the_disk_where_producers_do(autojump_clock: MockClock) -> None:
    async with sent(store=attrs.evolve(SMALL_STORE, flush_disk_type="sync")) as back:
        assert (await back.send_back(-1)).code == ResponseCode.SUCCESS
        broker = back.cluster.master.broker
        assert broker.store.flushed.value == broker.store.max_physical_offset
        assert broker.statistics().waits.answered[ResponseCode.SUCCESS] == 2


async def test_answer_is_success_even_if_slaves_are_late(autojump_clock: MockClock) -> None:
    async with sent(role="sync-master") as back:
        before = back.cluster.master.broker.store.max_physical_offset
        assert (await back.send_back(-1)).code == ResponseCode.SUCCESS
        assert back.cluster.master.broker.store.max_physical_offset > before


async def test_send_is_refused_when_too_many_answers_wait(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sent(store=attrs.evolve(SMALL_STORE, flush_disk_type="sync")) as back:
        broker = back.cluster.master.broker
        before = broker.store.max_physical_offset
        monkeypatch.setattr(broker.state.waiting_answers, "_limit", 0)
        assert (await back.send_back()).code == ResponseCode.SYSTEM_BUSY
        assert broker.store.max_physical_offset == before
