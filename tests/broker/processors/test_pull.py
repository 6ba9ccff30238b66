"""Pulls against a broker in memory: checks in order, codes, filters, suggestions, commits."""

from collections import Counter
from collections.abc import Collection
from functools import partial
from typing import Any

import attrs
import msgspec
import pytest
import trio
from tests.support.caller import COMMIT, SUBSCRIPTION, SUSPEND, Caller, bodies, caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import SMALL_STORE, EmbeddedCluster
from rocketrio_broker.processors.pull import code_of_status, suggest_which_broker_id
from rocketrio_broker.store.read import GetStatus
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.client import HeartBeatRequestHeader
from rocketrio_protocol.record.java_hash import tags_code


@pytest.mark.parametrize(
    ("status", "offset", "code"),
    [
        (GetStatus.FOUND, 0, 0),
        (GetStatus.MESSAGE_WAS_REMOVING, 0, 20),
        (GetStatus.NO_MATCHED_MESSAGE, 0, 20),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 19),
        (GetStatus.NO_MATCHED_LOGIC_QUEUE, 5, 21),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 0, 19),
        (GetStatus.NO_MESSAGE_IN_QUEUE, 5, 21),
        (GetStatus.OFFSET_FOUND_NULL, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_ONE, 3, 19),
        (GetStatus.OFFSET_OVERFLOW_BADLY, 9, 21),
        (GetStatus.OFFSET_TOO_SMALL, 0, 21),
    ],
)
def test_status_becomes_a_code(status: GetStatus, offset: int, code: int) -> None:
    assert code_of_status(status, offset) == code


async def fill(caller: Caller, addr: str, tags: str = "aabb") -> None:
    for number, tag in enumerate(tags):
        await caller.send(addr, b"%d" % number, properties=f"TAGS\x01{tag}")


async def test_every_pull_answer_has_bounds_and_next_offset(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        for offset, code, next_offset, remark in (
            (0, 0, 4, "FOUND"),
            (2, 0, 4, "FOUND"),
            (4, 19, 4, "OFFSET_OVERFLOW_ONE"),
            (9, 21, 4, "OFFSET_OVERFLOW_BADLY"),
            (-1, 21, 0, "OFFSET_TOO_SMALL"),
        ):
            answer = await caller.pull(addr, offset)
            assert (answer.code, answer.remark) == (code, remark)
            assert answer.ext_fields == {
                "suggestWhichBrokerId": "0",
                "nextBeginOffset": str(next_offset),
                "minOffset": "0",
                "maxOffset": "4",
            }


async def test_number_of_messages_is_limited(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        assert bodies(await caller.pull(addr, 1, max_messages=2)) == [b"1", b"2"]
        assert bodies(await caller.pull(addr, 1, max_messages=0)) == [b"1"]
        assert bodies(await caller.pull(addr, 0, max_msg_bytes=1)) == [b"0"]


@pytest.mark.parametrize(
    ("in_memory", "count", "count_by_bytes"), [(1 << 20, 32, 50), (0, 8, 50), (400, 8, 50)]
)
async def test_rocketrio_readers_are_limited_by_bytes_alone(
    in_memory: int, count: int, count_by_bytes: int, autojump_clock: MockClock
) -> None:
    store = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=in_memory)
    async with EmbeddedCluster(store=store) as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr, "a" * 60)
        found = bodies(await caller.pull(addr, 0, max_messages=50))
        assert len(found) == count
        found = bodies(await caller.pull(addr, 0, max_messages=50, limited_by_bytes=True))
        assert len(found) == count_by_bytes


async def test_pull_with_tags_finds_only_their_messages(autojump_clock: MockClock) -> None:
    cases: list[tuple[str | None, list[bytes], int]] = [
        ("*", [b"0", b"1", b"2", b"3"], 0),
        (None, [b"0", b"1", b"2", b"3"], 0),
        ("b", [b"2", b"3"], 0),
        ("b || a", [b"0", b"1", b"2", b"3"], 0),
        ("c", [], 20),
        ("||", [], 23),
    ]
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        for expression, found, code in cases:
            answer = await caller.pull(addr, 0, expression=expression)
            assert (answer.code, bodies(answer)) == (code, found), expression


