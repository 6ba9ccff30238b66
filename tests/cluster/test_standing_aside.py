"""A master that stands aside does not lead: it comes back as master while clients have the old route."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.cluster.members import rival_of
from tests.support.caller import COMMIT, SUBSCRIPTION, SUSPEND, bodies
from tests.support.clients import client_of
from tests.support.pair import Pair, pair_of
from tests.support.standings import force
from tests.support.waiting import eventually

from rocketrio import ClientInstance, Consumer, Message, MessageQueue, open_admin, open_consumer
from rocketrio.consuming.pull import PullAPIWrapper
from rocketrio.producing.produce import open_producer
from rocketrio_broker.embedded import NAME_SERVER_HOST
from rocketrio_broker.role.service import OTHER_MASTER_CHECK_INTERVAL
from rocketrio_broker.role.standing import ASIDE, LEADING, LOOKING
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from rocketrio_protocol.bodies.queues import LockBatch, QueueName
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    ResetOffsetRequestHeader,
)
from rocketrio_protocol.commands.client import (
    GetConsumerListByGroupRequestHeader,
    HeartBeatRequestHeader,
)
from rocketrio_protocol.commands.consumer import (
    LockBatchMqRequestHeader,
    UnlockBatchMqRequestHeader,
)
from rocketrio_protocol.commands.offset import (
    GetMaxOffsetRequestHeader,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketrio_protocol.commands.transaction import EndTransactionRequestHeader
from rocketrio_protocol.message import MessageExt

TOPIC, GROUP = "orders", "billing"
QUEUE = MessageQueue(TOPIC, "broker-a", 0)
GOES_ON_WITHIN = 2.0


@attrs.define
class Succession(Pair):
    """Two brokers, and a client that keeps the route of the beginning."""

    client: ClientInstance = attrs.field(kw_only=True)

    async def produce(self, first: int, count: int) -> None:
        """Send to the master of the moment, by a client of its own with a fresh route."""
        async with client_of(self.cluster) as client, open_producer(client=client) as producer:
            await producer.send_batch(
                [Message(TOPIC, b"%d" % number) for number in range(first, first + count)]
            )

    async def bring_back(self) -> None:
        """The first starts as master again, as a service manager does, and stands aside."""
        await self.first.start()
        assert not self.master.store.writable

    def forget_the_new_route(self) -> None:
        """The client has the route of the beginning again: it did not ask since."""
        addresses = {0: self.master.address, 1: self.slave.address}
        self.client.routing.broker_addr_table["broker-a"] = addresses
        self.client.faults.clear(self.master.address)

    async def committed(self) -> int:
        return await self.caller.committed(self.slave.address)


@asynccontextmanager
async def succession(**settings: Any) -> AsyncIterator[Succession]:
    async with pair_of(**settings) as pair, client_of(pair.cluster) as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic(TOPIC, queues=1)
        await client.refresh_topic_route(TOPIC)
        story = Succession(pair.cluster, pair.caller, client=client)
        await story.produce(0, 100)
        await trio.sleep(12)  # The slave has copied topics and groups.
        yield story


@asynccontextmanager
async def reading(pair: Succession) -> AsyncIterator[tuple[Consumer, list[MessageExt]]]:
    """A member of the group, and what it was given so far."""
    given: list[MessageExt] = []
    async with (
        open_consumer(TOPIC, group=GROUP, client=pair.client, auto_commit_interval=0.5) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def receive() -> None:
            async for message in consumer:
                given.append(message)

        nursery.start_soon(receive)
        yield consumer, given
        nursery.cancel_scope.cancel()


async def lowest_committed(pair: Succession, seconds: float) -> int:
    """The lowest offset that the master shows in this time."""
    lowest = await pair.committed()
    for _ in range(round(seconds * 10)):
        await trio.sleep(0.1)
        lowest = min(lowest, await pair.committed())
    return lowest


async def wait_given(given: list[MessageExt], count: int) -> None:
    await eventually(lambda: len(given) >= count, interval=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("return_role", ["follow", "stand-aside"])
async def test_readers_with_the_old_route_go_on_at_the_new_master(
    caplog: pytest.LogCaptureFixture, return_role: str
) -> None:
    async with succession(ha_return_role=return_role) as pair, reading(pair) as (_, given):
        await wait_given(given, 100)
        await pair.fail_over()
        # Their pulls have moved to the other address by themselves; the route is the old one.
        await pair.produce(100, 60)
        await wait_given(given, 160)
        await trio.sleep(1)
        assert await pair.committed() == 160
        await pair.bring_back()
        pair.forget_the_new_route()
        for number in range(160, 180):
            await pair.produce(number, 1)
            with trio.fail_after(GOES_ON_WITHIN):
                await wait_given(given, number + 1)
        assert await lowest_committed(pair, 30) >= 160
        assert [message.queue_offset for message in given] == list(range(180))
        assert "lowered" not in caplog.text


async def test_pull_with_the_old_route_continues_at_the_new_master_within_the_call() -> None:
    """A single pull, as for a position or a page, sees no error."""
    async with succession(ha_return_role="stand-aside") as pair:
        await pair.fail_over()
        await pair.bring_back()
        await trio.sleep(2)
        pair.forget_the_new_route()
        pulls = PullAPIWrapper(pair.client, GROUP)
        result = await pulls.pull_kernel(QUEUE, 90, suspend_timeout=0)
        assert result.next_begin_offset == 100
        addr, _, _ = pulls.last_choice(QUEUE)
        assert addr == pair.slave.address
        # With the route known there is nothing to repeat.
        assert (await pulls.pull_kernel(QUEUE, 90, suspend_timeout=0)).next_begin_offset == 100


@pytest.mark.slow
async def test_clients_ignore_a_lower_offset_from_a_former_master(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first comes back and knows no other broker: as a broker of before, and one that cannot see the other."""
    async with succession(ha_return_role="stand-aside") as pair, reading(pair) as (_, given):
        await wait_given(given, 100)
        await pair.fail_over()
        await pair.produce(100, 60)
        await wait_given(given, 160)
        await trio.sleep(1)
        await pair.bring_back()
        force(pair.master, LEADING)
        pair.forget_the_new_route()
        with trio.fail_after(GOES_ON_WITHIN):
            await pair.produce(160, 10)
            await wait_given(given, 170)
        assert await lowest_committed(pair, 20) >= 160
        assert [message.queue_offset for message in given] == list(range(170))


