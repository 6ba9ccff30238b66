"""Whatever an admin of a namespace is asked, it answers with short names, and shows none of another namespace."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import make_topic

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin import Admin
from rocketrio.admin.declared import DeclaredPlace
from rocketrio.admin.reset_plan import Target
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.topics import Permission

QUEUE = MessageQueue("orders", "broker-a", 0)
Look = Callable[[Admin], Awaitable[Any]]


@pytest.fixture
async def tenant(cluster: EmbeddedCluster) -> AsyncIterator[ClientInstance]:
    """A client of namespace `ns`, on a cluster where others have names too."""
    async with client_of(cluster) as outside, client_of(cluster, namespace="ns") as tenant:
        async with open_admin(client=outside) as admin:
            for name in ("orders", "strangers", "other%orders"):
                await admin.create_topic(name, queues=1)
            for name in ("billing", "strange", "other%billing"):
                await admin.create_group(name)
        await _fill(tenant)
        yield tenant


async def _fill(tenant: ClientInstance) -> None:
    """A topic, a message, a member with progress, a dead letter, a producer."""
    await make_topic(tenant, "orders", queues=1)
    async with open_producer(client=tenant) as producer:
        await producer.send(Message("orders", b"bad", keys="k"), queue=QUEUE)

    async def refuse(message: MessageExt) -> None:
        raise ConsumeLater(GIVE_UP)

    async with open_consumer(
        "orders", group="billing", start_from="earliest", client=tenant
    ) as consumer:
        with trio.move_on_after(3):
            await consumer.run(refuse)


async def _message_by_place(admin: Admin) -> MessageExt:
    [found] = await admin.query_message("orders", "k")
    return await admin.view_message(found.offset_message_id)


async def _trace(admin: Admin) -> Any:
    [found] = await admin.query_message("orders", "k")
    trace = await admin.message_trace(found.message_id, topic="orders")
    assert [step.what for step in trace.steps] == ["dead"]
    return trace


async def _statuses(admin: Admin) -> Any:
    tracks = await admin.message_status(await _message_by_place(admin))
    assert [one.group for one in tracks] == ["billing"]
    return tracks


async def _delivered(admin: Admin) -> Any:
    async def handle(message: MessageExt) -> None:
        assert message.topic == "orders"

    message = await _message_by_place(admin)
    async with (
        open_consumer("orders", group="billing", client=admin.client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await trio.sleep(1)
        result = await admin.deliver(message, "billing", admin.client.client_id)
        nursery.cancel_scope.cancel()
    return result


async def _members(admin: Admin) -> Any:
    async with open_consumer("orders", group="billing", client=admin.client):
        return await admin.consumer_connections("billing")


async def _producers(admin: Admin) -> Any:
    async with open_producer(group="shop", client=admin.client) as producer:
        await producer.send(Message("orders", b"", tags="x"), queue=QUEUE)
        await trio.sleep(1)
        return await admin.producer_connections("shop")


async def _dead_letters(admin: Admin) -> Any:
    letters = admin.dead_letters("billing")
    return letters.topic, [message.topic for message in await letters.messages()]


async def _log_checks(admin: Admin) -> Any:
    return [look async for look in admin.check_log(_master(admin))]


async def _messages(admin: Admin) -> Any:
    messages = admin.messages("orders")
    async with messages.follow(since=datetime(2000, 1, 1, tzinfo=UTC)) as pages:
        followed = await pages.receive()
    return await messages.first(9), await messages.last(9), followed


async def _checked_group(admin: Admin) -> Any:
    async with open_consumer("orders", group="billing", client=admin.client):
        return await admin.check_group("billing")


async def _stacks(admin: Admin) -> Any:
    async with open_consumer("orders", group="billing", client=admin.client):
        return await admin.member_stacks("billing", admin.client.client_id)


async def _applied_reset(admin: Admin) -> Any:
    return await admin.apply_reset(
        await admin.plan_reset("billing", ["orders"], Target(from_first=0))
    )


async def _planned_state(admin: Admin) -> Any:
    wanted = {DeclaredPlace("topics", "orders", ""): {"readQueueNums": 2}}
    return await admin.plan_state(wanted, prune=True)


async def _applied_state(admin: Admin) -> Any:
    return await admin.apply_state(await _planned_state(admin))


async def _bundle(admin: Admin) -> Any:
    """Without the tables of brokers, which have the names that brokers know."""
    files = await admin.bundle_files(await admin.snapshot())
    return {name: found for name, found in files.items() if name.startswith("name_servers/")}


async def _window(admin: Admin) -> Any:
    window = admin.lag_window(seconds=0)
    await window.sample()
    return await window.report()


async def _clients(admin: Admin) -> Any:
    async with (
        open_producer(group="shop", client=admin.client) as producer,
        open_consumer("orders", group="billing", client=admin.client),
    ):
        await producer.send(Message("orders", b"", tags="x"), queue=QUEUE)
        await trio.sleep(1)
        found = await admin.connected_clients()
        assert [(one.produces, one.consumes) for one in found.clients if one.consumes] == [
            (("shop",), ("billing",))
        ]
        return found, await admin.producers_of("orders")


async def _reports(admin: Admin) -> Any:
    async with open_consumer("orders", group="billing", client=admin.client):
        return await admin.group_members("billing")


def _master(admin: Admin) -> str:
    return admin.client.routing.broker_addr_table["broker-a"][0]


LOOKS: dict[str, Look] = {
    "topics": lambda admin: admin.topics(include_system=True),
    "topic": lambda admin: admin.topic("orders"),
    "create_topic": lambda admin: admin.create_topic("orders", queues=1),
    "set_topic_permission": lambda admin: admin.set_topic_permission("orders", Permission.READ),
    "topic_counts": lambda admin: admin.topic_counts(["orders"]),
    "topic_counts_and_failures": lambda admin: admin.topic_counts_and_failures(["orders"]),
    "topic_overviews": lambda admin: admin.topic_overviews(include_system=True),
    "readers_of": lambda admin: admin.readers_of("orders"),
    "topic_readers": lambda admin: admin.topic_readers("orders"),
    "served": lambda admin: admin.served("orders", "billing"),
    "view_message": _message_by_place,
    "query_message": lambda admin: admin.query_message("orders", "k"),
    "message_trace": _trace,
    "message_status": _statuses,
    "deliver": _delivered,
    "read_state": lambda admin: admin.read_state(["topics", "groups"]),
    "plan_state": _planned_state,
    "apply_state": _applied_state,
    "bundle_files": _bundle,
    "compare_clocks": lambda admin: admin.compare_clocks("orders"),
    "masters": lambda admin: admin.masters(),
    "groups": lambda admin: admin.groups(include_system=True),
    "groups_and_failures": lambda admin: admin.groups_and_failures(include_system=True),
    "group": lambda admin: admin.group("billing"),
    "group_and_failures": lambda admin: admin.group_and_failures("billing"),
    "create_group": lambda admin: admin.create_group("billing", retry_max_times=3),
    "offsets": lambda admin: admin.offsets("orders", "billing"),
    "reset_offsets": lambda admin: admin.reset_offsets("billing", {QUEUE: 1}),
    "reset_to_time": lambda admin: admin.reset_to_time(
        "orders", "billing", datetime(2000, 1, 1, tzinfo=UTC), dry_run=True
    ),
    "lag": lambda admin: admin.lag("billing", seconds=5),
    "lag_window": _window,
    "committed_offsets": lambda admin: admin.committed_offsets("billing"),
    "delete_offsets": lambda admin: admin.delete_offsets("billing"),
    "topics_of_group": lambda admin: admin.topics_of_group("billing"),
    "plan_reset": lambda admin: admin.plan_reset("billing", ["orders"], Target(from_first=0)),
    "apply_reset": _applied_reset,
    "check_group": _checked_group,
    "member_stacks": _stacks,
    "consume_stats": lambda admin: admin.consume_stats("billing"),
    "groups_of": lambda admin: admin.groups_of("orders"),
    "groups_of_and_failures": lambda admin: admin.groups_of_and_failures("orders"),
    "consumer_connections": _members,
    "producer_connections": _producers,
    "connected_clients": _clients,
    "producers_of": _clients,
    "group_members": _reports,
    "group_overviews": lambda admin: admin.group_overviews(include_system=True),
    "dead_letters": _dead_letters,
    "messages": _messages,
    "cluster_info": lambda admin: admin.cluster_info(),
    "brokers": lambda admin: admin.brokers(),
    "health": lambda admin: admin.health(),
    "snapshot": lambda admin: admin.snapshot(),
    "diagnose": lambda admin: admin.diagnose(seconds=0),
    "whole_snapshot": lambda admin: admin.whole_snapshot("billing", seconds=0),
    "transactions": lambda admin: admin.transactions(),
    "status": lambda admin: admin.status(),
    "change_settings": lambda admin: admin.change_settings(
        _master(admin), {"slaveReadEnable": "true"}
    ),
    "change_role": lambda admin: admin.change_role(_master(admin), "async-master", 0),
    "check_log": _log_checks,
    "broker_addresses": lambda admin: admin.broker_addresses("broker-a"),
    "hand_over": lambda admin: admin.hand_over("broker-a", dry_run=True),
    "drain": lambda admin: admin.drain("broker-a"),
    "undrain": lambda admin: admin.undrain("broker-a"),
    "wait_quiet": lambda admin: admin.wait_quiet("broker-a"),
    "wait_drained": lambda admin: admin.wait_drained("broker-a"),
    "held": lambda admin: admin.held("broker-a"),
    "delete_group": lambda admin: admin.delete_group("billing"),
    "delete_topic": lambda admin: admin.delete_topic("orders"),
}
"""Every method there is, once."""


ALONE = [
    "set_topic_permission", "deliver", "apply_state", "reset_offsets", "delete_offsets", "apply_reset",
    "change_settings", "change_role", "hand_over", "drain", "wait_drained", "delete_group", "delete_topic",
]  # fmt: skip
"""Each has a cluster for itself: others would find less after it, or leave it unread messages to wait for."""


async def _resent(admin: Admin) -> Any:
    found: list[Any] = []
    await admin.dead_letters("billing").resend_all(report=found.append)
    return [(one.message.topic, one.outcome) for one in found]


FUNCTIONS: dict[str, Look] = {
    "resend": _resent,
    "counted": lambda admin: admin.dead_letters("billing").counted(),
}
"""Functions beside the methods."""


NAMELESS = {
    "client", "calls", "access",
    "name_server_states", "name_server_settings", "change_name_server_settings",
    "name_server_texts", "put_name_server_text", "delete_name_server_text",
    "set_consume_mode", "round_trips", "clean_broker", "certificate_ends",
    "events",
}  # fmt: skip
"""What names no topic and no group, or what rocketrio's brokers refuse; events have the names that brokers know."""


