"""Brokers of both products at name servers of both: who knows whom, and what both clients read of routes.

One broker of each product registers with both name servers at once, so that each lists the same brokers.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from rocketrio import Message, MessageQueue, open_client, open_consumer, open_producer
from rocketrio_protocol.bodies.registration import RegisterBrokerBody, encode_register_body
from rocketrio_protocol.bodies.topics import TopicConfigSerializeWrapper
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.commands.cluster import RegisterBrokerRequestHeader
from tests.interop.apache import METADATA_TIMEOUT, ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.commit_logs import wait_caught_up
from tests.support.load import stopped
from tests.support.ours import OurBroker, OurNameServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

REGISTERED = 60.0
"""Seconds until a broker has registered once more with all it knows: at most 30."""
NO_SUCH_CODE = 29_999
NOT_SUPPORTED = 3
ONLY_IN_5_X = ("enableActingMaster", "zoneName", "topicQueueMappingByBroker")

Broker = ApacheBroker | OurBroker


@attrs.frozen
class Mixed:
    """Two name servers, and at both of them a master of each product; Apache's has a slave of its own."""

    apache_names: ApacheNameServer
    our_names: OurNameServer
    apache: ApacheBroker
    apache_slave: ApacheBroker
    ours: OurBroker
    java: JavaClient
    """It asks our name server."""

    @property
    def name_servers(self) -> dict[str, str]:
        return {"Apache": self.apache_names.address, "ours": self.our_names.address}


@pytest.fixture(scope="module")
def mixed(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mixed]:
    folder = tmp_path_factory.mktemp(f"names-{version}")
    with ExitStack() as stack:
        theirs = ApacheNameServer(version, folder / "apache-names")
        our_names = OurNameServer(folder / "our-names")
        stack.enter_context(theirs)
        stack.enter_context(our_names)
        both = f"{theirs.address};{our_names.address}"
        apache = ApacheBroker(
            version, folder / "apache", both, name="apache-a", listed_at=our_names.address
        )
        slave = ApacheBroker(
            version,
            folder / "slave",
            both,
            name="apache-a",
            role="SLAVE",
            broker_id=1,
            listed_at=our_names.address,
        )
        ours = OurBroker(folder / "ours", both, name="ours-a")
        for broker in (apache, ours):
            stack.push(broker)
            broker.start()
        apache.wait_ready()
        wait_until(lambda: wire.is_registered(theirs.address, ours.address), "ours at Apache's")
        wait_until(lambda: wire.is_registered(our_names.address, ours.address), "ours at ours")
        stack.enter_context(slave)
        java = stack.enter_context(JavaClient(version, our_names.address, folder / "java"))
        for broker in (apache, ours):
            java.call("create_topic", address=broker.address, topic="spread", queues=2)
        for name_server in (theirs.address, our_names.address):
            wait_until(
                lambda name_server=name_server: len(_route(name_server)["queueDatas"]) == 2,  # type: ignore[misc]
                f"{name_server} knows where the topic is",
                REGISTERED,
            )
        yield Mixed(theirs, our_names, apache, slave, ours, java)


