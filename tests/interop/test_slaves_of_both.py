"""Reading from slaves of both products by their master's suggestion, and while it is away: both clients, by node table.

Java's table is `PullAPIWrapper.pullFromWhichNodeTable`, ours `Consumer.pull_from_which_node_table`.
"""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketrio import MessageQueue, Prefetch, open_client, open_consumer
from rocketrio_protocol.codes import MASTER_ID
from tests.interop.apache import METADATA_TIMEOUT, ApacheBroker
from tests.interop.java_client import queue_of
from tests.interop.slaves_of_both import (
    APACHE_SLAVE,
    OUR_SLAVE,
    TOPICS,
    Broker,
    Cluster,
    group_of,
    slaves_of_both,
)
from tests.support import wire
from tests.support.commit_logs import digest, first_address, wait_caught_up
from tests.support.ours import OurBroker, assert_same_logs
from tests.support.waiting import eventually, wait_until

pytestmark = pytest.mark.interop

PATIENCE = 120.0
"""Seconds until a Java group has its queue; some look for it again after 20 s, and report it 30 s later."""
COUNT = 240
PADDING = "." * 3000
"""400 such messages fill more than one commit-log file of 1 MiB."""
BY_EIGHT: dict[str, Any] = {"prefetch": Prefetch(batch_size=8, queue_messages=16)}


