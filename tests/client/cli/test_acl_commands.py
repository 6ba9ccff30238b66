"""Usage of `rocketrio acl`: what is refused before anything is sent, and what `sign` prints."""

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rocketrio.cli import main

SECRET, TOKEN = "12345678", "sts-token-1"
ENV = {"ROCKETRIO_ACCESS_KEY": "RocketMQ", "ROCKETRIO_SECRET_KEY": SECRET}


def run(*arguments: str, stdin: str = "", **env: str) -> Result:
    return CliRunner().invoke(main, ["acl", *arguments], input=stdin, env=env or ENV)


def test_sign_prints_what_java_signs(tmp_path: Path) -> None:
    pull = (
        "consumerGroup=CG", "topic=TopicTest", "queueId=3", "queueOffset=42", "maxMsgNums=32", "sysFlag=2",
        "commitOffset=0", "suspendTimeoutMillis=15000", "subscription=*", "subVersion=1700000000000",
        "expressionType=TAG",
    )  # fmt: skip
    done = run("sign", *pull)
    assert done.exit_code == 0, done.output
    assert "RocketMQ0CGTAG323421700000000000*150002TopicTest" in done.output
    assert "39NU5c8yPiXetFEEPuILwKK4hOw=" in done.output
    assert SECRET not in done.output
    body = tmp_path / "body"
    body.write_bytes(b"abc")
    assert "3 bytes of body" in run("sign", "a=b", "--body-file", str(body)).output


def test_sign_shows_no_token() -> None:
    done = run("sign", "topic=T", "--json", **ENV, ROCKETRIO_SECURITY_TOKEN=TOKEN)
    assert '"content": "RocketMQ<SecurityToken>T"' in done.output
    assert TOKEN not in done.output + run("sign", **ENV, ROCKETRIO_SECURITY_TOKEN=TOKEN).output


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("sign", "topic"), "NAME=VALUE"),
        (("sign", "a=1", "a=2"), "NAME=VALUE"),
        (("grant", "u", "--actions", "pub"), "--topic, --group or --resource"),
        (("grant", "u", "--topic", "t", "--actions", "publish"), "not one of all, pub"),
        (("revoke", "u"), "or --all"),
        (("revoke", "u", "--all", "--topic", "t"), "or --all"),
        (("user", "create", "u"), "--password-file"),
        (("user", "update", "u"), "give one of"),
        (("account", "update", "u", "--topic-perm", "t=WRITE"), "t=WRITE"),
    ],
)
def test_wrong_use_is_refused(arguments: tuple[str, ...], problem: str) -> None:
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert problem in done.output


def test_sign_without_an_account_is_an_error_with_a_remedy() -> None:
    done = run("sign", "a=b", NAMESRV_ADDR="")
    assert done.exit_code == 1
    assert "--credentials-file" in done.output


def test_password_file_that_others_may_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "password"
    path.write_text("marker-password")
    path.chmod(0o644)
    done = run("user", "create", "u", "--password-file", str(path))
    assert done.exit_code == 2
    assert "chmod 600" in done.output
    assert "marker-password" not in done.output
    assert run("user", "create", "u", "--password-file", "-", stdin="\n").exit_code == 2
