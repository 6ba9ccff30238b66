"""Sends, requests and transactions, cancelled at every checkpoint: stored once or not, and decided as the work went."""

from collections import Counter

import pytest
import trio
from tests.client.checkpoints import cancelled_at
from tests.support.clients import client_of
from tests.support.orders import delivered, make_topic

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    TransactionState,
    open_consumer,
    open_producer,
)
from rocketrio.producing.request_reply import Replies
from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = pytest.mark.slow

TOPIC = "orders"


async def create_topic(client: ClientInstance) -> None:
    await make_topic(client, TOPIC, queues=1)


async def test_send_cancelled_anywhere_is_stored_once_or_not(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await create_topic(client)
    returned: set[bytes] = set()
    number, is_cancelled = 1, True
    while is_cancelled:
        body = b"%d" % number

        async def work(body: bytes = body) -> None:
            async with client_of(cluster) as own, open_producer(client=own) as producer:
                await producer.send(Message(TOPIC, body))
                returned.add(body)

        is_cancelled = await cancelled_at(number, work)
        number += 1
    found = Counter(await delivered(client, 3))
    assert number > 10
    assert set(found.values()) <= {1}
    assert returned <= set(found)


async def test_transaction_cancelled_anywhere_is_delivered_if_its_work_was_done(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await create_topic(client)
    done: set[bytes] = set()

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return TransactionState.COMMIT if message.body in done else TransactionState.ROLLBACK

    async with open_producer(client=client, group="shop", check_transaction=check) as producer:
        for fails in (False, True):
            number, is_cancelled = 1, True
            while is_cancelled:
                body = b"%d %d" % (fails, number)

                async def work(body: bytes = body, fails: bool = fails) -> None:
                    try:
                        async with producer.transaction(Message(TOPIC, body)):
                            await trio.lowlevel.checkpoint()
                            if fails:
                                raise OSError("the work failed")
                            done.add(body)
                            await trio.lowlevel.checkpoint()
                    except OSError:
                        pass

                is_cancelled = await cancelled_at(number, work)
                number += 1
            assert number > 4
        await trio.sleep(120)  # Long enough for every question.
    assert Counter(await delivered(client, 3)) == Counter(done)


async def test_request_cancelled_anywhere_leaves_nothing_behind(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await create_topic(client)
    async with (
        client_of(cluster) as replying,
        open_producer(client=replying) as replier,
        open_consumer(TOPIC, group="g", start_from="earliest", client=replying) as consumer,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for message in consumer:
                await replier.reply(message, b"re: " + message.body)

        nursery.start_soon(answer)
        number, is_cancelled = 1, True
        while is_cancelled:
            body = b"%d" % number

            async def work(body: bytes = body) -> None:
                assert (await producer.request(Message(TOPIC, body))).body == b"re: " + body

            is_cancelled = await cancelled_at(number, work)
            assert client.shared(Replies)._expected == {}
            number += 1
        nursery.cancel_scope.cancel()
    assert number > 3
