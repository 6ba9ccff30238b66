"""Master and slave change places by one request, whatever fails on the way."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from tests.cluster.histories.disk import ScheduledDisk
from tests.cluster.members import level, listed, lose, role_of, store
from tests.support.caller import caller_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair
from tests.support.waiting import eventually

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.processors.ha_status import HAStatusProcessor
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_broker.role.hand_over import CATCH_UP_LIMIT, HandOverService, State
from rocketrio_broker.role.service import NOBODY_LEADS_AFTER
from rocketrio_broker.role.standing import FOLLOWING, HANDING_OVER
from rocketrio_broker.role.take_over import TakeOver
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    DeleteTopicInBrokerRequestHeader,
    GetBrokerHAStatusRequestHeader,
    HandOverRequestHeader,
    HandOverResponseHeader,
    TakeOverRequestHeader,
)
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.frame import Body
from rocketrio_protocol.ha.status import HARuntimeInfo


@asynccontextmanager
async def pair_of(slaves: int = 1, **settings: Any) -> AsyncIterator[Pair]:
    settings = {"role": "sync-master", "slave_read_enable": True} | settings
    async with EmbeddedCluster(slaves=slaves, **settings) as cluster, caller_of(cluster) as caller:
        await trio.sleep(2)
        yield Pair(cluster, caller)


@attrs.define
class Load:
    """Senders that go to the first broker, and to the second when refused; what became of each message."""

    pair: Pair
    acknowledged: list[bytes] = attrs.Factory(list)
    longest_gap: float = 0.0
    codes: set[int] = attrs.Factory(set)

    async def run(self) -> None:
        at, number, last = self.pair.first, 0, trio.current_time()
        while True:
            body = b"%06d" % number
            try:
                answer = await self.pair.caller.send(at.broker.address, body, timeout=10)
            except Error:
                answer = None
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self.acknowledged.append(body)
                now = trio.current_time()
                self.longest_gap, last = max(self.longest_gap, now - last), now
                number += 1
                await trio.sleep(0.003)
            else:
                if answer is not None:
                    self.codes.add(answer.code)
                at = self.pair.second if at is self.pair.first else self.pair.first
                await trio.sleep(0.003)


@pytest.mark.parametrize("role", ["sync-master", "async-master"])
async def test_places_are_changed_under_load_and_back(role: str) -> None:
    async with pair_of(role=role) as pair:
        load = Load(pair)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(load.run)
            await trio.sleep(1)
            answer = await pair.hand_over()
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            done = answer.header(HandOverResponseHeader)
            assert (done.broker_id, done.broker_addr) == (1, pair.second.broker.address)
            assert done.millis < 1000
            assert role_of(pair.first) == ("slave", 1)
            assert role_of(pair.second) == (role, 0)
            assert await listed(pair.cluster) == {
                0: pair.second.broker.address,
                1: pair.first.broker.address,
            }
            await trio.sleep(2)
            answer = await pair.hand_over(at=pair.second)
            assert answer.code == ResponseCode.SUCCESS, answer.remark
            assert role_of(pair.first) == (role, 0)
            await trio.sleep(2)
            nursery.cancel_scope.cancel()
        await level(pair.first, pair.second)
        assert len(load.acknowledged) > 500
        assert load.longest_gap < 1
        # In a hand-over nothing is in doubt: sends are stored safely or refused before they are stored.
        assert load.codes <= {ResponseCode.SERVICE_NOT_AVAILABLE}
        for member in (pair.first, pair.second):
            read = await pair.caller.read(member.broker.address)
            assert read == sorted(read)
            assert set(read) >= set(load.acknowledged)


async def test_dry_run_names_the_successor_and_changes_nothing() -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
        answer = await pair.hand_over(dry_run=True)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        told = answer.header(HandOverResponseHeader)
        assert (told.broker_id, told.millis) == (1, 0)
        assert told.log_end_offset == told.slave_ack_offset > 0
        assert role_of(pair.first) == ("sync-master", 0)
        await store(pair.caller, pair.first, b"two")


async def test_roles_that_were_handed_over_are_held_through_restarts() -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
        assert (await pair.hand_over()).code == ResponseCode.SUCCESS
        for member in (pair.first, pair.second):
            await member.kill()
        for member in (pair.second, pair.first):
            await member.start()
        assert role_of(pair.first) == ("slave", 1)
        assert role_of(pair.second) == ("sync-master", 0)
        await trio.sleep(1)
        await store(pair.caller, pair.second, b"two")
        await level(pair.first, pair.second)


async def test_new_master_claims_to_lead_so_that_a_former_one_follows() -> None:
    async with pair_of(role="async-master") as pair:
        assert (await pair.hand_over()).code == ResponseCode.SUCCESS
        await trio.sleep(1)
        status = await pair.caller.pool.call(
            pair.second.broker.address, GetBrokerHAStatusRequestHeader()
        )
        told = HARuntimeInfo.from_json(status.body).rocketrio
        assert told is not None
        assert told.claims
        await pair.first.kill()
        await pair.caller.send(pair.second.broker.address, b"two")
        # A machine that was built again from its settings: it shall be master.
        pair.first.disk.unlink(pair.first.config.config_directory / FILE_NAME)
        await pair.first.start()
        await trio.sleep(5)
        assert role_of(pair.first) == ("slave", 1)
        await level(pair.first, pair.second)


async def test_offsets_that_were_committed_a_moment_before_are_known() -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, *(b"%d" % number for number in range(20)))
        await trio.sleep(10)
        await pair.caller.commit(pair.first.broker.address, 17)
        assert (await pair.hand_over()).code == ResponseCode.SUCCESS
        assert await pair.caller.committed(pair.second.broker.address) == 17


@pytest.mark.parametrize("delay", [0.2, 0.4])
async def test_offsets_committed_meanwhile_are_known_when_writes_are_taken_over_a_slow_link(
    delay: float,
) -> None:
    async with pair_of() as pair, trio.open_nursery() as nursery:
        await store(pair.caller, pair.first, *(b"%d" % number for number in range(20)))
        await trio.sleep(10)
        pair.cluster.memory_network.delay(pair.first.host, pair.second.host, delay)
        nursery.start_soon(pair.hand_over)
        await eventually(lambda: pair.master.state.standing.now is HANDING_OVER)
        await pair.caller.commit(pair.first.broker.address, 17)
        await eventually(lambda: pair.slave.state.store.writable)
        assert await pair.caller.committed(pair.second.broker.address) == 17


async def test_nearest_of_several_is_taken_unless_one_is_named() -> None:
    async with pair_of(slaves=2) as pair:
        third = pair.cluster.slaves[1]
        assert (await pair.hand_over(2)).code == ResponseCode.SUCCESS
        assert role_of(third) == ("sync-master", 0)
        assert role_of(pair.first) == ("slave", 2)
        assert role_of(pair.second) == ("slave", 1)
        await trio.sleep(3)
        await store(pair.caller, third, b"one")
        await level(pair.first, pair.second, third)
        pair.cluster.memory_network.partition(pair.second.host, third.host)
        answer = await pair.hand_over(at=third)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert role_of(pair.first) == ("sync-master", 0)


async def refusal(pair: Pair, to_id: int | None = None) -> str:
    for dry_run in (True, False):
        answer = await pair.hand_over(to_id, dry_run=dry_run)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
    assert role_of(pair.first) == ("sync-master", 0)
    return answer.remark or ""


async def test_slave_that_is_unknown_or_away_is_refused() -> None:
    async with pair_of() as pair:
        assert "has no slave 7" in await refusal(pair, 7)
        pair.cluster.memory_network.partition(pair.first.host, pair.second.host)
        assert "cannot be asked" in await refusal(pair)
        pair.cluster.memory_network.heal()
        await pair.second.stop()
        assert "no slave is registered" in await refusal(pair)


async def test_slave_that_does_not_follow_is_refused() -> None:
    async with pair_of() as pair:
        slave = pair.second.broker.slave
        assert slave is not None
        pair.second.broker.ha_service._listener.close()
        pair.first.broker.ha_service._listener.close()
        for connection in list(pair.first.broker.ha_service.connections):
            await connection._transport.aclose()
        await trio.sleep(1)
        assert "1 at 10.0.0.11:10911 is " in await refusal(pair)


async def test_slave_of_apache_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It knows neither our codes nor, before 5.0, the status."""
    monkeypatch.delattr(HAStatusProcessor, "ha_status")
    async with pair_of() as pair:
        assert "Apache broker" in await refusal(pair)


