import pytest
import trio
from tests.support.caller import caller_of, messages
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.query import QueryMessageRequestHeader, ViewMessageRequestHeader
from rocketrio_protocol.record.message_id import parse_offset_message_id

FOREVER_MS = 2**63 - 1


async def test_message_is_found_by_each_key_and_its_unique_id(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"wanted", properties="KEYS\x01a b\x02UNIQ_KEY\x01U1")
        await caller.send(addr, b"other", properties="KEYS\x01c")
        await trio.sleep(1)  # The index is built behind the sends.
        for key, is_unique in (("a", None), ("b", False), ("U1", True)):
            asked = QueryMessageRequestHeader("orders", key, 1, 0, FOREVER_MS, is_unique)
            answer = await caller.pool.call(addr, asked)
            assert [message.body for message in messages(answer)] == [b"wanted"]
            assert int(answer.ext_fields["indexLastUpdatePhyoffset"]) > 0


async def test_unknown_key_is_not_found(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"x", properties="KEYS\x01a")
        asked = QueryMessageRequestHeader("orders", "nothing", 32, 0, FOREVER_MS)
        assert (await caller.pool.call(addr, asked)).code == ResponseCode.QUERY_NOT_FOUND


async def test_query_with_more_than_a_frame_answers_the_newest(
    autojump_clock: MockClock,
) -> None:
    size, count = 2 << 20, 9  # 18 MiB
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        for number in range(count):
            await caller.send(addr, bytes([number]) * size, properties="KEYS\x01a")
        await trio.sleep(1)
        asked = QueryMessageRequestHeader("orders", "a", 64, 0, FOREVER_MS)
        answer = await caller.pool.call(addr, asked)
        assert answer.code == ResponseCode.SUCCESS
        assert [message.body[0] for message in messages(answer)] == list(range(8, 1, -1))


async def test_message_is_found_by_its_offset_id(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"first")
        sent = await caller.send(addr, b"second")
        _, _, offset = parse_offset_message_id(sent.ext_fields["msgId"])
        (message,) = messages(await caller.pool.call(addr, ViewMessageRequestHeader(offset)))
        assert message.body == b"second"


@pytest.mark.parametrize("offset", [1, 1 << 40, -1])
async def test_no_message_at_an_offset_is_an_error(autojump_clock: MockClock, offset: int) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await caller.send(addr, b"x")
        answer = await caller.pool.call(addr, ViewMessageRequestHeader(offset))
        assert answer.code == ResponseCode.SYSTEM_ERROR