@pytest.fixture(scope="module", params=["Apache", "ours"])
def cluster(
    request: pytest.FixtureRequest, version: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp(f"slaves-{version}")
    with slaves_of_both(version, folder, master=request.param) as cluster:
        for topic in ("split", "killed"):
            cluster.java.call("send_many", prefix="m", count=COUNT, **queue_of(topic))
        for slave in cluster.slaves.values():
            wait_until(lambda slave=slave: _serves(slave), "the slaves serve", METADATA_TIMEOUT)  # type: ignore[misc]
        yield cluster


def _serves(slave: Broker) -> bool:
    """Knows topics and groups, and has the messages."""
    groups = wire.ask(slave.address, wire.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).body
    return (
        b'"killed-ours-2"' in groups
        and all(wire.has_topic(slave.address, topic) for topic in TOPICS)
        and wire.max_offset(slave.address, "killed") == COUNT
    )


def _nodes_of(cluster: Cluster, slave: int) -> set[int]:
    """Where a master sends a group that names this slave: to ours 1, which every group names, means any that lives."""
    is_any = slave == APACHE_SLAVE and isinstance(cluster.master, OurBroker)
    return {APACHE_SLAVE, OUR_SLAVE} if is_any else {slave}


# ---------------------------------------------------------------------- by suggestion


@pytest.mark.parametrize("slave", [APACHE_SLAVE, OUR_SLAVE])
def test_java_consumer_reads_at_the_slave_and_returns_to_the_master(
    cluster: Cluster, slave: int
) -> None:
    asked: dict[str, Any] = {"group": group_of("java", "split", slave), **queue_of("split")}
    java, offset, nodes = cluster.java, 0, []
    while True:
        pulled = java.call("pull", offset=offset, max=8, **asked)
        (row,) = java.call("pull_nodes", group=asked["group"])
        nodes.append(row["node"])
        if pulled["status"] != "FOUND":
            break
        offset = pulled["next_offset"]
    assert (pulled["status"], offset) == ("NO_NEW_MSG", COUNT)
    *away, home = nodes
    assert len(away) == COUNT // 8
    assert len(set(away)) == 1
    assert set(away) <= _nodes_of(cluster, slave)
    assert home == MASTER_ID


@pytest.mark.parametrize("slave", [APACHE_SLAVE, OUR_SLAVE])
async def test_rocketrio_consumer_reads_at_the_slave_and_returns_to_the_master(
    cluster: Cluster, slave: int
) -> None:
    queue = MessageQueue("split", "broker-a", 0)
    ids = {each.address: id_ for id_, each in cluster.slaves.items()}
    nodes, served_by = set(), set()
    async with open_consumer(
        "split",
        group=group_of("ours", "split", slave),
        queues=[queue],
        start_from="earliest",
        name_servers=[cluster.name_server],
        **BY_EIGHT,
    ) as consumer:
        with trio.fail_after(PATIENCE):
            for number in range(COUNT):
                assert (await consumer.receive()).queue_offset == number
                of_queue = consumer.statistics().queues[queue]
                if number < COUNT - 20:  # The last pull but one may be level already.
                    nodes.add(of_queue.pull_from_which_node)
                    served_by.add(ids.get(of_queue.pulled_from or "", MASTER_ID))
        assert nodes <= _nodes_of(cluster, slave)
        assert len(nodes) == 1
        assert served_by - {MASTER_ID} == nodes
        await eventually(
            lambda: consumer.pull_from_which_node_table == {queue: MASTER_ID}, PATIENCE
        )


# ---------------------------------------------------------------------- what slaves have


def test_several_slaves_have_the_same_log_through_cuts_and_load(cluster: Cluster) -> None:
    """Connections are reset, and held up, while messages arrive."""
    java = cluster.java
    for number, words in enumerate([("drop",), ("hold", "drop", "go"), ("hold", "go")]):
        sends = {"prefix": f"cut-{number}", "padding": PADDING, **queue_of("loaded")}
        java.call("send_many", count=100, **sends)
        cluster.link.tell(words[0])
        java.call("send_many", count=100, **sends)
        for word in words[1:]:
            cluster.link.tell(word)
        java.call("send_many", count=50, **sends)
    _assert_same_logs(cluster)


def test_slave_that_was_away_for_more_than_a_file_continues(cluster: Cluster) -> None:
    for slave in cluster.slaves.values():
        slave.kill()
    cluster.java.call("send_many", prefix="away", count=400, padding=PADDING, **queue_of("loaded"))
    for slave in cluster.slaves.values():
        slave.start()
    for slave in cluster.slaves.values():
        slave.wait_ready()
    _assert_same_logs(cluster)


def test_a_slave_that_comes_late_and_empty(cluster: Cluster, tmp_path: Path) -> None:
    """From ours it gets the whole history, from Apache's master the last file."""
    late: Broker
    if isinstance(cluster.master, ApacheBroker):
        late = OurBroker(tmp_path, cluster.name_server, role="slave", broker_id=3)
    else:
        late = ApacheBroker(
            cluster.apache_slave.version, tmp_path, cluster.name_server, role="SLAVE", broker_id=3
        )
    cluster.java.call("send_many", prefix="early", count=400, padding=PADDING, **queue_of("loaded"))
    with late:
        cluster.java.call("send_many", prefix="late", count=20, **queue_of("loaded"))
        end = wait_caught_up(cluster.master.address, late.address)
        first = first_address(late.store)
        assert digest(late.store, end) == digest(cluster.master.store, end, first=first)
        assert first == (0 if isinstance(cluster.master, OurBroker) else (end - 1) // 2**20 * 2**20)


def _assert_same_logs(cluster: Cluster) -> None:
    for slave in cluster.slaves.values():
        assert_same_logs(cluster.master, slave)


def test_progress_of_delayed_messages_arrives(cluster: Cluster) -> None:
    java = cluster.java
    before = java.call("offsets", **queue_of("loaded"))["max"]
    for level in (1, 2, 2):
        java.call("send", body=f"level {level}", delay_level=level, **queue_of("loaded"))
    wait_until(
        lambda: java.call("offsets", **queue_of("loaded"))["max"] == before + 3, "delivered", 30
    )
    wait_until(lambda: _delivered(cluster.master).get(2, 0) >= 2, "written down")
    wanted = _delivered(cluster.master)
    for slave in cluster.slaves.values():
        wait_until(
            lambda slave=slave: _delivered(slave) == wanted,  # type: ignore[misc]
            f"{slave.address} has {wanted}",
            METADATA_TIMEOUT,
        )


def _delivered(broker: Broker) -> dict[int, int]:
    """How far each delay level is delivered, as the file says; its keys have no quotes."""
    path = broker.store / "config" / "delayOffset.json"
    if not path.exists() or not (text := path.read_text()):
        return {}
    table = json.loads(re.sub(r"([{,])\s*(\d+)\s*:", r'\1"\2":', text))["offsetTable"]
    return {int(level): offset for level, offset in table.items()}


# ---------------------------------------------------------------------- the master is away; comes last


@pytest.mark.parametrize("slave", [APACHE_SLAVE, OUR_SLAVE])
async def test_both_clients_read_on_while_the_master_is_away(cluster: Cluster, slave: int) -> None:
    """And come home afterwards, where their groups stand at the end."""
    java, group = cluster.java, group_of("java", "killed", slave)
    queue = MessageQueue("killed", "broker-a", 0)
    member = f"killed-{slave}"
    await java.acall(
        "work_start", member=member, group=group, topic="killed", batch=8, kept=16, pause_ms=40
    )
    async with (
        open_client(name_servers=[cluster.name_server]) as client,
        open_consumer(
            "killed",
            group=group_of("ours", "killed", slave),
            queues=[queue],
            start_from="earliest",
            client=client,
            **BY_EIGHT,
        ) as consumer,
    ):
        with trio.fail_after(PATIENCE):
            ours = [(await consumer.receive()).queue_offset for _ in range(20)]
        theirs = await java.seen(member, 20, PATIENCE)
        assert len(theirs) < COUNT
        await trio.to_thread.run_sync(cluster.master.kill)
        try:
            assert set(consumer.pull_from_which_node_table.values()) <= _nodes_of(cluster, slave)
            (row,) = await java.acall("work_nodes", member=member)
            assert row["node"] in _nodes_of(cluster, slave)
            with trio.fail_after(PATIENCE):
                while len(ours) < COUNT:
                    ours.append((await consumer.receive()).queue_offset)
            theirs = await java.seen(member, COUNT, PATIENCE)
        finally:
            cluster.master.start()  # In this thread: the process would end with another one.
            await trio.to_thread.run_sync(cluster.master.wait_ready)
        assert ours == [each["queue_offset"] for each in theirs] == list(range(COUNT))
        await eventually(
            lambda: consumer.pull_from_which_node_table == {queue: MASTER_ID}, PATIENCE
        )
        with trio.fail_after(PATIENCE):
            while (await java.acall("work_nodes", member=member))[0]["node"] != MASTER_ID:  # noqa: ASYNC110
                await trio.sleep(0.5)
        consumer._settle()
        for of in (group, group_of("ours", "killed", slave)):
            # Until its route names the master again Java commits to a slave, of which Apache's master never hears.
            await eventually(partial(_is_committed, cluster, of), PATIENCE)
    await java.acall("work_stop", member=member)


def _is_committed(cluster: Cluster, group: str) -> bool:
    return wire.committed(cluster.master.address, group, "killed") == COUNT
