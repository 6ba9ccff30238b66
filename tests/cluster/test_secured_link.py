"""A cluster whose replication is closed to strangers: the settings ha_secret_file and ha_tls_*."""

from pathlib import Path

import attrs
import pytest
import trio
import trustme
from tests.support.caller import caller_of
from tests.support.replication import RawPeer, log_bytes, secret_file, write_private

from rocketrio_broker import broker
from rocketrio_broker.broker import open_broker
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.ha.errors import LinkRefusedError
from rocketrio_broker.ha.exchange import ask_welcome
from rocketrio_broker.ha.link_files import load_link_security
from rocketrio_broker.ha.link_security import secured_dial
from rocketrio_broker.ha.peers import Identity
from rocketrio_broker.ha.torn_end import PeerLog, read_log
from rocketrio_broker.settings.config import BrokerConfig, MasterRole
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import ConfigError, NotReachableError
from rocketrio_protocol.ha.exchange import Greeting
from rocketrio_protocol.ha.link import LINK_MAGIC
from rocketrio_protocol.remoting.ports import join_addr
from rocketrio_protocol.remoting.reloaded_files import RELOAD_PERIOD

STRANGER = "10.0.0.77"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    return secret_file(tmp_path / "secret")


async def replicate(cluster: EmbeddedCluster) -> None:
    """A message reaches the slave, which has had time to connect."""
    await trio.sleep(1)
    async with caller_of(cluster) as call:
        answer = await call.send(cluster.master.broker.address, b"x" * 100)
        assert answer.code == ResponseCode.SUCCESS
    end = cluster.master.broker.store.max_physical_offset
    await cluster.slaves[0].broker.store.appended.wait_reached(end)


@pytest.mark.parametrize("role", ["async-master", "sync-master"])
async def test_slave_with_the_secret_follows(secret: Path, role: MasterRole) -> None:
    async with EmbeddedCluster(slaves=1, role=role, ha_secret_file=secret) as cluster:
        await replicate(cluster)


@pytest.mark.real
async def test_slave_with_the_secret_follows_over_sockets(tmp_path: Path, secret: Path) -> None:
    """Ports that were not chosen, files, and more than sockets take at once."""
    async with EmbeddedCluster(
        slaves=1, role="sync-master", root=tmp_path / "data", ha_secret_file=secret
    ) as cluster:
        master, slave = cluster.master.broker, cluster.slaves[0].broker
        async with caller_of(cluster) as call:
            with trio.fail_after(60):
                for number in range(8):
                    answer = await call.send(master.address, bytes([number]) * (1 << 20))
                    while answer.code == ResponseCode.SLAVE_NOT_AVAILABLE:
                        await trio.sleep(0.05)
                        answer = await call.send(master.address, bytes([number]) * (1 << 20))
                    assert answer.code == ResponseCode.SUCCESS
        assert log_bytes(slave.store) == log_bytes(master.store)


