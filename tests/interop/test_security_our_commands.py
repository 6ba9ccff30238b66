"""`rocketrio acl` on Apache's secured brokers: users and rights of 5.3.3, accounts of 4.9.7."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rocketrio import Credentials
from rocketrio.cli import main
from tests.interop.java_client import JavaClient
from tests.interop.secured import ADMIN, PRODUCER, TOPIC, Secured
from tests.support.private_files import account_file, private_file

pytestmark = pytest.mark.interop

PASSWORD = "marker-of-a-password"


def run(secured: Secured, *arguments: str, stdin: str = "", code: int = 0, **options: Any) -> str:
    """Run a command as the admin; return what it prints, which never has a password in it."""
    account: Credentials = options.get("account", ADMIN)
    done = CliRunner().invoke(
        main,
        [*arguments, "--namesrv", secured.name_server, "--access-key", account.access_key],
        input=stdin,
        env={"ROCKETRIO_SECRET_KEY": account.secret_key},
    )
    assert done.exit_code == code, done.output
    assert PASSWORD not in done.output
    assert account.secret_key not in done.output
    return done.output


def of_5(secured: Secured) -> None:
    if secured.version < "5":
        pytest.skip("4.x has accounts instead of users")


def test_user_is_created_changed_shown_and_deleted(secured: Secured) -> None:
    of_5(secured)
    password = ("--password-file", "-")
    assert "someone would be created" in run(
        secured, "acl", "user", "create", "someone", "--dry-run"
    )
    assert "no master has the user" in run(secured, "acl", "user", "show", "someone", code=1)
    run(secured, "acl", "user", "create", "someone", *password, stdin=f"{PASSWORD}\n")
    again = ("acl", "user", "create", "someone", *password)
    assert "existed" in run(secured, *again, stdin=f"{PASSWORD}\n", code=1)
    [user] = json.loads(run(secured, "acl", "user", "show", "someone", "--json"))["users"]
    assert user == {
        "user": "someone",
        "type": "normal",
        "status": "enabled",
        "brokers": [secured.master.address],
    }
    someone = Credentials("someone", PASSWORD)
    create = ("topic", "create", "of-someone")
    assert "NotAuth" not in run(secured, "acl", "user", "update", "someone", "--disable")
    assert "is disabled" in run(secured, *create, account=someone, code=1)
    run(secured, "acl", "user", "update", "someone", "--enable", "--super")
    run(secured, *create, account=someone)
    assert "someone" in run(secured, "acl", "user", "list")
    run(secured, "acl", "user", "delete", "someone")
    assert "not found" in run(secured, *create, account=someone, code=1)
    assert "no master has" in run(secured, "acl", "user", "delete", "someone", code=1)


def test_right_is_granted_listed_and_revoked(secured: Secured) -> None:
    of_5(secured)
    produce = ("produce", TOPIC, "--count", "1")
    run(secured, "acl", "user", "create", "other", "--password-file", "-", stdin=f"{PASSWORD}\n")
    other = Credentials("other", PASSWORD)
    assert "has no permission" in run(secured, *produce, account=other, code=1)
    grant = ("acl", "grant", "other", "--topic", TOPIC, "--actions", "pub,sub")
    assert "would be" in run(secured, *grant, "--dry-run")
    assert json.loads(run(secured, "acl", "list", "--user", "other", "--json")) == []
    run(secured, *grant, "--source-ip", "127.0.0.1")
    [right] = json.loads(run(secured, "acl", "list", "--user", "other", "--json"))
    assert right == {
        "user": "other",
        "policy": "Custom",
        "resource": f"Topic:{TOPIC}",
        "actions": ["Pub", "Sub"],
        "source_ips": ["127.0.0.1"],
        "decision": "allow",
        "brokers": [secured.master.address],
    }
    run(secured, *produce, account=other)
    assert "Pub,Sub" in run(secured, *grant, "--deny", "--dry-run")
    run(secured, *grant, "--deny")
    assert "the decision is deny" in run(secured, *produce, account=other, code=1)
    revoke = ("acl", "revoke", "other", "--topic", TOPIC)
    assert "1 right of other would be removed" in run(secured, *revoke, "--dry-run")
    run(secured, *revoke)
    assert "no right" in run(secured, *revoke, code=1)
    assert "no matched policies" in run(secured, *produce, account=other, code=1)
    run(secured, "acl", "user", "delete", "other")


def test_ordinary_user_administers_nothing(secured: Secured) -> None:
    of_5(secured)
    refused = run(secured, "acl", "user", "list", account=PRODUCER, code=1)
    assert "NO_PERMISSION" in refused
    assert PRODUCER.access_key in refused


def test_account_of_4_is_changed_and_deleted(secured: Secured, tmp_path: Path) -> None:
    password = private_file(tmp_path / "password", f"{PASSWORD}\n")
    update = ("acl", "account", "update", "newcomer", "--topic-perm", f"{TOPIC}=PUB")
    if secured.version >= "5":
        run(secured, *update, "--password-file", str(password), code=1)
        return
    newcomer = Credentials("newcomer", PASSWORD)
    produce = ("produce", TOPIC, "--count", "1")
    before = run(secured, "acl", "account", "versions", "--json")
    assert "account newcomer would be changed" in run(secured, *update, "--dry-run")
    assert "No acl config for newcomer" in run(secured, *produce, account=newcomer, code=1)
    run(secured, *update, "--password-file", str(password))
    run(secured, *produce, account=newcomer)
    assert run(secured, "acl", "account", "versions", "--json") != before
    run(secured, "acl", "account", "white-addresses", "10.99.99.99")
    run(secured, "acl", "account", "delete", "newcomer")
    assert "No acl config for newcomer" in run(secured, *produce, account=newcomer, code=1)


def test_users_of_5_are_unknown_to_4(secured: Secured) -> None:
    if secured.version >= "5":
        pytest.skip("it knows users")
    assert "REQUEST_CODE_NOT_SUPPORTED" in run(secured, "acl", "user", "list", code=1)


def test_ordinary_commands_work_with_an_account(secured: Secured) -> None:
    run(secured, "topic", "show", TOPIC)
    run(secured, "cluster", "list")
    run(secured, "produce", TOPIC, "--count", "3")
    consume = ("consume", TOPIC, "--group", "billing", "--until-caught-up")
    assert run(secured, *consume)
    run(secured, "offsets", TOPIC, "--group", "billing")
    wrong = Credentials(ADMIN.access_key, "wrong-secret-1")
    assert "signature" in run(secured, "topic", "show", TOPIC, account=wrong, code=1)


def test_mqadmin_and_we_show_the_same_users_and_rights(secured: Secured, tmp_path: Path) -> None:
    of_5(secured)
    where = ("-b", secured.master.address)
    run(secured, "acl", "user", "create", "shared", "--password-file", "-", stdin=f"{PASSWORD}\n")
    run(secured, "acl", "grant", "shared", "--group", "g*", "--actions", "sub,get", "--deny")
    home = tmp_path / "java"
    account_file(home / "conf" / "tools.yml", ADMIN)
    with JavaClient(secured.version, secured.name_server, home) as java:

        def mqadmin(*words: str) -> str:
            return java.mqadmin(*words, *where, errors=True)

        theirs = mqadmin("getAcl", "-s", "User:shared")
        for text in ("User:shared", "Group:g*", "Sub", "Get", "Deny"):
            assert text in theirs
        assert "shared" in mqadmin("listUser")
        mqadmin(
            "createAcl", "-s", "User:shared", "-r", f"Topic:{TOPIC}", "-a", "Pub", "-d", "Allow"
        )
        mqadmin("updateUser", "-u", "shared", "-s", "disable")
    [shown] = [json.loads(run(secured, "acl", "user", "show", "shared", "--json"))]
    assert [user["status"] for user in shown["users"]] == ["disabled"]
    assert {(right["resource"], right["decision"]) for right in shown["rights"]} == {
        ("Group:g*", "deny"),
        (f"Topic:{TOPIC}", "allow"),
    }
    check = ("acl", "check", "shared", "--topic", TOPIC, "--action", "pub")
    assert "the user is disabled" in run(secured, *check, code=1)
    run(secured, "acl", "user", "delete", "shared")


def test_accounts_of_4_become_users_of_5(secured: Secured, tmp_path: Path) -> None:
    of_5(secured)
    path = private_file(
        tmp_path / "plain_acl.yml",
        f"accounts:\n  - accessKey: importer1\n    secretKey: {PASSWORD}\n    defaultTopicPerm: DENY\n"
        f"    topicPerms: [{TOPIC}=PUB|SUB]\n    groupPerms: [imported=SUB]\n",
    )
    assert "would be created" in run(secured, "acl", "import", str(path))
    run(secured, "acl", "import", str(path), "--apply")
    account = Credentials("importer1", PASSWORD)
    run(secured, "produce", TOPIC, "--count", "2", account=account)
    consume = ("consume", TOPIC, "--group", "imported", "--until-caught-up")
    run(secured, *consume, account=account)
    run(secured, "produce", "secrets", "--count", "1", account=account, code=1)
    run(secured, "acl", "user", "delete", "importer1")
