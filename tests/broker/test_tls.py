"""TLS of brokers and name servers: who is served, and how brokers ask each other (`rocketrio_broker/tls.py`)."""

import logging
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme
from tests.support.clients import open_client
from tests.support.raw_client import raw_client, request
from tests.support.tls import CertificateFiles, client_context, write_files
from trio.testing import MockClock

from rocketrio import Message, TlsError, open_admin, open_consumer, open_producer
from rocketrio_broker.embedded import EmbeddedCluster, fast_address
from rocketrio_broker.settings.config import BrokerConfig, ServerTlsSettings
from rocketrio_broker.settings.java import CHANGEABLE, java_properties
from rocketrio_broker.tls import load_tls, peer_tls_options
from rocketrio_protocol.errors import ConfigError, NotReachableError
from rocketrio_protocol.remoting.ports import SystemWallClock
from rocketrio_protocol.remoting.tls import tls_dial
from rocketrio_protocol.remoting.tls_files import new_context


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return write_files(tmp_path)


def settings(files: CertificateFiles, **more: Any) -> dict[str, Any]:
    return {
        "tls_certificate_file": files.certificate,
        "tls_key_file": files.key,
        "peer_tls_authority_file": files.authority,
        **more,
    }


@pytest.mark.slow
async def test_whole_cluster_over_tls_serves_a_client_with_tls(
    autojump_clock: MockClock, files: CertificateFiles
) -> None:
    async with (
        EmbeddedCluster(slaves=1, **settings(files)) as cluster,
        open_client(
            name_servers=cluster.name_servers, dial=cluster.dial, tls=client_context()
        ) as client,
        open_producer(client=client) as producer,
    ):
        async with open_admin(client=client) as admin:
            await admin.create_topic("orders", queues=1)
        for number in range(20):
            await producer.send(Message("orders", b"%d" % number))
        async with open_consumer(
            "orders", group="g", client=client, start_from="earliest"
        ) as consumer:
            bodies = [(await consumer.receive()).body for _ in range(20)]
        assert bodies == [b"%d" % number for number in range(20)]
        slave = cluster.slaves[0].broker
        await trio.sleep(15)  # It copies topics over TLS too.
        assert slave.store.max_physical_offset == cluster.master.broker.store.max_physical_offset
        assert slave.state.topics.topic_config_table.get("orders") is not None


@pytest.mark.parametrize("mode", ["disabled", "permissive", "enforcing"])
@pytest.mark.parametrize("with_tls", [True, False])
async def test_each_listener_serves_what_its_mode_says(
    autojump_clock: MockClock, files: CertificateFiles, mode: str, with_tls: bool
) -> None:
    async with EmbeddedCluster(**settings(files, tls_mode=mode)) as cluster:
        dial = tls_dial(cluster.dial, client_context) if with_tls else cluster.dial
        is_served = with_tls if mode == "enforcing" else mode == "permissive" or not with_tls
        main = cluster.master.broker.address
        for address, code in (
            (cluster.name_server.addr, 206),
            (main, 21),
            (fast_address(main), 21),
        ):
            if is_served:
                async with raw_client(dial, address) as peer:
                    assert (await peer.asked(request(code))).code == 0, address
            else:
                with pytest.raises((NotReachableError, ConnectionError, AssertionError, EOFError)):
                    async with raw_client(dial, address) as peer:
                        await peer.asked(request(code))


async def test_request_without_tls_changes_nothing_at_an_enforcing_broker(
    autojump_clock: MockClock, files: CertificateFiles
) -> None:
    async with EmbeddedCluster(**settings(files)) as cluster:
        broker = cluster.master.broker
        plain = await cluster.dial(broker.address)
        fields = {"topic": "made", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}
        await plain.send_all(request(17, fields))
        await trio.sleep(1)
        assert "made" not in broker.state.topics.topic_config_table
        assert broker.statistics().refused_plain == 1
        await plain.aclose()


async def test_client_without_a_certificate_is_refused_where_one_is_required(
    autojump_clock: MockClock, files: CertificateFiles
) -> None:
    peers = {
        "peer_tls_certificate_file": files.certificate,
        "peer_tls_key_file": files.key,
        "tls_client_authority_file": files.authority,
    }
    async with EmbeddedCluster(**settings(files, **peers)) as cluster:
        with pytest.raises(TlsError, match="certificate required"):
            async with (
                open_client(
                    name_servers=cluster.name_servers, dial=cluster.dial, tls=client_context()
                ) as client,
                open_admin(client=client) as admin,
            ):
                await admin.topics()


