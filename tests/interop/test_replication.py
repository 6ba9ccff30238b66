"""A slave of each product following a master of the other: the same bytes, the same metadata."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.interop.apache import METADATA_TIMEOUT
from tests.interop.conftest import OnApache, OnOurs, World
from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.commit_logs import digest, wait_caught_up
from tests.support.ours import assert_same_logs
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

UPDATE_AND_CREATE_TOPIC, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 17, 200
PADDING = "." * 3000
"""400 such messages fill more than one commit-log file of 1 MiB, and a consume queue of 300 entries."""


@pytest.fixture(scope="session")
def filled_before(world: World) -> set[str]:
    """Which of the world's clusters hold the messages already."""
    assert world
    return set()


# Of the narrowest scope: pytest would sort by it and start every version twice otherwise.
@pytest.fixture(params=["our slave", "Apache slave"])
def filled(
    request: pytest.FixtureRequest, world: World, filled_before: set[str]
) -> OnApache | OnOurs:
    """One of the clusters, with what `_fill` puts into it."""
    name: str = request.param
    cluster = world.on_apache if name == "our slave" else world.on_ours
    if name not in filled_before:
        _fill(cluster)
        filled_before.add(name)
    return cluster


def _fill(cluster: OnApache | OnOurs) -> None:
    """400 messages in one queue, over a file's end, and a committed offset."""
    java = cluster.java
    queue: dict[str, Any] = {"topic": "replicated", "broker": "broker-a", "queue_id": 0}
    java.create_topic("replicated", at=cluster.master.address, queues=2)
    # A slave without any log is given the last file only, so it has to be there before the first one is full.
    java.call("send", body="first", **queue)
    wait_caught_up(cluster.master.address, cluster.slave.address)
    java.call("send_many", prefix="p", count=400, padding=PADDING, keys="every", **queue)
    java.call("send_batch", bodies=["b-0", "b-1"], tags="red", **queue)
    java.call("send", body="compressed " * 1000, **queue)
    java.call("pull", group="billing", offset=0, **queue)  # A 5.x broker knows the group by it.
    java.call("commit", group="billing", offset=77, **queue)


def test_logs_are_the_same_to_the_byte(filled: OnApache | OnOurs) -> None:
    assert assert_same_logs(filled.master, filled.slave) > 2**20


def test_slave_serves_what_it_copied(filled: OnApache | OnOurs) -> None:
    """As soon as it knows the topic, which is metadata and not in the log."""
    slave = filled.slave.address
    wait_caught_up(filled.master.address, slave)
    wait_until(lambda: _pull(slave).code == 0, f"{slave} serves", METADATA_TIMEOUT)
    at_master = _pull(filled.master.address)
    assert _pull(slave).body == at_master.body
    assert at_master.body.count(b"every") >= 31


def test_slave_finds_messages_by_key(filled: OnApache | OnOurs) -> None:
    wait_caught_up(filled.master.address, filled.slave.address)
    asked = {
        "topic": "replicated",
        "key": "every",
        "maxNum": "32",
        "beginTimestamp": "0",
        "endTimestamp": str(2**62),
    }
    answer = wire.ask(filled.slave.address, wire.QUERY_MESSAGE, asked)
    assert answer.code == 0
    assert answer.body.count(b"every") >= 32


def test_slave_copies_topics_and_groups_and_offsets(filled: OnApache | OnOurs) -> None:
    slave = filled.slave.address

    def copied() -> bool:
        offsets = wire.ask(slave, wire.GET_ALL_CONSUMER_OFFSET).json()["offsetTable"]
        billing = offsets.get("replicated@billing", {})
        return wire.has_topic(slave, "replicated") and billing.get("0") == 77

    wait_until(copied, f"{slave} has the topic and the group's offset", METADATA_TIMEOUT)
    master_groups = _groups(filled.master.address)
    wait_until(lambda: master_groups <= _groups(slave), "the groups", METADATA_TIMEOUT)


