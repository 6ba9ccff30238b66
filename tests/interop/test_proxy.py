"""Our client at the remoting port of Apache's 5.x proxy, which relays to brokers of either product."""

from collections.abc import Iterator

import pytest
import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    TransactionState,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.jars import UnavailableError
from tests.interop.proxy import VERSION, ApacheProxy, proxy_jars
from tests.support.ours import OurBroker, OurNameServer

pytestmark = pytest.mark.interop

PATIENCE = 60.0
"""Seconds; the proxy learns of a topic within its route cache's time, and a JVM warms up meanwhile."""
COUNT = 40


@pytest.fixture(scope="module", params=["ours", "apache"])
def behind(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, str]]:
    """The addresses of a name server and of a proxy before its only broker."""
    folder = tmp_path_factory.mktemp("proxy")
    try:
        proxy_jars()
    except UnavailableError as error:
        pytest.skip(f"interop: skipped: {error}")
    if request.param == "ours":
        with (
            OurNameServer(folder / "names") as names,
            OurBroker(folder / "broker", names.address),
            ApacheProxy(folder / "proxy", names.address) as proxy,
        ):
            yield names.address, proxy.address
    else:
        with (
            ApacheNameServer(VERSION, folder / "names") as apache_names,
            ApacheBroker(
                VERSION,
                folder / "broker",
                apache_names.address,
                settings={"transactionTimeOut": "3000", "transactionCheckInterval": "5000"},
            ),
            ApacheProxy(folder / "proxy", apache_names.address) as proxy,
        ):
            yield apache_names.address, proxy.address


async def made(topic: str, behind: tuple[str, str]) -> MessageQueue:
    """A topic with two queues; the first of them."""
    async with open_admin(name_servers=[behind[0]]) as admin:
        await admin.create_topic(topic, queues=2)
    return MessageQueue(topic, "broker-a", 0)


async def send_many(client: ClientInstance, topic: str) -> list[str]:
    bodies = [f"m-{number}" for number in range(COUNT)]
    async with open_producer(client=client) as producer:
        for body in bodies[:10]:
            await producer.send(Message(topic, body.encode()))
        await producer.send_batch([Message(topic, body.encode()) for body in bodies[10:20]])
        async with producer.pipeline() as pipeline:
            for body in bodies[20:]:
                await pipeline.send(Message(topic, body.encode(), keys=body))
    return bodies


@pytest.mark.parametrize("orderly", [False, True])
async def test_we_produce_and_consume_through_the_proxy(
    behind: tuple[str, str], orderly: bool
) -> None:
    topic = f"through-{orderly}"
    queue = await made(topic, behind)
    handled: list[str] = []
    failed: list[str] = []

    async def handle(message: MessageExt) -> None:
        body = message.body.decode()
        if body == "m-3" and not failed:
            failed.append(body)
            raise ValueError("comes again")
        handled.append(body)
        if len(handled) == COUNT:
            consumer._hand_out.close()

    with trio.fail_after(2 * PATIENCE):
        async with open_client(name_servers=[behind[1]]) as client:
            bodies = await send_many(client, topic)
            async with open_consumer(
                topic, group=f"g-{topic}", start_from="earliest", orderly=orderly, client=client
            ) as consumer:
                await consumer.run(handle)
            assert sorted(handled) == sorted(bodies)
            # Each offset is at the broker, seen through the proxy and past it.
            async with open_client(name_servers=[behind[0]]) as directly:
                await directly.topic_route(topic)
                addr = directly.routing.find_broker_address_in_publish("broker-a")
                assert addr is not None
                for queue_id in range(2):
                    queue = MessageQueue(topic, "broker-a", queue_id)
                    (of_proxy,) = set(client.routing.addresses())
                    ask = client.api
                    end = await ask.max_offset(of_proxy, queue)
                    assert await ask.query_consumer_offset(of_proxy, f"g-{topic}", queue) == end
                    assert (
                        await directly.api.query_consumer_offset(addr, f"g-{topic}", queue) == end
                    )
                    assert await ask.min_offset(of_proxy, queue) == 0
                    assert await ask.search_offset(of_proxy, queue, 0) == 0


async def test_a_transaction_is_decided_by_the_check_that_the_proxy_relays(
    behind: tuple[str, str],
) -> None:
    """It takes our producer's decision for known and does not tell the broker: it has half messages of gRPC alone."""
    topic = "decided"
    queue = await made(topic, behind)
    outcomes = {b"done": TransactionState.COMMIT, b"undone": TransactionState.ROLLBACK}
    asked: list[bytes] = []

    async def check(message: MessageExt) -> TransactionState:
        asked.append(message.body)
        return outcomes[message.body]

    with trio.fail_after(3 * PATIENCE):
        async with (
            open_client(name_servers=[behind[1]]) as client,
            open_producer(group="p-decided", check_transaction=check, client=client) as producer,
            open_consumer(
                topic, group="g-decided", start_from="earliest", client=client
            ) as consumer,
        ):
            async with producer.transaction(Message(topic, b"undone"), queue=queue) as undone:
                undone.rollback()
            async with producer.transaction(Message(topic, b"done"), queue=queue):
                pass
            assert (await consumer.receive()).body == b"done"
            await producer.send(Message(topic, b"last"), queue=queue)
            assert (await consumer.receive()).body == b"last"
            while len(asked) < 2:  # noqa: ASYNC110
                await trio.sleep(0.1)
    assert set(asked) == set(outcomes)