@pytest.mark.parametrize(
    ("fields", "settings", "code"),
    [
        ({}, {"broker_permission": 2}, ResponseCode.NO_PERMISSION),
        ({}, {"auto_create_subscription_group": False}, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST),
        ({"topic": "nowhere"}, {}, ResponseCode.TOPIC_NOT_EXIST),
        ({"queue_id": 4}, {}, ResponseCode.SYSTEM_ERROR),
        ({"queue_id": -1}, {}, ResponseCode.SYSTEM_ERROR),
        ({"expression_type": "XPATH"}, {}, ResponseCode.SYSTEM_ERROR),
        ({"sys_flag": 0}, {}, ResponseCode.SUBSCRIPTION_NOT_EXIST),
    ],
)
async def test_pull_that_is_refused_has_the_reasons_code(
    autojump_clock: MockClock,
    fields: dict[str, Any],
    settings: dict[str, Any],
    code: ResponseCode,
) -> None:
    async with EmbeddedCluster(**settings) as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        answer = await caller.pull(addr, 0, **fields)
        assert answer.code == code
        assert answer.remark


async def heartbeat(caller: Caller, addr: str, **fields: Any) -> None:
    subscription = SubscriptionData(
        "orders", "b", ["b"], [tags_code("b")], sub_version=100, expression_type="TAG"
    )
    data = ConsumerData("billing", subscription_data_set=[subscription])
    for name, value in fields.items():
        setattr(data, name, value)
    body = fastjson.dumps(HeartbeatData("client-1", [data], []))
    assert (await caller.pool.call(addr, HeartBeatRequestHeader(), body)).code == 0


