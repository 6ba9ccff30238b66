"""A marker secret in every place that holds one; all that was printed, logged, answered, pickled and kept is searched.

Everything is over TLS with a key that has a password, and the replication link has a secret. Brokers keep users'
secrets in `rocketrioUsers.json` and its former version, which only their own user may read.
"""

import logging
import pickle
import stat
import subprocess
import tarfile
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from tests.support.clients import open_admin, open_client, open_consumer, open_producer
from tests.support.commands import rocketrio
from tests.support.private_files import account_file, private_file
from tests.support.secured_broker import INNER, Secured, secured
from tests.support.tls import client_context, write_files

from rocketrio import Credentials, Message
from rocketrio_broker.metrics.certificates import Certificates
from rocketrio_broker.metrics.event_counts import EventCounts
from rocketrio_broker.metrics.loop_delay import LoopDelay
from rocketrio_broker.metrics.page import MetricsPage
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.access import UpdateAccessConfigRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.signature import Signer

pytestmark = pytest.mark.real

USER = "ordinary"
PASSWORD = "marker-user-secret"  # what `add_user` gives
TOKEN = "marker-token"
KEY_PASSWORD = "marker-key-password"
HA_SECRET = "marker-secret-of-the-replication-link"
MARKERS = (PASSWORD, TOKEN, INNER.secret_key, "marker-new-secret", KEY_PASSWORD, HA_SECRET)
ACCOUNT = Credentials(USER, PASSWORD, TOKEN)


def assert_clean(what: str, text: str) -> None:
    found = [marker for marker in MARKERS if marker in text]
    assert not found, f"{what} shows {found}: {text[:2000]}"


def protection(folder: Path) -> dict[str, object]:
    """Write files with secrets; return settings that name them, and an audit log beside the data."""
    files = write_files(folder)
    encrypted = private_file(folder / "encrypted.pem", "")
    subprocess.run(
        ["openssl", "pkey", "-in", files.key, "-aes256", "-passout", f"pass:{KEY_PASSWORD}", "-out", encrypted],
        check=True,
    )  # fmt: skip
    files.key.unlink()
    return {
        "tls": client_context(),
        "tls_certificate_file": files.certificate,
        "tls_key_file": encrypted,
        "tls_key_password_file": private_file(folder / "password", KEY_PASSWORD),
        "peer_tls_authority_file": files.authority,
        "ha_secret_file": private_file(folder / "ha-secret", HA_SECRET),
        "audit_log": folder / "data" / "audit.log",
        "metrics_listen": "127.0.0.1:0",
    }


@pytest.fixture
async def here(tmp_path: Path) -> AsyncIterator[Secured]:
    (tmp_path / "data").mkdir()
    settings = protection(tmp_path)
    async with secured(tmp_path, slaves=1, root=tmp_path / "data", **settings) as running:
        await running.add_user(USER, {"Topic:*": ["Pub", "Sub", "Get"], "Group:*": ["Sub", "Get"]})
        yield running


async def use_everything(here: Secured) -> list[object]:
    """Use an account in all ways, also in wrong ones; return the objects and errors that a user holds then."""
    held: list[object] = []
    names = {
        "name_servers": here.cluster.name_servers,
        "dial": here.cluster.dial,
        "tls": client_context(),
    }
    async with open_admin(**names, credentials=INNER) as admin:
        await admin.create_topic("orders", queues=2)
        access = admin.access()
        await access.create_user("another", PASSWORD)
        await access.update_user("another", password="marker-new-secret")
        await access.grant("another", ["Topic:orders"], ["Pub"])
        held += [await access.users(), await access.rights(), await access.user("another"), access]
        held += [await admin.brokers(), await admin.status(), admin]
        account = UpdateAccessConfigRequestHeader(access_key="account-1", secret_key=PASSWORD)
        held += [account, await access.update_account(account)]
        with suppress(Error):
            held.append(await access.account_versions())
    async with open_client(**names, credentials=ACCOUNT, trace=True) as client:
        held += [client, client.account, client.pool, client.connections]
        async with (
            open_producer(client=client) as producer,
            open_consumer(
                "orders", group="billing", start_from="earliest", client=client
            ) as consumer,
        ):
            await producer.send(Message("orders", b"x"))
            held += [await consumer.receive(), consumer, producer, consumer.statistics()]
            running = await _running_info(here, consumer.client.client_id)
            held.append(running)
    for wrong in (
        Credentials(USER, "marker-new-secret"),
        Credentials("nobody", PASSWORD, TOKEN),
    ):
        async with open_producer(**names, credentials=wrong) as producer:
            try:
                await producer.send(Message("orders", b"x"))
            except Error as error:
                held += [error, error.remark, error.__cause__]
    async with open_producer(**names, credentials=ACCOUNT) as producer:
        for topic in ("no such", "RMQ_SYS_TRANS_HALF_TOPIC"):
            try:
                await producer.send(Message(topic, b"x"))
            except Error as error:
                held.append(error)
    return held


