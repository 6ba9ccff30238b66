"""Addresses of name servers, and asking several of them."""

import pytest
import trio
from tests.support.clients import open_client

from rocketrio import ClientInstance, NotReachableError, RouteNotFoundError
from rocketrio.cluster.name_servers import NEXT_AFTER, name_server_addresses
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_protocol.errors import ConfigError, RequestCodeNotSupportedError


@pytest.mark.parametrize(
    ("given", "environ", "addresses"),
    [
        (["a:1", "b:2"], {}, ("a:1", "b:2")),
        ("a:1;b:2", {}, ("a:1", "b:2")),
        (" a:1 , b:2;", {}, ("a:1", "b:2")),
        (None, {"NAMESRV_ADDR": "a:1;b:2"}, ("a:1", "b:2")),
        (None, {}, ("127.0.0.1:9876",)),
        (["a:1", "a:1"], {"NAMESRV_ADDR": "other:1"}, ("a:1",)),
        ("[::1]:9876", {}, ("[::1]:9876",)),
        (["http://a:1/", "b:2;c:3"], {}, ("a:1", "b:2", "c:3")),
        (None, {"NAMESRV_ADDR": "http://a:1"}, ("a:1",)),
    ],
)
def test_addresses_are_the_given_ones_then_the_environments(
    given: list[str] | str | None, environ: dict[str, str], addresses: tuple[str, ...]
) -> None:
    assert name_server_addresses(given, environ) == addresses


@pytest.mark.parametrize("given", ["host", "host:", ":1", "host:0", "host:x", "host:70000"])
def test_what_is_no_address_is_refused(given: str) -> None:
    with pytest.raises(ConfigError, match="HOST:PORT"):
        name_server_addresses(given)


async def test_dead_name_server_is_passed_over_and_then_asked_last(
    cluster: EmbeddedCluster,
) -> None:
    dead, alive = "10.0.0.50:9876", cluster.name_servers[0]
    async with open_client(name_servers=[dead, alive], dial=cluster.dial) as client:
        await client.topic_route("TBW102")
        assert client.name_servers._first == 1


async def test_topic_is_unknown_only_if_all_name_servers_report_so(
    cluster: EmbeddedCluster,
) -> None:
    listener = await cluster.listen_on("10.0.0.50")("10.0.0.50:9876")
    empty = NameServer([listener])
    await cluster.nursery.start(empty.run)
    names = [listener.addr, cluster.name_servers[0]]
    async with open_client(name_servers=names, dial=cluster.dial) as client:
        assert (await client.topic_route("TBW102")).queue_datas
        with pytest.raises(RouteNotFoundError):
            await client.topic_route("nowhere")


async def test_no_name_server_at_all_is_an_error_that_names_them(
    cluster: EmbeddedCluster,
) -> None:
    names = ["10.0.0.50:9876", "10.0.0.51:9876"]
    async with open_client(name_servers=names, dial=cluster.dial) as client:
        with pytest.raises(NotReachableError, match=r"10\.0\.0\.50:9876, 10\.0\.0\.51:9876"):
            await client.topic_route("TBW102")


async def test_cluster_continues_without_its_name_server(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await client.topic_route("TBW102")
    known = client.routing.topic_route_table["TBW102"]
    cluster.memory_network.refuse(cluster.name_servers[0])
    cluster.memory_network.cut("10.0.0.9")
    assert await client.refresh_topic_route("TBW102") is False
    assert client.routing.topic_route_table["TBW102"] is known


async def test_silent_name_server_costs_a_second_and_is_asked_last_from_then_on(
    cluster: EmbeddedCluster,
) -> None:
    listener = await cluster.listen_on("10.0.0.50")("10.0.0.50:9876")
    # No server accepts there: it takes bytes and is silent.
    names = [listener.addr, cluster.name_servers[0]]
    async with open_client(name_servers=names, dial=cluster.dial) as client:
        started = trio.current_time()
        await client.topic_route("TBW102")
        assert trio.current_time() == pytest.approx(started + NEXT_AFTER)
        assert client.name_servers._first == 1
        client.name_servers._first = 0
        with trio.move_on_after(0.1):
            await client.topic_route("SELF_TEST_TOPIC")
        await client.topic_route("SELF_TEST_TOPIC")
        assert trio.current_time() == pytest.approx(started + NEXT_AFTER + 0.1)


async def test_address_of_a_broker_is_not_taken_for_a_name_server(cluster: EmbeddedCluster) -> None:
    broker = cluster.master.broker
    async with open_client(name_servers=[broker.address], dial=cluster.dial) as client:
        for asking in (client.topic_route("orders"), client.name_servers.cluster_info()):
            with pytest.raises(
                RequestCodeNotSupportedError, match=r"is not a name server.*a broker"
            ):
                await asking
    async with open_client(name_servers=[broker.ha_address], dial=cluster.dial) as client:
        with pytest.raises(NotReachableError, match="replication port"):
            await client.topic_route("orders")
