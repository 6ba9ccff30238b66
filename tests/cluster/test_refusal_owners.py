"""A refusal of writes is lifted by its owner alone, whatever an operator does to the broker meanwhile."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.cluster.empty_masters import begin_again, begin_alone, emptied
from tests.cluster.members import state
from tests.cluster.stores import MONEY, keyed_pair
from tests.support.caller import accepted
from tests.support.pair import Pair
from tests.support.replication import log_bytes

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.role.service import ROOM_CHECK_INTERVAL
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.codes import ResponseCode

Act = Callable[[Pair], Awaitable[None]]


async def change_the_mode(pair: Pair) -> None:
    """There and back."""
    other = "sync-master" if pair.role == "async-master" else "async-master"
    for role in (other, pair.role):
        await pair.promote(pair.first, role)


async def hand_over_with_a_full_disk(pair: Pair) -> None:
    """The disk is full for a moment."""
    pair.first.fill_disk()
    answer = await pair.hand_over()
    pair.first.free_disk()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def be_slave_for_a_moment(pair: Pair) -> None:
    await pair.change(pair.first, "slave", 7)
    await trio.sleep(1)
    await pair.promote(pair.first)


ACTS: list[tuple[Act, set[Refuser]]] = [
    (change_the_mode, {Refuser.EPOCH}),
    (hand_over_with_a_full_disk, {Refuser.STANDING}),
    (
        be_slave_for_a_moment,
        {Refuser.STANDING, Refuser.REPLICATION, Refuser.EPOCH, Refuser.MISSING_TAIL},
    ),
]
"""What an operator does, and whose refusals are its own."""


@pytest.mark.parametrize(
    ("act", "refuser"),
    [
        pytest.param(act, refuser, id=f"{act.__name__} while {refuser.name} refuses")
        for act, own in ACTS
        for refuser in Refuser
        if refuser not in own
    ],
)
async def test_act_of_an_operator_lifts_no_refusal_of_another_part(
    act: Act, refuser: Refuser
) -> None:
    async with keyed_pair(role="async-master") as pair:
        await pair.send("before")
        await pair.level()
        refusals = pair.master.store.refusals
        refusals.refuse(refuser, "held by its owner")
        await act(pair)
        assert await pair.refused() == "SERVICE_NOT_AVAILABLE: held by its owner"
        refusals.lift(refuser)
        stored = {ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE}
        assert await pair.code_of_send() in stored


# --- a second history ------------------------------------------------------------------------


@asynccontextmanager
async def second_history(
    secret: dict[str, Any], *, slaves: int = 1, **master: Any
) -> AsyncGenerator[Pair]:
    """A master with a new log that was proved to stand beside an older one, at its first slave."""
    async with emptied(slaves=slaves, **secret) as pair:
        pair.first.config = attrs.evolve(pair.first.config, **master)
        await begin_again(pair)
        await pair.refused()
        yield pair


async def assert_stays_refused(pair: Pair) -> None:
    """Assert it now and after the checks of a minute; the status has the reason."""
    broker = pair.master
    older = [
        f"its slave at {slave.broker.address} has another one" for slave in pair.cluster.slaves
    ]
    end = broker.store.max_physical_offset
    for _ in range(2):
        why = broker.store.refusal
        assert any(one in why for one in older)  # Which one answers first is chance.
        assert await pair.refused() == f"SERVICE_NOT_AVAILABLE: {why}"
        assert await pair.problems(pair.first) == [why]
        await trio.sleep(50)
    assert broker.store.max_physical_offset == end


@pytest.mark.slow
@pytest.mark.parametrize("act", [change_the_mode, be_slave_for_a_moment])
async def test_master_beside_an_older_log_stays_refused(secret: dict[str, Any], act: Act) -> None:
    async with second_history(secret) as pair:
        await act(pair)
        await assert_stays_refused(pair)


@pytest.mark.slow
async def test_master_beside_an_older_log_hands_over_to_no_follower_of_the_new_one(
    secret: dict[str, Any],
) -> None:
    """Of two slaves one has the older log. The other one would take writes, and both logs would grow."""
    async with second_history(secret, slaves=2) as pair:
        follower = pair.members[2]
        await follower.stop()
        follower.disk = pair.cluster.make_disk()
        await follower.start()
        await trio.sleep(5)
        assert state(follower) is HAClientState.FOLLOWING
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == f"this broker takes no writes: {pair.master.store.refusal}"
        await hand_over_with_a_full_disk(pair)
        await assert_stays_refused(pair)


@pytest.mark.slow
async def test_second_history_that_is_proved_after_a_change_of_roles_stops_the_master(
    secret: dict[str, Any],
) -> None:
    """Its log is not empty when it becomes master the second time, but still new."""
    async with emptied(**secret) as pair:
        await begin_alone(pair)
        await be_slave_for_a_moment(pair)
        assert await pair.code_of_send() == ResponseCode.SLAVE_NOT_AVAILABLE
        pair.network.heal()
        await trio.sleep(60)
        await assert_stays_refused(pair)


@pytest.mark.slow
async def test_former_master_of_a_new_log_takes_writes_once_it_has_the_older_one(
    secret: dict[str, Any],
) -> None:
    """The remedy without a restart: the older one leads, and this one's own log is put aside."""
    async with second_history(secret, ha_divergent_tail="cut") as pair:
        older = pair.second
        await pair.change(pair.first, "slave", 7)
        await pair.promote(older)
        await trio.sleep(30)
        assert log_bytes(pair.master.store) == log_bytes(older.broker.store)
        accepted(await pair.hand_over(at=older))
        await trio.sleep(2)
        assert pair.master.role == "sync-master"
        assert await pair.code_of_send() == ResponseCode.SUCCESS
        assert await pair.problems(pair.first) == []