async def test_held_pulls_are_answered_when_another_master_is_found() -> None:
    async with succession() as pair, trio.open_nursery() as nursery:
        answers: list[RemotingCommand] = []

        async def pull() -> None:
            flags = SUBSCRIPTION | SUSPEND
            address = pair.master.address
            answers.append(await pair.caller.pull(address, 100, sys_flag=flags, suspend=15.0))

        nursery.start_soon(pull)
        await trio.sleep(1)
        assert not answers
        force(pair.master, ASIDE, "another", other=pair.slave.address)
        await eventually(lambda: answers, 0.1, interval=0.01)
        assert answers[0].code == ResponseCode.SERVICE_NOT_AVAILABLE


@pytest.mark.slow
async def test_requests_of_java_shape_are_refused_and_leave_nothing() -> None:
    """As Java's clients send them: no claim, no generation, no heartbeat of rocketrio, commits without an answer."""
    async with succession(ha_return_role="stand-aside") as pair:
        pool, former = pair.caller.pool, pair.master.address
        await pair.caller.commit(former, 40)
        await trio.sleep(12)
        await pair.fail_over()
        await pair.produce(100, 60)
        await pair.bring_back()

        async def refused(header: object, body: bytes = b"") -> None:
            answer = await pool.call(former, header, body)  # type: ignore[arg-type]
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, (header, answer)
            assert pair.slave.address in (answer.remark or "")
            assert not answer.body

        for offset in (0, 50, 100, 160):
            answer = await pair.caller.pull(
                former, offset, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=7
            )
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, offset
            answer = await pair.caller.pull(
                former, offset, sys_flag=SUBSCRIPTION | SUSPEND, suspend=15.0
            )
            assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, offset
        await refused(QueryConsumerOffsetRequestHeader(GROUP, TOPIC, 0))
        await refused(UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, 7))
        await pool.send_oneway(former, UpdateConsumerOffsetRequestHeader(GROUP, TOPIC, 0, 7))
        await refused(GetMaxOffsetRequestHeader(TOPIC, 0))
        locks = fastjson.dumps(LockBatch(GROUP, "java@1", [QueueName.of(QUEUE)]))
        await refused(LockBatchMqRequestHeader(), locks)
        await refused(UnlockBatchMqRequestHeader(), locks)
        beat = HeartbeatData("java@1", [ConsumerData(GROUP, "CONSUME_PASSIVELY", "CLUSTERING")])
        await refused(HeartBeatRequestHeader(), fastjson.dumps(beat))
        await refused(GetConsumerListByGroupRequestHeader(GROUP))
        await refused(ResetOffsetRequestHeader(TOPIC, GROUP, -1, True))
        await refused(EndTransactionRequestHeader("producers", 0, 0, 8, "id"))
        await trio.sleep(12)
        assert pair.master.state.consumer_offsets.query_offset(GROUP, TOPIC, 0) == 40
        assert pair.master.state.consumers.group(GROUP) is None
        assert await pair.committed() == 40
        assert await pair.listed() == {0: pair.slave.address}
        own = await pair.caller.own_status(former)
        assert (own.standing, own.stands_aside_for) == ("stands aside", pair.slave.address)
        # The master answers the same requests.
        answer = await pool.call(pair.slave.address, LockBatchMqRequestHeader(), locks)
        assert answer.code in (0, ResponseCode.SYSTEM_BUSY)


