"""An operator who makes another broker the master while the cluster is used, as docs/operations.md says.

    the master becomes a slave | the other becomes master
                               | or, with a careful operator, not before it has all that the first had, on its disk;
                                 if it does not get that in time, the first becomes master again

Each order goes with a change of the broker's own settings first, so that one that goes down comes back in the role it
was given last; and it is repeated until the broker is in its role.

Others change places by one command (`HandOver`), after which the brokers themselves say who leads, whatever settings
say that an order has changed before; make a slave master while the master lives, which is to be refused (`Grab`); or
decide which of two histories goes on (`Decision`).

Invariant: but for a grab no broker is made master before every other one is known not to be.
"""

from typing import Final

import attrs
import trio
from tests.cluster.histories.events import HandedOver, Note, TwoMasters, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.rival import RivalMaster
from tests.cluster.histories.schedule import (
    QUEUES,
    Decision,
    Failover,
    Grab,
    HandOver,
    Switch,
)
from tests.cluster.histories.world import BROKER_NAME, TOPIC, World

from rocketrio import Error, open_admin
from rocketrio.admin import Admin
from rocketrio_broker.embedded import Member
from rocketrio_broker.settings.config import Role
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.remoting.ports import split_addr

ORDER_AGAIN_PAUSE: Final = 1.0
ORDER_LIMIT: Final = 300.0
"""Virtual seconds of orders to one broker. A name server lists a master that went silent for 120 s, and then all faults
are over: a broker that is not in its role by now never will be."""
LEVEL_LIMIT: Final = 8.0
"""Seconds a careful operator waits without a master until the other has all; then the first goes on."""
FINDS_OUT_LIMIT: Final = 8.0
"""Seconds in which a slave connects to a new master, which then finds out that its own log is a second history."""
_LOOK_AGAIN: Final = 0.1
HOST: Final = "10.0.3.4"


async def switch_masters(world: World, rival: RivalMaster) -> None:
    """All switches of the schedule, one after the other."""
    async with client_at(world, HOST, "roles") as client, open_admin(client=client) as admin:
        for switch in world.schedule.switches:
            await trio.sleep_until(switch.at)
            async with rival.out_of_the_way():
                match switch:
                    case Switch():
                        await _switch(world, admin, switch)
                    case HandOver():
                        await _hand_over(world, admin, switch)
                    case Grab():
                        await _grab(world, admin, switch)
                    case Decision():
                        await _decide(world, admin)
                    case Failover():
                        await _fail_over(world, admin, switch)


async def _switch(world: World, admin: Admin, switch: Switch) -> None:
    old, new = world.master, world.member(switch.to)
    if new is old or not old.is_running or not new.is_running or old.broker.config.is_slave:
        return
    _note(world, f"{switch.to} shall become master, careful={switch.is_careful}")
    await _order(world, admin, old, "slave")
    if switch.is_careful and not await _has_all(world, new):
        _note(world, f"{switch.to} is behind")
        new = old
    await _order(world, admin, new, world.schedule.mode.role)


async def _fail_over(world: World, admin: Admin, failover: Failover) -> None:
    """What happens by hand and by an init system that restarts what ended: the first comes back as it is set."""
    old, new = world.cluster.master, world.member(failover.to)
    if world.master is not old or not old.is_running or not new.is_running:
        return
    network = world.cluster.memory_network
    copy = world.copy(new) if failover.copied else None
    await trio.sleep(failover.copied)
    if not old.is_running or not new.is_running:
        return
    if failover.cut_off:
        network.partition(old.host, new.host)
        await trio.sleep(failover.cut_off)
    how = "torn end" if failover.torn else "kill"
    await world.end(old, how, torn=failover.torn)
    network.reconnect(old.host, new.host)
    if copy is not None:
        await world.end(new, "older copy", copy=copy)
        await world.start(new)
    if failover.forgets == "before":
        await world.begin_name_server_anew()
    await trio.sleep(failover.promoted_after)
    await _order(world, admin, new, world.schedule.mode.role)
    if failover.forgets == "after":
        await world.begin_name_server_anew()
    await trio.sleep(failover.back_after)
    await world.start(old)
    _note(world, f"{old.host} is back as {old.broker.role}")
    await trio.sleep(failover.mended_after)
    await _order(world, admin, old, "slave")


