"""`rocketrio acl` on a rocketrio broker with access control: import, users, rights, and what ordinary commands say."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.commands import Done, rocketrio
from tests.support.private_files import account_file, private_file
from tests.support.secured_broker import INNER, Secured, secured

from rocketrio import Credentials

pytestmark = pytest.mark.real

PASSWORD = "marker-of-a-password"
PLAIN_ACL = f"""\
globalWhiteRemoteAddresses: [10.10.103.*]
accounts:
  - accessKey: importer1
    secretKey: {PASSWORD}
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [orders=PUB|SUB]
    groupPerms: [billing=SUB]
  - accessKey: operator1
    secretKey: {PASSWORD}
    admin: true
"""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Secured]:
    async with secured(tmp_path, slaves=1, network="loopback") as cluster:
        yield cluster


class Account:
    """Runs commands with the file of an account; no output has a password in it."""

    def __init__(self, running: Secured, folder: Path, name: str, secret: str) -> None:
        self._env = {"NAMESRV_ADDR": ";".join(running.cluster.name_servers)}
        self._file = account_file(folder / f"{name}.yml", Credentials(name, secret))

    async def run(self, *arguments: str, code: int = 0, stdin: str = "") -> Done:
        done = await rocketrio(
            *arguments,
            "--credentials-file",
            str(self._file),
            stdin=stdin.encode(),
            env=self._env,
        )
        assert done.code == code, (arguments, done)
        assert PASSWORD not in done.out + done.err
        assert INNER.secret_key not in done.out + done.err
        return done


async def test_accounts_are_imported_and_used_and_checked(running: Secured, tmp_path: Path) -> None:
    admin = Account(running, tmp_path, INNER.access_key, INNER.secret_key)
    user = Account(running, tmp_path, "importer1", PASSWORD)
    path = private_file(tmp_path / "plain_acl.yml", PLAIN_ACL, 0o644)
    assert "chmod 600" in (await admin.run("acl", "import", str(path), code=2)).err
    path.chmod(0o600)
    await admin.run("topic", "create", "orders")

    shown = await admin.run("acl", "import", str(path))
    assert "user importer1 would be created" in shown.out
    assert "super user operator1 would be created" in shown.out
    assert "10.10.103.*" in shown.err
    assert "importer1" in (await user.run("produce", "orders", "--count", "1", code=1)).err
    assert (await admin.run("acl", "list", "--user", "importer1", "--json")).json == [[]]

    await admin.run("acl", "import", str(path), "--apply")
    again = await admin.run("acl", "import", str(path), "--apply")
    assert "importer1 exists already" in again.out
    await user.run("produce", "orders", "--count", "3")
    await user.run("consume", "orders", "--group", "billing", "--until-caught-up")
    [found] = (await admin.run("acl", "user", "show", "importer1", "--json")).json
    assert {right["resource"] for right in found["rights"]} >= {"Topic:orders", "Group:billing"}

    may = await admin.run("acl", "check", "importer1", "--topic", "orders", "--action", "pub")
    assert "may pub Topic:orders" in may.out
    assert "by the right on Topic:orders" in may.out
    denied = ("acl", "check", "importer1", "--topic", "secrets", "--action", "pub")
    assert "may not pub" in (await admin.run(*denied, code=1)).out
    assert "has no permission" in (await user.run("produce", "secrets", "--count", "1", code=1)).err
    operator = ("acl", "check", "operator1", "--resource", "Cluster:lab", "--action", "update")
    assert "super user" in (await admin.run(*operator)).out


async def test_password_is_changed_while_the_former_is_valid(
    running: Secured, tmp_path: Path
) -> None:
    admin = Account(running, tmp_path, INNER.access_key, INNER.secret_key)
    await admin.run("topic", "create", "orders")
    create = ("acl", "user", "create", "rotating", "--password-file", "-")
    await admin.run(*create, stdin="first-secret\n")
    await admin.run("acl", "grant", "rotating", "--topic", "orders", "--actions", "pub")
    first = Account(running, tmp_path, "rotating", "first-secret")
    produce = ("produce", "orders", "--count", "1")
    await first.run(*produce)
    update = ("acl", "user", "update", "rotating", "--password-file", "-")
    await admin.run(*update, stdin="second-secret\n")
    await first.run(*produce)
    await Account(running, tmp_path, "rotating", "second-secret").run(*produce)
    await admin.run(*update, stdin="second-secret\n")
    first = Account(running, tmp_path, "rotating", "first-secret")
    assert "check signature failed" in (await first.run(*produce, code=1)).err
    assert "rotating" in (await first.run(*produce, code=1)).err
