"""A name loses its master, or its master's disk or role: it has a master again, or each broker says what is missing."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import attrs
import pytest
import trio
from tests.cluster.members import (
    another_member,
    copy_of,
    failed_over,
    forget_peers,
    forget_role,
    role_of,
    set_back,
)
from tests.cluster.stores import unflushed_pair
from tests.support.caller import accepted
from tests.support.pair import Pair, pair_of

from rocketrio_broker.embedded import NAME_SERVER_HOST, Member
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.role.service import FAR_BEHIND, NOBODY_LEADS_AFTER
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import NotReachableError

SOON = NOBODY_LEADS_AFTER + 20
"""Seconds in which the pair finds its master."""
KNOWN_WITHIN = 5.0
"""Seconds in which a broker stores whom it follows."""


async def healed(pair: Pair) -> tuple[Member, Member]:
    """The former master, which follows again, and its successor."""
    first, second = await failed_over(pair)
    await first.start()
    await pair.level(first, second)
    await trio.sleep(KNOWN_WITHIN)
    assert role_of(first) == ("slave", 2)
    return first, second


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "restarted"),
    [
        ("disk", "neither"),
        ("disk", "both"),
        ("role file", "neither"),
        ("role file", "the former master"),
    ],
)
async def test_former_master_leads_again_if_its_successor_forgot_that_it_is_master(
    what: Literal["disk", "role file"], restarted: str
) -> None:
    async with pair_of() as pair:
        first, second = await healed(pair)
        await second.kill()
        if what == "disk":
            second.disk = pair.cluster.make_disk()
        else:
            forget_role(second)
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
        await pair.send("three")
        await pair.level()
        assert await pair.read(first) == ["one", "two", "three"]
        assert await pair.problems(first) == await pair.problems(second) == []


@pytest.mark.slow
async def test_former_master_leads_again_though_it_has_the_id_of_its_successor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Name servers list the one that registered last, and that is always this one when it looks."""
    async with pair_of() as pair:
        first, second = pair.members
        await trio.sleep(KNOWN_WITHIN)
        await pair.send("one")
        await pair.level()
        accepted(await pair.hand_over())
        await pair.level(first, second)
        assert role_of(first) == ("slave", 1)
        own, listed = first.broker.address, Peers.listed
        await second.kill()
        await first.kill()
        forget_role(second)
        forget_peers(first)

        async def lists_itself(peers: Peers, name_server: str) -> Mapping[int, str]:
            found = await listed(peers, name_server)
            return {**found, 1: own} if peers.own_addr == own else found

        monkeypatch.setattr(Peers, "listed", lists_itself)
        await second.start()
        await first.start()
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert role_of(second) == ("slave", 1)
        assert await pair.read(first) == ["one"]


@pytest.mark.slow
async def test_former_master_leads_again_if_only_an_order_made_it_master() -> None:
    """The operator changed both settings, too, and only the other broker has read its new ones."""
    async with pair_of() as pair:
        first, second = pair.members
        await trio.sleep(KNOWN_WITHIN)
        await pair.change(first, "slave", 2)
        await pair.promote(second)
        first.config = attrs.evolve(first.config, role="slave", broker_id=2)
        await trio.sleep(KNOWN_WITHIN)
        accepted(await pair.hand_over(at=second))
        await pair.send("one")
        await pair.level()
        await first.kill()
        forget_role(first)
        await first.start()
        await trio.sleep(SOON)
        assert role_of(first) == ("slave", 2)
        assert role_of(second) == ("async-master", 0)
        assert await pair.read(second) == ["one"]


@pytest.mark.slow
async def test_broker_that_yields_to_a_master_it_cannot_ask_lowers_no_offset() -> None:
    """It has lost its role, and lacks messages whose offset its group has committed there."""
    async with pair_of() as pair:
        first, second = await healed(pair)
        await first.kill()
        await pair.send_many(10, at=second)
        end = len(await pair.read(second))
        await pair.caller.commit(second.broker.address, end)
        pair.part(first, second.host)
        await first.start()
        await pair.caller.commit(first.broker.address, end)
        await first.kill()
        forget_role(first)
        await first.start()
        await trio.sleep(KNOWN_WITHIN)
        assert "a name server lists" in await pair.refused(at=first)
        pair.network.heal()
        await trio.sleep(SOON)
        assert role_of(first)[0] == "slave"
        for member in (first, second):
            assert await pair.caller.committed(member.broker.address) == end


@pytest.mark.slow
async def test_former_master_gets_first_what_its_successor_still_has() -> None:
    """The successor has lost its role file alone, and has messages that the former master lacks."""
    async with pair_of() as pair:
        first, second = await healed(pair)
        await first.kill()
        await pair.send("three", at=second)
        await second.kill()
        forget_role(second)
        await first.start()
        await second.start()
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert await pair.read(first) == ["one", "two", "three"]


