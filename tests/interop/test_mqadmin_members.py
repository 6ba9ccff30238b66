"""Apache's `mqadmin` asks members of our client, by Apache's broker and by ours: how they are; one message more."""

import re
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from rocketrio import (
    ClientInstance,
    ConsumeLater,
    Message,
    MessageExt,
    MessageQueue,
    open_client,
    open_consumer,
    open_producer,
)
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient
from tests.support.ours import OurBroker, OurNameServer
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

GROUP = "asked"
PATIENCE = 30.0
CLIENT_IDS = {"apache": "10.9.8.7@one", "ours": "10.9.8.6@one"}


@attrs.frozen
class Asked:
    """A cluster, the tool, and a topic with a message in each of two queues."""

    name_server: str
    java: JavaClient
    version: str
    topic: str
    client_id: str

    async def told(self, *words: str) -> str:
        """What the tool prints; the answering client lives in this process meanwhile."""
        return await trio.to_thread.run_sync(self.java.mqadmin, *words)


@pytest.fixture(scope="module", params=["apache", "ours"])
def asked(
    request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp(f"asked-{version}-{request.param}")
    names: ApacheNameServer | OurNameServer
    master: ApacheBroker | OurBroker
    with ExitStack() as stack:
        if request.param == "apache":
            names = stack.enter_context(ApacheNameServer(version, folder / "names"))
            master = ApacheBroker(version, folder / "master", names.address)
        else:
            names = stack.enter_context(OurNameServer(folder / "names"))
            master = OurBroker(folder / "master", names.address)
        stack.enter_context(master)
        java = stack.enter_context(JavaClient(version, names.address, folder / "java"))
        topic = f"asked-{request.param}"
        java.create_topic(topic, at=master.address, queues=2)
        yield Asked(names.address, java, version, topic, CLIENT_IDS[request.param])


@pytest.fixture
async def client(asked: Asked) -> Any:
    async with open_client(name_servers=[asked.name_server], client_id=asked.client_id) as opened:
        yield opened


async def send(client: ClientInstance, topic: str) -> list[str]:
    """One message into each queue; their offset ids."""
    async with open_producer(client=client) as producer:
        return [
            (
                await producer.send(
                    Message(topic, b"%d" % number), queue=MessageQueue(topic, "broker-a", number)
                )
            ).offset_message_id
            for number in range(2)
        ]


def table(text: str, title: str) -> list[list[str]]:
    """The rows below a title of `consumerStatus -i`, without the names of the columns."""
    rows = text.partition(f"#{title}#\n")[2].partition("\n\n")[0].splitlines()
    return [row.split() for row in rows if not row.startswith("#")]


async def test_a_member_is_shown_and_judged(asked: Asked, client: ClientInstance) -> None:
    await send(client, asked.topic)
    seen: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        seen.append(message.body)

    async with (
        open_consumer(asked.topic, group=GROUP, start_from="earliest", client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(partial(consumer.run, handle, concurrency=3))
        await eventually(lambda: len(seen) == 2, PATIENCE)
        await consumer.commit()

        told = await asked.told("consumerStatus", "-g", GROUP)
        assert re.search(rf"{re.escape(asked.client_id)}\s+V4_9_7", told)
        assert "Same subscription in the same group of consumer" in told
        assert "Rebalance OK" in told
        assert "can't consume" not in told

        told = await asked.told("consumerStatus", "-g", GROUP, "-i", asked.client_id)
        properties = {row[0].rstrip(":"): row[-1] for row in table(told, "Consumer Properties")}
        assert properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert properties["PROP_NAMESERVER_ADDR"] == f"{asked.name_server};"
        assert properties["consumeThreadMin"] == "3"
        offsets = table(told, "Consumer Offset")
        for number in range(2):
            assert [asked.topic, "broker-a", str(number), "1"] in offsets
        assert {row[2] for row in table(told, "Consumer Subscription")} == {
            asked.topic,
            f"%RETRY%{GROUP}",
        }
        details = table(told, "Consumer MQ Detail")
        assert len(details) == len(offsets)
        assert all("locked=true," in row and "droped=false," in row for row in details)
        (rates,) = [row for row in table(told, "Consumer RT&TPS") if row[0] == asked.topic]
        assert float(rates[4]) > 0, "consumed in the last minute"
        assert rates[-1] == "0"
        assert "#Consumer jstack#" not in told

        told = await asked.told("consumerStatus", "-g", GROUP, "-i", asked.client_id, "-s")
        assert "#Consumer jstack#" in told
        assert "HandlerRun" in told

        told = await asked.told("consumerProgress", "-g", GROUP, "-s", "true")
        rows = [row.split() for row in told.splitlines() if row.startswith(asked.topic)]
        assert [row[5] for row in rows] == [asked.client_id.split("@")[0]] * 2
        nursery.cancel_scope.cancel()


async def test_a_member_consumes_one_message_more(asked: Asked, client: ClientInstance) -> None:
    ids = await send(client, asked.topic)
    seen: list[bytes] = []
    failure: Exception | None = None

    async def handle(message: MessageExt) -> None:
        seen.append(message.body)
        if failure is not None:
            raise failure

    topic = ("-t", asked.topic) if asked.version >= "5" else ()
    words = ("queryMsgById", "-i", ids[1], *topic, "-g", GROUP, "-d", asked.client_id)
    async with (
        open_consumer(asked.topic, group=GROUP, client=client) as consumer,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(consumer.run, handle)
        await eventually(lambda: len(seen) >= 2, PATIENCE)
        before = len(seen)
        assert "consumeResult=CR_SUCCESS" in await asked.told(*words)
        assert seen[before:] == [b"1"]
        failure = ConsumeLater()
        assert "consumeResult=CR_LATER" in await asked.told(*words)
        failure = ValueError("no good")
        told = await asked.told(*words)
        assert "consumeResult=CR_THROW_EXCEPTION" in told
        assert "remark=ValueError: no good" in told
        nursery.cancel_scope.cancel()
