"""Handing messages back: to the broker that holds them, or to another one."""

import zlib
from datetime import timedelta
from typing import Any

import pytest
import trio
from tests.support.clients import client_of
from tests.support.clocks import run_in_virtual_time
from tests.support.orders import TOPIC, make_topic, send

from rocketrio import (
    GIVE_UP,
    ClientInstance,
    ConsumeLater,
    Error,
    Message,
    MessageExt,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.cluster.connections import Connections
from rocketrio.consuming.redelivered import redelivered
from rocketrio.consuming.send_back import RetryDelay, SendBack, retry_level
from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.commands.send import SendMessageRequestHeaderV2
from rocketrio_protocol.errors import ConfigError, LocalProtocolError, NotReachableError
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.log_lines import LineFormatter
from rocketrio_protocol.names import dead_letter_topic, retry_topic


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[RequestHeader]:
    """Requests that hand back or send, in order; those of code 36 fail."""
    headers: list[RequestHeader] = []
    call = Connections.call

    async def call_and_note(
        self: Connections, addr: str, header: RequestHeader, *args: object, **kwargs: object
    ) -> object:
        if isinstance(header, ConsumerSendMsgBackRequestHeader | SendMessageRequestHeaderV2):
            headers.append(header)
        if header.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            raise NotReachableError("this broker is away")
        return await call(self, addr, header, *args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(Connections, "call", call_and_note)
    return headers


async def receive_until(client: ClientInstance, group: str, *, seconds: float) -> list[MessageExt]:
    received: list[MessageExt] = []
    async with open_consumer(TOPIC, group=group, client=client) as consumer:
        with trio.move_on_after(seconds):
            async for message in consumer:
                received.append(message)
                if len(received) == 1:
                    await consumer.retry(message)
    return received


async def test_message_goes_to_another_broker_when_its_own_does_not_take_it(
    client: ClientInstance, asked: list[RequestHeader]
) -> None:
    await make_topic(client, TOPIC, queues=1)
    body = bytes(10_000)  # It is compressed, and stays so.
    async with open_producer(client=client) as producer:
        sent = await producer.send(
            Message(TOPIC, body, keys="k", tags="t", properties={"mine": "ä"}, flag=7)
        )
    first, again = await receive_until(client, "g", seconds=20)
    assert (again.body, again.topic, again.flag) == (body, TOPIC, 7)
    assert (again.keys, again.tags, again.properties["mine"]) == ("k", "t", "ä")
    assert again.message_id == first.message_id == sent.message_id
    assert again.reconsume_times == 1
    header = asked[-1]
    assert isinstance(header, SendMessageRequestHeaderV2)
    assert (header.topic, header.reconsume_times, header.max_reconsume_times) == (
        retry_topic("g"),
        1,
        16,
    )
    properties = again.properties
    assert properties["RETRY_TOPIC"] == TOPIC
    assert properties["ORIGIN_MESSAGE_ID"] == sent.message_id
    assert properties["DELAY"] == "3"
    assert len(again.stored_body) < 1000
    assert zlib.decompress(again.stored_body) == body


async def test_dead_letter_is_one_also_by_way_of_another_broker(
    client: ClientInstance, asked: list[RequestHeader]
) -> None:
    await send(client, 2, queues=1)
    async with open_consumer(TOPIC, group="g", client=client, max_reconsume_times=0) as consumer:
        await trio.sleep(6)  # Until the retry topic is known.
        await consumer.retry(await consumer.receive(), GIVE_UP)
        await consumer.retry(await consumer.receive())
    async with open_admin(client=client) as admin:
        (dead,) = (await admin.topic(dead_letter_topic("g"))).queues
    assert dead.max_offset == 2


@pytest.mark.trio(run=run_in_virtual_time)
async def test_message_is_not_handed_back_while_no_master_stores_it() -> None:
    async with (
        EmbeddedCluster(slaves=1, slave_read_enable=True) as cluster,
        client_of(cluster) as client,
    ):
        await send(client, 2, queues=1)
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            message = await consumer.receive()
            await trio.sleep(6)
            await cluster.kill_master()
            with pytest.raises(Error):
                await consumer.retry(message)


async def test_handler_gets_a_message_again_that_no_broker_took_back(
    client: ClientInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(client, 1, queues=1)
    at: list[float] = []

    async def refuse(self: SendBack, message: MessageExt, delay_level: int) -> None:
        raise NotReachableError("all brokers are away")

    monkeypatch.setattr(SendBack, "send_back", refuse)

    async def handle(message: MessageExt) -> None:
        at.append(trio.current_time())
        if len(at) < 3:
            raise ValueError("not yet")

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(15):
            await consumer.run(handle)
        await consumer.commit()
        assert [round(time - at[0]) for time in at] == [0, 5, 10]
        assert consumer.position(consumer.assignment[0]) == 1


@pytest.mark.parametrize(
    ("delay", "level"),
    [
        (None, 0),
        (GIVE_UP, -1),
        (timedelta(0), 1),
        (timedelta(microseconds=1), 1),
        (timedelta(seconds=1), 1),
        (timedelta(seconds=1, microseconds=1), 2),
        (timedelta(minutes=1), 5),
        (timedelta(hours=2), 18),
    ],
)
def test_delay_is_the_shortest_level_that_is_not_shorter(delay: RetryDelay, level: int) -> None:
    assert retry_level(delay, DELAY_LEVELS) == level


async def test_delay_counts_by_the_levels_that_the_brokers_have(
    client: ClientInstance, asked: list[RequestHeader]
) -> None:
    await send(client, 1, queues=1)
    levels = [timedelta(hours=1), timedelta(seconds=2), timedelta(seconds=1)]
    async with open_consumer(TOPIC, group="g", client=client, delay_levels=levels) as consumer:
        await trio.sleep(6)  # Until the retry topic is known.
        await consumer.retry(await consumer.receive(), timedelta(seconds=1.5))
    header = next(one for one in asked if isinstance(one, ConsumerSendMsgBackRequestHeader))
    assert header.delay_level == 2


@pytest.mark.parametrize("delay", [5, 0, -1, True, "soon", timedelta(seconds=-1)])
async def test_what_is_no_delay_is_refused_with_what_is(client: ClientInstance, delay: Any) -> None:
    with pytest.raises(ConfigError, match=r"must be a timedelta .* GIVE_UP"):
        ConsumeLater(delay)
    await send(client, 1, queues=1)
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(ConfigError, match=r"must be a timedelta .* GIVE_UP"):
            await consumer.retry(await consumer.receive(), delay)


async def test_delay_beyond_the_longest_is_refused(
    client: ClientInstance, asked: list[RequestHeader]
) -> None:
    await send(client, 1, queues=1)
    asked.clear()
    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with pytest.raises(LocalProtocolError, match="longest, 2:00:00"):
            await consumer.retry(await consumer.receive(), timedelta(hours=2, seconds=1))
    assert not asked


async def test_handler_that_asks_for_too_long_a_delay_has_failed(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 1, queues=1)
    at: list[float] = []

    async def handle(message: MessageExt) -> None:
        at.append(trio.current_time())
        if len(at) == 1:
            raise ConsumeLater(timedelta(days=1))

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(40):
            await consumer.run(handle)
    assert at[1] - at[0] == pytest.approx(10.0, abs=1.5)
    [failed] = [record for record in caplog.records if "handler failed" in record.message]
    assert failed.exc_info
    assert "longest, 2:00:00" in str(failed.exc_info[1])


@pytest.mark.parametrize(
    ("delay", "shown"),
    [(GIVE_UP, '"give up"'), (None, '"longer each time"'), (timedelta(seconds=10), '"10 s"')],
)
async def test_delay_is_logged_in_words(
    delay: RetryDelay, shown: str, client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 1, queues=1)

    async def handle(message: MessageExt) -> None:
        raise ConsumeLater(delay)

    with caplog.at_level("INFO", "rocketrio.consumer"):
        async with open_consumer(TOPIC, group="g", client=client) as consumer:
            with trio.move_on_after(3):
                await consumer.run(handle)
    later = [record for record in caplog.records if "consume later" in record.message]
    assert LineFormatter("%(message)s").format(later[0]).endswith(f"delay={shown}")


async def test_handler_that_fails_is_logged_without_words_of_python(
    client: ClientInstance, caplog: pytest.LogCaptureFixture
) -> None:
    await send(client, 1, queues=1)

    async def handle(message: MessageExt) -> None:
        raise ValueError("no such order")

    async with open_consumer(TOPIC, group="g", client=client) as consumer:
        with trio.move_on_after(3):
            await consumer.run(handle)
    [failed] = [record for record in caplog.records if "handler failed" in record.message]
    assert "None" not in failed.message


async def test_copy_of_a_redelivered_message_is_one_too(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await send(client, 1, queues=1)
    _, again = await receive_until(client, "g", seconds=20)
    assert (again.copy().topic, again.copy().reconsume_times) == (TOPIC, 1)
    assert redelivered(again, 2).copy().reconsume_times == 3
    assert again.broker_name == "broker-a"
