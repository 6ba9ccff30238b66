"""The commands `rocketrio acl user list|show|create|update|delete`."""

from typing import Any, Final

import click

from rocketrio.admin.access_admin import AccessRight, AccessUser
from rocketrio.cli.acl_common import (
    AclCall,
    acl_options,
    known_user,
    password_option,
    read_password,
)
from rocketrio.cli.commands import Group
from rocketrio.cli.common import changes, may_be_lost, reads
from rocketrio.cli.output import Column
from rocketrio.cli.say import say
from rocketrio.cli.shell import fail
from rocketrio.counts import counted

_BROKERS: Final = Column("brokers", "BROKERS", lambda row: " ".join(row["brokers"]))
_USERS: Final = (
    Column("user", "USER"),
    Column("type", "TYPE"),
    Column("status", "STATUS"),
    _BROKERS,
)
RIGHTS: Final = (
    Column("user", "USER"),
    Column("policy", "POLICY"),
    Column("resource", "RESOURCE"),
    Column("actions", "ACTIONS", lambda row: ",".join(row["actions"])),
    Column("source_ips", "FROM", lambda row: ",".join(row["source_ips"]) or "any"),
    Column("decision", "DECISION"),
    _BROKERS,
)
"""The columns of a table of rights."""


@click.group(cls=Group, most_used=("list", "create producer1", "show producer1"))
def user() -> None:
    """List, show, create, change and delete users (RocketMQ 5 and rocketrio).

    \b
    Examples:
      rocketrio acl user list
      rocketrio acl user create producer1
      rocketrio acl user update producer1 --disable
    """


@user.command(name="list")
@click.option("--filter", "name_part", default="", help="Only names that contain this text.")
@acl_options(reads)
def list_users(name_part: str, call: AclCall) -> None:
    """List the users that masters have; one that they have differently appears more than once."""

    async def work() -> None:
        async with call.access() as access:
            users = await access.users(name_part)
        call.output.show(map(user_as_json, users), _USERS)

    call.run(work)


@user.command()
@click.argument("name", metavar="USER")
@acl_options(reads)
def show(name: str, call: AclCall) -> None:
    """Show USER and its rights."""

    async def work() -> None:
        async with call.access() as access:
            users = await known_user(access, name)
            rights = await access.rights_of(name)
        if call.output.for_people:
            for each in users:
                say(f"{each.name}: {_type(each)}, {_status(each)} at {', '.join(each.brokers)}")
            if not rights:
                return
        call.output.show(
            map(right_as_json, rights),
            RIGHTS,
            document=lambda rows: {"users": [user_as_json(each) for each in users], "rights": rows},
        )

    call.run(work)


@user.command()
@click.argument("name", metavar="USER")
@click.option("--super", "is_super", is_flag=True, help="May do everything.")
@password_option
@acl_options(changes)
def create(
    name: str, is_super: bool, password_file: str | None, plain_passwords: bool, call: AclCall
) -> None:
    """Create USER, without rights: `rocketrio acl grant` gives them. The password is asked for."""
    password = "" if call.dry_run and password_file is None else read_password(password_file, name)

    async def work() -> None:
        async with call.access(plain_passwords=plain_passwords) as access:
            if call.dry_run and (known := await access.user(name)):
                fail(f"{name} exists already at {', '.join(known[0].brokers)}")
            await call.changed(
                access,
                name,
                "created",
                lambda: access.create_user(name, password, is_super=is_super),
                user=name,
            )

    call.run(work)


@user.command()
@click.argument("name", metavar="USER")
@click.option("--super/--normal", "is_super", default=None, help="May do everything, or not.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether it may log in.")
@click.option("--password", "asks", is_flag=True, help="Ask for a new password.")
@password_option
@acl_options(changes)
def update(
    name: str,
    is_super: bool | None,
    is_enabled: bool | None,
    asks: bool,
    password_file: str | None,
    plain_passwords: bool,
    call: AclCall,
) -> None:
    """Change the password, type or status of USER.

    At a rocketrio broker the former password remains valid, so that clients can change over, until the new one is set a
    second time.
    """
    password = None
    if password_file is not None or (asks and not call.dry_run):
        password = read_password(password_file, name)
    if not asks and (is_super, is_enabled, password) == (None, None, None):
        raise click.UsageError("give one of --password, --password-file, --super, --enable ...")

    async def work() -> None:
        async with call.access(plain_passwords=plain_passwords) as access:
            if call.dry_run and not await access.user(name):
                fail(f"no master has the user {name}")
            await call.changed(
                access,
                name,
                "changed",
                lambda: access.update_user(
                    name, password=password, is_super=is_super, is_enabled=is_enabled
                ),
                user=name,
            )

    call.run(work)


@user.command()
@click.argument("name", metavar="USER")
@acl_options(changes)
def delete(name: str, call: AclCall) -> None:
    """Delete USER and its rights; its next request is refused."""

    async def work() -> None:
        async with call.access() as access:
            await known_user(access, name)
            if not call.dry_run:
                rights = counted(len(await access.rights_of(name)), "right")
                await may_be_lost(f"{name} is lost with its password and {rights}")
            await call.changed(
                access,
                name,
                "deleted",
                lambda: access.delete_user(name),
                user=name,
            )

    call.run(work)


def user_as_json(user: AccessUser) -> dict[str, Any]:
    """Return a user as commands print it."""
    return {
        "user": user.name,
        "type": _type(user),
        "status": _status(user),
        "brokers": list(user.brokers),
    }


def right_as_json(right: AccessRight) -> dict[str, Any]:
    """Return a right as commands print it."""
    return {
        "user": right.user,
        "policy": right.policy,
        "resource": right.resource,
        "actions": list(right.actions),
        "source_ips": list(right.source_ips),
        "decision": _decision(right),
        "brokers": list(right.brokers),
    }


def _decision(right: AccessRight) -> str:
    return "allow" if right.is_allowed else "deny"


def _type(user: AccessUser) -> str:
    return "super" if user.is_super else "normal"


def _status(user: AccessUser) -> str:
    return "enabled" if user.is_enabled else "disabled"
