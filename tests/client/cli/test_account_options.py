"""How a command gets its account (`cli/cluster_options.py`): by a file, an option, the environment, not an argument."""

import re
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from tests.client.cli.given_options import command, given, options_of, run
from tests.support.private_files import private_file

from rocketrio import Credentials
from rocketrio.cli import main
from rocketrio.cluster.account import given_credentials

SECRET = "marker-of-a-secret"


def account_of(*arguments: str, **environ: str) -> Credentials | None:
    found = given_credentials(options_of(*arguments, **environ).get("credentials"), environ)
    account = found() if callable(found) else found
    assert account is None or isinstance(account, Credentials)
    return account


def tools_yml(folder: Path, mode: int = 0o600) -> Path:
    return private_file(folder / "tools.yml", f"accessKey: someone\nsecretKey: {SECRET}\n", mode)


def test_account_comes_from_option_then_environment(tmp_path: Path) -> None:
    path = str(tools_yml(tmp_path))
    keys = {"ROCKETRIO_ACCESS_KEY": "env", "ROCKETRIO_SECRET_KEY": SECRET}
    assert account_of() is None
    assert account_of(**keys) == Credentials("env", SECRET)
    assert account_of(ROCKETRIO_CREDENTIALS_FILE=path) == Credentials("someone", SECRET)
    assert account_of("--credentials-file", path, **keys) == Credentials("someone", SECRET)
    assert account_of("--access-key", "x", **keys) == Credentials("x", SECRET)
    keys["ROCKETRIO_SECURITY_TOKEN"] = "token"
    assert account_of("--access-key", "x", **keys) == Credentials("x", SECRET, "token")


def test_file_is_read_again_while_a_command_runs(tmp_path: Path) -> None:
    path = tools_yml(tmp_path)
    provider = options_of("--credentials-file", path)["credentials"]
    assert callable(provider)
    path.write_text("accessKey: another\nsecretKey: new\n")
    assert provider() == Credentials("another", "new")


def test_secret_is_asked_for_at_a_terminal_and_not_echoed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("click.testing._NamedTextIOWrapper.isatty", lambda _: True)
    done = CliRunner().invoke(command, ["--access-key", "x"], input=f"{SECRET}\n")
    assert done.exit_code == 0
    assert given.pop()["credentials"] == Credentials("x", SECRET)
    assert SECRET not in done.output
    assert "Secret key of x" in done.stderr


def test_access_key_without_a_secret_is_an_error_with_a_remedy() -> None:
    done = run("--access-key", "x")
    assert done.exit_code == 2
    assert "ROCKETRIO_SECRET_KEY" in done.output
    assert "not both" in run("--access-key", "x", "--credentials-file", "f").output


def test_every_command_of_a_cluster_takes_an_account_and_none_takes_a_secret() -> None:
    def leaves(group: click.Group) -> list[click.Command]:
        found: list[click.Command] = []
        for each in group.commands.values():
            found += leaves(each) if isinstance(each, click.Group) else [each]
        return found

    for each in leaves(main):
        options = {option for parameter in each.params for option in parameter.opts}
        if "--namesrv" in options:
            assert {"--credentials-file", "--access-key"} <= options, each.name
        texts = {
            option
            for parameter in each.params
            if not (isinstance(parameter, click.Option) and parameter.is_flag)
            for option in parameter.opts
        }
        assert not [option for option in texts if re.search("secret|password$", option)]


@pytest.mark.parametrize("arguments", [("topic", "list"), ("produce", "orders", "--count", "1")])
def test_unusable_file_is_one_line_and_exit_code_2(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    path = tools_yml(tmp_path, mode=0o644)
    done = CliRunner().invoke(main, [*arguments, "--credentials-file", str(path)])
    assert done.exit_code == 2
    assert f"chmod 600 {path}" in done.output
    assert SECRET not in done.output
