"""Our strategies against Java's: the same group and queues, member by member."""

import random
from pathlib import Path

import pytest

from rocketrio.consuming.allocate import (
    AllocateStrategy,
    allocate_averagely,
    allocate_averagely_by_circle,
    allocate_by_consistent_hash,
)
from rocketrio_protocol.message import MessageQueue
from tests.interop.jars import VERSIONS
from tests.interop.java_client import JavaClient

pytestmark = pytest.mark.interop

STRATEGIES: dict[str, AllocateStrategy] = {
    "averagely": allocate_averagely,
    "circle": allocate_averagely_by_circle,
    "hash": allocate_by_consistent_hash,
}


@pytest.mark.parametrize("version", VERSIONS)
def test_members_of_java_and_ours_agree(version: str, tmp_path: Path) -> None:
    rng = random.Random(8)
    with JavaClient(version, "127.0.0.1:1", tmp_path) as java:
        for _ in range(60):
            members = sorted(
                f"10.0.{rng.randrange(9)}.{rng.randrange(255)}@{rng.randrange(1 << 30)}"
                for _ in range(rng.randrange(1, 12))
            )
            topic = rng.choice(["orders", "%RETRY%billing", "Zähler"])
            brokers = [f"broker-{name}" for name in "abc"[: rng.randrange(1, 4)]]
            count = rng.randrange(1, 20)
            queues = [
                MessageQueue(topic, broker, number) for broker in brokers for number in range(count)
            ]
            for name, strategy in STRATEGIES.items():
                shares = java.call(
                    "allocate",
                    strategy=name, members=members, topic=topic, brokers=brokers, queues=count,
                )  # fmt: skip
                for member in members:
                    ours = strategy(member, members, queues)
                    assert shares[member] == [f"{q.broker_name}:{q.queue_id}" for q in ours], name
