"""Delayed messages and transactions: Apache's client on our broker, and one product taking over from the other."""

import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest

from rocketrio_protocol.commands.admin import ChangeBrokerRoleRequestHeader
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient, JavaError
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

CHECK_SETTINGS = ("transaction_timeout=1.0", "transaction_check_interval=2.0")
APACHE_CHECK_SETTINGS = {"transactionTimeOut": "1000", "transactionCheckInterval": "2000"}
DELAYS = {1: 1.0, 2: 5.0, 3: 10.0}
"""Seconds of the first levels."""
LATE_LIMIT = 1.0
"""Seconds a delivery may be late while the machine is busy with JVMs."""
CHECK_TIMEOUT = 20.0


@attrs.frozen
class OnOurs:
    """Our name server and broker, which checks transactions soon, and Apache's client."""

    broker: OurBroker
    java: JavaClient


@pytest.fixture(scope="module")
def ours(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OnOurs]:
    folder = tmp_path_factory.mktemp(f"parked-{version}")
    with (
        OurNameServer(folder / "namesrv") as names,
        OurBroker(folder / "broker", names.address, settings=CHECK_SETTINGS) as broker,
        JavaClient(version, names.address, folder / "java") as java,
    ):
        yield OnOurs(broker, java)


def bodies(java: JavaClient, topic: str) -> list[str]:
    try:
        return sorted(message["body"] for message in java.call("read_all", topic=topic))
    except JavaError:
        return []  # No message was sent there yet.


def wait_bodies(java: JavaClient, topic: str, expected: list[str], timeout: float = 30.0) -> None:
    wait_until(lambda: bodies(java, topic) == sorted(expected), f"{topic}: {expected}", timeout)


def test_levels_are_delivered_at_their_times(ours: OnOurs) -> None:
    java, topic = ours.java, "delayed"
    java.create_topic(topic, at=ours.broker.address)
    sent_ms: dict[str, tuple[int, int]] = {}
    for level in DELAYS:
        before = round(time.time() * 1000)
        java.call("send", topic=topic, body=f"level-{level}", tags="red", delay_level=level)
        sent_ms[f"level-{level}"] = before, round(time.time() * 1000)
    assert bodies(java, topic) == []
    wait_bodies(java, topic, list(sent_ms))
    for message in java.call("read_all", topic=topic):
        before, after = sent_ms[message["body"]]
        delay = DELAYS[int(message["properties"]["DELAY"])]
        assert before + 1000 * delay <= message["store_timestamp_ms"]
        assert message["store_timestamp_ms"] <= after + 1000 * (delay + LATE_LIMIT)
        assert message["tags"] == "red"


def test_transaction_that_is_decided_at_once(ours: OnOurs) -> None:
    java, topic = ours.java, "decided"
    java.create_topic(topic, at=ours.broker.address)
    sent = java.call("transaction_send", topic=topic, body="kept", local="COMMIT", keys="k")
    java.call("transaction_send", topic=topic, body="dropped", local="ROLLBACK")
    assert sent["status"] == "SEND_OK"
    wait_bodies(java, topic, ["kept"])
    (message,) = java.call("read_all", topic=topic)
    assert (message["message_id"], message["keys"]) == (sent["message_id"], "k")
    time.sleep(5)  # Two rounds of checks.
    assert bodies(java, topic) == ["kept"]
    checked = {message["body"] for message in java.call("transaction_checks")}
    assert not checked & {"kept", "dropped"}


def test_unknown_transaction_is_checked_back(ours: OnOurs) -> None:
    java, topic = ours.java, "checked"
    java.create_topic(topic, at=ours.broker.address)
    for checked in ("COMMIT", "ROLLBACK"):
        java.call(
            "transaction_send", topic=topic, body=f"late {checked}", local="UNKNOW", checked=checked
        )
    wait_bodies(java, topic, ["late COMMIT"], CHECK_TIMEOUT)
    checks = [each for each in java.call("transaction_checks") if each["body"].startswith("late")]
    assert sorted(each["body"] for each in checks) == ["late COMMIT", "late ROLLBACK"]
    for each in checks:
        assert each["topic"] == topic
        assert each["properties"]["TRANSACTION_CHECK_TIMES"] == "1"
    time.sleep(5)
    assert bodies(java, topic) == ["late COMMIT"]
    assert len(java.call("transaction_checks")) == len(checks)


