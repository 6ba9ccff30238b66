"""Master and slave change places by one request, whatever fails on the way."""

from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from tests.cluster.load import Load
from tests.cluster.members import cut_power, forget_role, role_of
from tests.support.caller import accepted
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair
from tests.support.pair import pair_of as any_pair_of
from tests.support.waiting import eventually

from rocketrio_broker.embedded import Member
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_broker.role.hand_over import CATCH_UP_LIMIT, HandOverService, State
from rocketrio_broker.role.service import NOBODY_LEADS_AFTER
from rocketrio_broker.role.standing import FOLLOWING, HANDING_OVER
from rocketrio_broker.role.take_over import TakeOver
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    DeleteTopicInBrokerRequestHeader,
    HandOverRequestHeader,
    HandOverResponseHeader,
    TakeOverRequestHeader,
)
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.frame import Body

MASTER, SLAVE = ("sync-master", 0), ("slave", 1)


def pair_of(slaves: int = 1, **settings: Any) -> AbstractAsyncContextManager[Pair]:
    return any_pair_of(slaves, **{"role": "sync-master", "slave_read_enable": True, **settings})


async def refusal(pair: Pair, to_id: int | None = None, *, at: Member | None = None) -> str:
    """Return why nothing is handed over, neither in earnest nor as a rehearsal."""
    for dry_run in (True, False):
        answer = await pair.hand_over(to_id, at=at, dry_run=dry_run)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert role_of(pair.first) == MASTER
    return answer.remark or ""


async def goes_on(pair: Pair, master: Member, slave: Member) -> None:
    """One leads, takes writes and is followed by the other."""
    assert role_of(master) == MASTER
    assert role_of(slave) == SLAVE
    await trio.sleep(1)
    await pair.send("two", at=master)
    await pair.level(master, slave)


@pytest.mark.slow
@pytest.mark.parametrize("role", ["sync-master", "async-master"])
async def test_places_are_changed_under_load_and_back(role: str) -> None:
    async with pair_of(role=role) as pair:
        load = Load(pair)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await trio.sleep(1)
            done = accepted(await pair.hand_over()).header(HandOverResponseHeader)
            assert (done.broker_id, done.broker_addr) == (1, pair.second.broker.address)
            assert done.millis < 1000
            assert role_of(pair.first) == SLAVE
            assert role_of(pair.second) == (role, 0)
            assert await pair.listed() == {
                0: pair.second.broker.address,
                1: pair.first.broker.address,
            }
            await trio.sleep(2)
            accepted(await pair.hand_over(at=pair.second))
            assert role_of(pair.first) == (role, 0)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        await load.assert_kept()
        assert load.longest_gap < 1
        # In a hand-over nothing is in doubt: sends are stored safely or refused before they are stored.
        assert load.codes <= {ResponseCode.SERVICE_NOT_AVAILABLE}


async def test_dry_run_names_the_successor_and_changes_nothing() -> None:
    async with pair_of() as pair:
        await pair.send("one")
        told = accepted(await pair.hand_over(dry_run=True)).header(HandOverResponseHeader)
        assert (told.broker_id, told.millis) == (1, 0)
        assert told.log_end_offset == told.slave_ack_offset > 0
        assert role_of(pair.first) == MASTER
        await pair.send("two")


@pytest.mark.slow
async def test_roles_that_were_handed_over_are_held_through_restarts() -> None:
    async with pair_of() as pair:
        await pair.send("one")
        accepted(await pair.hand_over())
        for member in (pair.first, pair.second):
            await member.kill()
        for member in (pair.second, pair.first):
            await member.start()
        await goes_on(pair, pair.second, pair.first)


async def test_new_master_claims_to_lead_so_that_a_former_one_follows() -> None:
    async with pair_of(role="async-master") as pair:
        accepted(await pair.hand_over())
        await trio.sleep(1)
        assert (await pair.caller.own_status(pair.slave.address)).claims
        await pair.first.kill()
        await pair.send("two", at=pair.second)
        forget_role(pair.first)  # It shall be master.
        await pair.first.start()
        await trio.sleep(5)
        assert role_of(pair.first) == ("slave", 2)
        await pair.level(pair.first, pair.second)


@pytest.mark.slow
async def test_offsets_of_a_slave_that_does_not_follow_are_known() -> None:
    """Its disk is full: it cannot write the line of the second epoch."""
    async with pair_of(2) as pair, trio.open_nursery() as nursery:
        third = pair.members[2]
        await pair.settle()
        assert isinstance(third.disk, MemoryDisk)
        third.disk.is_full = True
        accepted(await pair.hand_over(1))
        await trio.sleep(10)
        await pair.caller.commit(third.broker.address, 17)
        nursery.start_soon(partial(pair.hand_over, 1, at=pair.second))
        await eventually(lambda: pair.master.state.store.writable)
        third.disk.is_full = False
        assert pair.master.state.consumer_offsets.query_offset("billing", "orders", 0) == 17