async def test_slave_of_an_earlier_version_names_its_state_by_text_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole = HAStatusProcessor.status

    def without_id(self: HAStatusProcessor) -> HARuntimeInfo:
        status = whole(self)
        status.ha_client_runtime_info.rocketrio_state_id = None
        return status

    monkeypatch.setattr(HAStatusProcessor, "status", without_id)
    async with pair_of() as pair:
        assert (await pair.hand_over(dry_run=True)).code == ResponseCode.SUCCESS


async def test_broker_that_does_not_lead_hands_nothing_over() -> None:
    async with pair_of() as pair:
        answer = await pair.hand_over(at=pair.second)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert "does not lead" in (answer.remark or "")


async def test_follower_that_does_not_get_the_end_leaves_the_master_writing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with pair_of(role="async-master") as pair:
        prepare = HandOverService._prepare

        async def cut_after(self: HandOverService, *arguments: Any) -> None:
            await prepare(self, *arguments)
            pair.cluster.memory_network.partition(pair.first.host, pair.second.host)
            pair.first.broker.store  # noqa: B018
            answer = await pair.caller.send(pair.first.broker.address, b"unheard")
            assert answer.code == ResponseCode.SUCCESS

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
        pair.cluster.memory_network.heal()
        await trio.sleep(30)
        await level(pair.first, pair.second)
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
            pair.cluster.memory_network.heal()

    async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
        state = await steps.whole(taker, header, body)
        if header.step == "take" and not done:
            done.append(state)
            pair.cluster.memory_network.partition(pair.first.host, pair.second.host)
            pair.cluster.nursery.start_soon(heal)
        return state

    steps.act = acted


