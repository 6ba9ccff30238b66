"""`rocketrio exporter` on a master of Apache and a rocketrio slave, and Prometheus itself that scrapes it."""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families

from rocketrio import (
    ClientInstance,
    Message,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp
from tests.interop.conftest import OnApache
from tests.support.http import get
from tests.support.processes import Process, free_port
from tests.support.prometheus import Prometheus, prometheus

pytestmark = pytest.mark.interop

PROMETHEUS = shutil.which("prometheus")
UNKNOWN = "export-unknown"
SIGNS = ('topic="exported-alone"', "rocketmq_send_back_nums{")
"""What a page has when members, topics without a group, and sizes have been asked for."""
NAMES_OF_JAVA = Path(__file__).parents[1] / "client/exporter/exporter_names.txt"
COMMAND = Path(sys.executable).with_name("rocketrio")


def has_all(text: str, group: str) -> bool:
    """Say whether a page has everything that is asked for one after the other."""
    is_judged = any(f'"{group}"' in line and '"stopped"' in line for line in text.splitlines())
    return is_judged and all(sign in text for sign in SIGNS)


async def test_exporter_shows_groups_and_brokers_of_apache(
    on_apache: OnApache, tmp_path: Path
) -> None:
    topic, group = "exported", "export-readers"
    async with (
        open_client(name_servers=[on_apache.name_server]) as client,
        open_producer(client=client) as producer,
    ):
        await producer.send(Message("exported-alone", b"1"))
        for number in range(10):
            await producer.send(Message(topic, b"%d" % number))
        async with open_consumer(
            topic, group=group, start_from="earliest", client=client, auto_commit=False
        ) as consumer:
            for _ in range(10):
                await consumer.receive()
            await consumer.commit()
        for number in range(3):
            await producer.send(Message(topic, b"%d" % number))
        await commit_one_queue_only(client, on_apache.master.address, topic)
    port = free_port()
    watching = ExitStack()
    process = Process.start(
        "exporter",
        [
            *(COMMAND, "exporter", "--namesrv", on_apache.name_server),
            *(
                "--listen",
                f":{port}",
                "--every",
                "5",
                "--include-groups",
                f"^({group}|{UNKNOWN})$",
                "--sizes",
            ),
        ],
        log=tmp_path / "exporter.log",
        env=dict(os.environ),
    )
    try:
        with trio.fail_after(60):
            while (text := await page(port)) is None or not has_all(text, group):
                assert process.is_running, process.tail()
                await trio.sleep(1)
        if PROMETHEUS is not None:
            by = watching.enter_context(prometheus(tmp_path, [f"127.0.0.1:{port}"]))
            await trio.to_thread.run_sync(watched, by, group, text)
    finally:
        watching.close()
        process.kill()
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]

    def values(name: str, **labels: str) -> list[float]:
        wanted = labels.items()
        return [s.value for s in samples if s.name == name and wanted <= s.labels.items()]

    assert values("rocketmq_group_diff", group=group, topic=topic) == [3]
    assert values("rocketmq_consumer_lag_messages", consumer_group=group, topic=topic) == [3]
    assert values("rocketmq_consumer_offset", group=group, topic=topic) == [10]
    assert values("rocketmq_producer_offset", topic=topic) == [13]
    assert values("rocketrio_group_verdict", consumer_group=group, verdict="stopped") == [1]
    # Where nothing is committed on a queue with messages, Apache's exporter has a number.
    assert values("rocketrio_group_lag_known", consumer_group=UNKNOWN, topic=topic) == [0]
    assert not values("rocketmq_group_diff", group=UNKNOWN, topic=topic)
    assert not values("rocketmq_consumer_lag_messages", consumer_group=UNKNOWN, topic=topic)
    assert values("rocketrio_exporter_up") == [1, 1]
    assert len(values("rocketmq_broker_tps")) == 1
    of_apache = on_apache.master.address
    runtime = {
        s.name.removeprefix("rocketmq_brokeruntime_")
        for s in samples
        if s.labels.get("brokerIP") == of_apache and s.name.startswith("rocketmq_brokeruntime_")
    }
    assert {"put_tps10", "commitlog_maxoffset", "commitlogdir_capacity_free"} <= runtime
    assert len(runtime) > 30
    assert values("rocketmq_producer_offset", topic="exported-alone") == [1]
    assert values("rocketmq_group_count", group=group) == [0]
    (diff,) = [s for s in samples if s.name == "rocketmq_group_diff" and s.labels["topic"] == topic]
    assert (diff.labels["countOfOnlineConsumers"], diff.labels["msgModel"]) == ("0", "1")
    assert values("rocketmq_producer_message_size", topic=topic)
    assert values("rocketmq_consumer_message_size", group=group, topic=topic)
    assert values("rocketmq_send_back_nums", group=group, topic=topic) == [0]
    named = {f"{s.name} {' '.join(s.labels)}" for s in samples if s.labels.get("cluster")}
    shown = {name for name in named if name.startswith("rocketmq_b")}
    assert shown <= set(NAMES_OF_JAVA.read_text().splitlines())


async def commit_one_queue_only(client: ClientInstance, broker: str, topic: str) -> None:
    """Have a group that has committed on one of several queues with messages."""
    async with open_admin(client=client) as admin, open_channel_pool(dial_tcp) as pool:
        await admin.create_group(UNKNOWN)
        header = UpdateConsumerOffsetRequestHeader(UNKNOWN, topic, 0, 1)
        assert (await pool.call(broker, header)).code == 0


def watched(by: Prometheus, group: str, text: str) -> None:
    """Prometheus itself reads the page, and the rules that are shipped fit to it."""
    by.until(f'sum(rocketmq_group_diff{{group="{group}"}})', 3)
    by.until(f'sum(group:rocketmq_consumer_lag_messages:sum{{consumer_group="{group}"}})', 3)
    by.until("count(rocketrio_exporter_up == 1)", 2)
    assert not by.broken_rules()
    done = subprocess.run(
        ["promtool", "check", "metrics"], input=text.encode(), capture_output=True
    )
    remarks = (done.stdout + done.stderr).decode().splitlines()
    # The names are Apache's.
    assert [each for each in remarks if not each.startswith("rocketmq_")] == []


async def page(port: int) -> str | None:
    try:
        return (await get(dial_tcp, f"127.0.0.1:{port}")).text
    except NotReachableError:
        return None
