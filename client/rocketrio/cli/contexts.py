"""Contexts: named clusters with the account and TLS to use there, in `contexts.toml` of the user's configuration.

    selected = "lab"

    [contexts.prod]
    namesrv = "10.0.0.1:9876;10.0.0.2:9876"
    access_key = "operator"
    secret_file = "/home/ops/.rocketrio-secret"
    protected = true

Which one a command uses: `--context`, else `ROCKETRIO_CONTEXT`, else the selected one. `--namesrv` or `NAMESRV_ADDR`
in place of a context that was not named on the command line means no context at all: an account is not sent to another
cluster by accident.

Invariant: the file is readable by its owner alone, and replaced whole.
Invariant: no text that commands print contains a secret, or a command that may contain one.
"""

import os
import shlex
import subprocess
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketrio.arguments import similar_name
from rocketrio.cluster.variables import CONTEXT_VARIABLE, DEFAULT_NAME_SERVER, NAME_SERVERS_VARIABLE
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

if TYPE_CHECKING:
    from rocketrio.cluster.account import GivenCredentials, Provider
    from rocketrio.cluster.tls import GivenTls
    from rocketrio.connect import ClientOptions

COLORS: Final = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
SECRET_COMMAND_TIMEOUT: Final = 8.0
"""Seconds; less than a client waits for its credentials."""
_FILE_SIZE_MAX: Final = 1 << 20
_SECRET_SIZE_MAX: Final = 4096


def _setting(
    help: str,  # noqa: A002 - as click has it
    default: Any = "",
    *,
    off: str = "",
    is_secret: bool = False,
    **option: Any,
) -> Any:
    """Declare a setting and its option of `rocketrio context add`; `off` is the option for False."""
    return attrs.field(
        default=default,
        repr=not is_secret,
        metadata={"off": off, "option": {"help": help, **option}},
    )


_FILE: Final = click.Path(dir_okay=False, resolve_path=True)


@attrs.frozen(kw_only=True)
class Context:
    """One cluster, and how a user reaches it."""

    namesrv: str = _setting("Name servers, several separated by semicolons.", attrs.NOTHING)
    namespace: str = _setting("The namespace of all topics and groups.")
    access_key: str = _setting("The account.", metavar="KEY")
    secret_file: str = _setting("A file that holds its secret key.", type=_FILE)
    secret_command: str = _setting(
        "A command that prints the secret key, as 'pass show rocketmq'.",
        metavar="COMMAND",
        is_secret=True,
    )
    """It runs without a shell."""
    credentials_file: str = _setting("A file with accessKey and secretKey.", type=_FILE)
    tls: bool = _setting("Whether to connect with TLS.", False, off="--no-tls")
    tls_authority_file: str = _setting("The authority of the servers.", type=_FILE)
    tls_certificate_file: str = _setting("The certificate to show them.", type=_FILE)
    tls_key_file: str = _setting("Its key.", type=_FILE)
    protected: bool = _setting("Whether changes need a confirmation.", False, off="--not-protected")
    """Whether commands that change the cluster ask for the context's name."""
    color: str = _setting("The color of its name.", type=click.Choice(COLORS))
    description: str = _setting("What it is.")

    def __attrs_post_init__(self) -> None:
        from rocketrio.cluster.name_servers import name_server_addresses

        name_server_addresses(self.namesrv)
        if self.color and self.color not in COLORS:
            raise ConfigError(f"color={self.color!r} is not one of {', '.join(COLORS)}")
        sources = [
            name
            for name in ("secret_file", "secret_command", "credentials_file")
            if getattr(self, name)
        ]
        if len(sources) > 1:
            raise ConfigError(f"{' and '.join(sources)} are given; one of them is enough")
        has_secret = bool(self.secret_file or self.secret_command)
        if has_secret != bool(self.access_key):
            raise ConfigError(
                f"{sources[0]} needs access_key"
                if has_secret
                else "access_key needs secret_file or secret_command"
            )
        if self.tls_key_file and not self.tls_certificate_file:
            raise ConfigError("tls_key_file needs tls_certificate_file")

    def client_options(self) -> "ClientOptions":
        """Return the arguments of `open_client` and the like."""
        from rocketrio.cluster.name_servers import name_server_addresses

        options: ClientOptions = {"name_servers": name_server_addresses(self.namesrv)}
        if self.namespace:
            options["namespace"] = self.namespace
        if self.credentials is not None:
            options["credentials"] = self.credentials
        if self.given_tls is not None:
            options["tls"] = self.given_tls
        return options

    @property
    def credentials(self) -> "GivenCredentials":
        """The account; None for that of the environment."""
        from rocketrio.cluster.account import file_provider

        if self.credentials_file:
            return file_provider(self.credentials_file)
        return self._provider() if self.access_key else None

    @property
    def given_tls(self) -> "GivenTls":
        """How to use TLS; None for what the environment says."""
        from rocketrio_protocol.remoting.tls_files import TlsOptions

        files = (self.tls_authority_file, self.tls_certificate_file, self.tls_key_file)
        if any(files):
            authority, certificate, key = (name or None for name in files)
            return TlsOptions(authority, certificate, key)
        return True if self.tls else None

    def shown(self, name: str, *, selected: bool) -> dict[str, Any]:
        """Return the context for people and programs, without its secret."""
        fields = attrs.asdict(self)
        del fields["secret_file"], fields["secret_command"]
        secret = "file" if self.secret_file else "command" if self.secret_command else None
        return {"name": name, **fields, "secret": secret, "selected": selected}

    def _provider(self) -> "Provider":
        from rocketrio_protocol.credentials import Credentials

        return lambda: Credentials(self.access_key, self._secret())

    def _secret(self) -> str:
        if self.secret_file:
            what = f"secret_file {self.secret_file}"
            content = read_private(Path(self.secret_file), what, size_max=_SECRET_SIZE_MAX)
        else:
            what = "secret_command"
            content = _output_of(self.secret_command)
        try:
            secret = content.decode().strip()
        except UnicodeDecodeError as error:
            raise ConfigError(f"{what} gives no UTF-8 text") from error
        if not secret:
            raise ConfigError(f"{what} gives an empty secret")
        return secret


