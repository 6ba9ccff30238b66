"""A broker asks name servers and brokers of its name how they stand."""

import attrs
import pytest
import trio
from tests.cluster.support import caller_of
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.peers import Peers, ask_log_end, ask_settings
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import BrokerError, RemoteProtocolError
from rocketrio_protocol.header_fields import RequestHeader

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
        peers = Peers(caller.pool.call, cluster.name_servers, "broker-a", master)
        assert await peers.listed(name_server) == {0: master, 1: slave}
        assert await peers.listed_slaves(name_server) == [slave]
        assert await attrs.evolve(peers, own_addr=slave).listed_slaves(name_server) == []
        assert await attrs.evolve(peers, broker_name="broker-b").listed(name_server) == {}


async def test_a_broker_says_where_its_log_ends_and_how_it_is_set(
    autojump_clock: MockClock,
) -> None:
    async with EmbeddedCluster() as cluster, caller_of(cluster) as caller:
        broker = cluster.master.broker
        await caller.send(broker.address, b"one")
        end = await ask_log_end(caller.pool.call, broker.address)
        assert end == broker.store.max_physical_offset > 0
        settings = await ask_settings(caller.pool.call, broker.address)
        assert settings["brokerName"] == "broker-a"
        assert settings["haListenPort"] == broker.ha_address.rpartition(":")[2]


@pytest.mark.parametrize(
    "body",
    [b'{"table":{}}', b'{"table":{"commitLogMaxOffset":"far"}}', b"[]", b""],
    ids=["lacking", "no number", "no table", "empty"],
)
async def test_a_broker_that_does_not_say_how_long_its_log_is(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        await ask_log_end(Answering(body).call, PEER)


async def test_a_refusal_says_what_was_asked_of_whom() -> None:
    refusing = Answering(b"", ResponseCode.SYSTEM_ERROR).call
    with pytest.raises(BrokerError, match=r"GET_BROKER_CONFIG.*busy") as caught:
        await ask_settings(refusing, PEER)
    assert caught.value.broker_addr == PEER
    with pytest.raises(BrokerError, match="GET_BROKER_CLUSTER_INFO"):
        await Peers(refusing, [PEER], "broker-a", "10.0.0.1:10911").listed(PEER)