Broker = ApacheBroker | OurBroker


@pytest.mark.parametrize("first", ["apache", "ours"])
def test_broker_that_takes_over_the_directory_delivers_and_decides(
    first: str, version: str, tmp_path: Path
) -> None:
    """Parked at one product's broker, which is killed; delivered and checked back by the other's."""
    store, port = tmp_path / "store", free_port(-2, 1)
    topic = "inherited"
    with (
        OurNameServer(tmp_path / "namesrv") as names,
        JavaClient(version, names.address, tmp_path / "java") as java,
    ):
        apache = ApacheBroker(
            version,
            tmp_path / "apache",
            names.address,
            store=store,
            port=port,
            settings={"transactionTimeOut": "60000"}
            if first == "apache"
            else APACHE_CHECK_SETTINGS,
        )
        settings = ("transaction_timeout=60.0",) if first == "ours" else CHECK_SETTINGS
        our = OurBroker(tmp_path / "ours", names.address, store=store, port=port, settings=settings)
        brokers: list[Broker] = [apache, our] if first == "apache" else [our, apache]
        with brokers[0] as broker:
            java.create_topic(topic, at=broker.address)
            java.call("send", topic=topic, body="delivered before", delay_level=1)
            wait_bodies(java, topic, ["delivered before"])
            java.call("send", topic=topic, body="half a minute", delay_level=4)
            java.call("transaction_send", topic=topic, body="committed before", local="COMMIT")
            java.call("transaction_send", topic=topic, body="dropped before", local="ROLLBACK")
            for checked in ("COMMIT", "ROLLBACK"):
                java.call(
                    "transaction_send",
                    topic=topic,
                    body=f"checked {checked}",
                    local="UNKNOW",
                    checked=checked,
                )
            wait_bodies(java, topic, ["delivered before", "committed before"])
            # Progress and operations are written then: Apache's periods are 10 s and 3 s.
            time.sleep(11)
            java.call("send", topic=topic, body="five seconds", delay_level=2)
            broker.kill()
        expected = [
            "delivered before",
            "committed before",
            "half a minute",
            "five seconds",
            "checked COMMIT",
        ]
        with brokers[1]:
            java.until("publish_queues", topic=topic)
            wait_until(
                lambda: set(bodies(java, topic)) == set(expected), f"all of {expected}", 90.0
            )
            time.sleep(5)
            twice = [body for body, times in Counter(bodies(java, topic)).items() if times > 1]
            # 5.3.3 writes down late what is decided, and checks it again until then.
            assert twice == [] or (twice, version, first) == (["checked COMMIT"], "5.3.3", "ours")


def test_our_slave_takes_over_from_apache_s_master(version: str, tmp_path: Path) -> None:
    topic = "taken"
    with (
        ApacheNameServer(version, tmp_path / "namesrv") as names,
        JavaClient(version, names.address, tmp_path / "java") as java,
    ):
        master = ApacheBroker(version, tmp_path / "apache", names.address)
        slave = OurBroker(
            tmp_path / "ours", names.address, role="slave", broker_id=1, settings=CHECK_SETTINGS
        )
        with master, slave:
            java.create_topic(topic, at=master.address)
            java.call("send", topic=topic, body="before", delay_level=1)
            wait_bodies(java, topic, ["before"])
            sent = [f"delayed-{number}" for number in range(5)]
            for body in sent:
                java.call("send", topic=topic, body=body, delay_level=4)
            java.call(
                "transaction_send", topic=topic, body="open", local="UNKNOW", checked="COMMIT"
            )
            wait_caught_up(master.address, slave.address)
            master.kill()
            fields = ChangeBrokerRoleRequestHeader("async-master", 0).to_ext_fields()
            wire.ask(slave.address, int(ChangeBrokerRoleRequestHeader.code), fields, timeout=70.0)
            java.until("publish_queues", topic=topic, timeout=60.0)
            wait_until(
                lambda: set(bodies(java, topic)) == {"before", "open", *sent},
                "everything that was parked",
                90.0,
            )
            found = bodies(java, topic)
            assert [body for body in found if body != "before"] == sorted([*sent, "open"])
