"""A name loses its master, or its master's disk or role: it has a master again, or each broker says what is missing."""

from pathlib import Path
from typing import Literal

import attrs
import pytest
import trio
from tests.cluster.members import copy_of, failed_over, level, lose, role_of, set_back, store
from tests.cluster.power_cuts import cluster_of, settle
from tests.support.caller import Caller, accepted, bodies, caller_of

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.role.service import FAR_BEHIND, NOBODY_LEADS_AFTER
from rocketrio_protocol.codes import ResponseCode

SOON = NOBODY_LEADS_AFTER + 20
"""Seconds in which the pair finds its master."""


KNOWN_WITHIN = 5.0
"""Seconds in which a broker stores whom it follows."""


async def healed(cluster: EmbeddedCluster, call: Caller) -> tuple[Member, Member]:
    """The former master, which follows again, and its successor."""
    first, second = await failed_over(cluster, call)
    await first.start()
    await level(first, second)
    await trio.sleep(KNOWN_WITHIN)
    return first, second


@pytest.mark.parametrize("restarted", ["neither", "the former master", "both"])
@pytest.mark.parametrize("what", ["disk", "role file"])
async def test_former_master_leads_again_if_its_successor_forgot_that_it_is_master(
    what: Literal["disk", "role file"], restarted: str
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await healed(cluster, call)
        assert role_of(first) == ("slave", 2)
        await second.kill()
        lose(cluster, second, what)
        if restarted != "neither":
            await first.kill()
            await first.start()
        await second.start()
        if restarted == "both":
            await second.kill()
            await second.start()
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert role_of(second) == ("slave", 1)
        await store(call, first, b"three")
        await level(first, second)
        assert bodies(await call.pull(first.broker.address, 0)) == [b"one", b"two", b"three"]
        assert (
            await call.problems(first.broker.address)
            == await call.problems(second.broker.address)
            == []
        )


async def test_former_master_gets_first_what_its_successor_still_has() -> None:
    """The successor has lost its role file alone, and has messages that the former master lacks."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await healed(cluster, call)
        await first.kill()
        await store(call, second, b"three")
        await second.kill()
        lose(cluster, second, "role file")
        await first.start()
        await second.start()
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert bodies(await call.pull(first.broker.address, 0)) == [b"one", b"two", b"three"]


async def test_slave_does_not_lead_by_itself_while_the_last_master_cannot_be_asked() -> None:
    """It may take writes where this broker does not see it."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await healed(cluster, call)
        gone = second.broker.address
        await second.kill()
        await trio.sleep(2 * SOON)
        assert role_of(first) == ("slave", 2)
        (problem,) = await call.problems(first.broker.address)
        assert problem == (
            f"broker-a has no master: no answer comes from {gone}. Bring the master back, or make the "
            "slave that has most of the log master, with `rocketrio broker role`"
        )
        await second.start()
        await trio.sleep(SOON)
        assert await call.problems(first.broker.address) == []


async def test_broker_of_another_name_at_the_last_masters_address_does_not_answer_for_it() -> None:
    """The address was given away; the last master may take writes at another one."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = await healed(cluster, call)
        await second.kill()
        config = attrs.evolve(
            second.config,
            broker_name="broker-b",
            role="async-master",
            broker_id=0,
            data=Path("/other"),
        )
        await Member(cluster, config, second.host).start()
        await trio.sleep(2 * SOON)
        assert role_of(first) == ("slave", 2)
        (problem,) = await call.problems(first.broker.address)
        assert "broker-a has no master: no answer comes from" in problem


async def test_order_to_be_a_slave_stands_until_another_broker_has_led() -> None:
    """An operator changes roles by hand, and takes long between the two orders."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(KNOWN_WITHIN)
        await store(call, first, b"one")
        await level(first, second)
        accepted(await call.change_role(first.broker.address, "slave", 2))
        await trio.sleep(2 * SOON)
        assert role_of(first) == ("slave", 2)
        assert role_of(second) == ("slave", 1)
        for one, other in ((first, second), (second, first)):
            (problem,) = await call.problems(one.broker.address)
            assert f"slaves are this one and {other.broker.address}" in problem
        accepted(await call.change_role(second.broker.address, "async-master", 0))
        await trio.sleep(SOON)
        assert role_of(second) == ("async-master", 0)
        assert (
            await call.problems(first.broker.address)
            == await call.problems(second.broker.address)
            == []
        )


@pytest.mark.parametrize("is_accepted", [False, True])
async def test_slave_in_the_middle_of_its_copy_leads_only_if_the_loss_is_accepted(
    is_accepted: bool,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(KNOWN_WITHIN)
        await store(call, first, *(b"x" * (1 << 20) for _ in range(10)))
        end = first.broker.store.max_physical_offset
        await second.stop()
        lose(cluster, second, "disk")
        await second.start()
        copied = second.broker.store
        while (
            copied.max_physical_offset < (2 << 20)
            or not second.broker.state.slave.copy_watch.master_end
        ):
            await trio.lowlevel.checkpoint()
        await first.kill()
        await trio.sleep(2)
        answer = await call.change_role(
            second.broker.address, "async-master", 0, accept_loss=is_accepted
        )
        if is_accepted:
            accepted(answer)
            assert role_of(second) == ("async-master", 0)
            return
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        own = copied.max_physical_offset  # It has cut off an incomplete record.
        assert 0 < own < end - FAR_BEHIND
        assert f"it has {own} bytes of a log of which" in (answer.remark or "")
        assert f"had {end}, {end - own} more" in (answer.remark or "")
        assert role_of(second) == ("slave", 1)
        # The master has what is missing.
        await first.start()
        await level(first, second)


async def test_slave_that_lacks_a_little_leads() -> None:
    """An asynchronous master died with something on the way."""
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as call:
        first, second = cluster.master, cluster.slaves[0]
        await trio.sleep(KNOWN_WITHIN)
        cluster.partition(first, second)
        await store(call, first, b"only here")
        await first.kill()
        cluster.heal()
        accepted(await call.change_role(second.broker.address, "async-master", 0))


async def test_older_copy_from_before_another_broker_led_learns_that_from_its_epochs() -> None:
    """The copy holds an order to be a slave, and does not know that it was carried out, and that this one led again."""
    async with cluster_of(1, role="async-master") as pair:
        first, second = pair.cluster.master, pair.cluster.slaves[0]
        await settle(pair, first, second)
        await pair.change(first.broker, "slave", 9)
        copy = copy_of(first)
        await pair.change(second.broker, "async-master", 0)
        await pair.send(10, broker=second.broker, first=100)
        await pair.level(first, second)
        await pair.change(second.broker, "slave", 1)
        await pair.change(first.broker, "async-master", 0)
        await pair.send(10, first=200)
        await trio.sleep(KNOWN_WITHIN)
        await pair.level(first, second)
        end = second.broker.store.max_physical_offset
        await set_back(first, copy)
        assert role_of(first) == ("slave", 9)
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert first.broker.store.max_physical_offset == end
