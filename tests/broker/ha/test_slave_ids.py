"""Ids for brokers that come to follow a master."""

import trio
from trio.testing import MockClock

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.ha.slave_ids import SlaveIds
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader


def ids(
    listed: dict[int, str] | None,
    *introduced: int,
    met: dict[str, int] | None = None,
    configured: int = 0,
) -> SlaveIds:
    """`listed` is what the only name server lists; None: it cannot be reached."""

    async def call(
        addr: str, request: RequestHeader, body: Body = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.sleep(0.01)
        if listed is None:
            raise NotReachableError("gone", broker_addr=addr)
        broker = BrokerData("c", "broker-a", dict(listed))
        info = ClusterInfo(broker_addr_table={"broker-a": broker}, cluster_addr_table={})
        return RemotingCommand(code=0, body=fastjson.dumps(info))

    peers = Peers(
        call=call, question=call, name_servers=["ns:1"], broker_name="broker-a", own_addr="m:1"
    )
    return SlaveIds(peers, lambda: introduced, met=lambda: met or {}, configured=configured)


async def test_given_id_is_the_first_free_one(autojump_clock: MockClock) -> None:
    assert await ids({0: "m:1"}).give("a:1") == 1
    assert await ids({0: "m:1", 1: "b:1", 3: "c:1"}, 2).give("a:1") == 4
    assert await ids(None, 1).give("a:1") == 2


async def test_slave_that_has_an_id_keeps_it(autojump_clock: MockClock) -> None:
    assert await ids({0: "m:1", 1: "b:1", 5: "a:1"}, 5).give("a:1") == 5
    one = ids({0: "m:1"})
    assert [await one.give(addr) for addr in ("a:1", "b:1", "a:1")] == [1, 2, 1]


async def test_id_in_the_masters_settings_and_those_of_slaves_that_are_away_are_not_given(
    autojump_clock: MockClock,
) -> None:
    away = {"b:1": 2, "c:1": 3}
    assert await ids({0: "m:1"}, met=away, configured=1).give("a:1") == 4
    assert await ids({0: "m:1"}, met=away, configured=1).give("b:1") == 2, "it is back"


async def test_slave_gets_the_id_of_its_settings_if_no_other_broker_has_it(
    autojump_clock: MockClock,
) -> None:
    assert await ids({0: "m:1"}).give("a:1", configured=5) == 5
    assert await ids({0: "m:1", 5: "b:1"}).give("a:1", configured=5) == 1
    assert await ids({0: "m:1"}, met={"b:1": 5}).give("a:1", configured=5) == 1
    assert await ids({0: "m:1"}, configured=5).give("a:1", configured=5) == 1
    assert await ids({0: "m:1", 2: "a:1"}, 5).give("a:1", configured=5) == 5, "it has introduced"


async def test_id_that_is_given_up_is_not_given_again(autojump_clock: MockClock) -> None:
    one = ids({0: "m:1", 2: "a:1"})
    assert await one.give("a:1") == 2
    assert await one.give("a:1", shared=2) == 1
    assert await one.give("a:1") == 1


async def test_two_at_once_get_two(autojump_clock: MockClock) -> None:
    one, given = ids({0: "m:1"}), []

    async def claim(addr: str) -> None:
        given.append(await one.give(addr))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(claim, f"a:{number}")
    assert sorted(given) == list(range(1, 9))


async def test_given_ids_are_remembered_up_to_a_limit(autojump_clock: MockClock) -> None:
    one = ids({0: "m:1"})
    for number in range(2 * SLAVES_LIMIT):
        assert await one.give(f"a:{number}") <= SLAVES_LIMIT + 1