async def _running_info(here: Secured, client_id: str) -> str:
    fields = {"consumerGroup": "billing", "clientId": client_id, "jstackEnable": "false"}
    request = RemotingCommand(RequestCode.GET_CONSUMER_RUNNING_INFO, ext_fields=fields)
    async with here.operator() as operator:
        answer = await operator.ask(request)
    return f"{answer} {bytes(answer.body).decode(errors='replace')}"


async def test_markers_are_in_no_text_no_pickle_and_no_file(
    here: Secured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    held = await use_everything(here)
    for each in held:
        assert_clean(type(each).__name__, f"{each!r} {each}")
        with suppress(Exception):
            assert_clean(f"pickle of {type(each).__name__}", str(pickle.dumps(each)))
    signed = RemotingCommand(1, ext_fields=Signer(ACCOUNT).signed({"topic": "orders"}, b""))
    assert PASSWORD not in repr(signed)
    await _ask_for_all(here)
    page = _metrics(here)
    assert "rocketrio_" in page
    assert_clean("metrics", page)
    await _run_commands(here, tmp_path)
    out, err = capfd.readouterr()
    assert_clean("output", out + err)
    assert_clean("log", caplog.text)
    _search_bundle(tmp_path / "bundle.tar.gz")
    _search_files(tmp_path / "data")


async def _ask_for_all(here: Secured) -> None:
    """Search the answers to requests that show settings and states, of every member."""
    codes = (
        RequestCode.GET_BROKER_CONFIG,
        RequestCode.GET_BROKER_RUNTIME_INFO,
        RequestCode.GET_ALL_TOPIC_CONFIG,
        RequestCode.AUTH_LIST_USER,
        RequestCode.AUTH_LIST_ACL,
        RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
        RequestCode.GET_EVENTS,
        RequestCode.GET_BROKER_HA_STATUS,
        54,
    )
    for member in (here.cluster.master, *here.cluster.slaves):
        async with here.client(
            INNER.access_key, INNER.secret_key, addr=member.broker.address
        ) as operator:
            for code in codes:
                answer = await operator.ask(RemotingCommand(int(code)))
                assert_clean(
                    f"answer to {code}", f"{answer!r} {answer.ext_fields} {bytes(answer.body)!r}"
                )


def _metrics(here: Secured) -> str:
    state = here.broker.state
    page = MetricsPage(
        state,
        connections=lambda: 1,
        loop=LoopDelay(),
        events=EventCounts(),
        certificates=Certificates(state),
    )
    return b"".join(page.parts()).decode()


async def _run_commands(here: Secured, folder: Path) -> None:
    path = account_file(folder / "tools.yml", INNER)
    env = {"NAMESRV_ADDR": ";".join(here.cluster.name_servers)}
    account = ("--credentials-file", str(path), "--tls-ca", str(folder / "ca.pem"), "-vv")
    limit = trio.CapacityLimiter(2)

    async def run(*arguments: str) -> None:
        async with limit:
            done = await rocketrio(*arguments, *account, stdin=b"marker-new-secret\n", env=env)
        assert_clean(" ".join(arguments), done.out + done.err)

    async with trio.open_nursery() as nursery:
        for arguments in (
            ("acl", "user", "list", "--json"),
            ("acl", "user", "show", USER),
            ("acl", "user", "update", USER, "--password-file", "-"),
            ("acl", "account", "update", "account-2", "--password-file", "-"),
            ("acl", "sign", "topic=orders"),
            ("acl", "list", "--json"),
            ("export",),
            ("doctor", "--once", "--bundle", str(folder / "bundle.tar.gz")),
            ("broker", "settings", here.broker.address),
            ("produce", "orders", "--count", "1"),
            ("topic", "show", "nowhere"),
        ):
            nursery.start_soon(run, *arguments)


def _search_bundle(path: Path) -> None:
    """Search what `rocketrio doctor` packs."""
    with tarfile.open(path) as bundle:
        files = [(name, bundle.extractfile(name)) for name in bundle.getnames()]
        texts = [(name, file.read().decode()) for name, file in files if file is not None]
    assert any("rocketrio" in text for _, text in texts)
    for name, text in texts:
        assert_clean(f"bundle: {name}", text)


def _search_files(data: Path) -> None:
    """Search what brokers keep."""
    files = [path for path in data.rglob("*") if path.is_file()]
    users = [path for path in files if path.name.startswith("rocketrioUsers.json")]
    assert users
    assert any(path.name == "audit.log" and b"account-1" in path.read_bytes() for path in files)
    for path in files:
        if path in users:
            # Brokers need it, and no other user may read it.
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0
        else:
            assert_clean(str(path), path.read_bytes().decode(errors="replace"))