async def test_former_master_leads_again_if_its_successor_forgot_that_before_it_led(
    steps: Steps,
) -> None:
    """No log shows that another broker was to lead: the successor cannot ask for the end, and its role file is lost."""
    async with pair_of() as pair:
        network = pair.cluster.memory_network
        await store(pair.caller, pair.first, b"one")

        async def restart() -> None:
            await pair.second.kill()
            await pair.second.start()

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            state = await steps.whole(taker, header, body)
            if header.step == "take":
                pair.cluster.nursery.start_soon(restart)
                await trio.sleep_forever()
            if header.step == "ask":
                network.partition(pair.first.host, pair.second.host, one_way=True)
            return state

        steps.act = acted
        await pair.hand_over()
        assert role_of(pair.second) == ("sync-master", 0)
        await pair.second.kill()
        lose(pair.cluster, pair.second, "role file")
        await pair.second.start()
        network.heal()
        assert [role_of(member)[0] for member in (pair.first, pair.second)] == ["slave", "slave"]
        await trio.sleep(NOBODY_LEADS_AFTER + 20)
        assert role_of(pair.first) == ("sync-master", 0)
        assert role_of(pair.second) == ("slave", 1)
        await store(pair.caller, pair.first, b"two")
        await level(pair.first, pair.second)


@pytest.mark.parametrize("reconnect", [0.3, 8.0])
async def test_lost_answer_to_the_order_is_asked_for(steps: Steps, reconnect: float) -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
        lose_answer(steps, pair, reconnect=reconnect)
        answer = await pair.hand_over()
        assert (answer.code == ResponseCode.SUCCESS) == (reconnect < 1), answer.remark
        writable = [member.broker.store.writable for member in (pair.first, pair.second)]
        assert sum(writable) <= 1
        assert not pair.first.broker.store.writable
        await trio.sleep(30)
        assert role_of(pair.first) == ("slave", 1)
        assert role_of(pair.second) == ("sync-master", 0)
        await store(pair.caller, pair.second, b"two")
        await level(pair.first, pair.second)