@pytest.mark.parametrize("delay", [0.2, 0.4])
async def test_offsets_committed_meanwhile_are_known_over_a_slow_link(delay: float) -> None:
    async with pair_of() as pair, trio.open_nursery() as nursery:
        await pair.settle()
        await trio.sleep(10)
        pair.network.delay(pair.first.host, pair.second.host, delay)
        nursery.start_soon(pair.hand_over)
        await eventually(lambda: pair.master.state.standing.now is HANDING_OVER)
        await pair.caller.commit(pair.master.address, 17)
        await eventually(lambda: pair.slave.state.store.writable)
        assert await pair.caller.committed(pair.slave.address) == 17


async def test_nearest_of_several_is_taken_unless_one_is_named() -> None:
    async with pair_of(2) as pair:
        first, second, third = pair.members
        accepted(await pair.hand_over(2))
        assert [role_of(one) for one in pair.members] == [("slave", 2), SLAVE, MASTER]
        await trio.sleep(3)
        await pair.send("one", at=third)
        await pair.level(first, second, third)
        pair.part(second, third.host)
        accepted(await pair.hand_over(at=third))
        assert role_of(first) == MASTER


async def test_slave_that_is_unknown_or_away_is_refused() -> None:
    """Which of the slaves that are there can take over is decided by `why_not_follower`."""
    async with pair_of() as pair:
        assert "does not lead" in await refusal(pair, at=pair.second)
        assert "has no slave 7" in await refusal(pair, 7)
        pair.part(pair.first, pair.second.host)
        assert "cannot be asked" in await refusal(pair)
        pair.network.heal()
        await pair.second.stop()
        assert "no slave is registered" in await refusal(pair)


@pytest.mark.slow
async def test_follower_that_does_not_get_the_end_leaves_the_master_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair_of(role="async-master") as pair:
        prepare = HandOverService._prepare

        async def cut_after(self: HandOverService, *arguments: Any) -> None:
            await prepare(self, *arguments)
            pair.part(pair.first, pair.second.host)
            await pair.send("unheard")

        monkeypatch.setattr(HandOverService, "_prepare", cut_after)
        load = Load(pair)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await trio.sleep(0.5)
            answer = await pair.hand_over()
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "did not get the last" in (answer.remark or "")
        # The sends waited, and were stored.
        assert not load.codes
        assert load.longest_gap < CATCH_UP_LIMIT + 0.1
        assert role_of(pair.first) == ("async-master", 0)
        pair.network.heal()
        await trio.sleep(30)
        await pair.level(pair.first, pair.second)
        await pair.first.kill()
        await pair.first.start()
        assert role_of(pair.first) == ("async-master", 0)


Act = Callable[[TakeOver, TakeOverRequestHeader, Body], Awaitable[State]]


