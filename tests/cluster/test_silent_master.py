"""A master falls silent (no power, a cut cable, a stopped process): its slave takes over in seconds, at one request.

What the silent one has stored meanwhile is never acknowledged; when it goes on it follows its successor.
"""

import attrs
import pytest
import trio
from tests.cluster.members import level, listed, rival_of, role_of, store
from tests.support.caller import Caller, accepted, caller_of

from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster, Member
from rocketrio_broker.ha.survey import ASK_LIMIT
from rocketrio_broker.namesrv.probes import PROBE_LIMIT
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.registration import CHECK_INTERVAL
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error

SECONDS = ASK_LIMIT + PROBE_LIMIT + 1
"""A promoted slave asks the master whether it leads, and then the name server asks it."""


async def promote(call: Caller, member: Member, role: str = "sync-master") -> None:
    accepted(await call.change_role(member.broker.address, role, 0))


@pytest.mark.parametrize("role", ["sync-master", "async-master"])
async def test_slave_of_a_silent_master_takes_over_within_seconds(role: str) -> None:
    async with (
        EmbeddedCluster(slaves=1, role=role, ha_divergent_tail="cut") as cluster,  # type: ignore[arg-type]
        caller_of(cluster) as call,
    ):
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(2)
        await store(call, first, b"one")
        await level(first, second)
        cluster.silence(first)
        before = trio.current_time()
        await promote(call, second, role)
        assert trio.current_time() - before < SECONDS
        await store(call, second, b"two") if role == "async-master" else None
        cluster.heal()
        await trio.sleep(CHECK_INTERVAL + 4)
        assert role_of(first)[0] == "slave"
        await store(call, second, b"three")
        await level(first, second)
        assert await listed(cluster) == {
            0: second.broker.address,
            role_of(first)[1]: first.broker.address,
        }


async def test_synchronous_master_acknowledges_nothing_after_it_was_replaced() -> None:
    """Its clients still reach it; the name server and its slave do not."""
    async with (
        EmbeddedCluster(slaves=1, role="sync-master", ha_divergent_tail="cut") as cluster,
        caller_of(cluster) as call,
        trio.open_nursery() as nursery,
    ):
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(2)
        await store(call, first, b"one")
        for host in (NAME_SERVER_HOST, second.host):
            cluster.memory_network.partition(first.host, host)
        answers: list[tuple[float, int]] = []

        async def send() -> None:
            while True:
                try:
                    code = (await call.send(first.broker.address, b"to the old one")).code
                except Error:
                    code = -1
                answers.append((trio.current_time(), code))
                await trio.sleep(0.05)

        nursery.start_soon(send)
        await promote(call, second)
        cluster.heal()
        await trio.sleep(10)
        await store(call, second, b"two")
        assert role_of(first)[0] == "slave"
        assert ResponseCode.SUCCESS not in {code for _, code in answers}
        nursery.cancel_scope.cancel()
    assert len(answers) > 10


async def test_master_that_was_replaced_while_its_process_stood_does_not_come_back_as_master() -> (
    None
):
    """Its connection is closed, so it registers at once, and not after a period; the new one is asked, and answers."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(2)
        cluster.silence(first)
        await promote(call, second, "async-master")
        cluster.heal()
        for _ in range(1000):
            await trio.sleep(0.1)
            assert (await listed(cluster))[0] == second.broker.address
        assert role_of(first)[0] == "slave"


async def test_master_that_answers_one_name_server_is_not_replaced_at_the_other() -> None:
    """The slave is refused by one name server while the other still asks: it is listed as master by neither."""
    other_host = "10.0.0.8"
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        network = cluster.memory_network
        other = NameServer([await network.host(other_host).listen(f"{other_host}:9876")])
        await cluster.nursery.start(other.run)
        first, second = cluster.master, cluster.slaves[0]
        for member in (first, second):
            await member.stop()
            member.config = attrs.evolve(
                member.config, namesrv=f"{member.config.namesrv};{other.addr}"
            )
            await member.start()
        await trio.sleep(2)
        network.partition(first.host, second.host)
        network.partition(first.host, other_host)
        answer = await call.change_role(second.broker.address, "async-master", 0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(2 * PROBE_LIMIT)
        assert (await listed(cluster))[0] == first.broker.address
        assert other.routes.broker_addr_table["broker-a"].broker_addrs == {1: second.broker.address}
        network.heal()
        await trio.sleep(5)
        assert other.routes.broker_addr_table["broker-a"].broker_addrs == await listed(cluster)
        await store(call, first, b"as ever")


async def test_master_that_one_name_server_refuses_is_not_listed_by_one_that_still_asks() -> None:
    """A second master of the name stands aside, and the live one is silent for one of two name servers."""
    other_host = "10.0.0.8"
    async with EmbeddedCluster() as cluster:
        network, first, rival = cluster.memory_network, cluster.master, rival_of(cluster)
        other = NameServer([await network.host(other_host).listen(f"{other_host}:9876")])
        await cluster.nursery.start(other.run)
        await first.stop()
        both = f"{first.config.namesrv};{other.addr}"
        first.config = attrs.evolve(first.config, namesrv=both)
        await first.start()
        network.partition(first.host, rival.host)
        network.partition(first.host, other_host)
        rival.config = attrs.evolve(rival.config, namesrv=both)
        await rival.start()
        for _ in range(600):
            await trio.sleep(0.1)
            assert not rival.broker.store.writable
            listed_there = other.routes.broker_addr_table.get("broker-a")
            assert (
                listed_there is None
                or 0 not in listed_there.broker_addrs
                or (listed_there.broker_addrs[0] == first.broker.address)
            )


async def test_promoted_slave_gets_what_a_silent_master_sent_to_another_slave_meanwhile() -> None:
    """The other slave has said where its log ends before that; the master is silent for the promoted one alone."""
    async with (
        EmbeddedCluster(slaves=2, ha_divergent_tail="cut") as cluster,
        caller_of(cluster) as call,
    ):
        first, (second, third) = cluster.master, cluster.slaves
        await trio.sleep(2)
        await store(call, first, b"one")
        await level(first, second, third)
        for host in (NAME_SERVER_HOST, second.host):
            cluster.memory_network.partition(first.host, host)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(promote, call, second, "async-master")
            await trio.sleep(ASK_LIMIT / 2)
            await store(call, first, b"two")
            await level(first, third)
        assert await call.read(second.broker.address) == [b"one", b"two"]
