"""Ids that former masters are given do not meet those in settings; where two live brokers have one id, one changes it.

b0 is the master of the settings, b1 and b2 are the slaves 1 and 2.
"""

from functools import partial

import attrs
import pytest
import trio
from tests.cluster.members import another_member, forget_role, restart_with, role_of
from tests.support.caller import accepted
from tests.support.further import first_of
from tests.support.pair import Pair
from tests.support.pair import pair_of as any_pair_of

from rocketrio_broker.embedded import Member
from rocketrio_broker.processors.role import RoleProcessor
from rocketrio_broker.role import shared_id

PERIOD = 10.0
"""Seconds between two registrations."""
pair_of = partial(any_pair_of, register_name_server_period=PERIOD)


def another_slave(pair: Pair, broker_id: int, host: str = "10.0.0.22") -> Member:
    """A slave that no other broker has met, with this id in its settings."""
    return another_member(pair.cluster, host, role="slave", broker_id=broker_id)


async def settled(pair: Pair) -> list[Member]:
    """The master and its slaves, which are listed and have the same log."""
    await pair.send("one")
    await pair.level()
    return pair.members


def roles(*members: Member) -> list[tuple[str, int]]:
    return [role_of(member) for member in members]


async def each_has_its_own(pair: Pair, *members: Member) -> None:
    """The name server lists all of them, each under the id that it has itself, and they have one log."""
    ids = {member.broker.config.broker_id: member.broker.address for member in members}
    assert len(ids) == len(members)
    assert await pair.listed() == ids
    await pair.level(*members)


@pytest.mark.slow
async def test_former_master_does_not_get_the_id_in_its_successors_settings() -> None:
    """b2 is master when b0 comes back, and later starts with its settings again."""
    async with pair_of(2) as pair:
        b0, b1, b2 = await settled(pair)
        await b0.kill()
        await pair.promote(b2)
        await b0.start()
        assert role_of(b0) == ("slave", 3)
        await b2.kill()
        forget_role(b2)
        await pair.promote(b1)
        await b2.start()
        await trio.sleep(2 * PERIOD)
        assert role_of(b2) == ("slave", 2)
        assert role_of(b0) == ("slave", 3)
        await each_has_its_own(pair, b0, b1, b2)


@pytest.mark.slow
async def test_former_master_does_not_get_the_id_of_a_slave_that_is_away() -> None:
    """b2 was there once, and b1, which has been started again since, remembers it."""
    async with pair_of(2) as pair:
        b0, b1, b2 = await settled(pair)
        await b2.kill()
        await trio.sleep(2 * PERIOD)
        await b1.kill()
        await b1.start()
        await b0.kill()
        await pair.promote(b1)
        await b0.start()
        assert role_of(b0) == ("slave", 3)
        await b2.start()
        await trio.sleep(2 * PERIOD)
        assert role_of(b2) == ("slave", 2)
        await each_has_its_own(pair, b0, b1, b2)


@pytest.mark.slow
async def test_former_master_that_is_a_slave_in_its_settings_gets_the_id_in_them() -> None:
    async with pair_of(2) as pair:
        b0, b1, b2 = pair.members
        for former, successor in ((b0, b2), (b2, b1), (b1, b0)):
            await pair.send("one", at=former)
            await pair.level(b0, b1, b2)
            await former.kill()
            await pair.promote(successor)
            await former.start()
            await trio.sleep(PERIOD)
        assert roles(b0, b1, b2) == [("async-master", 0), ("slave", 1), ("slave", 2)]
        await each_has_its_own(pair, b0, b1, b2)


@pytest.mark.slow
@pytest.mark.parametrize("order", first_of(1, [(0, 1, 2), (1, 2, 0), (2, 1, 0)]))
async def test_given_id_that_an_unknown_slave_has_in_its_settings_is_changed(
    order: tuple[int, int, int],
) -> None:
    """b0 was given 2 before the master had ever met b2; they start in several orders."""
    async with pair_of() as pair:
        b0, b1 = await settled(pair)
        b2 = another_slave(pair, 2)
        await b0.kill()
        await pair.promote(b1)
        await b0.start()
        assert role_of(b0) == ("slave", 2)
        for member in (b0, b1):
            await member.kill()
        async with trio.open_nursery() as nursery:
            for number in order:
                nursery.start_soon((b0, b1, b2)[number].start)
                await trio.sleep(3)
        await trio.sleep(3 * PERIOD)
        assert roles(b0, b1, b2) == [("slave", 3), ("async-master", 0), ("slave", 2)]
        await each_has_its_own(pair, b0, b1, b2)
        assert [await pair.problems(one) for one in (b0, b1, b2)] == [[], [], []]
        await b0.kill()
        await b0.start()
        assert role_of(b0) == ("slave", 3), "it is kept"


