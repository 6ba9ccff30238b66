"""Makes the faults of a schedule happen, and mends everything at its end."""

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import get_args

import trio
from tests.cluster.histories.disk import ScheduledDisk
from tests.cluster.histories.events import FaultBegan, FaultEnded, now
from tests.cluster.histories.pause import PausableMember
from tests.cluster.histories.rival import RivalMaster, hides_a_master
from tests.cluster.histories.roles import decide_between_histories
from tests.cluster.histories.schedule import LOST_FILES, Fault
from tests.cluster.histories.world import CLEAN_ENDS, ScheduledClock, World


async def inject_faults(world: World, rival: RivalMaster) -> None:
    """All faults of the schedule, each in its time; returns when the last is over and everything mended."""
    async with trio.open_nursery() as nursery:
        for number, fault in enumerate(world.schedule.faults):
            start = _start_rival if fault.kind == "rival" else _inject
            nursery.start_soon(start, world, rival, fault, number)
        await trio.sleep_until(world.schedule.faults_end)
    world.cluster.memory_network.heal()
    if world.has_new_log:
        await decide_between_histories(world, rival)


async def _inject(world: World, rival: RivalMaster, fault: Fault, number: int) -> None:
    await trio.sleep_until(fault.at - (fault.amount if fault.kind == "older copy" else 0.0))
    applied = _APPLIED[fault.kind]
    async with AsyncExitStack() as stack:
        if hides_a_master(fault):
            await stack.enter_async_context(rival.out_of_the_way())
        if not await stack.enter_async_context(applied(world, fault, number)):
            return
        await trio.sleep(fault.lasts)
    world.history.add(FaultEnded(at=now(), fault=str(fault)))


async def _start_rival(world: World, rival: RivalMaster, fault: Fault, _: int) -> None:
    await trio.sleep_until(fault.at)
    if await rival.start():
        _note(world, fault)
        with trio.move_on_after(fault.lasts):
            await rival.send_to()
        await rival.end()


def _note(world: World, fault: Fault) -> None:
    world.history.add(FaultBegan(at=now(), fault=str(fault)))


@asynccontextmanager
async def _member_down(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    member = world.member(fault.who)
    assert isinstance(member, PausableMember)
    assert isinstance(member.disk, ScheduledDisk)
    # Another fault may have it down already; with a full disk a clean stop ends with an error, as it should; and
    # a paused one stops when it goes on.
    cannot_stop = member.disk.is_full or member.is_paused
    is_down = not member.is_running or world.goes_down(member)
    if is_down or (fault.kind in CLEAN_ENDS and cannot_stop):
        yield False
        return
    _note(world, fault)
    seed = world.schedule.seed * 100 + number
    await world.end(member, fault.kind, seed=seed, kept=fault.amount, torn=int(fault.amount))
    if fault.kind in get_args(LOST_FILES):
        world.lose_files(member, fault)
    yield True
    await world.start(member)


@asynccontextmanager
async def _set_back(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    """Copy a broker's directory, and kill the broker a while later: it comes back with the copy."""
    member = world.member(fault.who)
    assert isinstance(member, PausableMember)
    copy = world.copy(member) if member.is_running and not world.goes_down(member) else None
    await trio.sleep_until(fault.at)
    if copy is None or not member.is_running or world.goes_down(member):
        yield False
        return
    _note(world, fault)
    await world.end(member, fault.kind, copy=copy)
    yield True
    await world.start(member)


@asynccontextmanager
async def _pause(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    member = world.member(fault.who)
    assert isinstance(member, PausableMember)
    if not member.is_running or member.is_paused:
        yield False
        return
    _note(world, fault)
    member.pause()
    try:
        yield True
    finally:  # A story that crashes waits for tasks that stand still.
        member.resume()


@asynccontextmanager
async def _name_server_down(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    if not world.name_server_is_running:
        yield False
        return
    _note(world, fault)
    world.name_server_is_running = False
    await world.cluster.kill_name_server()
    yield True
    await world.cluster.restart_name_server()
    world.name_server_is_running = True


@asynccontextmanager
async def _clock(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    clock = world.cluster.wall_clock
    assert isinstance(clock, ScheduledClock)
    _note(world, fault)
    clock.ahead = fault.amount
    yield True
    clock.ahead = 0.0


@asynccontextmanager
async def _disk(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    member = world.member(fault.who)

    def apply(seconds: float, is_full: bool) -> None:
        disk = member.disk  # After a power cut it is another one.
        assert isinstance(disk, ScheduledDisk)
        if fault.kind == "slow disk":
            disk.seconds = seconds
        else:
            disk.fill(is_full)

    if fault.kind == "full disk" and world.goes_down(member):
        yield False  # Its clean stop, which takes its time with a slow disk, would end with an error, as it should.
        return
    _note(world, fault)
    apply(fault.amount, True)
    yield True
    apply(0.0, False)


@asynccontextmanager
async def _network(world: World, fault: Fault, number: int) -> AsyncGenerator[bool]:
    network = world.cluster.memory_network
    host, other = world.host(fault.who), world.host(fault.other) if fault.other else ""
    _note(world, fault)
    match fault.kind:
        case "partition":
            network.partition(host, other)
        case "one way":
            network.partition(host, other, one_way=True)
        case "delay":
            network.delay(host, other, fault.amount)
        case "cut":
            network.cut(host, other)
        case "half close":
            network.half_close(host, other)
        case "silence":
            network.silence(host)
    yield True
    if fault.kind == "delay":
        network.delay(host, other, 0)
    elif other:
        network.reconnect(host, other)
    else:
        network.reconnect(host)


_APPLIED = {
    "kill": _member_down,
    "power cut": _member_down,
    "stop": _member_down,
    "torn end": _member_down,
    "wiped": _member_down,
    "queue gone": _member_down,
    "role gone": _member_down,
    "epochs gone": _member_down,
    "older copy": _set_back,
    "pause": _pause,
    "clock": _clock,
    "slow disk": _disk,
    "full disk": _disk,
    "name server down": _name_server_down,
    "partition": _network,
    "one way": _network,
    "delay": _network,
    "cut": _network,
    "half close": _network,
    "silence": _network,
}
