"""What the commands `rocketrio acl ...` share: which brokers, where a password comes from, dry runs and results.

Invariant: a password is no argument of a command, and is never printed.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import click

from rocketrio.admin.access_admin import AccessAdmin
from rocketrio.cli.common import ADDRESS, FunctionT
from rocketrio.cli.output import Output
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

PASSWORD_SIZE_MAX: Final = 4096
"""Bytes of a file with a password."""


def brokers_options(function: FunctionT) -> FunctionT:
    """Add the options for which brokers are asked or changed: `cluster` and `broker_addr`."""
    function = click.option("--cluster", help="Only the brokers of this cluster.")(function)
    return click.option(
        "--broker", "broker_addr", type=ADDRESS, help="Only the broker at this address."
    )(function)


def password_option(function: FunctionT) -> FunctionT:
    """Add the option `--password-file`."""
    return click.option(
        "--password-file",
        type=click.Path(dir_okay=False, allow_dash=True),
        help="A file that holds the password and that only you may read; - reads a line of standard input.",
    )(function)


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


async def changed(
    access: AccessAdmin,
    subject: str,
    done: str,
    change: Callable[[], Any],
    *,
    dry_run: bool,
    output: Output,
    **fields: Any,
) -> None:
    """Await a change and print which brokers took it; in a dry run print which ones would be asked."""
    addrs: Sequence[str] = await access.broker_addrs() if dry_run else await change()
    output.show(
        [{**fields, "broker": addr, "dry_run": dry_run} for addr in addrs],
        document=lambda rows: {**fields, "brokers": list(addrs), "dry_run": dry_run},
        people=f"{subject} {'would be ' if dry_run else ''}{done} at {', '.join(addrs)}",
    )
