"""TLS between the products: Java's clients on ours, our client on Apache's, brokers at name servers of the other."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trustme

from rocketrio import (
    Message,
    NoBrokerRegisteredError,
    TlsError,
    TlsOptions,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.remoting.ports import split_addr
from tests.interop.apache import METADATA_TIMEOUT, ApacheBroker, ApacheNameServer
from tests.interop.java_client import JavaClient, JavaError
from tests.interop.secured_ours import INNER
from tests.interop.tls_peers import (
    TLS_CLIENT,
    Certificates,
    Mode,
    as_options,
    as_settings,
    make_certificates,
)
from tests.support import wire
from tests.support.ours import OurBroker, OurNameServer
from tests.support.private_files import account_file
from tests.support.tls import write_files

pytestmark = pytest.mark.interop

PATIENCE = 60.0
CREATE_TOPIC = 17
COPIED = {
    "topic": "copied", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6", "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0", "order": "false", "defaultTopic": "TBW102",
}  # fmt: skip
"""The fields of the request that makes this topic."""


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("certificates"))


def our_cluster(
    stack: ExitStack,
    folder: Path,
    certificates: Certificates,
    mode: Mode,
    *,
    mutual: bool = False,
    more: tuple[str, ...] = (),
) -> OurBroker:
    """Start rocketrio's name server and a master, in the same mode; `more` are settings of the master."""
    server = certificates.our_server(mode=mode, mutual=mutual)
    context = None if mode == "disabled" else certificates.context
    names = stack.enter_context(
        OurNameServer(folder / "names", options=as_options(server), context=context)
    )
    peers = certificates.our_peers if mode == "enforcing" else {"peer_tls": "false"}
    return stack.enter_context(
        OurBroker(
            folder / "master",
            names.address,
            settings=(*as_settings({**server, **peers}), *more),
            context=context,
        )
    )


@pytest.fixture(scope="module", params=["disabled", "permissive", "enforcing"])
def ours(
    request: pytest.FixtureRequest,
    certificates: Certificates,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Mode, OurBroker]]:
    mode: Mode = request.param
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp(f"ours-{mode}")
        yield mode, our_cluster(stack, folder, certificates, mode)


def round_trip(java: JavaClient, master: str) -> list[str]:
    """Let Java create a topic, send and pull."""
    java.create_topic("orders", at=master)
    queue = {"topic": "orders", "broker": "broker-a", "queue_id": 0}
    sent = [java.call("send", body=f"body-{number}", **queue) for number in range(5)]
    pulled = java.call("pull", block=True, offset=sent[0]["queue_offset"], **queue)
    return [message["body"] for message in pulled["messages"]]


@pytest.mark.parametrize("vip", ["false", "true"])
@pytest.mark.parametrize("way", ["plain", "trusting", "proving"])
def test_java_client_is_served_as_the_mode_of_our_servers_says(
    version: str,
    ours: tuple[Mode, OurBroker],
    certificates: Certificates,
    tmp_path: Path,
    way: str,
    vip: str,
) -> None:
    mode, master = ours
    options = {
        "plain": (),
        "trusting": (TLS_CLIENT,),  # Its test mode, the default: it trusts every server.
        "proving": certificates.java_client(tmp_path / "client"),
    }[way]
    options = (*options, f"-Dcom.rocketmq.sendMessageWithVIPChannel={vip}")
    is_served = mode == "permissive" or (mode == "disabled") == (way == "plain")
    with JavaClient(version, master.name_server, tmp_path, jvm_options=options) as java:
        if is_served:
            assert round_trip(java, master.address) == [f"body-{number}" for number in range(5)]
        else:
            with pytest.raises(JavaError):
                java.call("create_topic", address=master.address, topic="orders", queues=1)
    if not is_served:
        said = "speaks TLS" if mode == "disabled" else "a connection without TLS was refused"
        assert master.running.has_said(said)


