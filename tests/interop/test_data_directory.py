"""One data directory, served in turn by Apache and by us, after clean stops and after kill -9."""

from pathlib import Path
from typing import Any, Literal

import pytest

from tests.interop.apache import ApacheBroker
from tests.interop.java_client import JavaClient
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

PADDING = "." * 3000
PERSIST_TIMEOUT = 15.0
"""Seconds; Apache writes consumerOffset.json every 5."""
QUEUE: dict[str, Any] = {"topic": "moved", "broker": "mover", "queue_id": 0}

Ending = Literal["stop", "kill"]
Broker = ApacheBroker | OurBroker


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_apache_and_we_take_turns_on_one_directory(
    version: str, ending: Ending, tmp_path: Path
) -> None:
    store, port = tmp_path / "store", free_port(-2, 1)
    with (
        OurNameServer(tmp_path / "namesrv") as names,
        JavaClient(version, names.address, tmp_path / "java") as java,
    ):
        apache = ApacheBroker(
            version, tmp_path / "apache", names.address, name="mover", store=store, port=port
        )
        ours = OurBroker(tmp_path / "ours", names.address, name="mover", store=store, port=port)
        expected: list[str] = []
        committed = 0
        turns: list[Broker] = [apache, ours, apache, ours]
        for turn, broker in enumerate(turns):
            with broker:
                if turn == 0:
                    java.create_topic("moved", at=broker.address)
                else:
                    java.until("publish_queues", topic="moved")
                    _see(java, expected, committed, ending)
                prefix = f"turn-{turn}"
                java.until("send", body=f"{prefix}-hello", keys="hello", **QUEUE)
                java.call(
                    "send_many", prefix=prefix, count=350, padding=PADDING, keys=prefix, **QUEUE
                )
                expected.append(f"{prefix}-hello")
                expected += [f"{prefix}-{number}{PADDING}" for number in range(350)]
                committed = len(expected) - 5
                java.call("pull", group="billing", offset=0, **QUEUE)
                java.call("commit", group="billing", offset=committed, **QUEUE)
                _end(broker, ending, committed)


def _see(java: JavaClient, expected: list[str], committed: int, ending: Ending) -> None:
    """Every message, the group's offset and the keys of the turns before are there."""
    found = [message["body"] for message in java.until("read_all", topic="moved")]
    assert found == expected
    assert java.call("committed", group="billing", **QUEUE) == committed
    hellos = [body for body in expected if body.endswith("hello")]
    if ending == "kill":
        # Apache drops an index file that is newer than the checkpoint and fills a new one from
        # the newest log files only, so after its second kill it has lost the oldest keys itself.
        hellos = hellos[-1:]
    by_key = java.until("query_key", topic="moved", key="hello")
    assert set(hellos) <= {message["body"] for message in by_key}


def _end(broker: Broker, ending: Ending, committed: int) -> None:
    if ending == "stop":
        broker.stop()
        return
    # Offsets are written on a period; what a kill may cost is not what this story is about.
    offsets = broker.store / "config" / "consumerOffset.json"
    wait_until(
        lambda: offsets.exists() and f"0:{committed}" in offsets.read_text(),
        "the offset is on disk",
        PERSIST_TIMEOUT,
    )
    broker.kill()
