"""A second master registers: the name server asks the listed one, and decides by its answer."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import attrs
import pytest
import trio
from tests.broker.namesrv.registrations import ADDR, registered, registration
from trio.testing import MockClock

from rocketrio_broker.namesrv.probes import ANSWER_HOLDS, PROBE_LIMIT, WAITING_LIMIT
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import cluster
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool

FIRST, SECOND, THIRD = "10.0.0.1", "10.0.0.2", "10.0.0.3"


@attrs.define
class Names:
    """A name server at which a master is listed, and the hosts that talk to it."""

    network: MemoryNetwork
    server: NameServer
    first: ChannelPool
    questions: list[float]
    """When the listed master was asked."""
    pools: dict[str, ChannelPool]

    async def register(
        self, host: str, *, port: int = 10911, body: bytes | None = None
    ) -> RemotingCommand:
        header = registration(broker_addr=f"{host}:{port}", body=body)
        return await self.pools[host].call(ADDR, *header, timeout=30)

    def listed(self) -> dict[int, str]:
        return self.server.routes.broker_addr_table["broker-a"].broker_addrs


@asynccontextmanager
async def a_listed_master(answer_after: float | None = 0.0) -> AsyncGenerator[Names]:
    """The listed master answers after some seconds; at once, as one that does not know the request; or never."""
    network, questions = MemoryNetwork(), list[float]()

    async def slow(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        questions.append(trio.current_time())
        await trio.sleep(float("inf") if answer_after is None else answer_after)
        return request.response()

    def unknown(channel: Channel, request: RemotingCommand) -> RemotingCommand:
        questions.append(trio.current_time())
        return request.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)

    processors = {RequestCode.GET_IDENTITY: slow if answer_after != 0.0 else unknown}
    server = NameServer([await network.host("10.0.0.9").listen(ADDR)])
    async with (
        trio.open_nursery() as nursery,
        open_channel_pool(network.host(FIRST).dial, processors=processors) as first,
        open_channel_pool(network.host(SECOND).dial) as second,
        open_channel_pool(network.host(THIRD).dial) as third,
    ):
        await nursery.start(server.run)
        names = Names(
            network, server, first, questions, {FIRST: first, SECOND: second, THIRD: third}
        )
        assert (await names.register(FIRST)).code == ResponseCode.SUCCESS
        yield names
        nursery.cancel_scope.cancel()


async def test_silent_master_is_replaced_after_the_limit(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_listed_master() as names:
        names.network.silence(FIRST)
        before = trio.current_time()
        assert (await names.register(SECOND)).code == ResponseCode.SUCCESS
        assert trio.current_time() - before == pytest.approx(PROBE_LIMIT)
        assert names.listed() == {0: f"{SECOND}:10911"}
        assert (
            f"listed master does not answer, its connection is closed addr={FIRST}" in caplog.text
        )
        channel = names.first.open_channel(ADDR)
        names.network.heal()
        await trio.testing.wait_all_tasks_blocked()
        assert channel is not None
        assert channel.closed, "it notices at once, and registers again"
        answer = await names.register(FIRST)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.ext_fields["masterAddr"] == f"{SECOND}:10911"


@pytest.mark.slow
async def test_silent_master_is_replaced_by_one_with_very_many_topics(
    autojump_clock: MockClock,
) -> None:
    body = registered(*(TopicConfig(f"topic-{number}") for number in range(20_000)))
    async with a_listed_master() as names:
        names.network.silence(FIRST)
        assert (await names.register(SECOND, body=body)).code == ResponseCode.SUCCESS
        assert names.listed() == {0: f"{SECOND}:10911"}
        assert len(names.server.routes.topic_queue_table) == 20_000


@pytest.mark.parametrize("seconds", [0.0, PROBE_LIMIT - 0.1])
async def test_master_that_answers_stays_and_the_second_is_refused_then(
    autojump_clock: MockClock, seconds: float
) -> None:
    async with a_listed_master(seconds) as names:
        before = trio.current_time()
        answer = await names.register(SECOND)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.ext_fields["masterAddr"] == f"{FIRST}:10911"
        assert trio.current_time() - before == pytest.approx(seconds)
        assert names.listed() == {0: f"{FIRST}:10911"}


async def test_master_that_sends_anything_within_the_limit_stays(
    autojump_clock: MockClock,
) -> None:
    async with a_listed_master(None) as names, trio.open_nursery() as nursery:
        nursery.start_soon(names.register, SECOND)
        await trio.sleep(PROBE_LIMIT / 2)
        await names.first.call(ADDR, cluster.GetBrokerClusterInfoRequestHeader())
        await trio.sleep(PROBE_LIMIT)
        assert names.listed() == {0: f"{FIRST}:10911"}


async def test_master_whose_connection_ends_while_it_is_asked_is_replaced_at_once(
    autojump_clock: MockClock,
) -> None:
    async with a_listed_master(None) as names, trio.open_nursery() as nursery:
        nursery.start_soon(names.register, SECOND)
        await trio.sleep(1)
        names.network.cut(FIRST)
        await trio.testing.wait_all_tasks_blocked()
        assert names.listed() == {0: f"{SECOND}:10911"}


async def test_broker_that_leaves_while_the_listed_one_is_asked_is_not_listed(
    autojump_clock: MockClock,
) -> None:
    async with a_listed_master(None) as names:
        with trio.move_on_after(1):
            await names.register(SECOND)
        names.pools[SECOND].drop(ADDR)
        await trio.sleep(2 * PROBE_LIMIT)
        assert not names.server.routes.broker_addr_table


async def test_crowd_makes_a_master_answer_once_and_then_not_before_a_while(
    autojump_clock: MockClock,
) -> None:
    async with a_listed_master(1.0) as names:
        codes = set[int]()

        async def ask(host: str, port: int) -> None:
            codes.add((await names.register(host, port=port)).code)

        for _ in range(3):
            async with trio.open_nursery() as nursery:
                for port in range(20_000, 20_100):
                    nursery.start_soon(ask, THIRD, port)
            await ask(THIRD, 10911)
            await trio.sleep(ANSWER_HOLDS)
        assert codes == {ResponseCode.SYSTEM_ERROR}
        assert len(names.questions) == 3
        assert names.listed() == {0: f"{FIRST}:10911"}


async def test_crowd_of_one_host_leaves_room_for_another_host(autojump_clock: MockClock) -> None:
    async with a_listed_master() as names, trio.open_nursery() as nursery:
        names.network.silence(FIRST)
        answered = list[tuple[float, int]]()

        async def ask(port: int) -> None:
            with suppress(NotReachableError):
                answer = await names.register(THIRD, port=port)
                answered.append((trio.current_time(), answer.code))

        before = trio.current_time()
        for port in range(20_000, 20_000 + WAITING_LIMIT):
            nursery.start_soon(ask, port)
        await trio.testing.wait_all_tasks_blocked()
        refused_at_once = [at for at, code in answered if code == ResponseCode.SYSTEM_ERROR]
        assert refused_at_once == [before] * (WAITING_LIMIT // 2)
        names.pools[THIRD].drop(ADDR)  # None of the crowd is listed then.
        assert (await names.register(SECOND)).code == ResponseCode.SUCCESS
        assert names.listed() == {0: f"{SECOND}:10911"}
