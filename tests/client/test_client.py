"""One client: its id, heartbeats, and leaving."""

import pytest
import trio
from tests.support.clients import client_of, open_client
from tests.support.orders import TOPIC, send

from rocketrio import (
    ClientInstance,
    ConfigError,
    Message,
    SendStatus,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_broker.embedded import CLIENT_HOST, NAME_SERVER_HOST, EmbeddedCluster
from rocketrio_protocol.codes import SerializeType
from rocketrio_protocol.commands.client import GetConsumerListByGroupRequestHeader


async def members(client: ClientInstance, addr: str, group: str = "g") -> list[str]:
    answer = await client.pool.call(addr, GetConsumerListByGroupRequestHeader(group))
    return [] if answer.code else await client.api.consumer_ids(addr, group)


async def test_two_clients_of_one_process_have_two_ids(cluster: EmbeddedCluster) -> None:
    async with (
        client_of(cluster) as one,
        client_of(cluster) as other,
    ):
        assert one.client_id != other.client_id
        assert one.client_id.startswith("10.0.0.100@")


async def test_given_id_is_used(cluster: EmbeddedCluster) -> None:
    async with client_of(cluster, client_id="me") as client:
        assert client.client_id == "me"


async def test_exception_of_the_block_comes_out_as_it_was_raised(cluster: EmbeddedCluster) -> None:
    with pytest.raises(KeyError, match="mine"):
        async with client_of(cluster):
            raise KeyError("mine")


async def test_group_of_the_block_comes_out_as_it_was_raised(cluster: EmbeddedCluster) -> None:
    one = ExceptionGroup("mine", [ValueError("x")])
    several = ExceptionGroup("mine", [ValueError("x"), KeyError("y")])
    async with client_of(cluster) as client:
        await send(client, 1)
    for group in (one, several):
        with pytest.raises(ExceptionGroup) as caught:
            async with (
                client_of(cluster) as client,
                open_consumer(TOPIC, group="g", client=client),
                open_producer(client=client) as producer,
                producer.pipeline(),
            ):
                raise group
        assert caught.value is group


@pytest.mark.usefixtures("slave")
async def test_routes_are_refreshed_on_a_period(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await client.topic_route("TBW102")
    await cluster.slaves[0].stop()
    assert client.routing.broker_addr_table["broker-a"].keys() == {0, 1}
    await trio.sleep(31)
    assert client.routing.broker_addr_table["broker-a"].keys() == {0}


@pytest.mark.usefixtures("slave")
async def test_consumer_is_known_to_master_and_slave_at_once_and_gone_when_left(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
    addrs = [member.broker.address for member in cluster.members]
    async with open_consumer("orders", group="g", client=client):
        assert [await members(client, addr) for addr in addrs] == [[client.client_id]] * 2
    assert [await members(client, addr) for addr in addrs] == [[], []]


async def test_producer_is_known_to_masters_only(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client, group="shop") as producer:
        await producer.send(Message("orders", b""))
        await trio.sleep(1)
        assert client.heartbeat.acknowledged_by == {cluster.master.broker.address}
    assert client.heartbeat.producers == {}


async def test_restarted_broker_gets_the_consumers_heartbeat_again(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b""))
    async with open_consumer("orders", group="g", client=client):
        await cluster.kill_master()
        master = await cluster.restart_master()
        await trio.sleep(31)  # At the latest with the next heartbeat.
        assert await members(client, master.address) == [client.client_id]


@pytest.mark.slow
@pytest.mark.usefixtures("slave")
async def test_client_continues_after_its_brokers_were_down(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_producer(client=client) as producer:
        await producer.send(Message("orders", b"before"))
    async with open_consumer("orders", group="g", client=client) as consumer:
        assert (await consumer.receive()).body == b"before"
        await cluster.kill_master()
        await cluster.slaves[0].kill()
        await trio.sleep(200)
        await cluster.restart_master()
        async with open_producer(client=client) as producer:
            await producer.send(Message("orders", b"after"))
        with trio.fail_after(40):
            assert (await consumer.receive()).body == b"after"


async def test_cancel_while_it_opens_ends_it(cluster: EmbeddedCluster) -> None:
    with trio.move_on_after(60) as waiting:
        with trio.CancelScope() as scope:
            scope.cancel()
            async with client_of(cluster):
                pass
    assert scope.cancelled_caught
    assert not waiting.cancelled_caught


@pytest.mark.parametrize("kind", ["JSON", "ROCKETMQ", "MSGPACK", 1, SerializeType.MSGPACK])
async def test_headers_are_written_as_wanted(cluster: EmbeddedCluster, kind: str) -> None:
    async with (
        client_of(cluster, serialize_type=kind) as client,
        open_producer(client=client) as producer,
    ):
        assert (await producer.send(Message("orders", b""))).status is SendStatus.SEND_OK
        assert (await producer.send(Message("orders", b""))).status is SendStatus.SEND_OK


@pytest.mark.parametrize("kind", ["XML", 2])
async def test_unknown_header_encoding_is_refused_with_those_that_are_known(kind: str) -> None:
    with pytest.raises(ConfigError, match="must be one of JSON, ROCKETMQ, MSGPACK"):
        async with open_client(serialize_type=kind):
            pass


async def test_topic_that_is_deleted_while_routes_are_polled_ends_no_client(
    cluster: EmbeddedCluster,
) -> None:
    names = [f"t{number}" for number in range(5)]
    async with (
        client_of(cluster, poll_name_server_interval=1.0) as client,
        open_admin(client=client) as admin,
    ):
        for name in names:
            await admin.create_topic(name)
            await client.topic_route(name)
        cluster.memory_network.delay(NAME_SERVER_HOST, CLIENT_HOST, 0.1)
        await trio.sleep(0.95)
        for name in reversed(names):  # From the end that the poll has not come to.
            await admin.delete_topic(name)
        await trio.sleep(2.0)
        assert await client.topic_route("TBW102")
