"""Resets by a plan, on a cluster in memory."""

import pytest
import trio
from tests.support.orders import TOPIC, receive, send

from rocketrio import ClientInstance, MessageQueue, open_admin, open_consumer
from rocketrio.admin.admin import Admin
from rocketrio.admin.reset_plan import PlanChangedError, Target, Way
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError, GroupNotExistError, NoBrokerRegisteredError

QUEUE = MessageQueue(TOPIC, "broker-a", 0)
FIRST = Target(from_first=0)


async def committed(admin: Admin) -> int | None:
    return (await admin.offsets(TOPIC, "g"))[0].committed_offset


async def test_plan_changes_nothing_and_its_application_is_read_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    async with open_admin(client=client) as admin:
        await admin.create_group("g")
        await admin.reset_offsets("g", {QUEUE: 6})
        plan = await admin.plan_reset("g", [TOPIC], Target(offset=2))
        assert (plan.way, plan.members) == (Way.OFFLINE, 0)
        [one] = plan.queues
        assert (one.from_offset, one.to_offset, one.messages_again, one.after) == (6, 2, 4, None)
        assert await committed(admin) == 6

        done = await admin.apply_reset(plan)
        assert [one.after for one in done.queues] == [2]
        assert done.queues[0].has_arrived
        assert await admin.topics_of_group("g") == [TOPIC]


async def test_running_members_are_directed_to_a_time(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    async with (
        open_admin(client=client) as admin,
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
    ):
        await receive(consumer, 8)
        await consumer.commit()
        plan = await admin.plan_reset("g", [TOPIC], FIRST)
        assert (plan.way, plan.members) == (Way.ONLINE, 1)
        done = await admin.apply_reset(plan)
        assert [one.has_arrived for one in done.queues] == [True]
        assert sorted(await receive(consumer, 8)) == list(range(8))


async def test_exact_offset_of_a_group_with_members_needs_offline(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    async with (
        open_admin(client=client) as admin,
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
    ):
        await receive(consumer, 8)
        await consumer.commit()
        with pytest.raises(ConfigError, match="has 1 member, and"):
            await admin.plan_reset("g", [TOPIC], Target(offset=2))
        with pytest.raises(ConfigError, match="all queues"):
            await admin.plan_reset("g", [TOPIC], FIRST, queues=[QUEUE])
        plan = await admin.plan_reset("g", [TOPIC], Target(offset=2), offline=True)
        done = await admin.apply_reset(plan)
        # Rocketrio's members commit nothing more for a queue that was set back.
        assert [one.after for one in done.queues] == [2]


async def test_queues_that_no_member_moves_are_committed_afterwards(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 8, queues=1)
    async with (
        open_admin(client=client) as admin,
        open_consumer(TOPIC, group="g", start_from="earliest", client=client) as consumer,
    ):
        await receive(consumer, 8)
        await consumer.commit()

        async def ignore(self: Admin, plan: object) -> None:
            """As Apache's brokers whose members own no queue there."""

        monkeypatch.setattr(Admin, "_direct_members", ignore)
        done = await admin.apply_reset(await admin.plan_reset("g", [TOPIC], FIRST))
        assert [(one.way, one.after) for one in done.queues] == [(Way.BOTH, 0)]


async def test_queues_that_members_read_again_at_once_have_arrived(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is at its target for a moment only, and not all are at the same time."""
    await send(client, 8, queues=2)
    queues = [MessageQueue(TOPIC, "broker-a", number) for number in range(2)]
    async with (
        open_admin(client=client) as admin,
        open_consumer(
            TOPIC, group="g", start_from="earliest", auto_commit=False, client=client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):
        await receive(consumer, 8)
        await consumer.commit()

        async def move() -> None:
            """As Java's members do, which commit what they have read again every five seconds."""
            addr = (await admin.masters())["broker-a"]
            for queue in queues:
                await trio.sleep(4)
                await client.api.update_consumer_offset(addr, "g", queue, 0)
                await trio.sleep(0.2)
                await client.api.update_consumer_offset(addr, "g", queue, 4)

        async def direct(self: Admin, plan: object) -> None:
            nursery.start_soon(move)

        monkeypatch.setattr(Admin, "_direct_members", direct)
        done = await admin.apply_reset(await admin.plan_reset("g", [TOPIC], FIRST))
        assert [(one.way, one.after) for one in done.queues] == [(Way.ONLINE, 0)] * 2


async def test_plan_that_does_not_hold_any_more_changes_nothing(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    async with open_admin(client=client) as admin:
        await admin.create_group("g")
        await admin.reset_offsets("g", {QUEUE: 6})
        plan = await admin.plan_reset("g", [TOPIC], FIRST)
        await admin.reset_offsets("g", {QUEUE: 7})
        with pytest.raises(PlanChangedError, match="was at 6, and is at 7 now"):
            await admin.apply_reset(plan)
        assert await committed(admin) == 7
        plan = await admin.plan_reset("g", [TOPIC], FIRST)
        async with open_consumer(TOPIC, group="g", client=client):
            await trio.sleep(1)
            with pytest.raises(PlanChangedError, match="had 0 members, and has 1 now"):
                await admin.apply_reset(plan)


async def test_what_cannot_be_reset_is_an_error(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 8, queues=1)
    async with open_admin(client=client) as admin:
        with pytest.raises(GroupNotExistError):
            await admin.plan_reset("missing", [TOPIC], FIRST)
        async with open_consumer(TOPIC, group="g", mode="broadcasting", client=client):
            await trio.sleep(1)
            with pytest.raises(ConfigError, match="broadcasting"):
                await admin.plan_reset("g", [TOPIC], FIRST)
        await admin.create_group("h")
        for member in cluster.members:
            await member.kill()
        with pytest.raises(NoBrokerRegisteredError):
            await admin.plan_reset("h", [TOPIC], FIRST)