def test_java_client_proves_itself_to_ours_or_is_refused(
    version: str, certificates: Certificates, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        master = our_cluster(stack, tmp_path / "ours", certificates, "enforcing", mutual=True)
        proving = certificates.java_client(tmp_path / "client")
        with JavaClient(version, master.name_server, tmp_path, jvm_options=proving) as java:
            assert round_trip(java, master.address) == [f"body-{number}" for number in range(5)]
        with (
            JavaClient(version, master.name_server, tmp_path, jvm_options=(TLS_CLIENT,)) as java,
            pytest.raises(JavaError),
        ):
            java.call("create_topic", address=master.address, topic="other", queues=1)
        assert master.running.has_said("the other end has sent no certificate") or (
            master.running.has_said("has sent no certificate")
        )


def test_mqadmin_with_a_client_certificate_changes_users_without_a_proof(
    version: str, certificates: Certificates, tmp_path: Path
) -> None:
    inner = account_file(tmp_path / "inner.yml", INNER)
    account_file(tmp_path / "java" / "conf" / "tools.yml", INNER)
    access = ("acl_enable=true", f"inner_credentials_file={inner}")
    words = (
        ("createUser", "-u", "clerk", "-p", "marker-secret-1", "-t", "Normal")
        if version >= "5"
        else ("updateAclConfig", "-a", "clerk-1", "-s", "marker-secret-1", "-u", "PUB")
    )
    with ExitStack() as stack:
        master = our_cluster(
            stack, tmp_path / "ours", certificates, "enforcing", mutual=True, more=access
        )
        proving = certificates.java_client(tmp_path / "client")
        java = stack.enter_context(
            JavaClient(version, master.name_server, tmp_path / "java", jvm_options=proving)
        )
        command, *rest = words
        assert "success" in java.mqadmin(command, "-b", master.address, *rest, errors=True)
        master.running.wait_until(lambda: master.running.has_said("users changed"), "changed")


def test_java_client_refuses_another_authority_and_accepts_another_host(
    version: str, tmp_path: Path
) -> None:
    """Its error names neither; ours names host and authority, and refuses both."""
    elsewhere = make_certificates(tmp_path / "certificates", "other.example")
    stranger = tmp_path / "stranger.pem"
    trustme.CA().cert_pem.write_to_path(stranger)
    wrong = attrs.evolve(elsewhere, client=attrs.evolve(elsewhere.client, authority=stranger))
    with OurNameServer(
        tmp_path / "names",
        options=as_options(elsewhere.our_server()),
        context=TlsOptions(elsewhere.client.authority, check_host_name=False).context(),
    ) as names:
        proving = elsewhere.java_client(tmp_path / "client")
        with (
            JavaClient(version, names.address, tmp_path, jvm_options=proving) as java,
            pytest.raises(JavaError, match=r"broker-a\] not exist"),
        ):
            java.call("send", topic="none", body="x", broker="broker-a", queue_id=0)
        assert not names.running.has_said("TLS failed")
        refusing = wrong.java_client(tmp_path / "other-client")
        with (
            JavaClient(version, names.address, tmp_path, jvm_options=refusing) as java,
            pytest.raises(JavaError),
        ):
            java.call("send", topic="none", body="x", broker="broker-a", queue_id=0)
        names.running.wait_until(
            lambda: names.running.has_said("TLS failed"), "told that its certificate is refused"
        )

        async def ask(options: TlsOptions) -> None:
            async with open_admin(name_servers=[names.address], tls=options) as admin:
                await admin.topics()

        with pytest.raises(TlsError, match=r"not valid for '127\.0\.0\.1'"):
            trio.run(ask, elsewhere.options)
        with pytest.raises(TlsError, match=r"not accepted.*stranger\.pem is trusted"):
            trio.run(ask, wrong.options)
        with pytest.raises(NoBrokerRegisteredError):  # The name server's own answer.
            trio.run(ask, attrs.evolve(elsewhere.options, check_host_name=False))


@pytest.fixture(scope="module")
def apache(
    version: str, certificates: Certificates, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheBroker]:
    """Name server and master of Apache that enforce TLS, and require certificates of clients."""
    folder = tmp_path_factory.mktemp(f"apache-{version}")
    options = certificates.apache(folder, mutual=True)
    with ExitStack() as stack:
        names = stack.enter_context(
            ApacheNameServer(
                version, folder / "names", jvm_options=options, context=certificates.context
            )
        )
        yield stack.enter_context(
            ApacheBroker(
                version, folder / "master", names.address, jvm_options=options,
                context=certificates.context,
            )
        )  # fmt: skip


async def our_round_trip(**options: Any) -> list[bytes]:
    """Let our client create a topic, send and consume."""
    async with open_admin(**options) as admin:
        await admin.create_topic("ours", queues=1)
    async with open_producer(**options) as producer:
        with trio.fail_after(PATIENCE):
            for number in range(20):
                await producer.send(Message("ours", b"%d" % number))
    async with open_consumer("ours", group="g", start_from="earliest", **options) as consumer:
        with trio.fail_after(PATIENCE):
            return [(await consumer.receive()).body for _ in range(20)]


async def test_our_client_works_on_apache_that_requires_its_certificate(
    apache: ApacheBroker, certificates: Certificates
) -> None:
    found = await our_round_trip(name_servers=[apache.name_server], tls=certificates.options)
    assert found == [b"%d" % number for number in range(20)]


async def test_our_client_without_certificate_or_tls_is_refused_by_apache(
    apache: ApacheBroker, certificates: Certificates
) -> None:
    without = TlsOptions(certificates.client.authority)
    with pytest.raises(TlsError, match="certificate"):
        await our_round_trip(name_servers=[apache.name_server], tls=without)


async def test_our_client_refuses_a_server_of_another_authority_or_host(
    apache: ApacheBroker, certificates: Certificates
) -> None:
    port = split_addr(apache.name_server)[1]
    with pytest.raises(TlsError, match="not accepted"):
        await our_round_trip(name_servers=[apache.name_server], tls=True)
    with pytest.raises(TlsError, match=r"not valid for '127\.0\.0\.2'.*check_host_name"):
        await our_round_trip(name_servers=[f"127.0.0.2:{port}"], tls=certificates.options)


async def test_our_broker_registers_at_apaches_enforcing_name_server(
    apache: ApacheBroker, certificates: Certificates, tmp_path: Path
) -> None:
    settings = as_settings({**certificates.our_server(), **certificates.our_peers})
    with OurBroker(
        tmp_path / "ours", apache.name_server, name="broker-ours", cluster="ours",
        settings=settings, context=certificates.context,
    ) as ours:  # fmt: skip
        async with open_admin(name_servers=[ours.name_server], tls=certificates.options) as admin:
            await admin.create_topic("here", queues=1, cluster="ours")
        async with open_producer(
            name_servers=[ours.name_server], tls=certificates.options
        ) as producer:
            sent = await producer.send(Message("here", b"x"))
        assert sent.queue.broker_name == "broker-ours"


def test_our_slave_follows_apaches_enforcing_master_and_copies_its_topics(
    apache: ApacheBroker, certificates: Certificates, tmp_path: Path
) -> None:
    context = certificates.context
    settings = as_settings({**certificates.our_server(), **certificates.our_peers})
    with OurBroker(
        tmp_path / "slave", apache.name_server, role="slave", broker_id=1,
        settings=(*settings, "slave_sync_period=1"), context=context,
    ) as slave:  # fmt: skip
        assert wire.ask(apache.address, CREATE_TOPIC, COPIED, context=context).code == 0

        slave.running.wait_until(
            lambda: wire.has_topic(slave.address, "copied", context),
            "copying topics over TLS",
            PATIENCE,
        )


def test_apaches_broker_registers_at_our_enforcing_name_server(
    version: str, certificates: Certificates, tmp_path: Path
) -> None:
    context = certificates.context
    server = certificates.our_server(mutual=True)
    with (
        OurNameServer(tmp_path / "names", options=as_options(server), context=context) as names,
        ApacheBroker(
            version, tmp_path / "master", names.address,
            jvm_options=certificates.apache(tmp_path), context=context,
        ) as master,
    ):  # fmt: skip
        assert wire.is_registered(names.address, master.address, context)


def test_apaches_slave_of_our_enforcing_master_copies_its_topics_over_tls(
    version: str, certificates: Certificates, tmp_path: Path
) -> None:
    context = certificates.context
    with ExitStack() as stack:
        master = our_cluster(stack, tmp_path, certificates, "enforcing")
        assert wire.ask(master.address, CREATE_TOPIC, COPIED, context=context).code == 0
        slave = stack.enter_context(
            ApacheBroker(
                version, tmp_path / "slave", master.name_server, role="SLAVE", broker_id=1,
                jvm_options=certificates.apache(tmp_path / "options"), context=context,
            )
        )  # fmt: skip

        slave.running.wait_until(
            lambda: wire.has_topic(slave.address, "copied", context),
            "copying topics over TLS",
            METADATA_TIMEOUT,
        )


def test_plain_request_to_our_enforcing_port_is_not_executed_in_one_packet_nor_in_pieces(
    certificates: Certificates, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        master = our_cluster(stack, tmp_path, certificates, "enforcing")
        host, port = split_addr(master.address)
        for address in (master.address, f"{host}:{port - 2}"):
            with pytest.raises(OSError, match=r"closed after|reset by peer|timed out"):
                wire.ask(address, CREATE_TOPIC, {**COPIED, "topic": "made"})
        assert not wire.has_topic(master.address, "made", certificates.context)
        lines = master.running.log.read_text().splitlines()
        assert len([line for line in lines if "without TLS was refused" in line]) == 1


async def test_certificate_is_replaced_under_load_without_a_broken_connection(
    tmp_path: Path,
) -> None:
    certificates = make_certificates(tmp_path / "certificates")
    context = certificates.context
    with ExitStack() as stack:
        master = our_cluster(stack, tmp_path, certificates, "enforcing")
        options: dict[str, Any] = {
            "name_servers": [master.name_server], "tls": certificates.options
        }  # fmt: skip
        async with open_admin(**options) as admin:
            await admin.create_topic("steady", queues=1)
        before = served_certificate(master.address, context)
        async with open_producer(**options) as producer, trio.open_nursery() as nursery:
            sent = 0

            async def send() -> None:
                nonlocal sent
                while True:
                    await producer.send(Message("steady", b"x"))
                    sent += 1

            nursery.start_soon(send)
            (tmp_path / "renewed").mkdir()
            replaced = write_files(tmp_path / "renewed")
            await trio.to_thread.run_sync(
                certificates.server.certificate.write_bytes, replaced.certificate.read_bytes()
            )
            await trio.sleep(7)  # The server has looked, and found a key of another certificate.
            assert served_certificate(master.address, context) == before
            certificates.server.key.write_bytes(replaced.key.read_bytes())
            await trio.to_thread.run_sync(
                master.running.wait_until,
                lambda: served_certificate(master.address, context) != before,
                "serving the renewed certificate",
            )
            so_far = sent
            await trio.sleep(1)
            assert sent > so_far
            nursery.cancel_scope.cancel()
        assert master.running.has_said("changed files cannot be used")
        assert master.running.has_said("changed files are in use")
        assert not master.running.has_said("TLS failed")


def served_certificate(address: str, context: ssl.SSLContext) -> bytes:
    """Return the certificate that a server shows now."""
    host, port = split_addr(address)
    with (
        socket.create_connection((host, port), timeout=5) as plain,
        context.wrap_socket(plain, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
        assert certificate is not None
        return certificate
