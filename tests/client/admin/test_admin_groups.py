"""Administration of consumer groups, on a cluster in memory."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import attrs
import pytest
import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin import Admin
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.resets import OffsetReset
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.stats import ConsumerConnection
from rocketrio_protocol.errors import (
    BrokerError,
    ConfigError,
    ConsumerNotOnlineError,
    GroupNotExistError,
    NotReachableError,
)


async def test_group_is_created_changed_and_deleted(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        assert await admin.create_group("billing", retry_max_times=3) == ["broker-a"]
        assert await admin.groups() == ["billing"]
        assert "TOOLS_CONSUMER" in await admin.groups(include_system=True)
        await admin.create_group("billing", broker_id=1)
        settings = (await admin.group("billing"))["broker-a"]
        assert (settings.retry_max_times, settings.broker_id) == (3, 1)
        assert await admin.delete_group("billing") == ["broker-a"]
        assert await admin.groups() == []


@attrs.define
class NewerCalls(AdminCalls):
    """Talks to a broker that knows more of a group than we do."""

    sent: list[Mapping[str, Any]] = attrs.Factory(list)

    async def groups(self, addr: str) -> dict[str, dict[str, Any]]:
        return {"billing": {"groupName": "billing", "groupSysFlag": 5}}

    async def update_group(self, addr: str, settings: Mapping[str, Any]) -> None:
        self.sent.append(settings)


async def test_settings_of_newer_brokers_survive_a_change(client: ClientInstance) -> None:
    calls = NewerCalls(client.api)
    await Admin(client, calls).create_group("billing", retry_max_times=2)
    [sent] = calls.sent
    assert (sent["groupSysFlag"], sent["retryMaxTimes"]) == (5, 2)


async def test_group_that_cannot_be_is_refused(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        with pytest.raises(ConfigError, match="group"):
            await admin.create_group("bad group")
        with pytest.raises(ConfigError, match="retry_queue_nums=-1"):
            await admin.create_group("billing", retry_queue_nums=-1)
        with pytest.raises(GroupNotExistError, match="billing"):
            await admin.group("billing")
        with pytest.raises(GroupNotExistError, match="billing"):
            await admin.delete_group("billing")


async def test_deleted_group_has_no_offsets(client: ClientInstance) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
        for kept in (True, False):
            await admin.create_group("billing")
            await admin.reset_offsets("billing", {queue: 0})
            await admin.delete_group("billing", with_offsets=not kept)
            [offsets] = await admin.offsets("orders", "billing")
            assert offsets.committed_offset == (0 if kept else None)


async def test_reset_to_a_time_is_shown_before_it_is_done(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    queue = MessageQueue("orders", "broker-a", 0)
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=1)
        for _ in range(3):
            await producer.send(Message("orders", b"early"))
        await trio.sleep(60)
        middle = datetime.fromtimestamp(cluster.wall_clock.now_ms() / 1000, UTC)
        await trio.sleep(60)
        await producer.send(Message("orders", b"late"))
        await admin.reset_offsets("billing", {queue: 1})

        looked = await admin.reset_to_time("orders", "billing", middle, dry_run=True)
        assert looked == [OffsetReset(queue, 1, 3)]
        assert (await admin.offsets("orders", "billing"))[0].committed_offset == 1

        assert await admin.reset_to_time("orders", "billing", middle) == looked
        assert (await admin.offsets("orders", "billing"))[0].committed_offset == 3

        back = await admin.reset_to_time("orders", "billing", middle - timedelta(days=1))
        assert back == [OffsetReset(queue, 3, 0)]
        with pytest.raises(ConfigError, match="time zone"):
            await admin.reset_to_time("orders", "billing", datetime(2026, 1, 1))


async def test_reset_changes_nothing_where_a_place_is_unknown(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.topic("orders")
        for member in cluster.members:
            await member.kill()
        with pytest.raises(NotReachableError):
            await admin.reset_to_time("orders", "billing", datetime.now(UTC))


async def test_members_and_users_of_a_topic_are_listed(client: ClientInstance) -> None:
    async with (
        open_admin(client=client) as admin,
        open_producer(client=client, group="shop") as out,
    ):
        await admin.create_topic("orders", queues=1)
        await out.send(Message("orders", b"1"))
        async with open_consumer("orders", group="billing", client=client):
            assert await admin.groups_of("orders") == ["billing"]
            await client.heartbeat.send_all()
            found = await admin.producer_connections("shop")
            assert [one.client_id for one in found.connection_set] == [client.client_id]
        with pytest.raises(BrokerError):
            await admin.producer_connections("nobody")


class TwoMasters(Admin):
    """Of two brokers' masters."""

    async def masters(self, cluster: str | None = None) -> dict[str, str]:
        return {"broker-a": "10.0.0.1:1", "broker-b": "10.0.0.2:1"}


@attrs.define
class ByAddress(AdminCalls):
    """Answers, or errors, by the address that is asked."""

    answers: Mapping[str, ConsumerConnection | Exception] = attrs.Factory(dict)

    async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
        answer = self.answers[addr]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.mark.parametrize("silent", ["10.0.0.1:1", "10.0.0.2:1"])
async def test_member_that_one_master_knows_is_found_though_another_is_silent(
    client: ClientInstance, silent: str
) -> None:
    known = ConsumerConnection()
    answers: dict[str, ConsumerConnection | Exception] = {
        **dict.fromkeys(("10.0.0.1:1", "10.0.0.2:1"), known),
        silent: NotReachableError("silent"),
    }
    admin = TwoMasters(client, ByAddress(client.api, answers=answers))
    assert await admin.consumer_connections("g") is known


@pytest.mark.parametrize("silent", ["10.0.0.1:1", "10.0.0.2:1"])
async def test_group_is_without_members_only_if_every_master_reports_none(
    client: ClientInstance, silent: str
) -> None:
    nobody = ConsumerNotOnlineError("nobody")
    answers: dict[str, ConsumerConnection | Exception] = {
        "10.0.0.1:1": nobody,
        "10.0.0.2:1": nobody,
    }
    with pytest.raises(ConsumerNotOnlineError):
        await TwoMasters(client, ByAddress(client.api, answers=answers)).consumer_connections("g")
    answers[silent] = NotReachableError("silent")
    with pytest.raises(NotReachableError):
        await TwoMasters(client, ByAddress(client.api, answers=answers)).consumer_connections("g")
