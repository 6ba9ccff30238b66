"""A refusal of writes is lifted by its owner alone, whatever an operator does to the broker meanwhile."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.cluster.empty_masters import begin_again, emptied, problems
from tests.cluster.torn_logs import MONEY, KeyedPair, pair_of
from tests.support.replication import log_bytes

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.role.service import ROOM_CHECK_INTERVAL
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import HandOverRequestHeader

Act = Callable[[KeyedPair], Awaitable[None]]


async def send(pair: KeyedPair, body: bytes = b"new") -> RemotingCommand:
    return await pair.caller.send(pair.master.address, body)


async def change_role(pair: KeyedPair, role: str, broker_id: int = 0) -> None:
    answer = await pair.caller.change_role(pair.master.address, role, broker_id)
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def change_the_mode(pair: KeyedPair) -> None:
    other = "async" if pair.master.role == "sync-master" else "sync"
    await change_role(pair, f"{other}-master")


async def change_the_mode_twice(pair: KeyedPair) -> None:
    await change_the_mode(pair)
    await change_the_mode(pair)


async def hand_over_with_a_full_disk(pair: KeyedPair) -> None:
    """The disk is full for a moment."""
    pair.first.fill_disk()
    answer = await pair.hand_over()
    pair.first.free_disk()
    assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE


async def be_slave_for_a_moment(pair: KeyedPair) -> None:
    role = pair.master.role
    await change_role(pair, "slave", 7)
    await trio.sleep(1)
    await change_role(pair, role)


ACTS: list[tuple[Act, set[Refuser]]] = [
    (change_the_mode, {Refuser.EPOCH}),
    (change_the_mode_twice, {Refuser.EPOCH}),
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
    async with pair_of(role="async-master") as pair:
        await pair.send("before")
        await pair.level()
        refusals = pair.master.store.refusals
        refusals.refuse(refuser, "held by its owner")
        await act(pair)
        answer = await send(pair)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == "SERVICE_NOT_AVAILABLE: held by its owner"
        refusals.lift(refuser)
        assert (await send(pair)).code in (
            ResponseCode.SUCCESS,
            ResponseCode.SLAVE_NOT_AVAILABLE,
        )


# --- a second history ------------------------------------------------------------------------


@asynccontextmanager
async def second_history(
    secret: dict[str, Any], *, slaves: int = 1, **master: Any
) -> AsyncGenerator[KeyedPair]:
    """A master with a new log that was proved to stand beside an older one, at its first slave."""
    async with emptied(slaves=slaves, **secret) as pair:
        pair.first.config = attrs.evolve(pair.first.config, **master)
        await begin_again(pair)
        assert (await send(pair)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        yield pair


async def assert_stays_refused(pair: KeyedPair) -> None:
    """Assert it now and after the checks of a minute; the status has the reason."""
    broker = pair.master
    older = [
        f"its slave at {slave.broker.address} has another one" for slave in pair.cluster.slaves
    ]
    end = broker.store.max_physical_offset
    for _ in range(2):
        answer, why = await send(pair), broker.store.refusal
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert any(one in why for one in older)  # Which one answers first is chance.
        assert answer.remark == f"SERVICE_NOT_AVAILABLE: {why}"
        assert await problems(pair) == [why]
        await trio.sleep(50)
    assert broker.store.max_physical_offset == end


@pytest.mark.parametrize("act", [change_the_mode, change_the_mode_twice, be_slave_for_a_moment])
async def test_master_beside_an_older_log_stays_refused(secret: dict[str, Any], act: Act) -> None:
    async with second_history(secret) as pair:
        await act(pair)
        await assert_stays_refused(pair)


@asynccontextmanager
async def second_history_with_a_follower(secret: dict[str, Any]) -> AsyncGenerator[KeyedPair]:
    """Of two slaves one has the older log, and the other follows the new one."""
    async with second_history(secret, slaves=2) as pair:
        follower = pair.cluster.slaves[1]
        await follower.stop()
        follower.disk = pair.cluster.make_disk()
        await follower.start()
        await trio.sleep(5)
        assert follower.broker.slave is not None
        assert follower.broker.slave.client.state is HAClientState.FOLLOWING
        yield pair


async def test_master_beside_an_older_log_stays_refused_after_a_failed_hand_over(
    secret: dict[str, Any],
) -> None:
    async with second_history_with_a_follower(secret) as pair:
        await hand_over_with_a_full_disk(pair)
        await assert_stays_refused(pair)


async def test_master_beside_an_older_log_hands_over_to_no_follower_of_the_new_one(
    secret: dict[str, Any],
) -> None:
    """The follower would take writes, and both logs would grow."""
    async with second_history_with_a_follower(secret) as pair:
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert answer.remark == f"this broker takes no writes: {pair.master.store.refusal}"
        await assert_stays_refused(pair)


async def test_second_history_that_is_proved_after_a_change_of_roles_stops_the_master(
    secret: dict[str, Any],
) -> None:
    """Its log is not empty when it becomes master the second time, but still new."""
    async with emptied(**secret) as pair:
        (slave,) = pair.cluster.slaves
        for host in (pair.first.host, "10.0.0.9"):
            pair.cluster.memory_network.partition(slave.host, host)
        await pair.first.start()
        assert (await send(pair)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        await be_slave_for_a_moment(pair)
        assert (await send(pair)).code == ResponseCode.SLAVE_NOT_AVAILABLE
        pair.cluster.memory_network.heal()
        await trio.sleep(60)
        await assert_stays_refused(pair)


async def test_former_master_of_a_new_log_takes_writes_once_it_has_the_older_one(
    secret: dict[str, Any],
) -> None:
    """The remedy without a restart: the older one leads, and this one's own log is put aside."""
    async with second_history(secret, ha_divergent_tail="cut") as pair:
        (older,) = pair.cluster.slaves
        await change_role(pair, "slave", 7)
        answer = await pair.caller.change_role(older.broker.address, "sync-master", 0)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await trio.sleep(30)
        assert log_bytes(pair.master.store) == log_bytes(older.broker.store)
        header = HandOverRequestHeader(None, False)
        answer = await pair.caller.pool.call(older.broker.address, header, timeout=30)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await trio.sleep(2)
        assert pair.master.role == "sync-master"
        assert (await send(pair)).code == ResponseCode.SUCCESS
        assert await problems(pair) == []