@pytest.mark.slow
async def test_id_that_a_hand_over_gave_is_changed_when_its_former_owner_returns_with_it() -> None:
    """b0 and b1 change places, so b0 has 1; then b1 starts with its settings, while b2 is master."""
    async with pair_of(2) as pair:
        b0, b1, b2 = await settled(pair)
        accepted(await pair.hand_over(1))
        assert role_of(b0) == ("slave", 1)
        await pair.level(b0, b1, b2)
        await b1.kill()
        forget_role(b1)
        await pair.promote(b2)
        await b1.start()
        await trio.sleep(3 * PERIOD)
        assert roles(b0, b1, b2) == [("slave", 3), ("slave", 1), ("async-master", 0)]
        await each_has_its_own(pair, b0, b1, b2)


@pytest.mark.slow
async def test_two_given_ids_that_are_one_become_two() -> None:
    """An operator has given both, or two masters have."""
    async with pair_of(3) as pair:
        b0, *slaves = pair.members
        for slave in slaves[:2]:
            await pair.change(slave, "slave", 7)
        await trio.sleep(3 * PERIOD)
        await pair.send("one", at=b0)
        await each_has_its_own(pair, b0, *slaves)


@pytest.mark.slow
async def test_id_changes_once_in_a_while_however_often_another_broker_takes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    period = 6 * PERIOD
    monkeypatch.setattr(shared_id, "CHANGE_PERIOD", period)
    async with pair_of() as pair:
        slave = pair.second
        await pair.change(slave, "slave", 7)
        await another_slave(pair, 1, "10.0.0.24").start()
        await another_slave(pair, 7).start()
        await trio.sleep(2 * PERIOD)
        (_, changed) = role_of(slave)
        assert changed not in (0, 1, 7)
        await another_slave(pair, changed, "10.0.0.23").start()
        await trio.sleep(period - 3 * PERIOD)
        assert role_of(slave) == ("slave", changed)
        await trio.sleep(4 * PERIOD)
        assert role_of(slave)[1] not in (0, 1, 7, changed)


async def test_given_id_stays_with_its_problem_at_a_master_that_gives_no_ids(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache's master does not know the request."""
    monkeypatch.delattr(RoleProcessor, "claim_slave_id")
    async with pair_of() as pair:
        slave = pair.second
        await pair.change(slave, "slave", 7)
        await another_slave(pair, 7).start()
        await trio.sleep(2 * PERIOD)
        assert role_of(slave) == ("slave", 7)
        [problem] = await pair.problems(slave)
        assert problem.endswith("this one asks its master for another id")
        assert "too, and the master gives no other" in caplog.text


@pytest.mark.slow
async def test_ids_from_settings_that_are_one_are_kept_and_both_brokers_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with pair_of() as pair:
        first, second = pair.second, another_slave(pair, 1)
        await second.start()
        await trio.sleep(PERIOD / 3)
        # Though it registers twice before the first one does.
        [problem] = await pair.problems(second)
        assert first.broker.address in problem
        await trio.sleep(2 * PERIOD)
        for one, other in ((first, second), (second, first)):
            assert role_of(one) == ("slave", 1)
            [problem] = await pair.problems(one)
            assert problem.startswith(f"{other.broker.address} has the id 1 of this broker too")
            assert "--id" in problem
            assert f"the id 1 of broker-a was that of {other.broker.address}" in caplog.text
        await restart_with(second, broker_id=2)
        await trio.sleep(3 * PERIOD)
        await each_has_its_own(pair, pair.first, first, second)
        assert not await pair.problems(first)


async def test_promoted_slave_gets_what_one_with_its_id_has_more() -> None:
    """The name server lists one of the two: the promoted one, when the operator gives the order."""
    async with pair_of(2) as pair:
        b0, b1, b2 = await settled(pair)
        pair.part(b0, b1.host)
        await pair.send("two")
        await pair.level(b0, b2)
        await b0.kill()
        await trio.sleep(1)  # Else b2 is listed each time when b1 asks which slaves to remember.
        await restart_with(b2, broker_id=1)
        await trio.sleep(2 * PERIOD)
        registered_again = b1.broker.state.registration.id_conflicts
        await registered_again.wait_past(registered_again.value)
        assert b1.broker.state.known_slaves.addrs() == []
        assert await pair.listed() == {1: b1.broker.address}
        await pair.promote(b1)
        assert await pair.read(b1) == ["one", "two"]


async def test_given_id_is_not_changed_because_of_the_brokers_own_former_address() -> None:
    """The same broker has moved, and its former connection seems to stand."""
    async with pair_of() as pair:
        slave = pair.second
        await pair.change(slave, "slave", 7)
        await trio.sleep(PERIOD)
        pair.cluster.silence(slave)
        moved = Member(
            pair.cluster, attrs.evolve(slave.config, listen="10.0.0.33:10911"), "10.0.0.33"
        )
        moved.disk = slave.disk
        await slave.stop()
        await moved.start()
        await trio.sleep(3 * PERIOD)
        assert role_of(moved) == ("slave", 7)
