"""What files want of a cluster in memory: plans, changes, and what is read back."""

from collections.abc import AsyncIterator

import pytest
from tests.client.admin.declared_states import through_files
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import open_admin
from rocketrio.admin import Admin
from rocketrio.admin.declared import EXISTS, DeclaredPlace, from_toml
from rocketrio.admin.reset_plan import PlanChangedError
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError, NoBrokerRegisteredError

ORDERS = DeclaredPlace("topics", "orders", "broker-a")
FILE = """
    [[topics]]
    name = "orders"
    readQueueNums = 8
    perm = "r"
    attributes = { "message.type" = "FIFO" }

    [[groups]]
    name = "billing"
    retryMaxTimes = 3

    [[groups]]
    name = "plain"

    [[settings]]
    brokers = ["broker-a/0"]
    fileReservedTime = 48

    [[kv]]
    namespace = "OWN"
    key = "k"
    value = "v = 1"
"""


@pytest.fixture
async def admin(autojump_clock: MockClock) -> AsyncIterator[Admin]:
    async with (
        EmbeddedCluster(slaves=1) as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as opened,
    ):
        await opened.create_topic("orders", queues=2)
        yield opened


async def test_what_was_exported_changes_nothing(admin: Admin) -> None:
    state = await admin.read_state()
    assert {place.kind for place in state} == {"topics", "settings"}
    assert ORDERS in state
    plan = await admin.plan_state(through_files(state), prune=True)
    assert plan.changes == []


async def test_plan_is_carried_out_and_then_nothing_is_left(admin: Admin) -> None:
    wanted = from_toml(FILE, "f")
    plan = await admin.plan_state(wanted)
    assert [(one.place.name, one.field, one.before, one.after) for one in plan.changes] == [
        ("billing", "retryMaxTimes", None, 3),
        ("plain", EXISTS, None, "exists"),
        ("OWN/k", "value", None, "v = 1"),
        ("broker", "fileReservedTime", "72", "48"),
        ("orders", "attributes.message.type", None, "FIFO"),
        ("orders", "perm", "rw", "r"),
        ("orders", "readQueueNums", 2, 8),
    ]
    assert await admin.apply_state(plan) == {}
    state = await admin.read_state(namespaces=["OWN"])
    assert state[ORDERS] == {
        "readQueueNums": 8, "writeQueueNums": 2, "perm": "r", "order": False,
        "attributes.message.type": "FIFO",
    }  # fmt: skip
    assert state[DeclaredPlace("groups", "billing", "broker-a")]["retryMaxTimes"] == 3
    assert state[DeclaredPlace("groups", "plain", "broker-a")]["retryMaxTimes"] == 16
    assert state[DeclaredPlace("settings", "broker", "broker-a/1")]["fileReservedTime"] == "72"
    assert (await admin.plan_state(wanted)).changes == []
    with pytest.raises(PlanChangedError):
        await admin.apply_state(plan)


async def test_plan_that_does_not_hold_any_more_changes_nothing(admin: Admin) -> None:
    plan = await admin.plan_state(from_toml(FILE, "f"))
    await admin.create_topic("orders", queues=3)
    with pytest.raises(PlanChangedError, match="orders on broker-a: readQueueNums is 3 now, not 2"):
        await admin.apply_state(plan)
    assert "billing" not in await admin.groups()


async def test_pruned_things_are_gone_and_system_topics_stay(admin: Admin) -> None:
    await admin.create_topic("old")
    await admin.create_group("old-group")
    before = set(await admin.topics(include_system=True))
    wanted = from_toml('[[topics]]\nname = "orders"\n[[groups]]\nname = "billing"', "f")
    plan = await admin.plan_state(wanted, prune=True)
    removed = [one.place.name for one in plan.changes if one.after is None]
    assert removed == ["old-group", "old"]
    assert await admin.apply_state(plan) == {}
    assert set(await admin.topics(include_system=True)) == before - {"old"}
    assert await admin.groups() == ["billing"]


async def test_setting_that_a_broker_refuses_is_not_done_and_the_others_are(admin: Admin) -> None:
    text = "[[settings]]\nbrokers = ['broker-a/0']\nfileReservedTime = 48\nhaSlaveFallbehindMax = 1"
    plan = await admin.plan_state(from_toml(text, "f"))
    failed = await admin.apply_state(plan)
    [(change, why)] = failed.items()
    assert change.field == "haSlaveFallbehindMax"
    assert "haSlaveFallbehindMax" in why


async def test_unknown_broker_is_named_and_system_topics_are_refused(admin: Admin) -> None:
    text = '[[topics]]\nname = "orders"\nbrokers = ["broker-x"]\norder = true'
    plan = await admin.plan_state(from_toml(text, "f"))
    assert (plan.changes, plan.unknown_brokers) == ([], ["broker-x"])
    for name in ("TBW102", "broker-a", "%RETRY%billing"):
        with pytest.raises(ConfigError, match="belongs to RocketMQ itself"):
            await admin.plan_state({DeclaredPlace("topics", name, ""): {"perm": "r"}})


async def test_state_of_a_namespace_has_short_names_and_nothing_of_others(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedCluster() as cluster,
        client_of(cluster) as whole,
        client_of(cluster, namespace="ns") as tenant,
        open_admin(client=whole) as operator,
        open_admin(client=tenant) as admin,
    ):
        await operator.create_topic("orders")
        wanted = from_toml('[[topics]]\nname = "bills"\nperm = "r"\n[[groups]]\nname = "g"', "f")
        assert await admin.apply_state(await admin.plan_state(wanted)) == {}
        state = await admin.read_state(["topics", "groups"])
        assert [place.name for place in state] == ["g", "bills"]
        assert await operator.topics() == ["ns%bills", "orders"]
        assert await operator.groups() == ["ns%g"]
        text = '[[topics]]\nname = "other"'
        plan = await admin.plan_state(from_toml(text, "f"), prune=True)
        assert [(one.place.name, one.after) for one in plan.changes] == [
            ("other", "exists"),
            ("bills", None),
        ]
        assert await admin.apply_state(plan) == {}
        assert await operator.topics() == ["ns%other", "orders"]


async def test_cluster_without_brokers_is_an_error_and_no_empty_state(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, client_of(cluster) as client:
        await cluster.master.stop()
        async with open_admin(client=client) as admin:
            with pytest.raises(NoBrokerRegisteredError):
                await admin.read_state()
