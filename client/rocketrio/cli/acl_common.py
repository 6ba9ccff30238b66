"""What the commands `rocketrio acl ...` share: their options, where a password comes from, dry runs and results.

Invariant: a password is no argument of a command, and is never printed.
"""

import functools
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import attrs
import click

from rocketrio.admin.access_admin import AccessAdmin, AccessUser
from rocketrio.admin.admin import open_admin
from rocketrio.cli.common import ADDRESS, FunctionT, client_options, run
from rocketrio.cli.output import Output
from rocketrio.cli.shell import fail
from rocketrio.connect import ClientOptions
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

PASSWORD_SIZE_MAX: Final = 4096
"""Bytes of a file with a password."""


@attrs.frozen
class AclCall:
    """What each of these commands is given: the brokers that it concerns, and where its results go."""

    cluster: str | None
    broker_addr: str | None
    output: Output
    client: ClientOptions
    verbose: int
    dry_run: bool = False

    @asynccontextmanager
    async def access(self, *, plain_passwords: bool = False) -> AsyncGenerator[AccessAdmin]:
        """Open the administration of the rights at these brokers."""
        async with open_admin(**self.client) as admin:
            yield admin.access(
                cluster=self.cluster,
                broker_addr=self.broker_addr,
                plain_passwords=plain_passwords,
            )

    def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run the command's work to its end."""
        run(work, verbose=self.verbose)

    async def changed(
        self,
        access: AccessAdmin,
        subject: str,
        done: str,
        change: Callable[[], Awaitable[Sequence[str]]],
        **fields: Any,
    ) -> None:
        """Await a change and print which brokers took it; in a dry run print which ones would be asked."""
        dry_run = self.dry_run
        addrs = await access.broker_addrs() if dry_run else await change()
        self.output.show(
            [{**fields, "broker": addr, "dry_run": dry_run} for addr in addrs],
            document=lambda rows: {**fields, "brokers": list(addrs), "dry_run": dry_run},
            people=f"{subject} {'would be ' if dry_run else ''}{done} at {', '.join(addrs)}",
        )


def acl_options(
    effect: Callable[[Callable[..., None]], Callable[..., None]],
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the options for brokers, output and cluster: the function gets them as one `AclCall`, its argument `call`.

    `effect` is `reads`, `changes` or `changes_with(...)` of common.py.
    """

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @client_options
        @functools.wraps(function)
        def command(
            *args: Any,
            cluster: str | None,
            broker_addr: str | None,
            output: Output,
            client: ClientOptions,
            verbose: int,
            dry_run: bool = False,
            **options: Any,
        ) -> None:
            call = AclCall(cluster, broker_addr, output, client, verbose, dry_run)
            function(*args, call=call, **options)

        only_cluster = click.option("--cluster", help="Only the brokers of this cluster.")
        only_broker = click.option(
            "--broker", "broker_addr", type=ADDRESS, help="Only the broker at this address."
        )
        return only_broker(only_cluster(effect(command)))

    return decorate


def plain_option(function: FunctionT) -> FunctionT:
    """Add the option `--plain`; the function gets `plain_passwords`."""
    return click.option(
        "--plain",
        "plain_passwords",
        is_flag=True,
        help="Send passwords over connections without TLS too, to other machines.",
    )(function)


def password_option(function: FunctionT) -> FunctionT:
    """Add the options `--password-file` and `--plain`."""
    return click.option(
        "--password-file",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="A file that holds the password and that only you may read; - reads a line of standard input.",
    )(plain_option(function))


def read_password(path: str | None, whose: str) -> str:
    """Return a password from a file, from standard input, or from the terminal, where it is typed twice."""
    if path is None:
        if not sys.stdin.isatty():
            raise click.UsageError(f"give the password of {whose} by --password-file FILE, or -")
        return str(
            click.prompt(
                f"Password of {whose}", hide_input=True, confirmation_prompt=True, err=True
            )
        )
    if path == "-":
        text = sys.stdin.readline(PASSWORD_SIZE_MAX)
    else:
        try:
            content = read_private(Path(path), f"password file {path}", size_max=PASSWORD_SIZE_MAX)
            text = content.decode()
        except ConfigError as error:
            raise click.UsageError(str(error)) from error
        except UnicodeDecodeError as error:
            raise click.UsageError(f"password file {path} is not UTF-8 text") from error
    password = text.rstrip("\r\n")
    if not password:
        raise click.UsageError(f"the password of {whose} is empty")
    return password


async def known_user(access: AccessAdmin, name: str) -> list[AccessUser]:
    """Return how the masters have a user; end the command if none has it."""
    users = await access.user(name)
    if not users:
        fail(f"no master has the user {name}")
    return users
