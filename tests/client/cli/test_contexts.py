"""Contexts: which cluster a command uses, the file, and what is protected."""

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.support.private_files import private_file

from rocketrio.cli import main
from rocketrio.cli.contexts import (
    Choice,
    Context,
    Contexts,
    choose,
    contexts_path,
    read_contexts,
    write_contexts,
)
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError

PROD = Context(namesrv="10.0.0.1:9876;10.0.0.2:9876", protected=True)
LAB = Context(namesrv="10.0.0.9:9876", namespace="lab")
BOTH = Contexts({"prod": PROD, "lab": LAB}, "lab")
LAB_CHOICE = Choice(("10.0.0.9:9876",), "lab", LAB)
PROD_CHOICE = Choice(("10.0.0.1:9876", "10.0.0.2:9876"), "prod", PROD)
SECRET = "never-shown-4711"


@pytest.fixture(autouse=True, name="path")
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for variable in ("NAMESRV_ADDR", "ROCKETRIO_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    return contexts_path()


def rocketrio(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


# ------------------------------------------------------------------------------------------ choice


@pytest.mark.parametrize(
    ("namesrv", "context", "environ", "expected"),
    [
        (None, None, {}, LAB_CHOICE),
        ("h:1", None, {}, Choice(("h:1",))),
        ("h:1", "prod", {}, Choice(("h:1",), "prod", PROD)),
        (None, "prod", {"NAMESRV_ADDR": "h:1", "ROCKETRIO_CONTEXT": "lab"}, PROD_CHOICE),
        (None, None, {"ROCKETRIO_CONTEXT": "lab", "NAMESRV_ADDR": "h:1"}, LAB_CHOICE),
        ("h:1", None, {"ROCKETRIO_CONTEXT": "lab", "NAMESRV_ADDR": "h:2"}, Choice(("h:1",))),
    ],
)  # fmt: skip
def test_options_win_over_variables_and_those_over_the_selected_context(
    namesrv: str | None, context: str | None, environ: Mapping[str, str], expected: Choice
) -> None:
    assert choose(BOTH, namesrv=namesrv, context=context, environ=environ) == expected


@pytest.mark.parametrize(
    "environ", [{"NAMESRV_ADDR": "h:1"}, {"ROCKETRIO_CONTEXT": "prod", "NAMESRV_ADDR": "h:1"}]
)
def test_variable_that_wins_over_the_selected_context_is_named(environ: dict[str, str]) -> None:
    warning = choose(BOTH, environ=environ).warning
    assert warning is not None
    assert "is used, not the selected context lab" in warning
    assert choose(Contexts(BOTH.by_name), environ=environ).warning is None


def test_without_anything_it_is_the_local_name_server() -> None:
    assert choose(Contexts(), environ={}) == Choice(("127.0.0.1:9876",))


def test_unknown_context_is_an_error_that_names_a_similar_one() -> None:
    with pytest.raises(ConfigError, match=r"no context 'prd'. Did you mean prod\?"):
        choose(BOTH, context="prd", environ={})


# ------------------------------------------------------------------------------------------ values


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"namesrv": "no-port"}, "is not HOST:PORT"),
        ({"access_key": "a"}, "access_key needs secret_file"),
        ({"secret_file": "f"}, "secret_file needs access_key"),
        ({"access_key": "a", "secret_file": "f", "secret_command": "c"}, "one of them is enough"),
        ({"tls_key_file": "f"}, "needs tls_certificate_file"),
        ({"color": "pink"}, "is not one of"),
    ],
)
def test_settings_that_contradict_are_refused(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        Context(**{"namesrv": "h:1", **settings})


def _credentials(context: Context) -> Credentials:
    provider = context.client_options()["credentials"]
    assert callable(provider)
    found = provider()
    assert isinstance(found, Credentials)
    return found


def test_secret_comes_from_a_private_file_or_a_command(tmp_path: Path) -> None:
    file = private_file(tmp_path / "secret", f"{SECRET}\n")
    for how in ({"secret_file": str(file)}, {"secret_command": f"echo {SECRET}"}):
        found = _credentials(Context(namesrv="h:1", access_key="ops", **how))
        assert (found.access_key, found.secret_key) == ("ops", SECRET)
    file.chmod(0o644)
    with pytest.raises(ConfigError, match="open to others"):
        _credentials(Context(namesrv="h:1", access_key="ops", secret_file=str(file)))


@pytest.mark.parametrize("command", ["false", "true", "no-such-program-17", "echo 'open"])
def test_failed_secret_command_is_an_error_without_the_command(command: str) -> None:
    context = Context(namesrv="h:1", access_key="ops", secret_command=command)
    with pytest.raises(ConfigError, match="secret_command") as raised:
        _credentials(context)
    assert command not in str(raised.value)
    assert command not in repr(context)


# -------------------------------------------------------------------------------------------- file


def test_home_that_may_not_be_entered_has_no_contexts(path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.write_text("selected = 7")
    path.parent.chmod(0)
    user = os.geteuid()
    try:
        if user == 0:  # Root enters every folder.
            os.seteuid(65_534)
        assert read_contexts(path) == Contexts()
    finally:
        os.seteuid(user)
        path.parent.chmod(0o700)


def test_file_is_private_and_keeps_what_the_user_wrote(path: Path) -> None:
    write_contexts(path, BOTH)
    assert read_contexts(path) == BOTH
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.write_text(path.read_text().replace("[contexts.lab]", "[contexts.lab]\n# mine"))
    write_contexts(path, Contexts({"lab": LAB, "new": PROD}, None))
    assert "# mine" in path.read_text()
    assert read_contexts(path) == Contexts({"lab": LAB, "new": PROD}, None)


def test_file_behind_a_link_is_replaced_and_the_link_stays(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "synchronised.toml")
    write_contexts(path, BOTH)
    assert path.is_symlink()
    assert read_contexts(path) == BOTH


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("contexts = 1", "contexts must be tables"),
        ("[contexts.a]\nnamesrv = 1", "namesrv must be text"),
        ("[contexts.a]\nnamesrv = 'h:1'\nprotected = 'yes'", "protected must be true or false"),
        ("[contexts.a]\nnamesrv = 'h:1'\nprotectd = true", "did you mean protected"),
        ("[contexts.a]\nprotected = true", "has no namesrv"),
        ("selected = 'b'\n[contexts.a]\nnamesrv = 'h:1'", "selected names b"),
        ("=", "is not TOML"),
        ("other = 1", "unknown key other"),
    ],
)
def test_wrong_file_is_an_error_that_names_the_place(path: Path, text: str, problem: str) -> None:
    private_file(path, text)
    with pytest.raises(ConfigError, match=problem) as raised:
        read_contexts(path)
    assert str(path) in str(raised.value)


