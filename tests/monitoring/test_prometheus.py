"""A real Prometheus reads a rocketrio broker in a process of its own, with the rules that are shipped."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.prometheus import Prometheus, needs_prometheus, prometheus, read

from rocketrio import Message, open_client, open_consumer, open_producer

pytestmark = [pytest.mark.real, pytest.mark.slow, needs_prometheus]


@attrs.frozen
class Watched:
    name_server: str
    broker: OurBroker
    page: str
    by: Prometheus


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    page = f"127.0.0.1:{free_port()}"
    with OurNameServer(tmp_path / "names") as names:
        names.wait_ready()
        settings = (f"metrics_listen={page}",)
        with (
            OurBroker(tmp_path / "broker", names.address, settings=settings) as broker,
            prometheus(tmp_path, [page]) as by,
        ):
            broker.wait_ready()
            yield Watched(names.address, broker, f"http://{page}", by)


async def use(name_server: str) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_producer(client=client) as producer,
    ):
        for number in range(10):
            await producer.send(Message("orders", b"%d" % number))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client, auto_commit=False
        ) as consumer:
            for _ in range(4):
                await consumer.receive()
            await consumer.commit()


def test_prometheus_reads_a_broker_and_notices_its_end(watched: Watched) -> None:
    trio.run(use, watched.name_server)
    watched.by.until("sum(rocketmq_messages_in_total)", 10)
    assert watched.by.number('up{job="rocketmq"}') == 1
    assert watched.by.number("sum(rocketmq_consumer_lag_messages)") == 6
    assert watched.by.number("rocketrio_broker_takes_writes") == 1
    assert watched.by.number('scrape_samples_scraped{job="rocketmq"}') > 100  # type: ignore[operator]
    watched.by.until("sum(group:rocketmq_consumer_lag_messages:sum)", 6)
    assert not watched.by.broken_rules()
    watched.broker.kill()
    watched.by.until('ALERTS{alertname="BrokerSilent"}', 1)
    # Without a time of its own a series ends with its page.
    watched.by.until("rocketmq_consumer_lag_messages", None)


def test_promtool_finds_no_mistake_in_a_page(watched: Watched) -> None:
    trio.run(use, watched.name_server)
    page = read(f"{watched.page}/metrics")
    done = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True)
    remarks = (done.stdout + done.stderr).decode().splitlines()
    # Apache's names are in milliseconds; boards need them so.
    assert [each for each in remarks if not each.startswith("rocketmq_")] == []
