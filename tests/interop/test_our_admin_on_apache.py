"""Our administration of topics and groups on Apache's brokers."""

from datetime import UTC, datetime, timedelta

import pytest
import trio

from rocketrio import Message, MessageQueue, open_admin, open_client, open_consumer, open_producer
from rocketrio.admin.resets import OffsetReset
from rocketrio_protocol.bodies.topics import READ_WRITE, Permission
from rocketrio_protocol.errors import ConfigError, GroupNotExistError
from tests.interop.conftest import OnApache

pytestmark = pytest.mark.interop


async def test_group_is_created_changed_and_deleted(on_apache: OnApache) -> None:
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        await admin.create_group("managed", retry_max_times=3)
        await admin.create_group("managed", broker_id=1)
        settings = (await admin.group("managed"))["broker-a"]
        assert (settings.retry_max_times, settings.broker_id) == (3, 1)
        assert "managed" in await admin.groups()
        assert "TOOLS_CONSUMER" not in await admin.groups()
        await admin.delete_group("managed")
        with pytest.raises(GroupNotExistError):
            await admin.group("managed")


async def test_what_is_not_given_of_a_topic_stays(on_apache: OnApache) -> None:
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        await admin.create_topic("managed-topic", queues=3, perm=int(Permission.WRITE))
        unchanged = await admin.create_topic("managed-topic")
        assert unchanged["broker-a"].read_queue_nums == 3
        assert unchanged["broker-a"].perm == Permission.WRITE
        await admin.create_topic("managed-topic", perm=int(READ_WRITE))
        assert len((await admin.topic("managed-topic")).queues) == 3


async def test_attributes_are_kept_by_5_x_and_refused_for_4_9(on_apache: OnApache) -> None:
    fifo = {"message.type": "FIFO"}
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        if on_apache.version < "5":
            with pytest.raises(ConfigError, match="has no topic attributes"):
                await admin.create_topic("managed-fifo", attributes=fifo)
            assert (await admin.topic("managed-fifo")).attributes == {"broker-a": None}
            return
        made = await admin.create_topic("managed-fifo", attributes=fifo)
        assert made["broker-a"].attributes == fifo
        await admin.create_topic("managed-fifo", queues=2)
        assert (await admin.topic("managed-fifo")).attributes == {"broker-a": fifo}
        await admin.create_topic("managed-fifo", attributes={"message.type": None})
        assert (await admin.topic("managed-fifo")).attributes == {"broker-a": {}}


async def test_group_is_reset_to_a_time(on_apache: OnApache) -> None:
    queue = MessageQueue("managed-times", "broker-a", 0)
    async with (
        open_client(name_servers=[on_apache.name_server]) as client,
        open_admin(client=client) as admin,
        open_producer(client=client, group="managed-shop") as producer,
    ):
        await admin.create_topic(queue.topic, queues=1)
        for _ in range(3):
            await producer.send(Message(queue.topic, b"x"), queue=queue)
        await admin.create_group("managed-times")  # 5.x takes no offset of an unknown group.
        await admin.reset_offsets("managed-times", {queue: 2})
        yesterday = datetime.now(UTC) - timedelta(days=1)
        looked = await admin.reset_to_time(queue.topic, "managed-times", yesterday, dry_run=True)
        assert looked == [OffsetReset(queue, 2, 0)]
        assert (await admin.offsets(queue.topic, "managed-times"))[0].committed_offset == 2
        assert await admin.reset_to_time(queue.topic, "managed-times", yesterday) == looked
        assert (await admin.offsets(queue.topic, "managed-times"))[0].committed_offset == 0
        async with open_consumer(
            queue.topic, group="managed-members", start_from="earliest", client=client
        ) as consumer:
            with trio.fail_after(30):
                await consumer.receive()
                await consumer.commit()
            # 5.3.3 names the topic itself instead of members, but knows who committed.
            assert "managed-members" in await admin.groups_of(queue.topic)
            found = await admin.producer_connections("managed-shop")
            assert [one.client_id for one in found.connection_set] == [client.client_id]
            members = await admin.consumer_connections("managed-members")
            assert [one.client_id for one in members.connection_set] == [client.client_id]


async def test_health_of_a_pair_of_both_products_has_no_finding_but_the_versions(
    on_apache: OnApache,
) -> None:
    async with open_admin(name_servers=[on_apache.name_server]) as admin:
        health = await admin.health()
    assert (health.brokers, health.silent) == (2, {})
    # The disk of this machine may be full.
    assert {one.code for one in health.findings} <= {"V01", "S01"}, health