async def test_slave_that_a_name_server_still_lists_as_master_gives_what_it_has() -> None:
    """An order made it a slave while no name server heard it, before others had copied its last messages."""
    async with pair_of(2, role="async-master") as pair:
        first, second, third = pair.members
        await pair.settle()
        await pair.change(first, "slave", 10)
        await pair.promote(second)
        # The third broker knows now that this is no slave, and does not follow it yet.
        await trio.sleep(1.4)
        await pair.send("late", at=second)
        assert "late" not in await pair.read(third)
        pair.part(second, NAME_SERVER_HOST)
        await pair.change(second, "slave", 11)
        await pair.promote(third)
        assert (await pair.read(third))[-1] == "late"


async def test_successor_that_cannot_register_yields_to_a_former_master_that_leads_again() -> None:
    """The former one lost its role file meanwhile."""
    async with pair_of() as pair, trio.open_nursery() as nursery:
        first, second = pair.members

        async def order() -> None:
            with suppress(NotReachableError):
                await pair.hand_over()

        pair.part(second, NAME_SERVER_HOST)
        nursery.start_soon(order)
        await trio.sleep(4)
        assert role_of(first) == ("slave", 1)
        await first.kill()
        forget_role(first)
        await first.start()
        await pair.send("one")
        await trio.sleep(SOON)
        assert role_of(second)[0] == "slave"
        assert await pair.read(second) == ["one"]
        nursery.cancel_scope.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("is_given_away", [False, True])
async def test_slave_does_not_lead_by_itself_while_the_last_master_cannot_be_asked(
    is_given_away: bool,
) -> None:
    """It may take writes where this broker does not see it: a broker of another name at its address says nothing."""
    async with pair_of() as pair:
        first, second = await healed(pair)
        gone = second.broker.address
        await second.kill()
        if is_given_away:
            other = another_member(pair.cluster, second.host, broker_name="broker-b")
            await other.start()
        await trio.sleep(2 * SOON)
        assert role_of(first) == ("slave", 2)
        assert await pair.problems(first) == [
            f"broker-a has no master: no answer comes from {gone}. Bring the master back, or make the "
            "slave that has most of the log master, with `rocketrio broker role`"
        ]
        if is_given_away:
            await other.stop()
        await second.start()
        await trio.sleep(SOON)
        assert await pair.problems(first) == []


@pytest.mark.slow
async def test_order_to_be_a_slave_stands_until_another_broker_has_led() -> None:
    """An operator changes roles by hand, and takes long between the two orders."""
    async with pair_of() as pair:
        first, second = pair.members
        await trio.sleep(KNOWN_WITHIN)
        await pair.send("one")
        await pair.level()
        await pair.change(first, "slave", 2)
        await trio.sleep(2 * SOON)
        assert role_of(first) == ("slave", 2)
        assert role_of(second) == ("slave", 1)
        for one, other in ((first, second), (second, first)):
            (problem,) = await pair.problems(one)
            assert f"slaves are this one and {other.broker.address}" in problem
        await pair.promote(second)
        await trio.sleep(SOON)
        assert role_of(second) == ("async-master", 0)
        assert await pair.problems(first) == await pair.problems(second) == []


@pytest.mark.slow
@pytest.mark.parametrize("is_accepted", [False, True])
async def test_slave_in_the_middle_of_its_copy_leads_only_if_the_loss_is_accepted(
    is_accepted: bool,
) -> None:
    async with pair_of() as pair:
        first, second = pair.members
        await trio.sleep(KNOWN_WITHIN)
        await pair.send(*10 * ["x" * (1 << 20)])
        end = first.broker.store.max_physical_offset
        await second.stop()
        second.disk = pair.cluster.make_disk()
        await second.start()
        copied, follower = second.broker.store, second.broker.slave
        assert follower is not None
        while copied.max_physical_offset < (2 << 20) or not follower.copy_watch.master_end:
            await trio.lowlevel.checkpoint()
        await first.kill()
        await trio.sleep(2)
        address = second.broker.address
        answer = await pair.caller.change_role(address, pair.role, 0, accept_loss=is_accepted)
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
        await pair.level(first, second)


async def test_slave_that_lacks_a_little_leads() -> None:
    """An asynchronous master died with something on the way."""
    async with pair_of() as pair:
        first, second = pair.members
        await trio.sleep(KNOWN_WITHIN)
        pair.part(first, second.host)
        await pair.send("only here")
        await first.kill()
        pair.network.heal()
        await pair.promote(second)


@pytest.mark.slow
async def test_older_copy_from_before_another_broker_led_learns_that_from_its_epochs() -> None:
    """The copy holds an order to be a slave, and does not know that it was carried out, and that this one led again."""
    async with unflushed_pair() as pair:
        first, second = pair.members
        await pair.settle()
        await pair.change(first, "slave", 9)
        copy = copy_of(first)
        await pair.promote(second)
        await pair.send_many(10, at=second, first=100)
        await pair.level(first, second)
        await pair.change(second, "slave", 1)
        await pair.promote(first)
        await pair.send_many(10, first=200)
        await trio.sleep(KNOWN_WITHIN)
        await pair.level(first, second)
        end = second.broker.store.max_physical_offset
        await set_back(first, copy)
        assert role_of(first) == ("slave", 9)
        await trio.sleep(SOON)
        assert role_of(first) == ("async-master", 0)
        assert first.broker.store.max_physical_offset == end