@pytest.mark.slow
async def test_readers_get_nothing_while_a_former_master_looks_whether_another_one_is_still_alive() -> (
    None
):
    async with succession(ha_return_role="stand-aside") as pair:
        await pair.fail_over()
        await pair.bring_back()
        network = pair.network
        network.delay(pair.first.host, pair.second.host, 0.4)
        codes = set()
        for _ in range(10 * int(4 * OTHER_MASTER_CHECK_INTERVAL)):
            codes.add((await pair.caller.pull(pair.master.address, 0)).code)
            await trio.sleep(0.1)
        assert codes == {ResponseCode.SERVICE_NOT_AVAILABLE}


async def test_no_name_server_lists_a_master_that_does_not_lead() -> None:
    """The name server and the second broker lose the first one: the second is listed once it takes writes."""
    async with pair_of(0) as pair:
        await pair.send("0")
        rival = rival_of(pair.cluster)
        await rival.start()
        for host in (NAME_SERVER_HOST, rival.host):
            pair.part(pair.first, host)
            pair.network.cut(pair.first.host, host)
        times = {True: 0, False: 0}
        while times[True] < 20:
            await trio.sleep(0.2)
            is_listed = (await pair.listed()).get(0) == rival.broker.address
            times[is_listed] += 1
            assert rival.broker.store.writable or not is_listed
            if not rival.broker.state.standing.leads:
                answer = await pair.caller.pull(rival.broker.address, 1)
                assert answer.code != ResponseCode.PULL_OFFSET_MOVED
        assert times[False]


async def test_a_master_that_has_not_taken_over_moves_no_reader_and_locks_nothing() -> None:
    """It waits for a slave that may have more of the log, and is read from meanwhile."""
    async with succession(ha_return="wait", ha_return_wait=5.0) as pair:
        await pair.second.kill()
        await pair.first.kill()
        await pair.first.start()
        pool, addr = pair.caller.pool, pair.master.address
        assert pair.master.state.standing.stands_aside
        assert len(bodies(await pair.caller.pull(addr, 90))) == 10
        for offset in (100, 160):
            answer = await pair.caller.pull(addr, offset)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
            assert answer.ext_fields["nextBeginOffset"] == str(offset)
        locks = fastjson.dumps(LockBatch(GROUP, "java@1", [QueueName.of(QUEUE)]))
        answer = await pool.call(addr, LockBatchMqRequestHeader(), locks)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        answer = await pool.call(addr, ResetOffsetRequestHeader(TOPIC, GROUP, 0, True))
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await pair.caller.commit(addr, 95)
        assert await pair.caller.committed(addr) == 95


@pytest.mark.slow
@pytest.mark.parametrize("return_role", ["stand-aside", "follow"])
async def test_slave_takes_no_end_from_a_former_master_that_is_back(return_role: str) -> None:
    """The slave has not learned of the successor, and would show its readers what the successor never had."""
    async with pair_of(2, ha_return_role=return_role) as pair:
        master, successor, third = pair.members
        await pair.send("everywhere")
        await pair.level()
        end = third.broker.store.max_physical_offset
        pair.part(master, successor.host, third.host)
        await pair.send("only here")
        assert master.broker.store.max_physical_offset > end
        await master.kill()
        pair.network.heal()
        pair.part(successor, third.host)
        await pair.promote(successor)
        former = await master.start()
        third.broker.state.registration.learn_master(former.address, former.ha_address)
        await trio.sleep(20)
        assert third.broker.store.max_physical_offset == end
        assert "No slave may follow" in (former.state.ha_service.statistics().last_refusal or "")


@pytest.mark.slow
async def test_former_master_sends_its_slaves_nothing_more_once_it_finds_its_successor() -> None:
    """The slave is cut off from the successor and the name server, and stays connected."""
    async with pair_of(2, ha_return_role="stand-aside") as pair:
        master, successor, third = pair.members
        state = master.broker.state
        await pair.send("0")
        pair.part(third, successor.host, NAME_SERVER_HOST)
        for host in (successor.host, NAME_SERVER_HOST):
            pair.part(master, host)
            pair.network.cut(master.host, host)
        await trio.sleep(150)  # The name server forgets the former master.
        await pair.promote(successor)
        await trio.sleep(2)
        assert state.standing.leads
        assert [each.member for each in state.ha_service.connections] == [
            third.broker.store.epochs.member
        ]
        for host in (successor.host, NAME_SERVER_HOST):
            pair.network.reconnect(master.host, host)
        await eventually(lambda: state.standing.stands_aside, 60)
        await trio.sleep(10)
        assert state.standing.other == successor.broker.address
        assert not state.ha_service.connections


async def test_refused_slaves_follow_soon_after_the_master_knows_that_it_may_lead() -> None:
    async with pair_of() as pair:
        master, slave = pair.master, pair.slave
        force(master, LOOKING)
        master.state.ha_service.end_followers()
        await trio.sleep(10)
        copies = slave.state.slave_statistics()
        assert copies is not None
        assert "No slave may follow" in (copies.log.last_problem or "")
        assert copies.log.connected_since_ms is None
        force(master, LEADING)
        with trio.fail_after(1):
            assert slave.slave is not None
            await slave.slave.client.followed.wait_past(1)
