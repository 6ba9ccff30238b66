"""The options that say which cluster a command uses, with which account, and its confirmation where that is protected.

Invariant: a secret is never an argument of a command: other users of the machine can read those.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.commands import CallableT, SectionOption
from rocketrio.cli.contexts import Choice, choose, contexts_path, read_contexts
from rocketrio.cli.numbers import Duration
from rocketrio.cli.shell import REFUSED, fail
from rocketrio.cluster.variables import (
    CONTEXT_VARIABLE,
    DEFAULT_NAME_SERVER,
    NAME_SERVERS_VARIABLE,
    SECRET_KEY_VARIABLE,
    SECURITY_TOKEN_VARIABLE,
    TLS_CA_FILE_VARIABLE,
    TLS_VARIABLE,
)
from rocketrio.limits import ADMIN_TIMEOUT, API_TIMEOUT
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.log_lines import printable

if TYPE_CHECKING:
    from rocketrio.cluster.account import GivenCredentials
    from rocketrio.cluster.tls import GivenTls
    from rocketrio.connect import ClientOptions

ANSWER_SIZE_MAX: Final = 1024
"""Bytes of a line that a person types."""
_CHOICE: Final = "rocketrio.cluster"
_FILE: Final = click.Path(exists=True, dir_okay=False)


class _NameServers(click.ParamType[tuple[str, ...]]):
    name = "HOST:PORT"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        from rocketrio.cluster.name_servers import name_server_addresses

        try:
            return name_server_addresses(str(value))
        except ConfigError as error:
            self.fail(str(error), param, ctx)


def _cluster_option(*names: str, **settings: Any) -> Callable[[CallableT], CallableT]:
    return click.option(*names, cls=SectionOption, section="Cluster", **settings)


def client_options(function: Callable[..., None]) -> Callable[..., None]:
    """Add the options that say which cluster to use, with which account, and how much to log.

    The function gets the first two as `client`, arguments for `open_admin` and the like.
    """

    @_cluster_option(
        "--namesrv",
        type=_NameServers(),
        help="Name servers, several separated by semicolons.  "
        f"[env var: {NAME_SERVERS_VARIABLE}; default: {DEFAULT_NAME_SERVER}]",
    )
    @_cluster_option(
        "--context",
        "context_name",
        metavar="NAME",
        help=f"A cluster of `rocketrio context list`.  [env var: {CONTEXT_VARIABLE}]",
    )
    @_cluster_option(
        "--credentials-file",
        type=click.Path(dir_okay=False),
        help="A file with the account: accessKey and secretKey, as in Apache's tools.yml.",
    )
    @_cluster_option(
        "--access-key",
        metavar="KEY",
        help=f"The account; its secret comes from {SECRET_KEY_VARIABLE}, or is asked for.",
    )
    @_cluster_option("--tls", is_flag=True, help=f"Connect with TLS, as with {TLS_VARIABLE}=true.")
    @_cluster_option(
        "--tls-ca",
        type=_FILE,
        help=f"The authority of the servers' certificates; without it {TLS_CA_FILE_VARIABLE}.",
    )
    @_cluster_option("--tls-cert", type=_FILE, help="The certificate for servers that ask for one.")
    @_cluster_option(
        "--tls-key", type=_FILE, help="The key of --tls-cert, if it is in another file."
    )
    @_cluster_option(
        "--tls-insecure",
        is_flag=True,
        help="TLS with any server, whatever its certificate: for a first look only.",
    )
    @_cluster_option(
        "--timeout",
        type=Duration(),
        help="How long the whole command may take, as 30s or 5m.",
    )
    @_cluster_option(
        "--per-broker",
        type=Duration(),
        help="How long a server may take to answer a question.  "
        f"[default: {API_TIMEOUT:g}s, or {ADMIN_TIMEOUT:g}s]",
    )
    @_cluster_option("-v", "--verbose", count=True, help="Log to standard error; twice for more.")
    @functools.wraps(function)
    def command(
        *args: Any,
        namesrv: tuple[str, ...] | None,
        context_name: str | None,
        timeout: float | None,
        per_broker: float | None,
        credentials_file: str | None,
        access_key: str | None,
        tls: bool,
        tls_ca: str | None,
        tls_cert: str | None,
        tls_key: str | None,
        tls_insecure: bool,
        **options: Any,
    ) -> None:
        cluster = chosen_cluster()
        client: ClientOptions = {}
        if cluster.context is not None:
            client = cluster.context.client_options()
        client["name_servers"] = cluster.name_servers
        if per_broker is not None:
            client["request_timeout"] = per_broker
        given = _tls(tls, tls_ca, tls_cert, tls_key, is_insecure=tls_insecure)
        if given is not None:
            client["tls"] = given
        credentials = _credentials(credentials_file, access_key)
        if credentials is not None:
            client["credentials"] = credentials
        function(*args, client=client, **options)

    return command


def chosen_cluster() -> Choice:
    """Return the cluster that the options of this command, the environment or the selected context name."""
    context = click.get_current_context()
    choice: Choice | None = context.meta.get(_CHOICE)
    if choice is None:
        try:
            choice = choose(
                read_contexts(contexts_path()),
                namesrv=context.params.get("namesrv"),
                context=context.params.get("context_name"),
                environ=os.environ,
            )
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        if choice.warning is not None:
            click.echo(f"rocketrio: {choice.warning}", err=True)
        context.meta[_CHOICE] = choice
    return choice


def confirm(*, yes: bool) -> None:
    """Let a command that changes a protected cluster go on only if the user names that cluster."""
    from rich.text import Text

    from rocketrio.cli.console import console

    choice = chosen_cluster()
    if choice.context is None or not choice.context.protected:
        return
    name = str(choice.name)
    if yes and click.get_current_context().params.get("context_name") == name:
        return
    if yes or not sys.stdin.isatty():
        fail(f"the context {name} is protected: give --yes --context {name}", code=REFUSED)
    name_of_it = Text(name, style=f"bold {choice.context.color or 'red'}")
    asked = Text.assemble(name_of_it, " is protected. Type its name to go on:")
    console(stderr=True).print(asked, end="")
    typed = click.prompt("", default="", show_default=False, prompt_suffix=" ", err=True)
    if typed != name:
        fail(f"nothing was done: {typed!r} is not {name}", code=REFUSED)


async def may_be_lost(what: str) -> None:
    """Ask a person at a terminal whether something may be lost for good; end the command unless the answer is yes.

    Programs, which have no terminal, are not asked, nor with --yes, nor where a protected context has asked already.
    """
    import trio

    context = chosen_cluster().context
    is_asked = context is not None and context.protected
    if is_asked or click.get_current_context().params.get("yes") or not _is_terminal():
        return
    click.echo(f"{printable(what)}. Go on? [y/N] ", nl=False, err=True)
    # In a thread: Ctrl-C must end it. Not by Python's buffer, whose lock an abandoned thread would hold.
    answer = await trio.to_thread.run_sync(
        os.read, sys.stdin.fileno(), ANSWER_SIZE_MAX, abandon_on_cancel=True
    )
    if answer.strip().lower() not in (b"y", b"yes"):
        fail("nothing was done", code=REFUSED)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def _tls(
    wanted: bool,
    authority: str | None,
    certificate: str | None,
    key: str | None,
    *,
    is_insecure: bool,
) -> GivenTls:
    """Return how a command uses TLS; None for what the environment says. Each option means that it does."""
    if not (authority or certificate or key or is_insecure):
        return True if wanted else None
    import ssl

    from rocketrio_protocol.remoting.tls_files import TlsOptions

    authority = authority or os.environ.get(TLS_CA_FILE_VARIABLE) or None
    try:
        options = TlsOptions(authority, certificate, key)
        if not is_insecure:
            return options
        context = options.context()
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    click.echo(
        "rocketrio: --tls-insecure checks no certificate: any host between can read and change everything",
        err=True,
    )
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _credentials(path: str | None, access_key: str | None) -> GivenCredentials:
    """Return the account of a command; None for that of the environment, if there is one.

    A secret is never an argument of a command: other users of the machine can read those.
    """
    if path is not None and access_key is not None:
        raise click.UsageError("give --credentials-file or --access-key, not both")
    from rocketrio.cluster.account import file_provider
    from rocketrio_protocol.credentials import Credentials

    if path is not None:
        return file_provider(path)  # Read again while a command runs for long.
    if access_key is None:
        return None
    secret_key = os.environ.get(SECRET_KEY_VARIABLE)
    if not secret_key:
        if not sys.stdin.isatty():
            raise click.UsageError(
                f"--access-key needs its secret in {SECRET_KEY_VARIABLE}, or a terminal to ask for it"
            )
        secret_key = click.prompt(f"Secret key of {access_key}", hide_input=True, err=True)
    try:
        return Credentials(access_key, secret_key, os.environ.get(SECURITY_TOKEN_VARIABLE) or None)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
