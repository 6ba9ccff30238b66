"""Users are loaded again when their files change; a broken file changes nothing."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from tests.support.caller import accepted
from tests.support.private_files import private_file
from tests.support.secured_broker import INNER, SECRET, inner_file, refused, secured
from trio.testing import MockClock

from rocketrio_broker.access.control import RELOAD_INTERVAL, AccessControl, OwnFile
from rocketrio_broker.access.users_file import FILE_NAME, VersionedUsers, encode_users
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.access.model import AccessTable, User
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError

ACCOUNT = "- {{accessKey: writer-1, secretKey: {secret}, topicPerms: [orders=PUB|SUB], defaultTopicPerm: {perm}}}\n"
WRITER = "writer-1"


def accounts(secret: str = SECRET, perm: str = "DENY", more: str = "") -> str:
    return "accounts:\n" + ACCOUNT.format(secret=secret, perm=perm) + more


WHITE_ACCOUNT = accounts().replace("topicPerms", "whiteRemoteAddress: 10.0.0.100, topicPerms")


async def until_looked() -> None:
    await trio.sleep(RELOAD_INTERVAL * 1.5)


async def test_changed_file_counts_after_the_next_check(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = private_file(tmp_path / "plain_acl.yml", accounts())
    async with secured(tmp_path, acl_file=str(file)) as here, here.client(WRITER) as writer:
        async with here.operator() as operator:
            accepted(await operator.send("others"))
        refused(await writer.send("others"))
        private_file(file, accounts(perm="PUB"))
        refused(await writer.send("others"))
        await until_looked()
        accepted(await writer.send("others"))
        private_file(file, "accounts: []")
        await until_looked()
        assert refused(await writer.send("others")) == "check signature failed."


@pytest.mark.parametrize(
    "break_it",
    [
        lambda file: private_file(file, accounts() + "  broken"),
        lambda file: private_file(
            file, accounts(more="- {accessKey: short, secretKey: marker-1}\n")
        ),
        lambda file: file.unlink(),
        lambda file: file.chmod(0o644),
        lambda file: file.write_text(""),
        lambda file: file.write_text("accounts:\n"),
        lambda file: file.write_text("globalWhiteRemoteAddresses: []\n"),
    ],
    ids=["not yaml", "wrong account", "missing", "open to others", "empty", "torn", "no accounts"],
)
async def test_file_that_cannot_be_used_leaves_the_users_and_logs_one_error(
    tmp_path: Path,
    autojump_clock: MockClock,
    caplog: pytest.LogCaptureFixture,
    break_it: Callable[[Path], object],
) -> None:
    file = private_file(tmp_path / "plain_acl.yml", accounts(perm="PUB"))
    async with secured(tmp_path, acl_file=str(file)) as here, here.client(WRITER) as writer:
        async with here.operator() as operator:
            accepted(await operator.send("others"))
        break_it(file)
        for _ in range(4):
            await until_looked()
            accepted(await writer.send("others"))
        errors = [each for each in caplog.records if each.levelno == logging.ERROR]
        assert len(errors) == 1
        assert str(file) in errors[0].getMessage()
        assert "marker" not in caplog.text
        private_file(file, accounts(perm="SUB"))
        file.chmod(0o600)
        await until_looked()
        refused(await writer.send("others"))


async def test_operator_has_the_files_loaded_at_once_by_a_signal(tmp_path: Path) -> None:
    file = private_file(tmp_path / "plain_acl.yml", accounts())
    async with secured(tmp_path, acl_file=str(file)) as here, here.client(WRITER) as writer:
        async with here.operator() as operator:
            accepted(await operator.send("others"))
        private_file(file, accounts(perm="PUB"))
        await here.broker.reload_files()
        accepted(await writer.send("others"))


async def test_own_file_that_an_operator_edits_is_loaded_again(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path) as here:
        await here.add_user("writer", {"Topic:orders": ["Pub", "Create"]})
        control = here.broker.state.access
        assert control is not None
        path, disk = Path(control.file_names[0]), here.cluster.master.disk
        file = disk.open(path)
        content = (
            file.pread(file.size, 0)
            .replace(b'"writer"', b'"clerk"')
            .replace(b"User:writer", b"User:clerk")
        )
        file.truncate(0)
        file.pwrite(content, 0)
        file.close()
        await until_looked()
        async with here.client("writer") as writer, here.client("clerk") as clerk:
            refused(await writer.send("orders"))
            accepted(await clerk.send("orders"))


async def test_inner_account_changes_with_its_file(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    async with secured(tmp_path, slaves=1) as here:
        inner_file(tmp_path, Credentials(INNER.access_key, "marker-new-secret"))
        await until_looked()
        async with (
            here.operator() as old,
            here.client(INNER.access_key, "marker-new-secret") as new,
        ):
            refused(await old.send("orders"))
            accepted(await new.send("orders"))
        await trio.sleep(30)  # The slave signs with the new one too.
        slave = here.cluster.slaves[0].broker.statistics().slave
        assert slave is not None
        assert slave.tables.last_problem is None


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("plain_acl.yml", "accounts: [", "plain_acl.yml line"),
        (
            "plain_acl.yml",
            "globalWhiteRemoteAddresses: ['*']\naccounts: []",
            "acl_white_addresses",
        ),
        (
            "plain_acl.yml",
            accounts().replace("topicPerms", "whiteRemoteAddress: 10.0.0.1, topicPerms"),
            "acl_white_addresses",
        ),
        ("plain_acl.yml", "", "plain_acl.yml is empty"),
        ("users.json", "{", "users.json"),
        ("users.json", "", "users.json"),
        ("users.json", "{}", "users.json"),
    ],
)
async def test_broker_does_not_start_with_a_file_that_cannot_be_used(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    file = private_file(tmp_path / name, text)
    with pytest.raises(ConfigError, match=problem):
        async with secured(tmp_path, acl_file=str(file)):
            pass


async def test_broker_without_any_user_says_how_to_make_the_first(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with secured(tmp_path, inner_credentials_file=None) as here, here.client("u") as client:
        assert "inner_credentials_file" in caplog.text
        refused(await client.send("orders"))


async def test_white_address_of_an_account_replaces_its_signature(
    tmp_path: Path, autojump_clock: MockClock
) -> None:
    file = private_file(tmp_path / "plain_acl.yml", WHITE_ACCOUNT)
    async with (
        secured(tmp_path, acl_file=str(file), acl_white_addresses=True) as here,
        here.client(WRITER, "wrong") as writer,
        here.client("other", "wrong") as other,
    ):
        accepted(await writer.send("any-topic"))
        refused(await other.send("any-topic"))
        for unknown in (999, 71_999):  # What is not listed needs a signature from every address.
            refused(await writer.ask(RemotingCommand(unknown)))


class LateDisk(MemoryDisk):
    """A disk whose next work in the background ends when it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.waits = False
        self.let_go = trio.Event()

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        result = work(*arguments)
        if self.waits:
            self.waits = False
            await self.let_go.wait()
        return result


