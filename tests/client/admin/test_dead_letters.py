"""Dead letters: looked at, chosen by time, sent again."""

from datetime import UTC, datetime

import pytest
import trio
from tests.client.dead_letters import give_up
from tests.support.clients import open_admin
from tests.support.orders import TOPIC, receive

from rocketrio import ClientInstance, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_protocol.bodies.topics import Permission
from rocketrio_protocol.errors import ConfigError, NotReachableError, RouteNotFoundError
from rocketrio_protocol.names import dead_letter_topic


async def test_dead_letters_are_listed_and_stay(client: ClientInstance) -> None:
    await give_up(client, 5)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        for _ in range(2):
            found = await letters.messages()
            assert [(message.topic, message.body) for message in found] == [
                (TOPIC, b"%d" % number) for number in range(5)
            ]
        assert len(await letters.messages(max_messages=2)) == 2
        assert await admin.dead_letters("nobody").messages() == []


async def test_pages_hold_all_of_them_but_those_that_come_meanwhile(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rocketrio.admin.browse.PAGE_MESSAGES", 4)
    await give_up(client, 10)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        sizes = []
        async for page in letters.pages():
            sizes.append(len(page))
            if len(sizes) == 1:
                await give_up(client, 3)
        assert sizes == [4, 4, 2]
        assert len([message async for page in letters.pages() for message in page]) == 13


async def test_time_chooses_among_them(client: ClientInstance) -> None:
    await give_up(client, 2)
    await trio.sleep(100)
    between = datetime.fromtimestamp(client.wall_clock.now_ms() / 1000 - 50, UTC)
    await give_up(client, 3)
    async with open_admin(client=client) as admin:
        assert len(await admin.dead_letters("g").messages(since=between)) == 3


async def test_resent_dead_letters_go_to_their_group_only(client: ClientInstance) -> None:
    await give_up(client, 3)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        found = await letters.messages()
        await letters.resend(found[1:])
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            with trio.fail_after(10):
                again = [await consumer.receive() for _ in range(2)]
        assert [(message.topic, message.body) for message in again] == [
            (TOPIC, b"1"),
            (TOPIC, b"2"),
        ]
        assert [message.reconsume_times for message in again] == [0, 0]
        assert {message.tags for message in again} == {"odd", "even"}
        assert [message.message_id for message in again] == [m.message_id for m in found[1:]]
        assert (await admin.topic(TOPIC)).queues[0].max_offset == 3
        assert len(await letters.messages()) == 3


async def test_dead_letters_resent_to_the_topic_go_to_all_groups(client: ClientInstance) -> None:
    await give_up(client, 2)
    async with open_admin(client=client) as admin:
        letters = admin.dead_letters("g")
        (result,) = await letters.resend((await letters.messages())[:1], to="topic")
        assert result.queue.topic == TOPIC
    async with open_consumer(
        TOPIC, group="other", client=client, start_from="earliest"
    ) as consumer:
        assert await receive(consumer, 2) == [0, 1]
        again = await consumer.receive()
        assert (again.body, again.tags) == (b"0", "even")
        assert "RETRY_TOPIC" not in again.properties


async def test_unreadable_dead_letter_topic_is_an_error_with_a_remedy(
    client: ClientInstance,
) -> None:
    async with open_admin(client=client) as admin:
        await admin.create_topic(dead_letter_topic("g"), queues=1, perm=int(Permission.WRITE))
        with pytest.raises(ConfigError, match="makes it readable"):
            await admin.dead_letters("g").messages()


async def test_dead_letters_without_a_broker_are_an_error(cluster: EmbeddedCluster) -> None:
    listener = await cluster.listen_on("10.0.0.50")("10.0.0.50:9876")
    await cluster.nursery.start(NameServer([listener]).run)
    async with open_admin(name_servers=[listener.addr], dial=cluster.dial) as admin:
        with pytest.raises(RouteNotFoundError, match="no broker is registered"):
            await admin.dead_letters("g").messages()
        with pytest.raises(RouteNotFoundError, match="no broker is registered"):
            await admin.topics()


@pytest.mark.usefixtures("slave")
async def test_unreachable_name_server_is_an_error(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await give_up(client, 1)
    async with open_admin(client=client) as admin:
        await cluster.kill_master()
        with pytest.raises(NotReachableError):
            await admin.dead_letters("g").messages(since=datetime(2020, 1, 1, tzinfo=UTC))