async def test_power_cut_right_after_a_hand_over_takes_no_topic() -> None:
    """The follower had copied them a moment before; with the name server it forgets whom it could ask."""
    async with pair_of(make_disk=FaultyDisk) as pair:
        await store(pair.caller, pair.first, b"one")
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        disk = pair.second.disk
        assert isinstance(disk, FaultyDisk)
        await pair.second.kill()
        pair.second.disk = disk.after_cut(seed=7, kept=0.0)
        await pair.first.kill()
        await pair.second.start()
        assert role_of(pair.second) == ("sync-master", 0)
        assert pair.second.broker.state.topics.topic_config("orders") is not None
        assert await pair.caller.read(pair.second.broker.address) == [b"one"]


async def test_former_master_that_cannot_store_the_outcome_follows(steps: Steps) -> None:
    """Its disk is full by then. Its file says that the outcome is open, until there is room again."""
    async with pair_of(make_disk=ScheduledDisk) as pair:
        await store(pair.caller, pair.first, b"one")
        disk = pair.first.disk
        assert isinstance(disk, ScheduledDisk)

        async def acted(taker: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            state = await steps.whole(taker, header, body)
            if header.step == "take":
                disk.fill(True)
            return state

        steps.act = acted
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        assert role_of(pair.first) == ("slave", 1)
        assert role_of(pair.second) == ("sync-master", 0)
        await pair.second.kill()
        await pair.second.start()
        await trio.sleep(10)
        assert role_of(pair.first) == ("slave", 1)
        disk.fill(False)
        await trio.sleep(10)
        await pair.first.kill()
        await pair.second.kill()
        await pair.first.start()
        await trio.sleep(1)
        assert pair.first.broker.state.standing.now is FOLLOWING  # It asks no other broker.
        await pair.second.start()
        await trio.sleep(10)
        assert role_of(pair.first) == ("slave", 1)
        await store(pair.caller, pair.second, b"two")
        await level(pair.first, pair.second)


async def test_follower_that_took_over_and_died_does_not_follow_the_one_that_handed_over(
    steps: Steps,
) -> None:
    """It is back before that one has heard that it took over: of two that follow each other neither takes writes."""
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
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
        assert role_of(pair.first) == ("slave", 1)
        assert role_of(pair.second) == ("sync-master", 0)
        await store(pair.caller, pair.second, b"two")
        await level(pair.first, pair.second)


@pytest.mark.parametrize("reconnect", [0.3, 8.0])
async def test_lost_order_leaves_the_old_master_writing_once_it_knows(
    monkeypatch: pytest.MonkeyPatch, reconnect: float
) -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
        whole = TakeOver._take

        async def lost(self: TakeOver, header: TakeOverRequestHeader, body: Body) -> State:
            pair.cluster.memory_network.partition(pair.first.host, pair.second.host)
            await trio.sleep(0.01)
            monkeypatch.setattr(TakeOver, "_take", whole)
            raise NotReachableError("lost on the way")

        monkeypatch.setattr(TakeOver, "_take", lost)

        async def heal() -> None:
            await trio.sleep(reconnect)
            pair.cluster.memory_network.heal()

        pair.cluster.nursery.start_soon(heal)
        answer = await pair.hand_over()
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        if reconnect > 5:
            assert not pair.first.broker.store.writable
            assert "did not answer whether it took over" in (answer.remark or "")
            status = await pair.caller.pool.call(
                pair.first.broker.address, GetBrokerHAStatusRequestHeader()
            )
            problem = HARuntimeInfo.from_json(status.body).ha_client_runtime_info
            assert "not known" in (problem.rocketrio_last_problem or "")
        await trio.sleep(30)
        assert role_of(pair.first) == ("sync-master", 0)
        assert role_of(pair.second) == ("slave", 1)
        await store(pair.caller, pair.first, b"two")
        await level(pair.first, pair.second)


@pytest.mark.parametrize("who", ["master", "follower"])
@pytest.mark.parametrize("step", ["prepare", "take", "taken"])
async def test_death_of_either_at_any_step_leaves_one_master(
    steps: Steps, step: str, who: str
) -> None:
    """Both come back, and one of them leads."""
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
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
        members = (pair.first, pair.second)
        roles = sorted(role_of(member) for member in members)
        assert roles == [("slave", 1), ("sync-master", 0)]
        (master,) = [member for member in members if not member.broker.config.is_slave]
        assert await listed(pair.cluster) == {
            0: master.broker.address,
            1: next(one for one in members if one is not master).broker.address,
        }
        await store(pair.caller, master, b"two")
        await level(*members)
        assert await pair.caller.read(master.broker.address) == [b"one", b"two"]


async def test_master_that_dies_in_the_middle_asks_before_it_writes(steps: Steps) -> None:
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
        lose_answer(steps, pair, reconnect=None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(pair.hand_over)
            await trio.sleep(0.5)
            nursery.cancel_scope.cancel()
        await pair.first.kill()
        assert pair.first.disk.exists(pair.first.config.config_directory / FILE_NAME)
        await pair.first.start()
        await trio.sleep(20)
        assert not pair.first.broker.store.writable
        assert role_of(pair.second) == ("sync-master", 0)
        # An operator may decide for it; the other master is out of sight, and the name server knows it.
        answer = await pair.caller.change_role(pair.first.broker.address, "sync-master", 0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        pair.cluster.memory_network.heal()
        await trio.sleep(10)
        assert role_of(pair.first) == ("slave", 1)
        await store(pair.caller, pair.second, b"two")
        await level(pair.first, pair.second)


async def test_master_that_stops_in_the_middle_drops_what_it_held(
    steps: Steps, caplog: pytest.LogCaptureFixture
) -> None:
    """The client that wanted to delete the topic gets no answer and asks the next master."""
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
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


async def test_stop_hands_over_where_that_is_asked_for() -> None:
    async with pair_of(ha_hand_over_on_stop=True) as pair:
        await store(pair.caller, pair.first, b"one")
        await pair.first.broker.hand_over_before_stop()
        await pair.first.stop()
        assert role_of(pair.second) == ("sync-master", 0)
        assert await listed(pair.cluster) == {0: pair.second.broker.address}
        # A slave has nothing to hand over, and a master without a slave stops all the same.
        began = trio.current_time()
        await pair.second.broker.hand_over_before_stop()
        assert trio.current_time() - began < 5


async def test_stop_without_the_setting_hands_nothing_over() -> None:
    async with pair_of() as pair:
        await pair.first.broker.hand_over_before_stop()
        assert role_of(pair.first) == ("sync-master", 0)


async def test_late_order_makes_no_second_master_when_the_name_server_dies(
    steps: Steps, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The master is restarted as what its settings say, and leads, before its follower carries out the order."""
    async with pair_of() as pair:
        await store(pair.caller, pair.first, b"one")
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
        pair.first.disk.unlink(pair.first.config.config_directory / FILE_NAME)
        pair.cluster.nursery.start_soon(pair.first.start)
        await trio.sleep(0.1)
        late.set()
        await trio.sleep(2)  # The name server refuses the second one now.
        assert pair.first.broker.store.writable
        pair.cluster.memory_network.partition(pair.first.host, pair.second.host)
        await pair.cluster.kill_name_server()
        await trio.sleep(5)
        assert not pair.second.broker.store.writable
        pair.cluster.memory_network.heal()
        await trio.sleep(30)
        assert not pair.second.broker.store.writable
        await pair.cluster.restart_name_server()
        await trio.sleep(30)
        assert role_of(pair.first) == ("sync-master", 0)
        assert pair.second.broker.config.is_slave
        await store(pair.caller, pair.first, b"two")
        await level(pair.first, pair.second)
