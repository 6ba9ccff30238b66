"""What the commands `rocketrio acl ...` share: their options, where a password comes from, dry runs and results.

Invariant: a password is no argument of a command, and is never printed.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Sequence
from inspect import iscoroutinefunction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from rocketrio.cli.call import Call, Callback
from rocketrio.cli.commands import CallableT
from rocketrio.cli.shell import fail
from rocketrio.cli.types import ADDRESS
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

if TYPE_CHECKING:
    from rocketrio.admin.access import AccessAdmin, AccessUser

PASSWORD_SIZE_MAX: Final = 4096
"""Bytes of a file with a password."""


Rest: TypeAlias = "Callable[[AccessAdmin], Awaitable[None]]"
"""What a command does after it has asked for a password."""


def at_brokers(
    effect: Callable[[Callback], Callback],
) -> Callable[[Callable[..., Any]], Callback]:
    """Make a command about the rights at brokers, with options that choose these.

    It is an async function of the `Call` and the administration of the rights. One that asks for a password first is a
    plain function of the `Call`, and returns the rest, an async function of that administration. `effect` is `reads`,
    `changes` or `changes_with(...)` of call.py.
    """

    def decorate(function: Callable[..., Any]) -> Callback:
        @functools.wraps(function)
        def command(
            call: Call,
            *,
            cluster: str | None,
            broker_addr: str | None,
            plain_passwords: bool = False,
            **options: Any,
        ) -> None:
            rest = None if iscoroutinefunction(function) else function(call, **options)

            async def work() -> None:
                access = call.admin.access(
                    cluster=cluster, broker_addr=broker_addr, plain_passwords=plain_passwords
                )
                await (function(call, access, **options) if rest is None else rest(access))

            call.run(work)

        only_cluster = click.option("--cluster", help="Only the brokers of this cluster.")
        only_broker = click.option(
            "--broker", "broker_addr", type=ADDRESS, help="Only the broker at this address."
        )
        return only_broker(only_cluster(effect(command)))

    return decorate


async def show_change(
    call: Call,
    access: AccessAdmin,
    subject: str,
    done: str,
    change: Callable[[], Awaitable[Sequence[str]]],
    **fields: Any,
) -> None:
    """Await a change and print which brokers took it; in a dry run print which ones would be asked."""
    addrs = await access.broker_addrs() if call.dry_run else await change()
    call.output.show(
        [{**fields, "broker": addr, "dry_run": call.dry_run} for addr in addrs],
        document=lambda rows: {**fields, "brokers": list(addrs), "dry_run": call.dry_run},
        people=f"{subject} {'would be ' if call.dry_run else ''}{done} at {', '.join(addrs)}",
    )


def plain_option(function: CallableT) -> CallableT:
    """Add the option `--plain`, for `at_brokers`."""
    return click.option(
        "--plain",
        "plain_passwords",
        is_flag=True,
        help="Send passwords over connections without TLS too, to other machines.",
    )(function)


def password_option(function: CallableT) -> CallableT:
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
