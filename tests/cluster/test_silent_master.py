"""A master falls silent (no power, a cut cable, a stopped process): its slave takes over in seconds, at one request.

What the silent one has stored meanwhile is never acknowledged; when it goes on it follows its successor.
"""

import pytest
import trio
from tests.cluster.members import (
    SECOND_NAME_SERVER,
    restart_with,
    rival_of,
    role_of,
    second_name_server,
)
from tests.support.caller import caller_of
from tests.support.pair import Pair, pair_of

from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster
from rocketrio_broker.ha.survey import ASK_LIMIT
from rocketrio_broker.namesrv.probes import PROBE_LIMIT
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error

SECONDS = ASK_LIMIT + PROBE_LIMIT + 1
"""A promoted slave asks the master whether it leads, and then the name server asks it."""


@pytest.mark.parametrize("role", ["sync-master", "async-master"])
async def test_slave_of_a_silent_master_takes_over_within_seconds(role: str) -> None:
    """The connection of the silent one is closed, so it registers at once when it goes on; its successor stays."""
    async with pair_of(role=role, ha_divergent_tail="cut") as pair:
        first, second = pair.members
        await pair.send("one")
        await pair.level()
        pair.cluster.silence(first)
        before = trio.current_time()
        await pair.promote(second)
        assert trio.current_time() - before < SECONDS
        if role == "async-master":
            await pair.send("two", at=second)
        pair.network.heal()
        for _ in range(50):
            await trio.sleep(0.1)
            assert (await pair.listed())[0] == second.broker.address
        assert role_of(first)[0] == "slave"
        await pair.send("three", at=second)
        await pair.level(first, second)
        ids = {role_of(member)[1]: member.broker.address for member in (first, second)}
        assert await pair.listed() == ids


async def test_master_that_falls_silent_as_a_slave_has_joined_gives_way_to_it() -> None:
    """No name server lists that one as a slave when the master goes on."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        pair = Pair(cluster, caller)
        first, second = pair.members
        await pair.send("one")
        await pair.level()
        cluster.silence(first)
        await pair.promote(second)
        await trio.sleep(5)
        pair.network.heal()
        await trio.sleep(5)
        assert role_of(first)[0] == "slave"


async def test_synchronous_master_acknowledges_nothing_after_it_was_replaced() -> None:
    """Its clients still reach it; the name server and its slave do not."""
    async with (
        pair_of(role="sync-master", ha_divergent_tail="cut") as pair,
        trio.open_nursery() as nursery,
    ):
        first, second = pair.members
        await pair.send("one")
        pair.part(first, NAME_SERVER_HOST, second.host)
        answers: list[int] = []

        async def send() -> None:
            while True:
                try:
                    answers.append(await pair.code_of_send("to the old one"))
                except Error:
                    answers.append(-1)
                await trio.sleep(0.05)

        nursery.start_soon(send)
        await pair.promote(second)
        pair.network.heal()
        await trio.sleep(10)
        await pair.send("two", at=second)
        assert role_of(first)[0] == "slave"
        assert ResponseCode.SUCCESS not in answers
        nursery.cancel_scope.cancel()
    assert len(answers) > 10


async def test_master_that_answers_one_name_server_is_not_replaced_at_the_other() -> None:
    """The slave is refused by one name server while the other still asks: it is listed as master by neither."""
    async with pair_of() as pair:
        first, second = pair.members
        other = await second_name_server(pair.cluster)
        listed_there = other.routes.broker_addr_table
        for member in pair.members:
            await restart_with(member, namesrv=f"{member.config.namesrv};{other.addr}")
        await trio.sleep(2)
        pair.part(first, second.host, SECOND_NAME_SERVER)
        await pair.refused_promotion(second)
        await trio.sleep(2 * PROBE_LIMIT)
        assert (await pair.listed())[0] == first.broker.address
        assert listed_there["broker-a"].broker_addrs == {1: second.broker.address}
        pair.network.heal()
        await trio.sleep(5)
        assert listed_there["broker-a"].broker_addrs == await pair.listed()
        await pair.send("as ever")


@pytest.mark.slow
@pytest.mark.parametrize(("is_known", "times"), [(True, 0), (False, 5)])
async def test_master_that_one_name_server_refuses_does_not_stay_listed_by_the_other(
    is_known: bool, times: int
) -> None:
    """The live master is silent for it, or never registered there: then the second one tries again now and then."""
    async with pair_of(0) as pair:
        first, rival = pair.first, rival_of(pair.cluster)
        other = await second_name_server(pair.cluster)
        both = f"{first.config.namesrv};{other.addr}"
        if is_known:
            await restart_with(first, namesrv=both)
        pair.part(first, rival.host, SECOND_NAME_SERVER)
        await restart_with(rival, namesrv=both)
        times_listed = 0
        for _ in range(600):
            await trio.sleep(0.1)
            assert not rival.broker.store.writable
            found = other.routes.broker_addr_table.get("broker-a")
            times_listed += (
                found is not None and rival.broker.address in found.broker_addrs.values()
            )
        assert times_listed <= times


async def test_promoted_slave_gets_what_a_silent_master_sent_to_another_slave_meanwhile() -> None:
    """The other slave has said where its log ends before that; the master is silent for the promoted one alone."""
    async with pair_of(2, ha_divergent_tail="cut") as pair:
        first, second, third = pair.members
        await pair.send("one")
        await pair.level()
        pair.part(first, NAME_SERVER_HOST, second.host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.promote, second)
            await trio.sleep(ASK_LIMIT / 2)
            await pair.send("two")
            await pair.level(first, third)
        assert await pair.read(second) == ["one", "two"]