def _route(name_server: str, **fields: str) -> dict[str, Any]:
    answer = wire.ask(name_server, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": "spread", **fields})
    if answer.code:
        return {"queueDatas": [], "brokerDatas": []}
    route: dict[str, Any] = answer.json()
    return route


def _comparable(route: dict[str, Any]) -> dict[str, Any]:
    """By name, and without what 5.x alone tells."""
    brokers = [
        {key: value for key, value in broker.items() if key not in ONLY_IN_5_X}
        for broker in route["brokerDatas"]
    ]
    return {
        **{key: value for key, value in route.items() if key not in ONLY_IN_5_X},
        "brokerDatas": sorted(brokers, key=lambda broker: str(broker["brokerName"])),
        "queueDatas": sorted(route["queueDatas"], key=lambda each: str(each["brokerName"])),
    }


def test_both_name_servers_return_the_same_route(mixed: Mixed) -> None:
    """Apache's registration holds with ours: the slave of Apache's master gets the address to replicate from."""
    theirs, ours = (_route(addr) for addr in mixed.name_servers.values())
    assert _comparable(ours) == _comparable(theirs)
    assert {broker["brokerName"]: broker["brokerAddrs"] for broker in ours["brokerDatas"]} == {
        "apache-a": {"0": mixed.apache.address, "1": mixed.apache_slave.address},
        "ours-a": {"0": mixed.ours.address},
    }
    standard = _route(mixed.our_names.address, acceptStandardJsonOnly="true")
    assert standard == ours
    mixed.java.call("send", topic="spread", broker="apache-a", queue_id=0, body="replicated")
    wait_caught_up(mixed.apache.address, mixed.apache_slave.address)


def _queues(name_server: str, topic: str) -> dict[str, int]:
    """How many queues of a topic each broker has, as a name server tells."""
    queues = _route(name_server, topic=topic)["queueDatas"]
    return {each["brokerName"]: each["writeQueueNums"] for each in queues}


def test_new_topics_of_a_rocketrio_broker_are_in_all_routes_at_once(mixed: Mixed) -> None:
    for number in range(20):
        for queues in (1, 2):
            topic = f"made-{number}"
            mixed.java.call("create_topic", address=mixed.ours.address, topic=topic, queues=queues)
            for name_server in mixed.name_servers.values():
                assert _queues(name_server, topic) == {"ours-a": queues}
    for name_server in mixed.name_servers.values():
        assert _queues(name_server, "made-0") == {"ours-a": 2}
        assert len(_route(name_server)["queueDatas"]) == 2


@pytest.mark.parametrize("names", ["Apache", "ours"])
async def test_our_client_reaches_brokers_of_both(names: str, mixed: Mixed) -> None:
    async with open_client(name_servers=[mixed.name_servers[names]]) as client:
        async with open_producer(client=client) as producer:
            for broker in ("apache-a", "ours-a"):
                queue = MessageQueue("spread", broker, 1)
                sent = await producer.send(Message("spread", names.encode()), queue=queue)
                assert sent.queue == queue
        async with open_consumer(
            "spread", group=f"spread-{names}", start_from="earliest", client=client
        ) as consumer:
            assert len(consumer.assignment) == 4
            found: set[str] = set()
            with trio.fail_after(30):
                while len(found) < 2:
                    message = await consumer.receive()
                    if message.body == names.encode():
                        found.add(message.broker_name)


def test_java_reaches_brokers_of_both(mixed: Mixed, version: str, tmp_path: Path) -> None:
    with JavaClient(version, mixed.apache_names.address, tmp_path) as at_apache:
        for java, prefix in ((mixed.java, "by ours"), (at_apache, "by Apache's")):
            for broker in ("apache-a", "ours-a"):
                java.call("send", topic="spread", broker=broker, queue_id=0, body=prefix)
        routes = [java.call("route", topic="spread") for java in (mixed.java, at_apache)]
        bodies = [each["body"] for each in mixed.java.call("read_all", topic="spread")]
    assert routes[0] == routes[1]
    assert bodies.count("by ours") == bodies.count("by Apache's") == 2


def test_unknown_codes_are_answered(mixed: Mixed) -> None:
    """Ours everywhere with 3, as Apache's brokers and 5.x name servers; 4.9's name server says nothing at all."""
    answers = {}
    for name, address in {
        "our names": mixed.our_names.address,
        "our broker": mixed.ours.address,
        "our broker, port - 2": f"127.0.0.1:{mixed.ours.port - 2}",
        "Apache's broker": mixed.apache.address,
        "Apache's broker, port - 2": f"127.0.0.1:{mixed.apache.port - 2}",
    }.items():
        answers[name] = wire.ask(address, NO_SUCH_CODE).code
    assert set(answers.values()) == {NOT_SUPPORTED}, answers


def test_java_sends_and_asks_by_the_vip_port(mixed: Mixed, version: str, tmp_path: Path) -> None:
    """Two below the other one: 4.4's clients use it unless a setting says otherwise."""
    topic = "spread"
    queue = {"topic": topic, "broker": "ours-a", "queue_id": 0}
    vip = ("-Dcom.rocketmq.sendMessageWithVIPChannel=true",)
    with JavaClient(version, mixed.our_names.address, tmp_path, jvm_options=vip) as java:
        java.until("publish_queues", topic=topic)
        for mode in ("sync", "async", "oneway"):
            java.call("send", body=f"vip {mode}", mode=mode, keys="vip", **queue)
        java.call("send_batch", bodies=["vip 0", "vip 1"], **queue)
        assert _connections_to(mixed.ours.port - 2) >= 1
        end = java.call("offsets", **queue)["max"]
        wait_until(lambda: java.call("offsets", **queue)["max"] >= 5, "the oneway send")
        assert end >= 4
        # By the ordinary port; brokers of 5.x know the group by it.
        pulled = java.call("pull", group="vip", offset=0, max=32, **queue)
        bodies = {message["body"] for message in pulled["messages"]}
        assert bodies >= {"vip sync", "vip async", "vip 0", "vip 1"}
        java.call("commit", group="vip", offset=3, **queue)
        wait_until(
            lambda: java.call("committed", group="vip", **queue) == 3, "the commit arrived", 10
        )


def _connections_to(port: int) -> int:
    """Established ones of this machine to a port of it."""
    count = 0
    for table in Path("/proc/net").glob("tcp*"):  # Java's are in tcp6, where there is one.
        for line in table.read_text().splitlines()[1:]:
            _, _, remote, state, *_ = line.split()
            count += remote.endswith(f":{port:04X}") and state == "01"
    return count


def test_second_master_is_refused_while_apaches_answers_and_listed_once_it_is_silent(
    version: str, tmp_path: Path
) -> None:
    """Apache's broker answers the question on the connection on which it registered: it does not know the code."""
    header = RegisterBrokerRequestHeader("apache-a", "127.0.0.1:9", "lab", "127.0.0.1:10", 0)
    body = encode_register_body(RegisterBrokerBody(TopicConfigSerializeWrapper()))

    def register() -> wire.Answer:
        return wire.ask(names.address, header.code, header.to_ext_fields(), body, timeout=30.0)

    with (
        OurNameServer(tmp_path / "names") as names,
        ApacheBroker(version, tmp_path / "apache", names.address, name="apache-a") as apache,
    ):
        refused = register()
        assert refused.code != ResponseCode.SUCCESS
        assert refused.ext_fields["masterAddr"] == apache.address
        with stopped(apache):
            wait_until(lambda: register().code == ResponseCode.SUCCESS, "the second one")
        # The connection of the second one has ended.
        wait_until(lambda: wire.is_registered(names.address, apache.address), "back", REGISTERED)


# ------------------------------------------------------------------------ what 5.x alone does


def test_a_new_topic_takes_no_other_out_of_the_routes(version: str, tmp_path: Path) -> None:
    """A name server of 5.x may be set to delete the topics that a registration does not name."""
    if not version.startswith("5."):
        pytest.skip("5.x only")
    settings = {"deleteTopicWithBrokerRegistration": "true"}
    with (
        ApacheNameServer(version, tmp_path / "names", settings=settings) as names,
        OurBroker(tmp_path / "ours", names.address, name="ours-a") as ours,
        JavaClient(version, names.address, tmp_path / "java") as java,
    ):
        for topic in ("first", "second"):
            java.call("create_topic", address=ours.address, topic=topic, queues=1)
            assert _queues(names.address, topic) == {"ours-a": 1}
        assert _queues(names.address, "first") == {"ours-a": 1}


ACTING = {"enableSlaveActingMaster": "true"}


@pytest.fixture
def acting(version: str, tmp_path: Path) -> Iterator[tuple[ApacheNameServer, Broker, Broker]]:
    """A master and a slave of 5.x in a zone, whose slave acts for the master when that is gone."""
    if not version.startswith("5."):
        pytest.skip("5.x only")
    with ExitStack() as stack:
        names = ApacheNameServer(
            version, tmp_path / "names", settings={"supportActingMaster": "true"}
        )
        stack.enter_context(names)
        in_zone = ("-Drocketmq.zone=east",)
        master = ApacheBroker(
            version, tmp_path / "master", names.address, settings=ACTING, jvm_options=in_zone
        )
        slave = ApacheBroker(
            version,
            tmp_path / "slave",
            names.address,
            role="SLAVE",
            broker_id=1,
            settings=ACTING,
            jvm_options=in_zone,
        )
        stack.enter_context(master)
        with JavaClient(version, names.address, tmp_path / "java") as java:
            java.create_topic("spread", at=master.address)
            java.call("send_many", topic="spread", prefix="m", count=40)
        stack.enter_context(slave)
        yield names, master, slave


async def test_our_client_reads_on_from_an_acting_master(
    acting: tuple[ApacheNameServer, Broker, Broker],
) -> None:
    """The route then shows the slave as id 0, for queues that cannot be written."""
    names, master, slave = acting
    wait_caught_up(master.address, slave.address)
    wait_until(
        lambda: wire.has_topic(slave.address, "spread"),
        "the slave knows the topic",
        METADATA_TIMEOUT,
    )
    (told,) = _route(names.address)["brokerDatas"]
    assert (told["enableActingMaster"], told["zoneName"]) == (True, "east")
    async with open_client(name_servers=[names.address]) as client:
        async with open_consumer(
            "spread", group="acting", start_from="earliest", client=client
        ) as consumer:
            with trio.fail_after(60):
                assert (await consumer.receive()).body == b"m-0"
                assert master.process is not None
                master.process.kill()
                await trio.to_thread.run_sync(_wait_acting, names.address, slave.address)
                await client.refresh_topic_route("spread")
                bodies = [(await consumer.receive()).body for _ in range(39)]
            assert bodies == [b"m-%d" % number for number in range(1, 40)]
        route = await client.topic_route("spread")
        assert [data.perm & 2 for data in route.queue_datas] == [0]
        assert route.broker_datas[0].broker_addrs[MASTER_ID] == slave.address


def _wait_acting(name_server: str, slave: str) -> None:
    def is_acting() -> bool:
        brokers = _route(name_server)["brokerDatas"]
        return bool(brokers) and brokers[0]["brokerAddrs"].get("0") == slave

    wait_until(is_acting, f"{slave} acts")