def test_slave_copies_what_5_x_alone_knows_of_topics_and_groups(
    filled: OnApache | OnOurs,
) -> None:
    """Attributes of a topic and the retry policy of a group; Apache's slave cannot be given attributes."""
    if filled.version < "5":
        pytest.skip("4.9 knows neither")
    policy = {
        "type": "EXPONENTIAL",
        "exponentialRetryPolicy": {"initial": 4000, "max": 60000, "multiplier": 2},
    }
    topic = {
        "topic": "typed", "defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
        "topicFilterType": "SINGLE_TAG", "order": "false", "attributes": "+message.type=FIFO",
    }  # fmt: skip
    group = json.dumps({"groupName": "patient", "groupRetryPolicy": policy}).encode()
    master, slave = filled.master.address, filled.slave.address
    assert wire.ask(master, UPDATE_AND_CREATE_TOPIC, topic).code == 0
    assert wire.ask(master, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == 0

    expected = {"message.type": "FIFO"} if isinstance(filled, OnApache) else {}

    def is_copied() -> bool:
        found = wire.topics(slave).get("typed", {}).get("attributes")
        groups = wire.ask(slave, wire.GET_ALL_SUBSCRIPTIONGROUP_CONFIG).json()
        copied = groups["subscriptionGroupTable"].get("patient", {}).get("groupRetryPolicy")
        return found == expected and copied == policy

    wait_until(is_copied, f"{slave} has the attribute and the policy", METADATA_TIMEOUT)


def test_slave_follows_a_topic_made_while_it_runs(filled: OnApache | OnOurs) -> None:
    """Both learn of a topic that is made while they run."""
    java: JavaClient = filled.java
    java.call("send_many", prefix="later", count=20, topic="made-later")
    assert_same_logs(filled.master, filled.slave)


@pytest.mark.parametrize("who", ["slave", "master"])
def test_log_is_compared_and_continues_after_a_restart(filled: OnApache | OnOurs, who: str) -> None:
    """A rocketrio slave asks from before its end, and what it has already is not appended twice."""
    java: JavaClient = filled.java
    wait_caught_up(filled.master.address, filled.slave.address)
    ended = filled.slave if who == "slave" else filled.master
    ended.kill()
    ended.restart()
    java.until("publish_queues", topic="replicated")
    java.call("send_many", prefix=f"after-{who}", count=20, topic="replicated", padding=PADDING)
    assert_same_logs(filled.master, filled.slave)
    if isinstance(filled, OnApache):
        assert "differs" not in (filled.slave.home / "out.log").read_text()


def test_our_master_gets_back_from_apache_s_slave_what_it_lost(
    on_ours: OnOurs, tmp_path: Path
) -> None:
    """Its disk is as it was some messages ago; the slave is asked by requests that Apache's answer."""
    master, slave, java = on_ours.master, on_ours.slave, on_ours.java
    java.create_topic("lost", at=master.address)
    java.call("send_many", prefix="kept", count=20, topic="lost")
    wait_caught_up(master.address, slave.address)
    master.stop()
    shutil.copytree(master.store, tmp_path / "earlier")
    master.restart()
    java.until("publish_queues", topic="lost")
    java.call("send_many", prefix="lost", count=20, topic="lost", padding=PADDING)
    end = wait_caught_up(master.address, slave.address)
    before = digest(slave.store, end)
    master.kill()
    shutil.rmtree(master.store)
    shutil.copytree(tmp_path / "earlier", master.store)
    master.restart()
    assert wire.max_physical_offset(master.address) == end
    assert digest(master.store, end) == before
    java.until("publish_queues", topic="lost")
    java.call("send_many", prefix="more", count=20, topic="lost")
    assert_same_logs(master, slave)


def test_apache_s_slave_passes_over_a_deletion(on_ours: OnOurs) -> None:
    """It stores the record, gives it no queue entry, and recovers across it."""
    master, slave, java = on_ours.master, on_ours.slave, on_ours.java
    java.create_topic("reborn", at=master.address)
    java.call("send_many", prefix="earlier", count=5, topic="reborn")
    wait_caught_up(master.address, slave.address)
    before = wire.max_physical_offset(master.address)
    assert wire.ask(master.address, wire.DELETE_TOPIC_IN_BROKER, {"topic": "reborn"}).code == 0
    end = wait_caught_up(master.address, slave.address)
    assert end > before
    slave.kill()
    slave.restart()
    assert wire.max_physical_offset(slave.address) == end
    assert [wire.max_offset(broker.address, "reborn") for broker in (master, slave)] == [0, 5]
    java.create_topic("reborn", at=master.address)
    java.call("send_many", prefix="later", count=1, topic="reborn")
    assert_same_logs(master, slave)


def _groups(address: str) -> set[str]:
    answer = wire.ask(address, wire.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return set(json.loads(answer.body)["subscriptionGroupTable"])


def _pull(address: str) -> wire.Answer:
    """A pull of 32 messages from the beginning."""
    return wire.ask(
        address,
        wire.PULL_MESSAGE,
        {
            "consumerGroup": "billing",
            "topic": "replicated",
            "queueId": "0",
            "queueOffset": "0",
            "maxMsgNums": "32",
            "sysFlag": "4",
            "commitOffset": "0",
            "suspendTimeoutMillis": "0",
            "subscription": "*",
            "subVersion": "0",
            "expressionType": "TAG",
        },
    )
