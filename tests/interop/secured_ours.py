"""Our name server and master with access control, and Apache's client with an account of them.

The broker keeps its users itself; the name server has them from a file. The account of the stories may do what
producers, consumers and their tools do, on all topics but one.
"""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio import Credentials, open_admin
from tests.interop.java_client import JavaClient
from tests.support import wire
from tests.support.ours import OurBroker, OurNameServer
from tests.support.private_files import account_file, private_file

INNER: Final = Credentials("inner-account", "inner-secret-1")
ORDINARY: Final = Credentials("java-user-1", "java-secret-1")
DISABLED: Final = Credentials("java-user-2", "java-secret-2")
RIGHTS: Final = {
    "Topic:*": ["Pub", "Sub", "Get", "Create"],
    "Group:*": ["Sub", "Get"],
    "Cluster:lab": ["Get"],
}
DENIED: Final = "secrets"
FOREIGN: Final = "foreign-group"


def secured_name_server(home: Path, inner: Path) -> OurNameServer:
    """Make a name server that wants to know who asks, and has two users."""
    named = [
        {"username": user.access_key, "secretKeys": [user.secret_key]}
        for user in (ORDINARY, DISABLED)
    ]
    users = private_file(home / "users.json", json.dumps({"users": named}))
    return OurNameServer(
        home, options=("--acl-file", str(users), "--inner-credentials", str(inner))
    )


@attrs.define
class SecuredBroker(OurBroker):
    """A broker that wants to know who asks; its name server does not tell strangers whether it lists it."""

    def wait_ready(self) -> None:
        self.running.wait_until(
            lambda: wire.serves(self.address) and self.running.has_said("ready role="), "serving"
        )


@attrs.frozen
class SecuredOurs:
    """What runs."""

    version: str
    name_server: str
    master: SecuredBroker
    java: JavaClient
    java_rocketmq: JavaClient
    operator: JavaClient
    """Has the inner account, and runs mqadmin."""


@attrs.frozen
class SecuredServers:
    """A name server and a master."""

    name_server: OurNameServer
    master: SecuredBroker


@contextmanager
def secured_servers(folder: Path, *settings: str) -> Iterator[SecuredServers]:
    """Start both for the block, with the ordinary user."""
    inner = account_file(folder / "inner.yml", INNER)
    access = ("acl_enable=true", f"inner_credentials_file={inner}")
    with (
        secured_name_server(folder / "namesrv", inner) as names,
        SecuredBroker(folder / "master", names.address, settings=(*access, *settings)) as master,
    ):
        trio.run(_make_users, names.address)
        yield SecuredServers(names, master)


@contextmanager
def secured_ours(version: str, folder: Path) -> Iterator[SecuredOurs]:
    """Name server, master and clients for the block."""
    with ExitStack() as stack:
        servers = stack.enter_context(secured_servers(folder))
        names, master = servers.name_server, servers.master

        def client(name: str, credentials: Credentials, kind: str = "JSON") -> JavaClient:
            home = folder / name
            account_file(home / "conf" / "tools.yml", credentials)
            options = (
                f"-Dstory.accessKey={credentials.access_key}",
                f"-Dstory.secretKey={credentials.secret_key}",
            )
            java = JavaClient(version, names.address, home, kind, options)  # type: ignore[arg-type]
            return stack.enter_context(java)

        yield SecuredOurs(
            version,
            names.address,
            master,
            client("java", ORDINARY),
            client("java-rocketmq", ORDINARY, "ROCKETMQ"),
            client("operator", INNER),
        )


async def _make_users(name_server: str) -> None:
    async with open_admin(name_servers=[name_server], credentials=INNER) as admin:
        await admin.create_topic(DENIED, queues=1)
        access = admin.access()
        await access.create_user(ORDINARY.access_key, ORDINARY.secret_key)
        await access.create_user(DISABLED.access_key, DISABLED.secret_key)
        await access.update_user(DISABLED.access_key, is_enabled=False)
        for resource, actions in RIGHTS.items():
            await access.grant(ORDINARY.access_key, [resource], actions)
        denied = [f"Topic:{DENIED}", f"Group:{FOREIGN}"]
        await access.grant(ORDINARY.access_key, denied, ["All"], is_allowed=False)
