from contextlib import AsyncExitStack

import pytest
import trio
from tests.broker.heartbeats import Notified, beat, members, static_beat
from tests.broker.processors.asking import asking
from trio.testing import MockClock

from rocketrio_broker.clients import housekeeping as client_housekeeping
from rocketrio_protocol.bodies.heartbeat import (
    ConsumerData,
    HeartbeatData,
)
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands import client


async def test_heartbeat_of_a_new_member_is_answered_after_all_members_are_notified(
    autojump_clock: MockClock,
) -> None:
    first, second = Notified(), Notified()
    async with asking() as one, one.other_client(first.processors) as a:
        await beat(a, "c1", "T")
        assert first.groups == ["G"]
        async with one.other_client(second.processors) as b:
            await beat(b, "c2", "T")
            assert second.groups == ["G"]
            assert await members(one) == ["c1", "c2"]
            await beat(b, "c2", "T")
            assert (first.groups, second.groups) == (["G"] * 2, ["G"])
        await trio.testing.wait_all_tasks_blocked()
        assert first.groups == ["G"] * 3
        assert await members(one) == ["c1"]


async def test_members_beyond_one_round_of_notices_are_notified_soon_after(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_housekeeping, "NOTICES_TOGETHER", 1)
    told = [Notified() for _ in range(4)]
    async with asking() as one, AsyncExitStack() as stack:
        for number, each in enumerate(told):
            await beat(
                await stack.enter_async_context(one.other_client(each.processors)),
                f"c{number}",
                "T",
            )
            await trio.testing.wait_all_tasks_blocked()
        assert [len(each.groups) for each in told] == [4, 3, 2, 1]


async def test_member_that_leaves_is_removed_and_the_others_are_notified(
    autojump_clock: MockClock,
) -> None:
    first = Notified()
    async with (
        asking() as one,
        one.other_client(first.processors) as a,
        one.other_client({}) as b,
    ):
        await beat(a, "c1", "T")
        await beat(b, "c2", "T")
        leave = client.UnregisterClientRequestHeader("c2", "P", "G")
        assert (await b.ask(leave)).code == ResponseCode.SUCCESS
        assert await members(one) == ["c1"]
        assert first.groups == ["G"] * 3
        assert len(one.broker.state.producers.clients("P")) == 1


async def test_group_with_notification_off_is_not_notified(autojump_clock: MockClock) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        one.broker.state.groups.update(
            SubscriptionGroupConfig("G", notify_consumer_ids_changed_enable=False)
        )
        await beat(a, "c1", "T")
        await trio.testing.wait_all_tasks_blocked()
        assert told.groups == []


async def test_client_silent_for_120_s_is_dropped_at_the_next_scan(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one, one.other_client({}) as silent:
        await beat(silent, "c1", "T")
        # Other requests keep the connection open, not the membership.
        for _ in range(12):
            await trio.sleep(10)
            await members(silent)
        assert await members(one) == ["c1"]
        await trio.sleep(10)
        assert await members(one) == []


async def test_static_member_restarts_without_a_notification(
    autojump_clock: MockClock,
) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        await beat(a, "c1", "T")
        for _ in range(2):
            async with one.other_client({}) as restarted:
                assert await static_beat(restarted, "c2", 60) == 60
            await trio.sleep(50)
        assert told.groups == ["G"] * 2  # c1 itself and c2's first heartbeat
        assert await members(one) == ["c1", "c2"]
        await beat(a, "c1", "T")
        await trio.sleep(25)
        assert told.groups == ["G"] * 3
        assert await members(one) == ["c1"]


async def test_group_that_broadcasts_is_not_notified(autojump_clock: MockClock) -> None:
    told = Notified()
    async with asking() as one, one.other_client(told.processors) as a:
        data = HeartbeatData("c1", [ConsumerData("G", message_model="BROADCASTING")])
        for each in (a, one):
            await each.beat(data)
        await trio.testing.wait_all_tasks_blocked()
        assert told.groups == []
        assert await members(one) == ["c1"]