@attrs.frozen
class Contexts:
    """All contexts of a user."""

    by_name: Mapping[str, Context] = attrs.field(factory=dict)
    selected: str | None = None

    def named(self, name: str) -> Context:
        """Return a context. Raises ConfigError that names a similar one."""
        if name in self.by_name:
            return self.by_name[name]
        close = similar_name(name, self.by_name)
        there = "`rocketrio context add` makes one" if not self.by_name else ""
        raise ConfigError(
            f"there is no context {name!r}",
            remedy=f"Did you mean {close}?" if close else there or f"There are {self._names}",
        )

    @property
    def _names(self) -> str:
        return ", ".join(self.by_name)


@attrs.frozen
class Choice:
    """The cluster that a command uses."""

    name_servers: tuple[str, ...]
    name: str | None = None
    """The name of its context; None if it has none."""
    context: Context | None = None
    warning: str | None = None
    """What the user should know: an environment variable won over the selected context."""


def choose(
    contexts: Contexts,
    *,
    namesrv: str | Sequence[str] | None = None,
    context: str | None = None,
    environ: Mapping[str, str],
) -> Choice:
    """Return the cluster to use. Raises ConfigError for an unknown context or wrong addresses.

    The order is `--namesrv`, `--context`, ROCKETRIO_CONTEXT, NAMESRV_ADDR, the selected context, 127.0.0.1:9876. With
    both options the context gives the account, TLS and protection.
    """
    from rocketrio.cluster.name_servers import name_server_addresses

    if context is not None:
        found = contexts.named(context)
        return Choice(name_server_addresses(namesrv or found.namesrv), context, found)
    if namesrv is not None:
        return Choice(name_server_addresses(namesrv))
    selected = contexts.selected
    if name := environ.get(CONTEXT_VARIABLE):
        found = contexts.named(name)
        other = selected not in (None, name)
        return Choice(
            name_server_addresses(found.namesrv),
            name,
            found,
            _warning(CONTEXT_VARIABLE, name, selected) if other else None,
        )
    if given := environ.get(NAME_SERVERS_VARIABLE):
        warning = None if selected is None else _warning(NAME_SERVERS_VARIABLE, given, selected)
        return Choice(name_server_addresses(given), warning=warning)
    if selected is not None:
        found = contexts.named(selected)
        return Choice(name_server_addresses(found.namesrv), selected, found)
    return Choice((DEFAULT_NAME_SERVER,))


def _warning(variable: str, value: str, selected: str | None) -> str:
    return f"{variable}={value} is used, not the selected context {selected}"


