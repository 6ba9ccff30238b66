"""Tables of topics, groups, clients and name servers, and the changes to what they show."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clients import client_of, open_admin

from rocketrio import ClientInstance, Message, open_consumer, open_producer
from rocketrio.admin.admin import Admin
from rocketrio.admin.clients import merged
from rocketrio.admin.cluster_questions import whole_sum
from rocketrio.admin.groups import (
    member_of,
    overviews_of,
)
from rocketrio.admin.lag_values import GroupLag
from rocketrio.admin.name_servers import (
    ORDER_NAMESPACE,
    differing,
    order_text,
)
from rocketrio.admin.offsets import CommittedOffset
from rocketrio.admin.topics import (
    overview_of,
    permission_text,
)
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.inspection import ProducerInfo
from rocketrio_protocol.bodies.running_info import (
    PROP_CONSUMER_START_TIMESTAMP,
    ConsumerRunningInfo,
)
from rocketrio_protocol.bodies.stats import Connection, TopicOffset, TopicStatsTable
from rocketrio_protocol.bodies.topics import READ_WRITE, Permission, TopicConfig
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    Error,
    GroupNotExistError,
    NotReachableError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
)
from rocketrio_protocol.lag import Judgement, Verdict
from rocketrio_protocol.message import MessageQueue

IDS = st.sampled_from(["a", "b", "c"])
GROUPS = st.sampled_from(["g", "h"])
PRODUCERS = st.builds(
    lambda group, client: (group, ProducerInfo(client, f"/h:{client}", "JAVA", 407, 0)), GROUPS, IDS
)
MEMBERS = st.builds(
    lambda group, client: (group, Connection(client, f"h:{client}", "JAVA", 407)), GROUPS, IDS
)


@pytest.fixture
async def admin(client: ClientInstance) -> AsyncIterator[Admin]:
    async with open_admin(client=client) as opened:
        await opened.create_topic("orders", queues=2)
        yield opened


# ------------------------------------------------------------------------------------------- clients


@given(st.lists(PRODUCERS, max_size=6), st.lists(MEMBERS, max_size=6))
def test_each_client_is_there_once_with_all_its_groups(
    producers: list[tuple[str, ProducerInfo]], members: list[tuple[str, Connection]]
) -> None:
    found = merged(producers, members)
    assert [one.client_id for one in found] == sorted(
        {one.client_id for _, one in producers} | {one.client_id for _, one in members}
    )
    assert {(group, one.client_id) for one in found for group in one.produces} == {
        (group, one.client_id) for group, one in producers
    }
    assert {(group, one.client_id) for one in found for group in one.consumes} == {
        (group, one.client_id) for group, one in members
    }
    assert all(one.address == f"h:{one.client_id}" for one in found)


async def test_clients_are_producers_and_members(cluster: EmbeddedCluster, admin: Admin) -> None:
    async with (
        client_of(cluster, host="10.0.0.77") as other,
        open_producer(client=other, group="shop") as producer,
        open_consumer("orders", group="billing", client=admin.client),
    ):
        await producer.send(Message("orders", b"x"))
        await trio.sleep(1)
        found = await admin.connected_clients()
        by_id = {one.client_id: one for one in found.clients}
        assert by_id[other.client_id].produces == ("shop",)
        assert by_id[other.client_id].address.startswith("10.0.0.77:")
        assert by_id[admin.client.client_id].consumes == ("billing",)
        assert found.silent == {}
        assert [one.client_id for one in (await admin.producers_of("orders")).clients] == [
            other.client_id
        ]
        assert (await admin.producers_of("orders", group="nobody")).clients == []
        with pytest.raises(RouteNotFoundError):
            await admin.producers_of("unknown")


# -------------------------------------------------------------------------------------- name servers


@given(
    st.dictionaries(
        st.sampled_from(["n1", "n2", "n3"]),
        st.dictionaries(st.sampled_from(["a/0", "a/1"]), st.sampled_from(["h:1", "h:2"])),
        min_size=1,
    )
)
def test_name_servers_differ_exactly_if_their_tables_do(known: dict[str, dict[str, str]]) -> None:
    found = differing(known)
    same = [address for address in known if not found[address]]
    assert same
    assert all((known[address] == known[same[0]]) == (not found[address]) for address in known)


@pytest.mark.usefixtures("slave")
async def test_name_server_that_is_silent_is_unknown_and_not_empty(
    cluster: EmbeddedCluster,
) -> None:
    servers = [*cluster.name_servers, "10.0.0.99:9876"]
    async with (
        client_of(cluster) as client,
        open_admin(client=client) as admin,
    ):
        client.name_servers.addresses = tuple(servers)
        live, dead = await admin.name_server_states()
        assert (live.brokers, live.differs, live.problem) == (2, [], None)
        assert live.seconds is not None
        assert (dead.seconds, dead.brokers) == (None, None)
        assert dead.problem is not None
        assert isinstance((await admin.name_server_texts("any"))["10.0.0.99:9876"], Error)
        assert (await admin.put_name_server_text("any", "k", "v")).keys() == {"10.0.0.99:9876"}


async def test_texts_and_settings_of_name_servers_are_changed_and_read_back(admin: Admin) -> None:
    [address] = admin.client.name_servers.addresses
    assert await admin.name_server_texts(ORDER_NAMESPACE) == {address: {}}
    text = order_text({"broker-a": 4, "broker-b": 2})
    assert await admin.put_name_server_text(ORDER_NAMESPACE, "orders", text) == {}
    assert await admin.name_server_texts(ORDER_NAMESPACE) == {
        address: {"orders": "broker-a:4;broker-b:2"}
    }
    assert await admin.delete_name_server_text(ORDER_NAMESPACE, "orders") == {}
    assert await admin.name_server_texts(ORDER_NAMESPACE) == {address: {}}
    for wrong in ({"a:b": 1}, {"": 1}, {"broker-a": 0}):
        with pytest.raises(ConfigError):
            order_text(wrong)

    assert await admin.name_server_settings() == {address: {"orderMessageEnable": "false"}}
    changed = await admin.change_name_server_settings({"orderMessageEnable": "true"})
    assert changed == {address: {"orderMessageEnable": "true"}}
    refused = await admin.change_name_server_settings({"clusterTest": "true"})
    assert isinstance(refused[address], BrokerError)


# -------------------------------------------------------------------------------------------- topics


async def test_permission_is_changed_where_the_topic_is(admin: Admin) -> None:
    [would] = await admin.set_topic_permission("orders", Permission.READ, dry_run=True)
    assert (would.broker_name, would.before, would.after) == ("broker-a", 6, 4)
    assert (await admin.topic("orders")).route.queue_datas[0].perm == READ_WRITE
    for permission in (Permission.READ, Permission(0), READ_WRITE):
        await admin.set_topic_permission("orders", permission)
        # A route without any right is none for clients, so the broker is asked.
        [addr] = (await admin.masters()).values()
        assert (await admin.calls.topics(addr))["orders"].perm == permission
    assert (await admin.topic("orders")).queues[0].max_offset == 0
    for options in ({"broker_name": "broker-b"}, {}):
        topic = "orders" if options else "unknown"
        with pytest.raises(RouteNotFoundError):
            await admin.set_topic_permission(topic, Permission.READ, **options)
    assert [permission_text(number) for number in (6, 4, 2, 0)] == ["rw", "r", "w", "none"]


@given(st.lists(st.none() | st.integers(0, 9)))
def test_sum_with_an_unknown_part_is_unknown(parts: list[int | None]) -> None:
    known = [part for part in parts if part is not None]
    assert whole_sum(parts) == (sum(known) if len(known) == len(parts) else None)


def test_overview_of_a_topic_is_unknown_where_a_broker_is_silent() -> None:
    configs = {
        "a": TopicConfig("t", 4, 4, 6, attributes={"message.type": "FIFO"}),
        "b": TopicConfig("t", 2, 2, 4),
    }
    table = TopicStatsTable(
        {
            MessageQueue("t", "a", 0): TopicOffset(5, 9, 1_000_000),
            MessageQueue("t", "a", 1): TopicOffset(-1, 0, 0),
        }
    )
    found = overview_of("t", configs, [table, table], 120, ["g"])
    assert (found.queues, found.permission, found.message_type) == (6, 6, "fifo, normal")
    assert (found.messages, found.per_second) == (8, 2.0)
    wrong = TopicStatsTable({MessageQueue("t", "a", 0): TopicOffset(9, 5, 1_000_000)})
    assert overview_of("t", configs, [table, wrong], None, None).messages is None
    found = overview_of("t", configs, [table, None], None, None)
    assert (found.messages, found.last_stored, found.per_second) == (None, None, None)


@pytest.mark.parametrize("number", [1_700_000_000_000_000, 2**63 - 1, -(2**63), 0, -1])
def test_number_that_is_no_time_is_unknown_in_topics_and_members(number: int) -> None:
    table = TopicStatsTable({MessageQueue("t", "a", 0): TopicOffset(0, 9, number)})
    found = overview_of("t", {"a": TopicConfig("t", 1, 1, 6)}, [table], 120, ["g"])
    assert (found.messages, found.last_stored) == (9, None)
    info = ConsumerRunningInfo({PROP_CONSUMER_START_TIMESTAMP: str(number)})
    assert member_of(Connection("c", "h:1", "JAVA", 407), info).since is None


@pytest.mark.slow
async def test_topics_and_groups_are_listed_with_what_is_known(admin: Admin) -> None:
    async with open_producer(client=admin.client) as producer:
        for _ in range(3):
            await producer.send(Message("orders", b"x"))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=admin.client
        ) as consumer:
            await consumer.receive()
            await consumer.commit()
            await trio.sleep(15)
            [topic], silent = await admin.topic_overviews()
            assert (topic.topic, topic.queues, topic.messages) == ("orders", 2, 3)
            assert (topic.groups, topic.message_type, silent) == (["billing"], "normal", {})
            assert topic.last_stored is not None
            stored, read = await admin.topic_counts(["orders"])
            assert (stored.group, stored.messages, stored.messages_today) == (None, 3, 3)
            assert (read.group, read.messages) == ("billing", 3)
            [reader] = await admin.topic_readers("orders")
            assert (reader.group, reader.members, reader.model) == ("billing", 1, "CLUSTERING")
            assert reader.lag == 2
            [member], without = await admin.group_members("billing")
            assert without == {}
            assert member.client_id == admin.client.client_id
            assert member.since is not None
            assert member.queues is not None
            assert {one.queue_id for one in member.queues if one.topic == "orders"} == {0, 1}
            assert member.subscriptions is not None
            assert "orders" in {one.topic for one in member.subscriptions}
            [group], silent = await admin.group_overviews()
            assert (group.group, group.topics, group.lag) == ("billing", ["orders"], 2)
            assert (group.members, group.model) == (1, "CLUSTERING")
        await trio.sleep(90)  # What brokers counted while it had a member is forgotten.
        [group], _ = await admin.group_overviews()
        assert (group.members, group.model, group.verdict) == (0, None, Verdict.STOPPED)


def test_member_that_did_not_report_its_state_is_unknown_and_not_idle() -> None:
    member = member_of(Connection("c", "h:1", "JAVA", 407), None)
    assert (member.client_id, member.address) == ("c", "h:1")
    assert (member.queues, member.subscriptions, member.since) == (None, None, None)


def row(group: str, topic: str | None, verdict: Verdict, lag: int | None) -> GroupLag:
    return GroupLag(
        group, topic, Judgement(verdict, str(verdict), lag, None, None, None), 1, None, [], "window"
    )


def test_group_is_as_bad_as_its_worst_topic_and_knows_its_lag_only_if_all_do() -> None:
    found = overviews_of(
        ["g", "h", "new"],
        [
            row("g", "a", Verdict.OK, 0),
            row("g", "%RETRY%g", Verdict.STALLED, 3),
            row("h", "a", Verdict.UNKNOWN, None),
            row("h", "b", Verdict.OK, 4),
        ],
    )
    by_group = {one.group: one for one in found}
    assert (by_group["g"].verdict, by_group["g"].lag, by_group["g"].topics) == (
        Verdict.STALLED,
        3,
        ["a"],
    )
    assert by_group["h"].lag is None
    assert (by_group["new"].verdict, by_group["new"].lag) == (Verdict.UNKNOWN, None)


async def test_mode_of_a_rocketrio_broker_is_pull_and_stays(admin: Admin) -> None:
    await admin.create_group("billing")
    with pytest.raises(RequestCodeNotSupportedError, match="does not know pop"):
        await admin.set_consume_mode("billing", "orders", "pop")


# ------------------------------------------------------------------------------------------- offsets


async def test_offsets_are_exported_and_deleted_without_the_group(admin: Admin) -> None:
    await admin.create_group("billing", retry_max_times=3)
    queues = [MessageQueue("orders", "broker-a", number) for number in range(2)]
    await admin.reset_offsets("billing", {queues[0]: 0, queues[1]: 0})
    await admin.create_group("other")
    await admin.reset_offsets("other", {queues[0]: 0})
    found = await admin.committed_offsets("billing")
    assert found == [CommittedOffset("orders", "broker-a", number, 0) for number in range(2)]
    async with open_consumer("orders", group="billing", client=admin.client):
        with pytest.raises(ConfigError, match="has 1 member, which"):
            await admin.delete_offsets("billing")
    assert await admin.delete_offsets("billing", dry_run=True) == await admin.committed_offsets(
        "billing"
    )
    await admin.delete_offsets("billing")
    assert await admin.committed_offsets("billing") == []
    assert (await admin.group("billing"))["broker-a"].retry_max_times == 3
    assert len(await admin.committed_offsets("other")) == 1
    with pytest.raises(GroupNotExistError):
        await admin.committed_offsets("nobody")


# --------------------------------------------------------------------------- what brokers of 5.3 list


class ListsTheTopic(Admin):
    """The admin of a broker of 5.3, which lists the topic in place of groups with members."""

    async def groups_of(self, topic: str) -> list[str]:
        return sorted([topic, *await super().groups_of(topic)])


async def test_topic_in_the_list_of_its_groups_is_left_out_unless_it_is_one(admin: Admin) -> None:
    of_5_3 = ListsTheTopic(admin.client, admin.calls)
    await admin.create_group("billing")
    await admin.reset_offsets("billing", {MessageQueue("orders", "broker-a", 0): 0})
    assert await of_5_3.readers_of("orders") == ["billing"]
    await admin.create_group("orders")
    assert await of_5_3.readers_of("orders") == ["billing", "orders"]


# ----------------------------------------------------------------------------------- a silent master


class WithSilentMasters(Admin):
    """The admin of a cluster in which further masters are registered, and do not answer."""

    def __init__(self, admin: Admin, further: dict[str, str]) -> None:
        super().__init__(admin.client, admin.calls)
        self.further = further

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        return {**self.further, **await super().masters(cluster)}


async def test_silent_master_makes_sums_unknown_and_is_named(admin: Admin) -> None:
    partly = WithSilentMasters(admin, {"broker-b": "10.0.0.99:10911"})
    async with open_producer(client=admin.client) as producer:
        await producer.send(Message("orders", b"x"))
        [topic], silent = await partly.topic_overviews()
        assert list(silent) == ["broker-b"]
        assert (topic.messages, topic.per_second, topic.groups, topic.last_stored) == (
            None,
            None,
            None,
            None,
        )
        found = await partly.connected_clients()
        assert list(found.silent) == ["broker-b"]
        assert admin.client.client_id in {one.client_id for one in found.clients}
    await admin.create_group("billing")
    with pytest.raises(NotReachableError):
        await partly.committed_offsets("billing")
    with pytest.raises(NotReachableError):
        await partly.delete_offsets("billing")
    assert "billing" in await admin.groups()
    assert list((await partly.group_members("billing"))[1]) == ["10.0.0.99:10911"]


SILENT_HOSTS = ("10.0.0.98", "10.0.0.99")
SILENT = {f"broker-{host}": f"{host}:10911" for host in SILENT_HOSTS}
PER_BROKER = 2.0


READS: dict[str, Callable[[Admin], Awaitable[Any]]] = {
    "groups": lambda admin: admin.groups_and_failures(),
    "topic list": lambda admin: admin.topic_overviews(),
    "group members": lambda admin: admin.group_members("billing"),
    "members": lambda admin: admin.consumer_connections("nobody"),
    "a group": lambda admin: admin.group("billing"),
    "producers": lambda admin: admin.producer_connections("shop"),
    "stacks": lambda admin: admin.member_stacks("billing", "nobody"),
    "progress": lambda admin: admin.consume_stats("billing"),
    "topics of a group": lambda admin: admin.topics_of_group("billing"),
    "transactions": lambda admin: admin.transactions(),
    "create topic": lambda admin: admin.create_topic("orders", queues=9),
    "create group": lambda admin: admin.create_group("billing", retry_max_times=9),
}


async def test_silent_brokers_cost_the_time_of_one(cluster: EmbeddedCluster) -> None:
    async with (
        client_of(cluster, request_timeout=PER_BROKER) as client,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic("orders", queues=2)
        await admin.create_group("billing")
        for host in SILENT_HOSTS:
            cluster.memory_network.listen(f"{host}:10911")
        took: dict[str, float] = {}
        for name, read in READS.items():
            began = trio.current_time()
            with suppress(NotReachableError):
                await read(WithSilentMasters(admin, SILENT))
            took[name] = trio.current_time() - began
        assert took == pytest.approx(dict.fromkeys(READS, PER_BROKER), abs=0.5)
        # Whatever was to change has changed nowhere.
        assert (await admin.topic("orders")).route.queue_datas[0].read_queue_nums == 2
        assert (await admin.group("billing"))["broker-a"].retry_max_times == 16


async def test_groups_of_brokers_that_answer_are_known_and_the_others_are_named(
    cluster: EmbeddedCluster, admin: Admin
) -> None:
    await admin.create_group("billing")
    partly = WithSilentMasters(admin, SILENT)
    names, failed = await partly.groups_and_failures()
    assert names == ["billing"]
    assert list(failed) == ["broker-10.0.0.98", "broker-10.0.0.99"]
    with pytest.raises(NotReachableError, match=r"10\.0\.0\.98"):
        await partly.groups()
    with pytest.raises(
        NotReachableError
    ):  # Without an answer there is an error, not an empty list.
        await admin.groups_and_failures(masters={"broker-b": "10.0.0.99:10911"})
    settings, failed = await partly.group_and_failures("billing")
    assert list(settings) == ["broker-a"]
    assert list(failed) == ["broker-10.0.0.98", "broker-10.0.0.99"]
    with pytest.raises(NotReachableError):  # A silent broker may know it.
        await partly.group_and_failures("unknown")
    with pytest.raises(NotReachableError):
        await partly.group("billing")
    with pytest.raises(NotReachableError):
        await partly.delete_group("billing")
    assert await admin.groups() == ["billing"]


async def test_bounds_of_silent_brokers_are_unknown_after_the_time_of_one_question(
    cluster: EmbeddedCluster,
) -> None:
    async with (
        client_of(cluster, request_timeout=PER_BROKER) as client,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic("orders", queues=2)
        await admin.topic("orders")
        for one in (cluster.master, *cluster.slaves):
            cluster.memory_network.silence(one.broker.address.split(":")[0])
        began = trio.current_time()
        found = await admin.topic("orders")
        assert [(one.min_offset, one.max_offset) for one in found.queues] == [(None, None)] * 2
        assert found.attributes == {"broker-a": None}
        # A question goes to the slave if the master does not answer.
        assert trio.current_time() - began <= 2 * PER_BROKER