async def test_slave_with_a_certificate_follows(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    write_private(authority.issue_cert("broker-a"), tmp_path / "broker.pem")
    async with EmbeddedCluster(
        slaves=1,
        ha_tls_certificate_file=tmp_path / "broker.pem",
        ha_tls_authority_file=tmp_path / "authority.pem",
    ) as cluster:
        await replicate(cluster)


async def test_stranger_gets_no_byte_and_the_master_logs_its_address(
    secret: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with EmbeddedCluster(slaves=1, ha_secret_file=secret) as cluster:
        await replicate(cluster)
        ha_address = cluster.master.broker.ha_address
        stranger = RawPeer(await cluster.dial_from(STRANGER)(ha_address))
        await stranger.report(1)
        assert await stranger.read(1) == b""
        await stranger.wait_ended()
        statistics = cluster.master.broker.ha_service.statistics()
        assert len(statistics.connections) == 1
        assert "has no secret" in (statistics.last_refusal or "")
        assert STRANGER in caplog.text


async def test_slave_without_the_secret_reports_why_it_does_not_follow(
    secret: Path, tmp_path: Path
) -> None:
    other = secret_file(tmp_path / "other", "quite another secret, as long")
    async with EmbeddedCluster(ha_secret_file=secret) as cluster:
        config = BrokerConfig(
            role="slave",
            broker_id=1,
            listen=join_addr("10.0.0.11", 10911),
            namesrv=cluster.name_server.addr,
            data=Path("/slave"),
            ha_secret_file=other,
        )
        host = cluster.memory_network.host("10.0.0.11")
        async with open_broker(
            config,
            disk=cluster.make_disk(),
            dial=host.dial,
            listen=host.listen,
            wall_clock=cluster.wall_clock,
        ) as slave:
            await trio.sleep(3)
            assert slave.slave is not None
            numbers = slave.slave.statistics().log
            assert "another secret" in (numbers.last_problem or "")
            assert numbers.state is not HAClientState.FOLLOWING
            assert cluster.master.broker.ha_service.connections == []


async def test_answers_at_the_client_port_do_not_make_a_slave_forget_its_epochs(
    secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def as_apaches(*_: object) -> Identity:
        return Identity("broker-a", 0, None)

    monkeypatch.setattr(broker, "ask_identity", as_apaches)
    async with EmbeddedCluster(slaves=1, ha_secret_file=secret) as cluster:
        await replicate(cluster)
        epochs = cluster.slaves[0].broker.store.epochs
        assert epochs.lines
        assert epochs.to_send() == cluster.master.broker.store.epochs.to_send()


async def test_secret_that_cannot_be_read_stops_the_start(tmp_path: Path) -> None:
    config = BrokerConfig(data=tmp_path / "data", ha_secret_file=tmp_path / "none")
    with pytest.raises(ConfigError, match="ha_secret_file"):
        async with open_broker(config):
            pass


@pytest.mark.slow
@pytest.mark.parametrize("host", [STRANGER, "10.0.0.11"])
async def test_strangers_who_prove_nothing_keep_no_slave_out(secret: Path, host: str) -> None:
    """Twenty connections a second, also from behind the slave's own address; a slave that comes back gets in."""
    async with EmbeddedCluster(slaves=1, ha_secret_file=secret) as cluster:
        dial = cluster.dial_from(host)
        ha_address = cluster.master.broker.ha_address

        async def knock() -> None:
            for number in range(400):
                stranger = await dial(ha_address)
                if number % 2:
                    await stranger.send_all(LINK_MAGIC)
                await trio.sleep(1 / 20)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(knock)
            for _ in range(4):
                await trio.sleep(4)
                await cluster.slaves[0].kill()
                await cluster.slaves[0].start()
                with trio.fail_after(2):
                    await replicate(cluster)


@pytest.mark.parametrize("name", ["broker-a", "broker-b"])
async def test_request_for_the_end_of_a_log_is_answered_by_a_broker_of_the_name_alone(
    secret: Path, name: str
) -> None:
    """Also where a name server sends him elsewhere: the questions go over the same link as the log."""
    async with EmbeddedCluster(ha_secret_file=secret) as cluster, caller_of(cluster) as call:
        await call.send(cluster.master.broker.address, b"x" * 100)
        store, addr = cluster.master.broker.store, cluster.master.broker.ha_address
        security = attrs.evolve(load_link_security(secret_file=secret), broker_name=name)
        dial = secured_dial(cluster.dial_from(STRANGER), security)
        greeting = Greeting(member="other", begin=0, end=0, highest=0, opens=1)
        peer = PeerLog(addr, store.max_physical_offset, knows_epochs=True)
        if name == "broker-a":
            assert await read_log(dial, peer, 0, peer.end) == log_bytes(store)
            welcome = await ask_welcome(await dial(addr), greeting)
            assert welcome.member == store.epochs.member
            return
        with pytest.raises(LinkRefusedError, match="'broker-a', this one's is 'broker-b'"):
            await read_log(dial, peer, 0, peer.end)
        with pytest.raises(LinkRefusedError):
            await ask_welcome(await dial(addr), greeting)


@pytest.mark.slow
async def test_pair_continues_while_secret_and_certificates_are_renewed(
    tmp_path: Path, secret: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "authority.pem")
    write_private(authority.issue_cert("broker-a"), tmp_path / "broker.pem")
    async with EmbeddedCluster(
        slaves=1,
        ha_secret_file=secret,
        ha_tls_certificate_file=tmp_path / "broker.pem",
        ha_tls_authority_file=tmp_path / "authority.pem",
        ha_tls_peer_names="broker-a",
    ) as cluster:
        await replicate(cluster)
        secret_file(secret, "the next secret of enough bytes")
        write_private(authority.issue_cert("broker-a"), tmp_path / "broker.pem")
        await trio.sleep(RELOAD_PERIOD + 1)
        await replicate(cluster)  # On the connection that stands.
        cluster.cut(cluster.slaves[0].host)
        await trio.sleep(10)
        await replicate(cluster)  # On a new one, with the new secret.
        stale = load_link_security(
            secret_file=secret_file(tmp_path / "former"),
            certificate_file=tmp_path / "broker.pem",
            authority_file=tmp_path / "authority.pem",
        )
        master = cluster.master.broker.ha_address
        dial = secured_dial(
            cluster.dial_from(STRANGER), attrs.evolve(stale, broker_name="broker-a")
        )
        with pytest.raises(NotReachableError, match="the same secret"):
            await dial(master)
        plain = await cluster.dial_from(STRANGER)(master)  # As an Apache slave begins.
        peer = RawPeer(plain)
        await peer.report(0)
        await peer.wait_ended()
        await replicate(cluster)
