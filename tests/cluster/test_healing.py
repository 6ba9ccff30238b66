"""A master that finds another one of its name follows it, and stays its slave until an operator changes that."""

import pytest
import trio
from tests.cluster.members import failed_over, restart_with, rival_of, role_of
from tests.support.pair import pair_of

from rocketrio_broker.embedded import Member
from rocketrio_broker.processors.role import RoleProcessor
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import GetBrokerConfigRequestHeader


@pytest.mark.slow
async def test_returning_master_follows_its_successor_until_its_settings_change() -> None:
    async with pair_of() as pair:
        first, second = await failed_over(pair)
        await first.start()
        # 1 is the id in the settings of the second.
        assert role_of(first) == ("slave", 2)
        await pair.level(first, second)
        assert await pair.listed() == {0: second.broker.address, 2: first.broker.address}
        assert await pair.read(first) == ["one", "two"]
        # The settings say master still.
        address = first.broker.address
        own = await pair.caller.own_status(address)
        assert (own.role, own.broker_id) == ("slave", 2)
        assert (own.configured_role, own.configured_broker_id) == ("async-master", 0)
        answer = await pair.caller.pool.call(address, GetBrokerConfigRequestHeader())
        settings = parse_properties(answer.body)
        assert (settings["brokerRole"], settings["brokerId"]) == ("SLAVE", "2")
        assert settings["configuredBrokerRole"] == "ASYNC_MASTER"
        assert settings["configuredBrokerId"] == "0"
        await second.stop()
        for _ in range(2):
            await first.stop()
            await first.start()
            assert role_of(first) == ("slave", 2)
            assert not first.broker.store.writable
        await second.start()
        assert role_of(second) == ("async-master", 0)
        await pair.send("three", at=second)
        await pair.level(first, second)
        await restart_with(first, role="slave", broker_id=7)
        assert role_of(first) == ("slave", 7)


@pytest.mark.slow
async def test_pair_that_fails_over_there_and_back_needs_one_order_each_time() -> None:
    async with pair_of() as pair:
        first, second = await failed_over(pair)
        await first.start()
        await pair.level(first, second)
        await second.kill()
        await pair.promote(first)
        await pair.send("three")
        await second.start()
        assert role_of(second) == ("slave", 1)
        await pair.level(first, second)
        # What an operator ordered is kept too.
        await first.kill()
        await first.start()
        assert role_of(first) == ("async-master", 0)
        await pair.send("four")
        await pair.level(first, second)
        assert await pair.listed() == {0: first.broker.address, 1: second.broker.address}


@pytest.mark.slow
@pytest.mark.usefixtures("lists_the_latest")
async def test_two_masters_that_start_together_agree_on_the_one_with_more() -> None:
    async with pair_of() as pair:
        first, second = await failed_over(pair)
        await second.kill()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(second.start)
        await trio.sleep(10)
        assert role_of(second) == ("async-master", 0)
        assert role_of(first) == ("slave", 2)
        await pair.send("three", at=second)
        await pair.level(first, second)


@pytest.mark.usefixtures("lists_the_latest")
async def test_of_two_slaves_promoted_at_once_one_becomes_master() -> None:
    async with pair_of(2) as pair:
        await pair.first.kill()
        codes: list[int] = []

        async def promote(member: Member) -> None:
            answer = await pair.caller.change_role(member.broker.address, "async-master", 0)
            codes.append(answer.code)

        async with trio.open_nursery() as nursery:
            for slave in pair.cluster.slaves:
                nursery.start_soon(promote, slave)
        assert sorted(codes) == [ResponseCode.SUCCESS, ResponseCode.SERVICE_NOT_AVAILABLE]
        master, slave = sorted(pair.cluster.slaves, key=role_of)
        assert [role_of(one)[0] for one in (master, slave)] == ["async-master", "slave"]
        await pair.send("hello", at=master)
        await pair.level(master, slave)


async def test_two_that_come_to_follow_at_once_get_two_ids() -> None:
    async with pair_of() as pair:
        first, second = await failed_over(pair)
        rival = rival_of(pair.cluster, ha_return_role="follow")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(first.start)
            nursery.start_soon(rival.start)
        await pair.level(first, second, rival)
        assert sorted([role_of(first), role_of(rival)]) == [("slave", 2), ("slave", 3)]
        assert set(await pair.listed()) == {0, 2, 3}


@pytest.mark.slow
async def test_master_that_a_name_server_refuses_takes_no_write() -> None:
    """The live master is out of its sight: only the name server knows."""
    async with pair_of() as pair:
        first, second = pair.members
        pair.network.partition(first.host, second.host)
        writable = []

        async def watch() -> None:
            while True:
                writable.append(second.broker.store.writable)
                await trio.lowlevel.checkpoint()
                await trio.sleep(0.001)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            refusal = await pair.refused_promotion(second)
            nursery.cancel_scope.cancel()
        assert f"lists {first.broker.address} as master" in refusal
        assert not any(writable)
        assert role_of(second) == ("slave", 1)
        assert await pair.listed() == {0: first.broker.address, 1: second.broker.address}
        pair.network.heal()
        await trio.sleep(30)
        await pair.send("on")
        await pair.level(first, second)


async def test_master_beside_one_of_apache_stands_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(RoleProcessor, "claim_slave_id")
    async with pair_of(0) as pair:
        rival = rival_of(pair.cluster, ha_return_role="follow")
        await rival.start()
        assert role_of(rival) == ("async-master", 0)
        assert "another live master" in await pair.refused(at=rival)
