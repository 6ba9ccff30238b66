"""What our producer can do beyond sending, on Apache's broker and with Apache's client on the other side."""

import time
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import trio

from rocketrio import (
    Message,
    MessageExt,
    TransactionState,
    open_client,
    open_consumer,
    open_producer,
)
from tests.interop.one_master import OneMaster, one_master_fixture

pytestmark = pytest.mark.interop

PATIENCE = 40.0
"""Seconds until a Java group has its queues, and until a broker has asked for a transaction."""
TRANSACTIONS = {"transactionTimeOut": "2000", "transactionCheckInterval": "3000"}


cluster = one_master_fixture(**TRANSACTIONS)


async def test_transactions_are_committed_rolled_back_and_asked_for(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    group = f"{topic}-shop"
    asked: list[str] = []
    truth = {b"left open": TransactionState.COMMIT, b"committed": TransactionState.COMMIT}

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        asked.append(message.body.decode())
        return truth.get(message.body, TransactionState.ROLLBACK)

    bodies: list[str] = []
    async with open_producer(
        name_servers=[cluster.name_server], group=group, check_transaction=check
    ) as producer:
        async with producer.transaction(Message(topic, b"committed", keys="k")) as committed:
            pass
        async with producer.transaction(Message(topic, b"rolled back")) as rolled_back:
            rolled_back.rollback()
        async with producer.transaction(Message(topic, b"left open")) as left_open:
            left_open.leave_open()
        with trio.move_on_after(0.1):
            async with producer.transaction(Message(topic, b"cancelled")):
                await trio.sleep_forever()
        assert committed.is_acknowledged
        assert rolled_back.is_acknowledged
        async with open_consumer(
            topic, group=f"{group}-g", start_from="earliest", client=producer.client
        ) as consumer:
            with trio.fail_after(PATIENCE):
                while not {"committed", "left open"} <= set(bodies) or "cancelled" not in asked:
                    with trio.move_on_after(0.5):
                        bodies.append((await consumer.receive()).body.decode())
            with trio.move_on_after(3):  # What was rolled back would be here by now.
                async for message in consumer:
                    bodies.append(message.body.decode())
    assert {"left open", "cancelled"} <= set(asked)
    assert set(bodies) == {"committed", "left open"}


async def test_decision_is_refused_by_apache_where_it_names_no_half_message(
    cluster: OneMaster,
) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return TransactionState.ROLLBACK

    async with open_producer(
        name_servers=[cluster.name_server], group=f"{topic}-shop", check_transaction=check
    ) as producer:
        with pytest.raises(Exception, match="commit of transaction"):
            async with producer.transaction(Message(topic, b"x")) as transaction:
                transaction.sent.queue_offset += 1000


async def test_java_consumer_answers_our_request(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    java = cluster.java
    await java.acall("answer_start", topic=topic, group=f"{topic}-answering")
    try:
        async with open_producer(
            name_servers=[cluster.name_server], group=f"{topic}-asking"
        ) as producer:
            reply = await producer.request(Message(topic, b"hello", tags="t"), timeout=PATIENCE)
            assert reply.body == b"HELLO"
            again = await producer.request(Message(topic, "größer ".encode() * 1000), timeout=10)
            assert again.body.decode() == "GRÖSSER " * 1000
    finally:
        await java.acall("answer_stop", group=f"{topic}-answering")


async def test_our_consumer_answers_a_request_of_java(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    async with (
        open_producer(name_servers=[cluster.name_server], group=f"{topic}-answering") as producer,
        open_consumer(
            topic, group=f"{topic}-g", start_from="earliest", client=producer.client
        ) as consumer,
        trio.open_nursery() as nursery,
    ):

        async def answer() -> None:
            async for message in consumer:
                await producer.reply(message, b"re: " + message.body, properties={"by": "us"})

        nursery.start_soon(answer)
        reply = await cluster.java.acall(
            "ask", topic=topic, group=f"{topic}-asking", body="hello", timeout_ms=20_000
        )
        nursery.cancel_scope.cancel()
    assert reply["body"] == "re: hello"
    assert reply["properties"]["by"] == "us"


async def test_delayed_message_is_delivered_by_apache_not_too_soon(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    async with open_producer(name_servers=[cluster.name_server]) as producer:
        sent_at = time.time()
        await producer.send(producer.delayed(Message(topic, b"later"), timedelta(seconds=3)))
        async with open_consumer(
            topic, group=f"{topic}-g", start_from="earliest", client=producer.client
        ) as consumer:
            with trio.fail_after(PATIENCE):
                message = await consumer.receive()
    assert message.body == b"later"
    assert message.store_time_ms / 1000 - sent_at >= 4.9  # Level 2: five seconds.


async def test_java_and_we_share_a_namespace(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    java, group = cluster.java, f"{topic}-g"
    await java.acall(
        "create_topic", address=cluster.master.address, topic=f"tenant%{topic}", queues=1
    )
    await java.acall("push_start", topic=f"tenant%{topic}", group=f"tenant%{group}-java")
    sent = await trio.to_thread.run_sync(
        partial(
            java.until, "send_as", topic=topic, group=group, namespace="tenant", body="from java"
        )
    )
    assert sent["topic"] == topic
    async with (
        open_client(name_servers=[cluster.name_server], namespace="tenant") as client,
        open_producer(client=client, group=group) as producer,
        open_consumer(topic, group=group, start_from="earliest", client=client) as consumer,
    ):
        await producer.send(Message(topic, b"from us"))
        with trio.fail_after(PATIENCE):
            messages = [(await consumer.receive()).copy() for _ in range(2)]
    taken = await java.acall("push_take", group=f"tenant%{group}-java", count=2, timeout=PATIENCE)
    await java.acall("push_stop", group=f"tenant%{group}-java")
    assert {message.body for message in messages} == {b"from java", b"from us"}
    assert {message.topic for message in messages} == {topic}
    assert {message.properties["INSTANCE_ID"] for message in messages} == {"tenant"}
    assert {message["body"] for message in taken} == {"from java", "from us"}
    assert {message["topic"] for message in taken} == {f"tenant%{topic}"}


async def test_java_reads_our_traces_and_we_write_as_java_does(cluster: OneMaster) -> None:
    topic = await trio.to_thread.run_sync(cluster.new_topic)
    java, group = cluster.java, f"{topic}-g"

    async def check(message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        return TransactionState.UNKNOWN

    async def handle(message: MessageExt) -> None:
        await trio.sleep(0.1)

    async with (
        open_client(name_servers=[cluster.name_server], trace=True) as client,
        open_producer(client=client, group=group, check_transaction=check) as producer,
        open_consumer(topic, group=group, start_from="earliest", client=client) as consumer,
    ):
        sent = await producer.send(Message(topic, b"body", tags="t", keys="k1 k2"))
        async with producer.transaction(Message(topic, b"body")) as transaction:
            pass
        with trio.move_on_after(5):
            await consumer.run(handle)
    await java.acall(
        "send_as", topic=topic, group=group, traced=True, body="body", tags="t", keys="k1 k2"
    )
    ours: list[str] = []
    javas: list[str] = []
    async with (
        open_client(name_servers=[cluster.name_server]) as client,
        open_consumer(
            "RMQ_SYS_TRACE_TOPIC", group=f"{group}-console", start_from="earliest", client=client
        ) as console,
    ):
        with trio.fail_after(PATIENCE):
            while not javas or len("".join(ours).split("\x02")) < 8:
                message = await console.receive()
                by = javas if message.tags or not message.keys.startswith("7F000001") else ours
                body = message.body.decode()
                if topic in body or group in body:
                    by.append(body)
    [javas_own] = [text for body in javas for text in body.split("\x02") if topic in text]
    contexts = await java.acall("read_trace", body="".join(ours))
    by_type: dict[str, list[dict[str, Any]]] = {}
    for context in contexts:
        by_type.setdefault(context["type"], []).append(context)
    assert {kind: len(found) for kind, found in by_type.items()} == {
        "Pub": 2, "EndTransaction": 1, "SubBefore": 2, "SubAfter": 2,
    }  # fmt: skip
    published = next(
        each for each in by_type["Pub"] if each["beans"][0]["message_id"] == sent.message_id
    )
    [bean] = published["beans"]
    assert (published["group"], published["region"], published["success"]) == (
        group, "DefaultRegion", True,
    )  # fmt: skip
    assert (bean["topic"], bean["tags"], bean["keys"]) == (topic, "t", "k1 k2")
    assert (bean["offset_id"], bean["body_length"]) == (sent.offset_message_id, 4)
    assert (bean["store_host"], bean["message_type"]) == (cluster.master.address, "Normal_Msg")
    [ended] = by_type["EndTransaction"]
    assert ended["beans"][0]["transaction_state"] == "COMMIT_MESSAGE"
    assert ended["beans"][0]["message_id"] == transaction.message_id
    for after in by_type["SubAfter"]:
        assert (after["group"], after["success"], after["context_code"]) == (group, True, 0)
        assert 100 <= after["cost"] < 2000
    # The same message sent by Java: the same fields, but for what differs from send to send.
    own = next(text for body in ours for text in body.split("\x02") if sent.message_id in text)
    differing = {1, 5, 10, 12}  # Time, ids, cost.
    for number, (field, javas_field) in enumerate(
        zip(own.split("\x01"), javas_own.split("\x01"), strict=True)
    ):
        assert field == javas_field or number in differing