async def test_request_that_comes_while_the_file_is_read_is_not_undone_by_it() -> None:
    disk = LateDisk()
    path = Path("/config") / FILE_NAME
    control = AccessControl(OwnFile(ConfigFile(path, disk=disk)), disk=disk)
    control.change(AccessTable({"old": User("old", (b"s",))}), now_ms=1)
    edited = encode_users(VersionedUsers(AccessTable({"edited": User("edited", (b"s",))})))
    ConfigFile(path, disk=disk).write_bytes(edited)
    disk.waits = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(control.reload)
        await trio.testing.wait_all_tasks_blocked()
        control.change(AccessTable({"new": User("new", (b"s",))}), now_ms=2)
        disk.let_go.set()
    assert set(control.table.users) == {"new"}


def test_own_file_is_private_and_refused_when_it_is_not(tmp_path: Path) -> None:
    disk, path = InlineDisk(), tmp_path / "config" / FILE_NAME

    def loaded() -> AccessControl:
        return AccessControl(OwnFile(ConfigFile(path, disk=disk)), disk=disk)

    control = loaded()
    control.change(AccessTable({"u": User("u", (b"marker",))}), now_ms=1)
    assert path.stat().st_mode & 0o777 == 0o600
    assert set(loaded().table.users) == {"u"}
    path.chmod(0o640)
    with pytest.raises(ConfigError, match=f"chmod 600 {path}"):
        loaded()


def test_own_file_that_is_damaged_stops_the_start_and_is_not_replaced_by_its_backup(
    tmp_path: Path,
) -> None:
    disk, path = InlineDisk(), tmp_path / FILE_NAME
    control = AccessControl(OwnFile(ConfigFile(path, disk=disk)), disk=disk)
    for number in range(2):
        control.change(AccessTable({f"u{number}": User(f"u{number}", (b"marker",))}), now_ms=number)
    assert path.with_name(f"{FILE_NAME}.bak").exists()
    for damaged in ("{", "{}", ""):
        path.write_text(damaged)
        with pytest.raises(ConfigError, match=FILE_NAME):
            AccessControl(OwnFile(ConfigFile(path, disk=disk)), disk=disk)
    path.unlink()  # As after a crash between two renames.
    control = AccessControl(OwnFile(ConfigFile(path, disk=disk)), disk=disk)
    assert set(control.table.users) == {"u0"}