def test_file_that_others_can_read_is_refused(path: Path) -> None:
    write_contexts(path, BOTH)
    path.chmod(0o640)
    done = rocketrio("context", "list")
    assert done.exit_code == 2
    assert "open to others" in done.output


# ---------------------------------------------------------------------------------------- commands


def test_life_of_a_context(path: Path) -> None:
    assert rocketrio("context", "add", "lab", "--namesrv", "h:1", "--use").exit_code == 0
    assert rocketrio("context", "copy", "lab", "prod").exit_code == 0
    assert rocketrio("context", "edit", "prod", "--protected", "--color", "red").exit_code == 0
    assert rocketrio("context", "rename", "lab", "home").exit_code == 0
    shown = json.loads(rocketrio("context", "list", "--json").output)
    assert {(one["name"], one["protected"], one["selected"]) for one in shown} == {
        ("prod", True, False),
        ("home", False, True),
    }
    assert rocketrio("context", "unuse").exit_code == 0
    assert rocketrio("context", "show").exit_code == 2
    assert rocketrio("context", "use", "prod").exit_code == 0
    assert json.loads(rocketrio("context", "show", "--json").output)["name"] == "prod"
    assert rocketrio("context", "remove", "prod").exit_code == 0
    assert read_contexts(path) == Contexts({"home": Context(namesrv="h:1")})


