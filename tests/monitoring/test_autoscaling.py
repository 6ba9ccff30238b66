"""The queries that scale a group: its lag, and no answer while the lag is unknown."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
import trio
import yaml
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import Process, free_port
from tests.support.prometheus import Prometheus, needs_prometheus, prometheus

from rocketrio import Message, open_admin, open_client, open_consumer, open_producer

ROOT = Path(__file__).parents[2]
MANIFEST = ROOT / "deploy" / "kubernetes" / "autoscaling" / "billing.yaml"
QUERIES = re.findall(
    r"^```promql\n(.*?)^```", (ROOT / "docs" / "autoscaling.md").read_text(), re.DOTALL | re.M
)
SENT, DONE = 40, 4
LAG = 'rocketmq_consumer_lag_messages{consumer_group="billing", topic="orders", job="rocketmq"}'
ARRIVED = 'rocketmq_messages_in_total{topic="orders"}'


def words(text: str) -> list[str]:
    return text.split()


def triggers() -> dict[str, dict[str, str]]:
    [scaled] = [
        one for one in yaml.safe_load_all(MANIFEST.read_text()) if one["kind"] == "ScaledObject"
    ]
    return {one["name"]: one["metadata"] for one in scaled["spec"]["triggers"]}


def test_scaler_asks_what_the_guide_explains_and_takes_no_answer_for_no_zero() -> None:
    lag = triggers()["lag"]
    assert words(lag["query"]) == words(QUERIES[0])
    assert lag["ignoreNullValues"] == "false"
    assert ARRIVED in triggers()["arrivals"]["query"]


def of_two_pairs(query: str) -> str:
    return query.replace(")) == 1", ")) == 2")


@attrs.frozen
class Watched:
    name_server: str
    brokers: Sequence[OurBroker]
    by: Prometheus


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """Two masters that share each topic, as two pairs do."""
    names_of_brokers = ("broker-a", "broker-b")
    *pages, exporter = (f"127.0.0.1:{free_port()}" for _ in range(3))
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(tmp_path / "names"))
        names.wait_ready()
        brokers = [
            stack.enter_context(
                OurBroker(
                    tmp_path / name, names.address, name=name, settings=(f"metrics_listen={page}",)
                )
            )
            for name, page in zip(names_of_brokers, pages, strict=True)
        ]
        for broker in brokers:
            broker.wait_ready()
        argv = (
            Path(sys.executable).with_name("rocketrio"), "exporter", "--listen", exporter,
            "--namesrv", names.address, "--names", "native,own", "--every", "5s",
        )  # fmt: skip
        stack.callback(Process.start("exporter", argv, log=tmp_path / "exporter.log").kill)
        by = stack.enter_context(prometheus(tmp_path, pages, [exporter]))
        yield Watched(names.address, brokers, by)


async def send(name_server: str) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
    ):
        await admin.create_topic("orders", queues=4)
        for number in range(SENT):
            await producer.send(Message("orders", b"%d" % number))


async def handle_some(name_server: str) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_consumer(
            "orders", group="billing", start_from="earliest", client=client, auto_commit=False
        ) as consumer,
    ):
        for _ in range(DONE):
            await consumer.receive()
        await consumer.commit()


async def while_a_member_has_committed_nothing(watched: Watched) -> None:
    async with open_consumer(
        "orders",
        group="billing",
        start_from="earliest",
        auto_commit=False,
        name_servers=[watched.name_server],
    ):
        known = 'min(rocketrio_group_lag_known{consumer_group="billing"})'
        await trio.to_thread.run_sync(watched.by.until, known, 0)
        assert [watched.by.number(of_two_pairs(query)) for query in QUERIES] == [None] * 3


@needs_prometheus
@pytest.mark.real
@pytest.mark.slow
def test_query_is_the_lag_and_has_no_answer_while_it_is_unknown(watched: Watched) -> None:
    of_brokers, age, of_exporter = map(of_two_pairs, QUERIES)
    trio.run(send, watched.name_server)
    trio.run(while_a_member_has_committed_nothing, watched)
    trio.run(handle_some, watched.name_server)
    for query in (of_brokers, of_exporter):
        watched.by.until(query, SENT - DONE)
    assert (watched.by.number(age) or 0) > 0
    assert watched.by.number(QUERIES[0]) is None  # It is about one pair, and two know their part.
    watched.by.until(f"sum({ARRIVED})", SENT)
    watched.brokers[1].kill()
    # What the other broker knows is a part.
    for query in (of_brokers, age, of_exporter):
        watched.by.until(query, None)
    part = watched.by.number(f"sum({LAG})")
    assert part is not None
    assert 0 < part < SENT - DONE