async def _hand_over(world: World, admin: Admin, change: HandOver) -> None:
    """One command. That its outcome is not known is none of the operator's business: the brokers settle that."""
    old, new = world.master, world.member(change.to) if change.to else None
    to = None
    if new is not None and new.is_running and new.broker.config.is_slave:
        to = new.broker.config.broker_id
    _note(world, f"a hand-over from {old.host} to {to or 'any'}")
    try:
        done = await admin.hand_over(BROKER_NAME, to=to)
    except Error as error:
        _note(world, f"not handed over: {error}")
    else:
        former, broker = (
            world.number(split_addr(addr)[0]) for addr in (done.old_address, done.new_address)
        )
        world.history.add(HandedOver(at=now(), former=former, broker=broker))


async def _grab(world: World, admin: Admin, grab: Grab) -> None:
    """No broker's settings change: it is an order on the spur of the moment, and not repeated."""
    old, new = world.master, world.member(grab.to)
    if not old.is_running or not old.broker.store.writable or not new.is_running:
        return
    await world.begin_name_server_anew()
    _note(world, f"{grab.to} shall be master beside the first one")
    try:
        await admin.change_role(f"{new.host}:10911", world.schedule.mode.role, MASTER_ID)
    except Error as error:
        _note(world, f"refused: {error}")
    else:
        numbers = world.number(new.host), world.number(old.host)
        world.history.add(TwoMasters(at=now(), broker=numbers[0], other=numbers[1]))


async def decide_between_histories(world: World, rival: RivalMaster) -> None:
    """What an operator does about a master that lost its whole log in a power cut, when all faults are over."""
    async with (
        client_at(world, HOST, "roles") as client,
        open_admin(client=client) as admin,
        rival.out_of_the_way(),
    ):
        await _decide(world, admin)


async def _decide(world: World, admin: Admin) -> None:
    """As the broker's own problem says: the slave that has the older log is made master."""
    old = world.master
    with trio.move_on_after(FINDS_OUT_LIMIT):
        while old.is_running and old.broker.store.writable:  # noqa: ASYNC110
            await trio.sleep(_LOOK_AGAIN)
    if not old.is_running or old.broker.store.writable or old.broker.config.is_slave:
        return
    slaves = [one for one in world.cluster.slaves if one.is_running]
    new = max(slaves, key=lambda one: one.broker.store.max_physical_offset)
    _note(world, f"{old.host} began a second history, {new.host} has the older one")
    await _order(world, admin, old, "slave")
    if await _order(world, admin, new, world.schedule.mode.role):
        await _restore_topic(world, admin, new)


async def _restore_topic(world: World, admin: Admin, master: Member) -> None:
    """Create the topic again where it is lost: a slave that follows a new log has its empty tables too."""
    while master.is_running and master.broker.state.topics.topic_config(TOPIC) is None:
        try:
            await admin.create_topic(TOPIC, queues=QUEUES)
            _note(world, f"{TOPIC} was lost, and is created again")
        except Error as error:
            _note(world, f"{TOPIC} is not created again: {error}")
            await trio.sleep(ORDER_AGAIN_PAUSE)


async def _has_all(world: World, new: Member) -> bool:
    """Whether in time the next master has what the last one had, so that a power cut takes nothing of it."""
    with trio.move_on_after(LEVEL_LIMIT):
        while not new.is_running or new.broker.store.flushed.value < world.last_log_end:  # noqa: ASYNC110
            await trio.sleep(_LOOK_AGAIN)
        return True
    return False


async def _order(world: World, admin: Admin, member: Member, role: Role) -> bool:
    """Whether the broker is in the role, by this order or by its settings; not if another one leads meanwhile.

    Raises AssertionError if neither comes within `ORDER_LIMIT`.
    """
    broker_id = next(world.new_ids) if role == "slave" else MASTER_ID
    before = member.config
    after = member.config = attrs.evolve(before, role=role, broker_id=broker_id)
    reason = "no answer came"
    with trio.move_on_after(ORDER_LIMIT):
        while True:
            try:
                await admin.change_role(f"{member.host}:10911", role, broker_id)
            except Error as error:
                reason = str(error)
                _note(world, f"{member.host} is not yet {role}: {reason}")
                if role != "slave" and world.has_master and world.master is not member:
                    member.config = before
                    return False
            else:
                if member.is_running:  # One that is starting answers too.
                    member.config = after
                    _note(world, f"{member.host} is {role}")
                    return True
                reason = "it answered, and does not run yet"
            await trio.sleep(ORDER_AGAIN_PAUSE)
    raise AssertionError(
        f"{member.host} did not become {role} in {ORDER_LIMIT:g} s of orders, one per second: {reason}"
    )


def _note(world: World, text: str) -> None:
    world.history.add(Note(at=now(), who="operator", text=text))
