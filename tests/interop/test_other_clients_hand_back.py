"""Apache's Go and C++ clients on our pair: what they hand back for good, requests and replies, a group of pullers."""

from contextlib import suppress
from typing import Any

import pytest
import trio

from rocketrio import (
    BrokerError,
    ClientInstance,
    Message,
    MessageExt,
    open_admin,
    open_consumer,
    open_producer,
)
from tests.interop.other_clients import (
    FIRST_RETRY,
    JOIN_TIMEOUT,
    OtherClient,
    client,
    cluster,
    other,
    topic,
)

__all__ = ["client", "cluster", "other", "topic"]  # fixtures: pytest finds them by their names here
pytestmark = pytest.mark.interop


async def test_message_that_the_other_client_hands_back_too_often_is_a_dead_letter(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    """By its own limit where it tells one (Go), and otherwise by the group's at the broker (C++)."""
    group = f"hopeless-{topic}"
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_group(group, retry_max_times=1)
        sent = await producer.send(Message(topic, b"poison", tags="red", keys="k1"))
        await other.acall("push_start", group=group, topic=topic, fail_times=99, hopeless=True)
        seen = await other.acall("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
        seen += await other.acall("push_take", group=group, count=1, timeout=FIRST_RETRY)
        found: list[MessageExt] = []
        letters = admin.dead_letters(group)
        with trio.fail_after(JOIN_TIMEOUT):
            while not found:
                await trio.sleep(0.5)
                found = await letters.messages()
        await other.acall("push_stop", group=group)
    assert [(m["body"], m["reconsume_times"]) for m in seen] == [("poison", 0), ("poison", 1)]
    (letter,) = found
    assert (letter.topic, letter.body, letter.tags, letter.keys) == (topic, b"poison", "red", "k1")
    assert letter.message_id == sent.message_id


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_our_consumer_answers_the_other_clients_request(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    async with (
        open_producer(client=client) as producer,
        open_consumer(topic, group=f"g-{topic}", start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for message in consumer:
                # Its heartbeat, which the broker knows it by, comes up to 30 s after the first message to a topic.
                with suppress(BrokerError):
                    await producer.reply(message, b"re: " + message.body)

        nursery.start_soon(answer)
        reply = await _until_answered(other, topic)
        nursery.cancel_scope.cancel()
    assert reply == "re: how much"


async def _until_answered(other: OtherClient, topic: str) -> Any:
    with trio.fail_after(JOIN_TIMEOUT):
        while True:
            try:
                return await other.acall("request", topic=topic, body="how much", timeout=5)
            except other.error:
                await trio.sleep(1)


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_other_client_answers_our_request(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    group = f"answering-{topic}"
    await other.acall("push_start", group=group, topic=topic, replies=True)
    async with open_producer(client=client) as producer:
        await producer.send(Message(topic, b"are you there"))
        assert await other.acall("push_take", group=group, count=1, timeout=JOIN_TIMEOUT)
        reply = await producer.request(Message(topic, b"how much"), timeout=JOIN_TIMEOUT)
    await other.acall("push_stop", group=group)
    assert reply.body == b"re: how much"


@pytest.mark.parametrize("other", ["go"], indirect=True)
async def test_its_pull_consumer_commits_what_it_got(
    other: OtherClient, client: ClientInstance, topic: str
) -> None:
    group = f"pulling-{topic}"
    async with open_producer(client=client) as producer:
        for number in range(40):
            await producer.send(Message(topic, str(number).encode()))
    asked: dict[str, Any] = {"group": group, "topic": topic, "timeout": 50}
    taken = await other.acall("pull", count=40, **asked)
    assert sorted(int(m["body"]) for m in taken) == list(range(40))
    async with open_admin(client=client) as admin:
        offsets = await admin.offsets(topic, group)
    assert sum(each.committed_offset or 0 for each in offsets) == 40