# ------------------------------------------------------------------------------------------- file


def contexts_path() -> Path:
    """Return where the contexts of this user are."""
    from platformdirs import user_config_path  # Half of the commands' start otherwise.

    return user_config_path("rocketrio") / "contexts.toml"


def read_contexts(path: Path) -> Contexts:
    """Read the file; none is no contexts. Raises ConfigError that names what is wrong in it."""
    try:
        exists = path.exists()
    except PermissionError:
        # A service may not enter its user's home, as with ProtectHome of systemd.
        exists = False
    if not exists:
        return Contexts()
    what = f"contexts file {path}"
    content = read_private(path, what, size_max=_FILE_SIZE_MAX)
    try:
        found = tomllib.loads(content.decode())
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigError(f"{what} is not TOML: {error}") from error
    if unknown := set(found) - {"contexts", "selected"}:
        raise ConfigError(f"{what} has an unknown key {min(unknown)}")
    tables, selected = found.get("contexts", {}), found.get("selected")
    if not isinstance(tables, dict) or not isinstance(selected, str | None):
        raise ConfigError(f"{what}: contexts must be tables, and selected a name")
    by_name = {name: _context(table, f"{what}: context {name}") for name, table in tables.items()}
    if selected is not None and selected not in by_name:
        raise ConfigError(
            f"{what}: selected names {selected}, which is no context",
            remedy="`rocketrio context use NAME` selects one, `rocketrio context unuse` none",
        )
    return Contexts(by_name, selected)


def _context(table: object, what: str) -> Context:
    if not isinstance(table, dict):
        raise ConfigError(f"{what} must be a table")
    known = {field.name: field.type for field in attrs.fields(Context)}
    for name, value in table.items():
        if name not in known:
            close = similar_name(name, known)
            hint = f"; did you mean {close}?" if close else ""
            raise ConfigError(f"{what} has an unknown key {name}{hint}")
        wanted = known[name]
        if not isinstance(wanted, type) or not isinstance(value, wanted):
            raise ConfigError(
                f"{what}: {name} must be {'true or false' if wanted is bool else 'text'}"
            )
    if "namesrv" not in table:
        raise ConfigError(f"{what} has no namesrv")
    try:
        return Context(**table)
    except ConfigError as error:
        raise ConfigError(f"{what}: {error}") from error


def write_contexts(path: Path, contexts: Contexts) -> None:
    """Replace the file; comments that the user wrote in it stay."""
    import tomlkit  # Only these commands need it.

    text = path.read_text() if path.exists() else ""
    document = tomlkit.parse(text)
    if contexts.selected is None:
        document.pop("selected", None)
    elif "selected" in document:
        document["selected"] = contexts.selected
    else:
        # Before the tables: behind them it would belong to the last one.
        head = tomlkit.document()
        head.add("selected", tomlkit.item(contexts.selected))
        document = tomlkit.parse(f"{head.as_string()}\n{document.as_string()}".rstrip() + "\n")
    tables = document.setdefault("contexts", tomlkit.table(is_super_table=True))
    for name in [name for name in tables if name not in contexts.by_name]:
        del tables[name]
    for name, context in contexts.by_name.items():
        table = tables.setdefault(name, tomlkit.table())
        for field in attrs.fields(Context):
            value = getattr(context, field.name)
            if field.default is not attrs.NOTHING and value == field.default:
                table.pop(field.name, None)
            elif table.get(field.name) != value:
                table[field.name] = value
    replace_private(path, document.as_string())


def replace_private(path: Path, text: str) -> None:
    """Replace a file whole; it is readable by its owner alone."""
    path = path.resolve()  # A link stays one.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A temporary file is readable by its owner alone from its beginning.
    file, new = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(file, "w") as out:
            out.write(text)
        os.replace(new, path)
    except BaseException:
        Path(new).unlink(missing_ok=True)
        raise


def _output_of(command: str) -> bytes:
    """Return what a command writes; its standard error goes to the terminal, it may ask for a passphrase there."""
    try:
        done = subprocess.run(
            shlex.split(command),
            stdout=subprocess.PIPE,
            timeout=SECRET_COMMAND_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"secret_command took more than {SECRET_COMMAND_TIMEOUT:g} s") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ConfigError(f"secret_command cannot run: {reason}") from None
    if done.returncode != 0:
        raise ConfigError(f"secret_command failed with exit code {done.returncode}")
    return done.stdout