@pytest.mark.slow
async def test_log_that_parted_from_a_new_one_later_is_no_second_history(
    secret: dict[str, Any],
) -> None:
    """Its slave was master for a moment, and has a message more."""
    async with keyed_pair(**MONEY, **secret) as pair:
        slave = pair.second
        await pair.send("both")
        await pair.level()
        pair.part(slave, pair.first.host)
        await pair.change(pair.first, "slave", 7)
        await pair.promote(slave, "async-master")
        await pair.send("more" * 100, at=slave)
        await slave.kill()
        await pair.promote(pair.first)
        pair.network.heal()
        slave.config = attrs.evolve(slave.config, ha_return="wait")
        await slave.start()
        await trio.sleep(60)
        assert pair.master.store.writable
        assert await pair.problems(pair.first) == []


# --- reasons ---------------------------------------------------------------------------------


@pytest.mark.slow
async def test_change_of_mode_that_outlasts_its_request_continues() -> None:
    """The epoch of the new mode cannot be stored before the disk has room, and that takes too long."""
    async with keyed_pair(role="sync-master") as pair:
        pair.first.fill_disk()
        answer = await pair.caller.change_role(pair.master.address, "async-master", 0)
        assert answer.code == ResponseCode.SYSTEM_BUSY, answer.remark
        await pair.refused()
        await trio.sleep(5)
        assert "the epoch file cannot be written" in pair.master.store.refusal
        pair.first.free_disk()
        await trio.sleep(ROOM_CHECK_INTERVAL + 1)
        assert await pair.code_of_send() == ResponseCode.SUCCESS
        assert pair.master.store.epochs.lines[-1].mode == "async"


async def test_reason_is_the_same_while_a_master_stands_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It checks again and again, and has nothing new to say."""
    async with keyed_pair(role="async-master", ha_return_role="stand-aside") as pair:
        await pair.first.kill()
        slave = pair.second
        await pair.promote(slave)
        await pair.first.start()
        reasons = set()
        for _ in range(150):
            reasons.add(pair.master.store.refusal)
            await trio.sleep(0.1)
        assert reasons == {
            f"broker-a has another live master, at {slave.broker.address}: stop one of the two, or make it a slave"
        }
        logged = [line for line in caplog.messages if line.startswith("no writes are taken")]
        assert len(logged) == 1
        await slave.kill()
        await trio.sleep(30)
        assert await pair.code_of_send() == ResponseCode.SUCCESS
