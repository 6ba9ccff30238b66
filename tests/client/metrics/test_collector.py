"""What a client's collector says, read by prometheus_client's own registry."""

import subprocess
import sys

import pytest
import trio
from prometheus_client import CollectorRegistry, generate_latest
from tests.support.scraping import Scrape, parsed
from trio.testing import MockClock

from rocketrio import (
    ClientInstance,
    ConfigError,
    Error,
    Message,
    MessageExt,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.metrics import collector
from rocketrio.metrics.measured import Measured


def scrape(client: ClientInstance) -> Scrape:
    registry = CollectorRegistry()
    registry.register(collector(client))
    return parsed(generate_latest(registry).decode())


async def test_sends_are_timed_by_topic_and_outcome(
    rocketmq_cluster: object, autojump_clock: MockClock
) -> None:
    async with open_client(metrics=True) as client, open_producer(client=client) as producer:
        for number in range(3):
            await producer.send(Message("orders", b"%d" % number))
        with pytest.raises(Error):
            await producer.send(Message("SCHEDULE_TOPIC_XXXX", b"refused"))
        found = scrape(client)
        sent = {"client_id": client.client_id, "topic": "orders", "invocation_status": "success"}
        assert found.value("rocketmq_send_cost_time_count", **sent) == 3
        assert found.value("rocketmq_send_cost_time_bucket", **sent, le="+Inf") == 3
        assert len(found.all("rocketmq_send_cost_time_bucket", **sent)) == 8
        failed = {"topic": "SCHEDULE_TOPIC_XXXX", "invocation_status": "failure"}
        assert found.value("rocketmq_send_cost_time_count", **failed) == 1


async def test_handlers_are_timed_by_group_and_outcome(
    rocketmq_cluster: object, autojump_clock: MockClock
) -> None:
    busy: list[float | None] = []

    async with open_client(metrics=True) as client, open_producer(client=client) as producer:

        async def handle(message: MessageExt) -> None:
            busy.append(scrape(client).value("rocketrio_client_handlers_busy"))
            if message.body == b"1" and not message.reconsume_times:
                raise ZeroDivisionError

        for number in range(3):
            await producer.send(Message("orders", b"%d" % number))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            with trio.move_on_after(5):
                await consumer.run(handle)
        found = scrape(client)
        handled = {"consumer_group": "billing", "topic": "orders"}
        name = "rocketmq_process_time_count"
        assert found.value(name, **handled, invocation_status="success") == 2
        assert found.value(name, **handled, invocation_status="failure") == 1
        assert found.value("rocketrio_client_handlers_busy", consumer_group="billing") == 0
        assert min(each or 0 for each in busy) >= 1


async def test_consumer_shows_what_it_has_and_where_it_reads(
    rocketmq_cluster: object, autojump_clock: MockClock
) -> None:
    async with open_client() as client, open_producer(client=client) as producer:
        for number in range(10):
            await producer.send(Message("orders", b"%d" % number))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            await consumer.receive()
            await trio.sleep(1)
            found = scrape(client)
            where = {"consumer_group": "billing", "topic": "orders"}
            # The messages of one pull are handed out together: two or three of ten in four queues.
            assert found.value("rocketmq_consumer_cached_messages", **where) in (7, 8)
            assert found.value("rocketmq_consumer_cached_bytes", **where) > 7  # type: ignore[operator]
            positions = found.all("rocketrio_client_position", **where)
            assert sum(each.value for each in positions) == 1
            assert {s.labels["broker_id"] for s in found.all("rocketrio_client_read_from")} == {"0"}
            pulls = found.all("rocketrio_client_pulls_total", consumer_group="billing")
            assert sum(each.value for each in pulls) > 0
        assert not scrape(client).all("rocketmq_consumer_cached_messages")


async def test_messages_that_wait_in_pipelines_are_counted(
    rocketmq_cluster: object, autojump_clock: MockClock
) -> None:
    async with open_client() as client, open_producer(client=client) as producer:
        name = "rocketrio_client_pipeline_waiting"
        async with producer.pipeline(linger=10) as pipeline:
            for number in range(7):
                await pipeline.send(Message("orders", b"%d" % number))
            assert scrape(client).value(name, client_id=client.client_id) == 7
            await pipeline.flush()
            assert scrape(client).value(name) == 0
        assert not client.open_pipelines


async def test_client_without_metrics_times_nothing(
    rocketmq_cluster: object, autojump_clock: MockClock
) -> None:
    async with open_client() as client, open_producer(client=client) as producer:
        await producer.send(Message("orders", b"1"))
        assert not isinstance(client.hooks, Measured)
        found = scrape(client)
        assert not [name for name in found.names if name.startswith("rocketmq_send")]
        assert found.value("rocketrio_client_pending_calls", client_id=client.client_id) == 0


def test_only_a_client_has_a_collector() -> None:
    with pytest.raises(ConfigError, match="client"):
        collector("client")  # type: ignore[arg-type]


def test_clients_do_without_prometheus_client() -> None:
    program = "import sys, rocketrio; sys.exit('prometheus_client' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0