async def test_client_that_trusts_another_authority_gets_a_tls_error_at_once(
    autojump_clock: MockClock, files: CertificateFiles
) -> None:
    stranger = new_context(ssl.PROTOCOL_TLS_CLIENT)
    async with EmbeddedCluster(**settings(files)) as cluster:
        began = trio.current_time()
        with pytest.raises(TlsError, match="not accepted"):
            async with (
                open_client(
                    name_servers=cluster.name_servers, dial=cluster.dial, tls=stranger
                ) as client,
                open_producer(client=client) as producer,
            ):
                await producer.send(Message("orders", b"x"))
        with pytest.raises(TlsError, match="not accepted"):
            async with (
                open_client(
                    name_servers=cluster.name_servers, dial=cluster.dial, tls=stranger
                ) as client,
                open_consumer("orders", group="g", client=client, wait_for_topic=60),
            ):
                pass
        assert trio.current_time() - began < 10


async def test_broker_whose_name_server_has_another_authority_logs_what_to_do(
    autojump_clock: MockClock,
    files: CertificateFiles,
    caplog: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    trustme.CA().cert_pem.write_to_path(tmp_path / "other.pem")
    with trio.move_on_after(60):
        async with EmbeddedCluster(
            **settings(files, peer_tls_authority_file=tmp_path / "other.pem")
        ):
            pass
    assert "unable to get local issuer certificate" in caplog.text or "self-signed" in caplog.text
    assert "peer_tls_authority_file" in caplog.text


async def test_certificate_is_replaced_while_connections_live(
    autojump_clock: MockClock, files: CertificateFiles, tmp_path: Path
) -> None:
    async with EmbeddedCluster(**settings(files)) as cluster:
        dial = tls_dial(cluster.dial, client_context)
        address = cluster.master.broker.address
        async with raw_client(dial, address) as before:
            await before.asked(request(21))
            server = cluster.master.broker.tls.files[0]
            former = server.current
            write_files(tmp_path)
            await cluster.master.broker.reload_files()
            assert server.current is not former
            async with raw_client(dial, address) as after:
                assert (await after.asked(request(21))).code == 0
            assert (await before.asked(request(21))).code == 0


@pytest.mark.parametrize(
    ("given", "mode", "peers"),
    [
        ({}, "disabled", False),
        ({"tls_certificate_file": Path("c")}, "enforcing", True),
        ({"tls_certificate_file": Path("c"), "tls_mode": "permissive"}, "permissive", False),
        ({"tls_certificate_file": Path("c"), "tls_mode": "disabled"}, "disabled", False),
        ({"tls_certificate_file": Path("c"), "peer_tls": False}, "enforcing", False),
        ({"peer_tls": True}, "disabled", True),
    ],
)
def test_mode_and_peers_are_as_given_or_enforcing_with_a_certificate(
    given: dict[str, Any], mode: str, peers: bool
) -> None:
    config = BrokerConfig(**given)
    assert config.server_tls.effective_mode == mode
    assert (peer_tls_options(config) is not None) is peers
    shown = java_properties(config, broker_addr="h:1", ha_addr="h:2", configured=config)
    assert shown["useTLS"] == ("true" if peers else "false")


@pytest.mark.parametrize("mode", ["permissive", "enforcing"])
async def test_mode_with_tls_needs_a_certificate(mode: Any) -> None:
    with pytest.raises(ConfigError, match=r"no tls_certificate_file.*--tls-cert"):
        await load_tls(ServerTlsSettings(mode=mode), wall_clock=SystemWallClock())


def test_no_setting_of_tls_changes_by_a_request() -> None:
    assert not [name for name in CHANGEABLE if "tls" in name or name.endswith("_file")]


async def test_exposed_broker_without_tls_warns_once(
    autojump_clock: MockClock, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with EmbeddedCluster():
        pass
    lines = [line for line in caplog.messages if "tls_certificate_file" in line]
    assert len(lines) == 1
    assert "10.0.0.10:10911" in lines[0]
    caplog.clear()
    async with EmbeddedCluster(**settings(files)):
        pass
    assert "tls_certificate_file" not in caplog.text