def test_every_method_of_admin_is_covered() -> None:
    methods = {name for name in dir(Admin) if not name.startswith("_")}
    assert methods - NAMELESS == LOOKS.keys()


def has_long_name(found: Any) -> bool:
    return "ns%" in repr(found) or "other%" in repr(found)


@pytest.mark.slow
async def test_answers_hold_no_long_name(tenant: ClientInstance) -> None:
    async with open_admin(client=tenant) as admin:
        found = {name: await look(admin) for name, look in LOOKS.items() if name not in ALONE}
    assert [name for name, one in found.items() if has_long_name(one)] == []


@pytest.mark.usefixtures("slave")
@pytest.mark.parametrize("method", [*ALONE, *FUNCTIONS])
async def test_answer_holds_no_long_name(tenant: ClientInstance, method: str) -> None:
    async with open_admin(client=tenant) as admin:
        assert not has_long_name(await (LOOKS | FUNCTIONS)[method](admin))


async def test_lists_contain_only_names_of_the_own_namespace(tenant: ClientInstance) -> None:
    async with open_admin(client=tenant) as admin:
        assert await admin.topics() == ["orders"]
        every = await admin.topics(include_system=True)
        assert {"orders", "%RETRY%billing", "%DLQ%billing", "TBW102"} <= set(every)
        assert await admin.groups() == ["billing"]
        assert "TOOLS_CONSUMER" in await admin.groups(include_system=True)
        assert (await admin.group("billing"))["broker-a"].group_name == "billing"
        stats = await admin.consume_stats("billing")
        assert stats.offset_table[QUEUE].consumer_offset == 1
        assert await admin.groups_of("orders") == ["billing"]
        assert {"orders", "%RETRY%billing"} == (await _members(admin)).subscription_table.keys()
        assert await _dead_letters(admin) == ("%DLQ%billing", ["orders"])


async def test_without_a_namespace_every_name_is_shown_as_it_is(
    tenant: ClientInstance, client: ClientInstance
) -> None:
    async with open_admin(client=client) as admin:
        assert await admin.topics() == ["ns%orders", "orders", "other%orders", "strangers"]
        assert {"ns%billing", "billing", "other%billing", "strange"} <= set(await admin.groups())
        assert await admin.groups_of("ns%orders") == ["ns%billing"]