async def test_log_that_parted_from_a_new_one_later_is_no_second_history(
    secret: dict[str, Any],
) -> None:
    """Its slave was master for a moment, and has a message more."""
    async with pair_of(**MONEY, **secret) as pair:
        (slave,) = pair.cluster.slaves
        await pair.send("both")
        await pair.level()
        pair.cluster.memory_network.partition(slave.host, pair.first.host)
        await change_role(pair, "slave", 7)
        await pair.caller.change_role(slave.broker.address, "async-master", 0)
        answer = await pair.caller.send(slave.broker.address, b"more" * 100)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        await slave.kill()
        await change_role(pair, "sync-master")
        pair.cluster.memory_network.heal()
        slave.config = attrs.evolve(slave.config, ha_return="wait")
        await slave.start()
        await trio.sleep(60)
        assert pair.master.store.writable
        assert await problems(pair) == []


# --- reasons ---------------------------------------------------------------------------------


async def test_change_of_mode_that_outlasts_its_request_continues() -> None:
    """The epoch of the new mode cannot be stored before the disk has room, and that takes too long."""
    async with pair_of(role="sync-master") as pair:
        pair.first.fill_disk()
        answer = await pair.caller.change_role(pair.master.address, "async-master", 0)
        assert answer.code == ResponseCode.SYSTEM_BUSY, answer.remark
        assert (await send(pair)).code == ResponseCode.SERVICE_NOT_AVAILABLE
        await trio.sleep(5)
        assert "the epoch file cannot be written" in pair.master.store.refusal
        pair.first.free_disk()
        await trio.sleep(ROOM_CHECK_INTERVAL + 1)
        assert (await send(pair)).code == ResponseCode.SUCCESS
        assert pair.master.store.epochs.lines[-1].mode == "async"


async def test_reason_is_the_same_while_a_master_stands_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It checks again and again, and has nothing new to say."""
    async with pair_of(role="async-master", ha_return_role="stand-aside") as pair:
        await pair.first.kill()
        (slave,) = pair.cluster.slaves
        await pair.caller.change_role(slave.broker.address, "async-master", 0)
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
        assert (await send(pair)).code == ResponseCode.SUCCESS