async def test_pull_without_expression_uses_that_of_the_heartbeat(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        await heartbeat(caller, addr)
        assert bodies(await caller.pull(addr, 0, sys_flag=0, sub_version=100)) == [b"2", b"3"]
        # The broker knows an older subscription than the client pulls with.
        newer = await caller.pull(addr, 0, sys_flag=0, sub_version=101)
        assert len(bodies(newer)) > 2, "its tags are not known yet: it chooses itself"
        answer = await caller.pull(addr, 0, sys_flag=0, sub_version=101, expression_type="SQL92")
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_LATEST
        await caller.send(addr, b"x", topic="unsubscribed")
        answer = await caller.pull(addr, 0, topic="unsubscribed", sys_flag=0)
        assert answer.code == ResponseCode.SUBSCRIPTION_NOT_EXIST


async def test_group_settings_are_checked(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr = cluster.master.broker.address
        await fill(caller, addr)
        groups = cluster.master.broker.state.groups
        group = groups.find("billing")
        assert group is not None
        groups.update(msgspec.structs.replace(group, consume_enable=False))
        assert (await caller.pull(addr, 0)).code == ResponseCode.NO_PERMISSION
        groups.update(msgspec.structs.replace(group, consume_broadcast_enable=False))
        await heartbeat(caller, addr, message_model="BROADCASTING")
        assert (await caller.pull(addr, 0, sys_flag=0)).code == ResponseCode.NO_PERMISSION


async def test_commit_flag_stores_the_offset_on_a_master_only(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        await fill(caller, master.address)
        await caller.pull(master.address, 2, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2)
        assert master.state.consumer_offsets.query_offset("billing", "orders", 0) == 2
        await caller.pull(slave.address, 2, sys_flag=SUBSCRIPTION | COMMIT, commit_offset=3)
        assert slave.state.consumer_offsets.query_offset("billing", "orders", 0) != 3


async def committed_by_pull(caller: Caller, cluster: EmbeddedCluster, **fields: Any) -> int:
    master = cluster.master.broker
    await caller.pull(master.address, 0, **fields)
    return master.state.consumer_offsets.query_offset("billing", "orders", 0)


async def test_offset_is_stored_only_if_the_flag_is_set_and_it_is_valid(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        await fill(caller, cluster.master.broker.address)
        asked = partial(committed_by_pull, caller, cluster)
        # What 5.3.3 sends that knows no offset: the flag, and -1.
        assert await asked(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=-1) == -1
        assert await asked(sys_flag=SUBSCRIPTION, commit_offset=3) == -1
        assert await asked(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=0) == 0
        assert await asked(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=2) == 2
        assert await asked(sys_flag=SUBSCRIPTION | COMMIT, commit_offset=-1) == 2


async def test_held_pull_commits_once(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        master = cluster.master.broker
        await fill(caller, master.address)
        flags = SUBSCRIPTION | COMMIT | SUSPEND
        nursery.start_soon(
            lambda: caller.pull(master.address, 4, sys_flag=flags, suspend=10, commit_offset=3)
        )
        await trio.sleep(1)
        offsets = master.state.consumer_offsets
        assert offsets.query_offset("billing", "orders", 0) == 3
        await caller.commit(master.address, 1)  # Another member, meanwhile.
        await trio.sleep(10)
        assert offsets.query_offset("billing", "orders", 0) == 1


async def test_second_listener_answers_all_but_pulls(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        addr, fast = cluster.master.broker.address, "10.0.0.10:10909"
        assert addr == "10.0.0.10:10911"
        assert (await caller.send(fast, b"x")).code == ResponseCode.SUCCESS
        assert (await caller.pull(fast, 0)).code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert bodies(await caller.pull(addr, 0)) == [b"x"]


async def test_reader_behind_memory_is_sent_to_the_slave_and_later_back(
    autojump_clock: MockClock,
) -> None:
    store = attrs.evolve(SMALL_STORE, access_message_in_memory_max_bytes=10_000)
    async with (
        EmbeddedCluster(slaves=1, store=store, slave_read_enable=True) as cluster,
        caller_of(cluster) as caller,
    ):
        addr = cluster.master.broker.address
        for _ in range(20):
            await caller.send(addr, bytes(1000))
        assert (await caller.pull(addr, 0)).ext_fields["suggestWhichBrokerId"] == "1"
        assert (await caller.pull(addr, 18)).ext_fields["suggestWhichBrokerId"] == "0"


LAGGING = [
    # (offset asked for, what the slave's queue is made to look like, remark, code)
    (5, None, "OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_RETRY_IMMEDIATELY),
    (100, None, "OFFSET_OVERFLOW_BADLY", ResponseCode.PULL_RETRY_IMMEDIATELY),
    (4, None, "OFFSET_OVERFLOW_ONE", ResponseCode.PULL_NOT_FOUND),
    (1, "begins at 2", "OFFSET_TOO_SMALL", ResponseCode.PULL_RETRY_IMMEDIATELY),
    (2, "unreadable", "OFFSET_FOUND_NULL", ResponseCode.PULL_NOT_FOUND),
    (7, "absent", "NO_MATCHED_LOGIC_QUEUE", ResponseCode.PULL_RETRY_IMMEDIATELY),
    (0, "absent", "NO_MATCHED_LOGIC_QUEUE", ResponseCode.PULL_NOT_FOUND),
    (7, "empty", "NO_MESSAGE_IN_QUEUE", ResponseCode.PULL_RETRY_IMMEDIATELY),
    (0, "empty", "NO_MESSAGE_IN_QUEUE", ResponseCode.PULL_NOT_FOUND),
]


async def test_lagging_slave_does_not_move_its_readers(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await fill(caller, cluster.master.broker.address)
        slave = cluster.slaves[0].broker
        await slave.store.dispatched.wait_reached(cluster.master.broker.store.max_physical_offset)
        await slave.state.topics.changes.wait_past(0)
        table = slave.store.queue_table.by_key
        for offset, queue, remark, code in LAGGING:
            with pytest.MonkeyPatch.context() as patch:
                if queue == "absent":
                    patch.delitem(table, ("orders", 0))
                elif queue == "begins at 2":
                    patch.setattr(type(table["orders", 0]), "min_offset", 2)
                elif queue == "empty":
                    patch.setattr(type(table["orders", 0]), "max_offset", 0)
                elif queue == "unreadable":
                    patch.setattr(type(table["orders", 0]), "entries", lambda *_: b"")
                answer = await caller.pull(slave.address, offset)
            assert (answer.remark, answer.code) == (remark, code), (offset, queue)
            assert answer.ext_fields["nextBeginOffset"] == str(offset)
            assert answer.ext_fields["suggestWhichBrokerId"] == "0"


async def test_slave_that_checks_offsets_answers_as_a_master(autojump_clock: MockClock) -> None:
    store = attrs.evolve(SMALL_STORE, offset_check_in_slave=True)
    async with EmbeddedCluster(slaves=1, store=store) as cluster, caller_of(cluster) as caller:
        await fill(caller, cluster.master.broker.address)
        slave = cluster.slaves[0].broker
        await slave.store.dispatched.wait_reached(cluster.master.broker.store.max_physical_offset)
        await slave.state.topics.changes.wait_past(0)
        answer = await caller.pull(slave.address, 9)
        assert answer.code == ResponseCode.PULL_OFFSET_MOVED
        assert answer.ext_fields["nextBeginOffset"] == "4"


@pytest.mark.parametrize(("home", "expected"), [(2, "2"), (1, "0")])
async def test_lagging_slave_redirects_to_the_broker_of_the_group_or_to_the_master(
    home: int, expected: str, autojump_clock: MockClock
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await fill(caller, cluster.master.broker.address)
        slave = cluster.slaves[0].broker
        await slave.store.dispatched.wait_reached(cluster.master.broker.store.max_physical_offset)
        await slave.state.topics.changes.wait_past(0)
        slave.state.groups.update(SubscriptionGroupConfig("billing", broker_id=home))
        answer = await caller.pull(slave.address, 9)
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.ext_fields["suggestWhichBrokerId"] == expected


async def test_slave_serves_a_topic_that_the_log_brought_before_the_tables(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        slave = cluster.slaves[0].broker
        # The slave's first copy of the tables is done, the next is seconds away.
        await trio.sleep(1)
        await fill(caller, cluster.master.broker.address)
        await slave.store.dispatched.wait_reached(cluster.master.broker.store.max_physical_offset)
        assert "orders" not in slave.state.topics.topic_config_table
        await cluster.kill_master()
        answer = await caller.pull(slave.address, 1)
        assert bodies(answer) == [b"1", b"2", b"3"]
        unknown = await caller.pull(slave.address, 0, topic="elsewhere")
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST


# ------------------------------------------------------------------------------------- suggestions

GROUP = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=1)
MOVED = SubscriptionGroupConfig("g", broker_id=2, which_broker_when_consume_slowly=3)
AT_HOME = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=0)


def suggested(
    group: SubscriptionGroupConfig,
    *,
    slave_read_enable: bool = True,
    is_behind_memory: bool = True,
    own_id: int = 0,
    live: Collection[int] = (1, 2, 3),
) -> int:
    return suggest_which_broker_id(
        group,
        slave_read_enable=slave_read_enable,
        is_behind_memory=is_behind_memory,
        own_id=own_id,
        live_slaves=lambda named: live,
    )


@pytest.mark.parametrize(
    ("group", "slave_read_enable", "is_behind_memory", "expected"),
    [
        (GROUP, False, False, 0),
        (GROUP, False, True, 0),
        (GROUP, True, True, 1),
        (GROUP, True, False, 0),
        # Where slaves may not be read the group's own ids do not count either.
        (MOVED, False, False, 0),
        (MOVED, False, True, 0),
        (MOVED, True, True, 3),
        (MOVED, True, False, 2),
        # A group that its operator keeps at the master.
        (AT_HOME, True, True, 0),
    ],
)
def test_suggested_broker_depends_on_group_memory_and_live_slaves(
    group: SubscriptionGroupConfig,
    slave_read_enable: bool,
    is_behind_memory: bool,
    expected: int,
) -> None:
    live = (1,) if group is GROUP else (1, 2, 3)
    found = suggested(
        group, slave_read_enable=slave_read_enable, is_behind_memory=is_behind_memory, live=live
    )
    assert found == expected


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ((3,), 3),
        ((1, 2, 3), 3),  # The named one, though others live too.
        ((2,), 2),  # Any other live one for the named one.
        ((), 0),  # None: the master.
    ],
)
def test_named_slave_then_any_live_slave_then_the_master(
    live: tuple[int, ...], expected: int
) -> None:
    assert suggested(MOVED, live=live) == expected


def test_preferred_broker_may_be_the_first_slave() -> None:
    at_first = SubscriptionGroupConfig("g", broker_id=1)
    assert {
        suggested(at_first, is_behind_memory=False, own_id=own_id, live=(1, 2, 3))
        for own_id in (0, 1, 2)
    } == {1}


@pytest.mark.parametrize(
    ("group", "own_id", "is_behind_memory", "expected"),
    [
        (GROUP, 1, True, 1),
        (GROUP, 1, False, 0),  # Caught up: home.
        (GROUP, 2, True, 2),  # Any slave will do, and it is one.
        (GROUP, 2, False, 0),
        (MOVED, 3, True, 3),
        (MOVED, 1, True, 3),  # An operator has named another one.
        (MOVED, 1, False, 2),
    ],
)
def test_slave_keeps_its_readers_or_sends_them_where_the_group_says(
    group: SubscriptionGroupConfig, own_id: int, is_behind_memory: bool, expected: int
) -> None:
    assert suggested(group, own_id=own_id, is_behind_memory=is_behind_memory, live=()) == expected


def test_slave_that_may_not_be_read_sends_every_reader_to_the_master() -> None:
    assert suggested(GROUP, own_id=1, slave_read_enable=False) == 0


def groups_by_slave(live: Collection[int]) -> dict[str, int]:
    return {
        name: suggested(SubscriptionGroupConfig(name), live=live)
        for name in (f"group-{number}" for number in range(600))
    }


def test_groups_that_name_no_slave_spread_over_all_of_them() -> None:
    counts = Counter(groups_by_slave((1, 2, 3)).values())
    assert sorted(counts) == [1, 2, 3]
    assert all(150 < count < 250 for count in counts.values())


def test_slave_that_leaves_moves_only_its_own_groups() -> None:
    before, after = groups_by_slave((1, 2, 3)), groups_by_slave((2, 3))
    assert all(after[name] == id_ for name, id_ in before.items() if id_ != 1)
