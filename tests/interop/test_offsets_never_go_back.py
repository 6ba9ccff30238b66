"""The story of `golden/5.3.3-split` with Apache's client on our brokers: where Apache ends at 0, ours end at 120."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import OurBroker, our_pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP = "orders", "billing"
QUEUE: dict[str, Any] = {"topic": TOPIC, "broker": "broker-a", "queue_id": 0, "group": GROUP}
COPIED = 12.0
"""Seconds in which our slave copies the tables once more."""
ROUTE_TIMEOUT = 60.0
"""Seconds; Java looks at its route every 30 s, and only then finds that the master is gone."""


@attrs.frozen
class PairAndJava:
    """A rocketrio master and its slave, and Apache's client."""

    master: OurBroker
    slave: OurBroker
    java: JavaClient


@pytest.fixture
def pair(version: str, tmp_path: Path) -> Iterator[PairAndJava]:
    with (
        our_pair(tmp_path) as brokers,
        JavaClient(version, brokers.name_server.address, tmp_path / "java") as java,
    ):
        master, slave = brokers.master, brokers.slave
        java.create_topic(TOPIC, at=master.address)
        java.call("send_many", prefix="message", count=200, **QUEUE)
        wait_caught_up(master.address, slave.address)
        wait_until(
            lambda: wire.has_topic(slave.address, TOPIC), f"{slave.address} knows {TOPIC}", 30.0
        )
        yield PairAndJava(master, slave, java)


def committed_at(broker: OurBroker) -> int:
    asked = {"consumerGroup": GROUP, "topic": TOPIC, "queueId": "0"}
    answer = wire.ask(broker.address, wire.QUERY_CONSUMER_OFFSET, asked)
    assert set(answer.ext_fields) == {"offset"}  # Nothing that an Apache client has not asked for.
    return int(answer.ext_fields["offset"])


def read(java: JavaClient, start: int, end: int) -> None:
    """Pull eight at a time, as the recorded reader did."""
    while start < end:
        pulled = java.until("pull", timeout=ROUTE_TIMEOUT, offset=start, max=8, **QUEUE)
        assert pulled["status"] == "FOUND"
        start = pulled["next_offset"]
    assert start == end


def test_java_clients_group_is_at_120_after_the_masters_return(pair: PairAndJava) -> None:
    java = pair.java
    read(java, 0, 32)
    java.call("commit", offset=32, **QUEUE)
    assert java.call("committed", **QUEUE) == 32
    pair.master.kill()
    read(java, 32, 120)
    java.until("commit", timeout=ROUTE_TIMEOUT, offset=120, **QUEUE)
    wait_until(lambda: committed_at(pair.slave) == 120, "120 at the slave", ROUTE_TIMEOUT)
    pair.master.restart()
    assert committed_at(pair.master) == 120
    end = time.monotonic() + COPIED
    while time.monotonic() < end:
        assert committed_at(pair.master) == committed_at(pair.slave) == 120
        assert java.call("committed", **QUEUE) == 120
        time.sleep(1)
    read(java, 120, 200)


def test_a_seek_and_a_reset_by_the_java_client_go_back_on_both_brokers(pair: PairAndJava) -> None:
    """Its commits are plain: the last one wins, and reaches the slave as a lowering."""
    java = pair.java
    read(java, 0, 8)  # Brokers know the group by it, where they are asked by a client of 5.x.
    for offset in (120, 10):
        java.call("commit", offset=offset, **QUEUE)
        wait_until(
            lambda offset=offset: committed_at(pair.slave) == offset,  # type: ignore[misc]
            f"{offset} at the slave",
            30.0,
        )
    pair.master.kill()
    pair.master.restart()
    assert committed_at(pair.master) == 10
