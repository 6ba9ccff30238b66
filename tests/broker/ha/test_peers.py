"""A broker asks name servers and brokers of its name how they stand."""

import attrs
import pytest
import trio
from tests.support.caller import caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.peers import (
    CLUSTER_INFO_SIZE_LIMIT,
    LISTED_LIMIT,
    Identity,
    Peers,
    ask_identity,
    ask_log_end,
    replication_addr,
)
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import BrokerError, RemoteProtocolError
from rocketrio_protocol.headers import RequestHeader

PEER = "10.0.0.2:10911"


@attrs.define
class Answering:
    """Answers everything alike."""

    body: bytes
    code: int = ResponseCode.SUCCESS

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        return RemotingCommand.request(request).response(
            code=self.code, body=self.body, remark="busy"
        )


async def test_brokers_of_the_name_are_listed(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster(slaves=1) as cluster, caller_of(cluster) as caller:
        await trio.sleep(1)
        master, slave = (member.broker.address for member in cluster.members)
        name_server = cluster.name_servers[0]
        peers = Peers(caller.pool.call, caller.pool.call, cluster.name_servers, "broker-a", master)
        assert await peers.listed(name_server) == {0: master, 1: slave}
        assert await peers.listed_slaves(name_server) == [slave]
        assert await attrs.evolve(peers, own_addr=slave).listed_slaves(name_server) == []
        assert await attrs.evolve(peers, broker_name="broker-b").listed(name_server) == {}


async def test_only_what_can_be_dialled_is_taken_from_a_list_and_not_more_than_a_few() -> None:
    addrs = {0: "10.0.0.1:10911", 1: "user@10.0.0.2/x:80", 2: "10.0.0.2:0", 3: "10.0.0.3\n:1"}
    addrs |= {number: f"10.0.1.{number % 250}:10911" for number in range(10, 1000)}
    info = ClusterInfo({"broker-a": BrokerData("lab", "broker-a", addrs)})
    listed = await Peers(
        *2 * [Answering(info.to_classic_json()).call], [PEER], "broker-a", PEER
    ).listed(PEER)
    assert len(listed) == LISTED_LIMIT
    assert [*listed][:3] == [0, 10, 11]


async def test_a_list_of_brokers_has_a_limited_size() -> None:
    info = ClusterInfo({"broker-a": BrokerData("lab", "broker-a", {0: "10.0.0.1:10911"})})
    large = info.to_json() + b" " * CLUSTER_INFO_SIZE_LIMIT
    with pytest.raises(RemoteProtocolError, match=str(CLUSTER_INFO_SIZE_LIMIT)):
        await Peers(*2 * [Answering(large).call], [PEER], "broker-a", PEER).listed(PEER)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"haListenPort": "10912"}, "10.0.0.2:10912"),
        ({"haListenPort": "10912", "brokerIP2": "10.0.0.9"}, "10.0.0.9:10912"),
        ({"haListenPort": "0"}, None),
        ({"haListenPort": "9" * 5000}, None),
        ({"haListenPort": "10912", "brokerIP2": "evil/\n"}, None),
    ],
)
def test_replication_address_must_be_one_of_a_broker(
    settings: dict[str, str], expected: str | None
) -> None:
    assert replication_addr(settings, PEER) == expected


async def test_broker_reports_the_end_of_its_log_and_who_it_is(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        await caller.send(broker.address, b"one")
        end = await ask_log_end(caller.pool.call, broker.address)
        assert end == broker.store.max_physical_offset > 0
        assert await ask_identity(caller.pool.call, broker.address) == Identity(
            "broker-a",
            0,
            broker.ha_address,
            is_rocketrio=True,
            role="async-master",
            claims=True,
            log_end=end,
        )


async def test_broker_of_apache_is_asked_for_its_settings() -> None:
    class Apache(Answering):
        async def call(
            self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
        ) -> RemotingCommand:
            answer = await Answering.call(self, addr, request, body, timeout=timeout)
            if request.code == RequestCode.GET_IDENTITY:
                answer.code = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            return answer

    settings = b"brokerName=broker-a\nbrokerId=1\nhaListenPort=10912\n"
    assert await ask_identity(Apache(settings).call, PEER) == Identity(
        "broker-a", 1, "10.0.0.2:10912"
    )
    assert await ask_identity(Apache(b"brokerId=one\n").call, PEER) == Identity(None, None, None)


@pytest.mark.parametrize(
    "body",
    [b'{"table":{}}', b'{"table":{"commitLogMaxOffset":"far"}}', b"[]", b""],
    ids=["lacking", "no number", "no table", "empty"],
)
async def test_body_without_a_log_end_is_a_protocol_error(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        await ask_log_end(Answering(body).call, PEER)


async def test_refusal_names_the_request_and_the_broker() -> None:
    refusing = Answering(b"", ResponseCode.SYSTEM_ERROR).call
    with pytest.raises(BrokerError, match=r"GET_IDENTITY.*busy") as caught:
        await ask_identity(refusing, PEER)
    assert caught.value.broker_addr == PEER
    with pytest.raises(BrokerError, match="GET_BROKER_CLUSTER_INFO"):
        await Peers(refusing, refusing, [PEER], "broker-a", "10.0.0.1:10911").listed(PEER)
