"""An operator who makes another broker the master while the cluster is used, as docs/operations.md says.

    the master becomes a slave | the other becomes master
                               | or, with a careful operator, not before it has all that the first had, on its disk;
                                 if it does not get that in time, the first becomes master again

Each order goes with a change of the broker's own settings first, so that one that goes down comes back in the role it
was given last; and it is repeated until the broker is in its role.

Invariant: nobody is told to be master before everybody else is known not to be.
"""

from typing import Final

import attrs
import trio
from tests.cluster.histories.events import Note, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.rival import RivalMaster
from tests.cluster.histories.schedule import Failover, Switch
from tests.cluster.histories.world import World

from rocketrio import Admin, Error, open_admin
from rocketrio_broker.config import Role
from rocketrio_broker.embedded import Member
from rocketrio_protocol.codes import MASTER_ID

ORDER_AGAIN_PAUSE: Final = 1.0
LEVEL_LIMIT: Final = 8.0
"""Seconds a careful operator waits without a master until the other has all; then the first goes on."""
_LOOK_AGAIN: Final = 0.1
HOST: Final = "10.0.3.4"


async def switch_masters(world: World, rival: RivalMaster) -> None:
    """All switches of the schedule, one after the other."""
    async with client_at(world, HOST, "roles") as client, open_admin(client=client) as admin:
        for switch in world.schedule.switches:
            await trio.sleep_until(switch.at)
            async with rival.out_of_the_way():
                if isinstance(switch, Failover):
                    await _fail_over(world, admin, switch)
                else:
                    await _switch(world, admin, switch)


async def _switch(world: World, admin: Admin, switch: Switch) -> None:
    old, new = world.master, world.member(switch.to)
    if new is old or not old.is_running or not new.is_running or old.broker.config.is_slave:
        return
    _note(world, f"{switch.to} shall become master, careful={switch.is_careful}")
    others = world.log_ends()
    await _order(world, admin, old, "slave")
    world.end_reign(old)
    if switch.is_careful and not await _has_all(world, new):
        _note(world, f"{switch.to} is behind")
        new = old
    await _order(world, admin, new, world.schedule.mode.role)
    world.begin_reign(new, others)


async def _fail_over(world: World, admin: Admin, failover: Failover) -> None:
    """What happens by hand and by an init system that restarts what ended: the first comes back as it is set."""
    old, new = world.cluster.master, world.member(failover.to)
    if world.master is not old or not old.is_running or not new.is_running:
        return
    network = world.cluster.memory_network
    if failover.cut_off:
        network.partition(old.host, new.host)
        await trio.sleep(failover.cut_off)
    others = world.log_ends()
    how = "torn end" if failover.torn else "kill"
    await world.end(old, how, torn=failover.torn)
    network.reconnect(old.host, new.host)
    await trio.sleep(failover.promoted_after)
    await _order(world, admin, new, world.schedule.mode.role)
    world.begin_reign(new, others)
    await trio.sleep(failover.back_after)
    await world.start(old)
    _note(world, f"{old.host} is back as {old.broker.role}")
    await trio.sleep(failover.mended_after)
    await _order(world, admin, old, "slave")


async def _has_all(world: World, new: Member) -> bool:
    """Whether in time the next master has what the last one had, so that a power cut takes nothing of it."""
    with trio.move_on_after(LEVEL_LIMIT):
        while not new.is_running or new.broker.store.flushed.value < world.last_log_end:  # noqa: ASYNC110
            await trio.sleep(_LOOK_AGAIN)
        return True
    return False


async def _order(world: World, admin: Admin, member: Member, role: Role) -> None:
    """Returns when the broker is in the role, by this order or by its settings."""
    number = world.number(member.host)
    slave_id = number or len(world.cluster.members)
    broker_id = slave_id if role == "slave" else MASTER_ID
    member.config = attrs.evolve(member.config, role=role, broker_id=broker_id)
    while True:
        try:
            await admin.change_role(f"{member.host}:10911", role, broker_id)
        except Error as error:
            _note(world, f"{member.host} is not yet {role}: {error}")
            await trio.sleep(ORDER_AGAIN_PAUSE)
        else:
            if member.is_running:  # Otherwise it is in its role when it is back.
                _note(world, f"{member.host} is {role}")
                return


def _note(world: World, text: str) -> None:
    world.history.add(Note(at=now(), who="operator", text=text))