@attrs.define
class Steps:
    """The follower's steps, and what a test has happen at them."""

    whole: Act
    act: Act | None = None

    async def __call__(self, taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
        return await (self.act or self.whole)(taker, header, body)


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    steps = Steps(TakeOver.step)

    async def step(self: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
        return await steps(self, header, body)

    monkeypatch.setattr(TakeOver, "step", step)
    return steps


def lose_answer(steps: Steps, pair: Pair, *, reconnect: float | None) -> None:
    """Cut the link between the two once the follower has taken over."""
    done: list[State] = []

    async def heal() -> None:
        if reconnect is not None:
            await trio.sleep(reconnect)
            pair.network.heal()

    async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
        state = await steps.whole(taker, header, body)
        if header.step == "take" and not done:
            done.append(state)
            pair.part(pair.first, pair.second.host)
            pair.cluster.nursery.start_soon(heal)
        return state

    steps.act = acted


@pytest.mark.slow
async def test_former_master_leads_again_if_its_successor_forgot_that_before_it_led(
    steps: Steps,
) -> None:
    """No log shows that another broker was to lead: the successor cannot ask for the end, and its role file is lost."""
    async with pair_of() as pair:
        await pair.send("one")

        async def restart() -> None:
            await pair.second.kill()
            await pair.second.start()

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            state = await steps.whole(taker, header, body)
            if header.step == "take":
                pair.cluster.nursery.start_soon(restart)
                await trio.sleep_forever()
            if header.step == "ask":
                pair.network.partition(pair.first.host, pair.second.host, one_way=True)
            return state

        steps.act = acted
        await pair.hand_over()
        assert role_of(pair.second) == MASTER
        await pair.second.kill()
        forget_role(pair.second)
        await pair.second.start()
        pair.network.heal()
        assert [role_of(member) for member in pair.members] == [SLAVE, SLAVE]
        await trio.sleep(NOBODY_LEADS_AFTER + 20)
        await goes_on(pair, pair.first, pair.second)


@pytest.mark.parametrize("reconnect", [0.3, 8.0])
async def test_lost_answer_to_the_order_is_asked_for(steps: Steps, reconnect: float) -> None:
    async with pair_of() as pair:
        await pair.send("one")
        lose_answer(steps, pair, reconnect=reconnect)
        answer = await pair.hand_over()
        assert (answer.code == ResponseCode.SUCCESS) == (reconnect < 1), answer.remark
        assert not pair.master.store.writable
        await trio.sleep(30)
        await goes_on(pair, pair.second, pair.first)


@pytest.mark.slow
async def test_power_cut_right_after_a_hand_over_takes_no_topic() -> None:
    """The follower had copied them a moment before; with the name server it forgets whom it could ask."""
    async with pair_of(make_disk=FaultyDisk) as pair:
        await pair.send("one")
        accepted(await pair.hand_over())
        await cut_power(pair.second)
        await pair.first.kill()
        await pair.second.start()
        assert role_of(pair.second) == MASTER
        assert pair.second.broker.state.topics.topic_config("orders") is not None
        assert await pair.read(pair.second) == ["one"]


@pytest.mark.slow
async def test_former_master_that_cannot_store_the_outcome_follows(steps: Steps) -> None:
    """Its disk is full by then. Its file says that the outcome is open, until there is room again."""
    async with pair_of() as pair:
        await pair.send("one")

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            state = await steps.whole(taker, header, body)
            if header.step == "take":
                pair.first.fill_disk()
            return state

        steps.act = acted
        accepted(await pair.hand_over())
        assert role_of(pair.first) == SLAVE
        assert role_of(pair.second) == MASTER
        await pair.second.kill()
        await pair.second.start()
        await trio.sleep(10)
        assert role_of(pair.first) == SLAVE
        pair.first.free_disk()
        await trio.sleep(10)
        await pair.first.kill()
        await pair.second.kill()
        await pair.first.start()
        await trio.sleep(1)
        assert pair.master.state.standing.now is FOLLOWING  # It asks no other broker.
        await pair.second.start()
        await trio.sleep(10)
        await goes_on(pair, pair.second, pair.first)


async def test_follower_that_took_over_and_died_does_not_follow_the_one_that_handed_over(
    steps: Steps,
) -> None:
    """It is back before that one has heard that it took over: of two that follow each other neither takes writes."""
    async with pair_of() as pair:
        await pair.send("one")
        restarted = trio.Event()

        async def restart() -> None:
            await pair.second.kill()
            await pair.second.start()
            restarted.set()

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            if header.step == "ask" and not restarted.is_set():
                raise NotReachableError("not yet")
            state = await steps.whole(taker, header, body)
            if header.step == "take":
                pair.cluster.nursery.start_soon(restart)
                await trio.sleep_forever()
            return state

        steps.act = acted
        await pair.hand_over()
        await restarted.wait()
        await trio.sleep(10)
        await goes_on(pair, pair.second, pair.first)


@pytest.mark.parametrize("reconnect", [0.3, 8.0])
async def test_lost_order_leaves_the_old_master_writing_once_it_knows(
    monkeypatch: pytest.MonkeyPatch, reconnect: float
) -> None:
    async with pair_of() as pair:
        await pair.send("one")
        whole = TakeOver._take

        async def lost(self: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            pair.part(pair.first, pair.second.host)
            await trio.sleep(0.01)
            monkeypatch.setattr(TakeOver, "_take", whole)
            raise NotReachableError("lost on the way")

        monkeypatch.setattr(TakeOver, "_take", lost)

        async def heal() -> None:
            await trio.sleep(reconnect)
            pair.network.heal()

        pair.cluster.nursery.start_soon(heal)
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        if reconnect > 5:
            assert not pair.master.store.writable
            assert "did not answer whether it took over" in (answer.remark or "")
            client = (await pair.caller.status(pair.master.address)).ha_client_runtime_info
            assert "not known" in (client.rocketrio_last_problem or "")
        await trio.sleep(30)
        await goes_on(pair, pair.first, pair.second)


@pytest.mark.slow
@pytest.mark.parametrize("who", ["master", "follower"])
@pytest.mark.parametrize("step", ["prepare", "take", "taken"])
async def test_death_of_either_at_any_step_leaves_one_master(
    steps: Steps, step: str, who: str
) -> None:
    """Both come back, and one of them leads."""
    async with pair_of() as pair:
        await pair.send("one")
        victim = pair.first if who == "master" else pair.second
        dead = trio.Event()

        async def die() -> None:
            await victim.kill()
            dead.set()

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            if header.step == step and not dead.is_set():
                pair.cluster.nursery.start_soon(die)
                await dead.wait()
            state = await steps.whole(taker, header, body)
            if header.step == "take" and step == "taken" and not dead.is_set():
                pair.cluster.nursery.start_soon(die)
                await dead.wait()
            return state

        steps.act = acted
        with trio.move_on_after(20):
            try:
                await pair.hand_over()
            except Error:
                assert who == "master"
        with trio.fail_after(20):
            await dead.wait()
        await trio.sleep(3)
        await victim.start()
        await trio.sleep(30)
        slave, master = sorted(pair.members, key=role_of)
        assert await pair.listed() == {0: master.broker.address, 1: slave.broker.address}
        await goes_on(pair, master, slave)
        assert await pair.read(master) == ["one", "two"]


@pytest.mark.slow
async def test_master_that_dies_in_the_middle_asks_before_it_writes(steps: Steps) -> None:
    async with pair_of() as pair:
        await pair.send("one")
        lose_answer(steps, pair, reconnect=None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.hand_over)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await pair.first.kill()
        assert pair.first.disk.exists(pair.first.config.config_directory / FILE_NAME)
        await pair.first.start()
        await trio.sleep(20)
        assert not pair.master.store.writable
        assert role_of(pair.second) == MASTER
        # An operator may decide for it; the other master is out of sight, and the name server knows it.
        await pair.refused_promotion(pair.first)
        pair.network.heal()
        await trio.sleep(10)
        await goes_on(pair, pair.second, pair.first)


async def test_master_that_stops_in_the_middle_drops_what_it_held(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """The client that wanted to delete the topic gets no answer and asks the next master."""
    async with pair_of() as pair:
        await pair.send("one")
        lose_answer(steps, pair, reconnect=None)
        first = pair.first.broker
        unanswered: list[str] = []

        async def ask(header: HandOverRequestHeader | DeleteTopicInBrokerRequestHeader) -> None:
            try:
                await pair.caller.pool.call(first.address, header, timeout=30)
            except NotReachableError:
                unanswered.append(header.code.name)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, HandOverRequestHeader(None, dry_run=False))
            await trio.sleep(0.1)
            nursery.start_soon(ask, DeleteTopicInBrokerRequestHeader("orders"))
            await trio.sleep(0.1)
            assert len(first.state.held_writes) == 1
            await pair.first.stop()
        assert sorted(unanswered) == ["DELETE_TOPIC_IN_BROKER", "HAND_OVER"]
        assert first.state.topics.topic_config("orders") is not None
        assert "a processor failed" not in caplog.text


@pytest.mark.parametrize("is_asked_for", [False, True])
async def test_stop_hands_over_where_that_is_asked_for(is_asked_for: bool) -> None:
    async with pair_of(ha_hand_over_on_stop=is_asked_for) as pair:
        await pair.send("one")
        await pair.master.hand_over_before_stop()
        if not is_asked_for:
            assert role_of(pair.first) == MASTER
            return
        await pair.first.stop()
        assert role_of(pair.second) == MASTER
        assert await pair.listed() == {0: pair.slave.address}
        # A slave has nothing to hand over, and a master without a slave stops all the same.
        began = trio.current_time()
        await pair.slave.hand_over_before_stop()
        assert trio.current_time() - began < 5


@pytest.mark.slow
async def test_late_order_makes_no_second_master_when_the_name_server_dies(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is restarted as what its settings say, and leads, before its follower carries out the order."""
    async with pair_of() as pair:
        await pair.send("one")
        ordered, late = trio.Event(), trio.Event()

        async def pause(self: TakeOver, master_addr: str) -> None:
            ordered.set()
            await late.wait()

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            if header.step == "take":
                # It is carried out although the connection ends on which it came.
                pair.cluster.nursery.start_soon(steps.whole, taker, header, body)
                await trio.sleep_forever()
            return await steps.whole(taker, header, body)

        monkeypatch.setattr(TakeOver, "_copy_tables", pause)
        steps.act = acted
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.hand_over)
            await ordered.wait()
            nursery.cancel_scope.cancel()
        await pair.first.kill()
        forget_role(pair.first)
        pair.cluster.nursery.start_soon(pair.first.start)
        await trio.sleep(0.1)
        late.set()
        await trio.sleep(2)  # The name server refuses the second one now.
        assert pair.master.store.writable
        pair.part(pair.first, pair.second.host)
        await pair.cluster.kill_name_server()
        await trio.sleep(5)
        assert not pair.slave.store.writable
        pair.network.heal()
        await trio.sleep(30)
        assert not pair.slave.store.writable
        await pair.cluster.restart_name_server()
        await trio.sleep(30)
        await goes_on(pair, pair.first, pair.second)