def test_secret_and_its_command_are_never_printed(tmp_path: Path) -> None:
    account = ("--access-key", "ops", "--secret-command", f"echo {SECRET}")
    outputs = [
        rocketrio("context", "add", "lab", "--namesrv", "127.0.0.1:1", *account),
        rocketrio("context", "list", "--json"),
        rocketrio("context", "show", "lab"),
        rocketrio("context", "check"),
        rocketrio("topic", "list", "--context", "lab", "-vv", "--timeout", "5"),
    ]
    for done in outputs:
        assert SECRET not in done.output + done.stderr
    assert "command" in outputs[2].output


@pytest.mark.parametrize(
    "arguments",
    [
        ("add", "lab"),
        ("add", "a b", "--namesrv", "h:1"),
        ("add", "lab", "--namesrv", "no-port"),
        ("edit", "lab"),
        ("edit", "none", "--tls"),
        ("use", "none"),
        ("rename", "none", "other"),
        ("copy", "none", "other"),
        ("remove", "none"),
        ("check",),
    ],
)
def test_wrong_use_changes_nothing(path: Path, arguments: tuple[str, ...]) -> None:
    done = rocketrio("context", *arguments)
    assert done.exit_code == 2, done.output
    assert not path.exists()


def test_name_that_is_taken_is_refused(path: Path) -> None:
    write_contexts(path, BOTH)
    for words in ("add lab --namesrv h:1", "copy prod lab", "rename prod lab"):
        assert "a context lab already" in rocketrio("context", *words.split()).output
    assert read_contexts(path) == BOTH


# --------------------------------------------------------------------------------------- protected

CHANGES = [
    ("topic", "create", "orders"),
    ("group", "delete", "billing"),
    ("offsets", "reset", "billing", "--topic", "orders", "--to", "first"),
    ("offsets", "orders", "--group", "billing", "--reset-to", "earliest"),
    ("broker", "settings", "127.0.0.1:1", "a=b"),
    ("produce", "orders", "--count", "1"),
    ("consume", "orders", "--group", "billing"),
    ("acl", "user", "delete", "ops"),
]


@pytest.mark.parametrize("arguments", CHANGES, ids=" ".join)
@pytest.mark.parametrize("confirmed", [(), ("--yes",)])
def test_protected_context_refuses_changes_that_are_not_confirmed(
    path: Path, arguments: tuple[str, ...], confirmed: tuple[str, ...]
) -> None:
    local = Context(namesrv="127.0.0.1:1", protected=True)
    write_contexts(path, Contexts({"prod": local}, "prod"))
    done = rocketrio(*arguments, *confirmed)
    assert done.exit_code == 4, done.output
    assert "the context prod is protected: give --yes --context prod" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("topic", "create", "orders", "--yes", "--context", "prod"),
        ("topic", "create", "orders", "--dry-run"),
        ("topic", "list"),
        ("offsets", "orders", "--group", "billing"),
        ("broker", "settings", "127.0.0.1:1"),
    ],
)
def test_protected_context_lets_reads_dry_runs_and_what_is_confirmed_through(
    path: Path, arguments: tuple[str, ...]
) -> None:
    local = Context(namesrv="127.0.0.1:1", protected=True)
    write_contexts(path, Contexts({"prod": local}, "prod"))
    done = rocketrio(*arguments)
    assert done.exit_code == 1  # There is no name server.
    assert "127.0.0.1:1" in done.stderr


def test_warning_is_on_standard_error_alone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_contexts(path, Contexts({"prod": PROD}, "prod"))
    monkeypatch.setenv("NAMESRV_ADDR", "127.0.0.1:1")
    done = rocketrio("topic", "list")
    assert done.stdout == ""
    assert "NAMESRV_ADDR=127.0.0.1:1 is used, not the selected context prod" in done.stderr
    assert done.stderr.count("is used") == 1


def test_path_is_in_the_configuration_of_the_user(path: Path) -> None:
    assert path == Path(os.environ["XDG_CONFIG_HOME"], "rocketrio", "contexts.toml")
