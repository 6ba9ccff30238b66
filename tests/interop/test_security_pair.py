"""Masters with access control, and slaves that copy their tables: of both products, with inner credentials."""

from pathlib import Path

import pytest
import trio

from rocketrio import Credentials, Message, open_admin, open_producer
from tests.interop.apache import METADATA_TIMEOUT, ApacheBroker
from tests.interop.secured import TOPIC, secured_apache
from tests.interop.secured_ours import INNER, SecuredBroker, secured_name_server
from tests.support import wire
from tests.support.ours import OurBroker, OurNameServer
from tests.support.private_files import account_file, private_file
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

COPIED = "copied-topic"
PROVIDER = "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider"
"""Apache's broker keeps the inner account as a user, also without authentication."""
PLAIN_ACL = f"""\
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
  - accessKey: {INNER.access_key}
    secretKey: {INNER.secret_key}
    admin: true
"""


class SlaveAtClosedNameServer(ApacheBroker):
    """An Apache slave whose name server answers no strangers."""

    def wait_ready(self) -> None:
        self.running.wait_until(lambda: wire.serves(self.address), "serving")


async def make_topic(name_server: str, topic: str) -> None:
    async with open_admin(name_servers=[name_server], credentials=INNER) as admin:
        await admin.create_topic(topic, queues=1)


def test_slave_with_inner_credentials_copies_from_our_master(version: str, tmp_path: Path) -> None:
    if version < "5":
        pytest.skip("4.9.7 signs nothing")
    inner = account_file(tmp_path / "inner.yml", INNER)
    settings = ("acl_enable=true", f"inner_credentials_file={inner}")
    with (
        secured_name_server(tmp_path / "names", inner) as names,
        SecuredBroker(tmp_path / "master", names.address, settings=settings),
    ):
        trio.run(make_topic, names.address, COPIED)
        signing = f'{{"accessKey":"{INNER.access_key}","secretKey":"{INNER.secret_key}"}}'
        with SlaveAtClosedNameServer(
            version,
            tmp_path / "slave",
            names.address,
            role="SLAVE",
            broker_id=1,
            settings={
                "innerClientAuthenticationCredentials": signing,
                "authenticationMetadataProvider": PROVIDER,
            },
        ) as slave:
            wait_until(lambda: wire.has_topic(slave.address, COPIED), "copied", METADATA_TIMEOUT)


def test_slave_of_4_copies_from_our_master_by_its_address(version: str, tmp_path: Path) -> None:
    if version >= "5":
        pytest.skip("5.3.3 signs")
    users = private_file(tmp_path / "plain_acl.yml", PLAIN_ACL)
    settings = (f"acl_file={users}", "acl_white_addresses=true")
    with (
        OurNameServer(tmp_path / "names") as names,
        OurBroker(tmp_path / "master", names.address, settings=settings) as master,
    ):
        trio.run(make_topic, names.address, COPIED)
        with ApacheBroker(
            version, tmp_path / "slave", names.address, role="SLAVE", broker_id=1
        ) as slave:
            wait_until(lambda: wire.has_topic(slave.address, COPIED), "copied", METADATA_TIMEOUT)
        for code in (25, 50, 3001):  # The address does not suffice to change settings and users.
            assert wire.ask(master.address, code).code == wire.NO_PERMISSION


def test_apache_slave_gets_nothing_from_a_replication_port_with_a_secret(
    version: str, tmp_path: Path
) -> None:
    secret = private_file(tmp_path / "secret", "a secret that no Apache slave knows")
    settings = (f"ha_secret_file={secret}",)

    async def send(name_server: str) -> None:
        async with open_producer(name_servers=[name_server]) as producer:
            for number in range(20):
                await producer.send(Message("orders", b"%d" % number))

    with (
        OurNameServer(tmp_path / "names") as names,
        OurBroker(tmp_path / "master", names.address, settings=settings) as master,
    ):
        with ApacheBroker(
            version, tmp_path / "slave", names.address, role="SLAVE", broker_id=1
        ) as slave:
            trio.run(send, names.address)
            said = "slave disconnected"
            master.running.wait_until(lambda: master.running.has_said(said), said)
            trio.run(send, names.address)
            assert wire.max_physical_offset(slave.address) == 0
        assert wire.max_physical_offset(master.address) > 0


def test_our_slave_with_inner_credentials_copies_from_apaches_master(
    version: str, tmp_path: Path
) -> None:
    if version < "5":
        pytest.skip("4.9.7 has accounts; the inner one is made by 5.3.3")
    inner = account_file(tmp_path / "inner.yml", Credentials("inner", "inner-secret-1"))
    with secured_apache(version, tmp_path / "apache") as there:
        for settings, is_copied in (((f"inner_credentials_file={inner}",), True), ((), False)):
            folder = tmp_path / f"slave-{is_copied}"
            with OurBroker(
                folder, there.name_server, role="slave", broker_id=1, settings=settings
            ) as slave:
                if is_copied:
                    wait_until(
                        lambda: wire.has_topic(slave.address, TOPIC), "copied", METADATA_TIMEOUT
                    )
                else:
                    said = "username cannot be null"
                    slave.running.wait_until(lambda: slave.running.has_said(said), said)  # noqa: B023
                    assert not wire.has_topic(slave.address, TOPIC)
