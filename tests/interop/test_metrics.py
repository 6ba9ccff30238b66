"""The page of metrics of a real 5.3.3 broker beside ours, after the same traffic: names, labels, and numbers.

Apache's page lies where `metricsExporterType=PROM` puts it; brokers before 5.1.4 have other names, and 4.x none.
"""

from collections.abc import Iterator

import attrs
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from rocketrio import (
    Message,
    TransactionState,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.support.http import get
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port

pytestmark = pytest.mark.interop

VERSION = "5.3.3"
COMMON = {"cluster", "node_id", "node_type"}
OTEL = {"otel_scope_name"}
MISSING = (
    "rocketmq_pop_",  # There is no POP here.
    "rocketmq_rpc_latency_milliseconds",  # Nor a histogram of every request.
    "rocketmq_topic_number",  # Both have it; Apache's has topics of the system that are made at first use here.
)


@attrs.frozen
class Pages:
    apache: list[Sample]
    ours: list[Sample]


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pages]:
    folder = tmp_path_factory.mktemp("metrics")
    ports = free_port(), free_port()
    with (
        ApacheNameServer(VERSION, folder / "apache-namesrv") as apache_names,
        OurNameServer(folder / "our-namesrv") as our_names,
    ):
        apache = ApacheBroker(
            VERSION,
            folder / "apache",
            apache_names.address,
            settings={
                "metricsExporterType": "PROM",
                "metricsPromExporterHost": "127.0.0.1",
                "metricsPromExporterPort": str(ports[0]),
            },
        )
        ours = OurBroker(
            folder / "ours", our_names.address, settings=(f"metrics_listen=:{ports[1]}",)
        )
        with apache, ours:
            apache.wait_ready()
            ours.wait_ready()
            yield Pages(
                trio.run(used, apache_names.address, apache.address, ports[0]),
                trio.run(used, our_names.address, ours.address, ports[1]),
            )


async def used(name_server: str, broker: str, port: int) -> list[Sample]:
    """What the page of a broker says after ten messages, a delay, three transactions, a dead letter and a group."""

    async def decide(message: MessageExt) -> TransactionState:
        return TransactionState.COMMIT

    async with open_client(name_servers=[name_server]) as client:
        async with open_admin(client=client) as admin:
            await admin.create_topic("orders", queues=1)
            await admin.create_topic("payments", queues=1)
            await admin.create_group("billing")
        async with (
            open_producer(client=client, group="shop", check_transaction=decide) as producer,
            open_consumer(
                "orders", group="billing", start_from="earliest", client=client, auto_commit=False
            ) as consumer,
        ):
            for number in range(10):
                await producer.send(Message("orders", b"x" * 100, keys=str(number)))

            for body in (b"1", b"2"):
                async with producer.transaction(Message("payments", body)):
                    pass
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction(Message("payments", b"3")):
                    raise ZeroDivisionError
            first, *_ = [await consumer.receive() for _ in range(4)]
            await consumer.commit()
            async with open_channel_pool(dial_tcp) as pool:
                offset = first.physical_offset
                header = ConsumerSendMsgBackRequestHeader(
                    offset, "billing", -1, origin_msg_id=first.message_id, origin_topic="orders"
                )
                assert (await pool.call(broker, header)).code == 0
            await producer.send(Message("orders", b"late", delay_level=5))
            # Apache's exporter reads its gauges when it is asked, and its counters some time after the event.
            await trio.sleep(3)
            page = await get(dial_tcp, f"127.0.0.1:{port}")
    families = text_string_to_metric_families(page.text)
    return [sample for family in families for sample in family.samples]


def shapes(samples: list[Sample]) -> set[tuple[str, frozenset[str]]]:
    """Names with the names of their labels."""
    return {
        (sample.name, frozenset(sample.labels.keys() - OTEL))
        for sample in samples
        if sample.name.startswith("rocketmq_") and not sample.name.startswith(MISSING)
    }


def test_page_has_the_names_and_labels_of_apaches_page(pages: Pages) -> None:
    assert shapes(pages.ours) == shapes(pages.apache)
    assert all(labels >= COMMON for _, labels in shapes(pages.ours))


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("rocketmq_messages_in_total", {"topic": "orders", "message_type": "normal"}),
        ("rocketmq_message_size_count", {"topic": "orders", "message_type": "normal"}),
        ("rocketmq_messages_out_total", {"topic": "orders", "consumer_group": "billing"}),
        ("rocketmq_consumer_lag_messages", {"topic": "orders", "consumer_group": "billing"}),
        ("rocketmq_consumer_inflight_messages", {"topic": "orders", "consumer_group": "billing"}),
        ("rocketmq_consumer_ready_messages", {"topic": "orders", "consumer_group": "billing"}),
        ("rocketmq_send_to_dlq_messages_total", {"topic": "orders", "consumer_group": "billing"}),
        ("rocketmq_consumer_connections", {"consumer_group": "billing", "language": "python"}),
        ("rocketmq_producer_connections", {"language": "python", "version": "v4_9_7"}),
        ("rocketmq_commit_messages_total", {"topic": "payments"}),
        ("rocketmq_rollback_messages_total", {"topic": "payments"}),
        ("rocketmq_finish_message_latency_milliseconds_count", {"topic": "payments"}),
        ("rocketmq_half_messages", {"topic": "payments"}),
        (
            "rocketmq_consumer_group_create_execution_time_milliseconds_count",
            {"invocation_status": "success"},
        ),
        ("rocketmq_broker_permission", {}),
    ],
)
def test_number_is_apaches(pages: Pages, name: str, labels: dict[str, str]) -> None:
    ours, apache = (values(samples, name, labels) for samples in (pages.ours, pages.apache))
    assert ours
    assert ours == apache


def values(samples: list[Sample], name: str, labels: dict[str, str]) -> list[float]:
    return [
        each.value
        for each in samples
        if each.name == name and labels.items() <= each.labels.items()
    ]
