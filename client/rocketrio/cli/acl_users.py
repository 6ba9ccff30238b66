"""The groups of commands `rocketrio acl user` and `rocketrio acl account`, the latter for brokers of RocketMQ 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.acl_common import (
    Rest,
    at_brokers,
    known_user,
    password_option,
    read_password,
    show_change,
)
from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column, row_of
from rocketrio.cli.commands import Group
from rocketrio.cli.say import say
from rocketrio.cli.shell import fail
from rocketrio.counts import counted

if TYPE_CHECKING:
    from rocketrio.admin.access import AccessAdmin, AccessUser

_PERMISSIONS: Final = click.Choice(["DENY", "PUB", "SUB", "PUB|SUB"])
_BROKERS: Final = Column("brokers", "BROKERS", lambda row: " ".join(row["brokers"]))
_USERS: Final = (
    Column("user", "USER", value=lambda one: one.name),
    Column("type", "TYPE", value=lambda one: _type(one)),
    Column("status", "STATUS", value=lambda one: _status(one)),
    _BROKERS,
)
RIGHTS: Final = (
    Column("user", "USER"),
    Column("policy", "POLICY"),
    Column("resource", "RESOURCE"),
    Column("actions", "ACTIONS", lambda row: ",".join(row["actions"])),
    Column("source_ips", "FROM", lambda row: ",".join(row["source_ips"]) or "any"),
    Column("decision", "DECISION", value=lambda one: "allow" if one.is_allowed else "deny"),
    _BROKERS,
)
"""What programs see of a right, and a table."""


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
@at_brokers(reads)
async def list_users(
    call: Call,
    access: AccessAdmin,
    name_part: str,
) -> None:
    """List the users that masters have; one that they have differently appears more than once."""

    users = await access.users(name_part)
    call.output.show(users, _USERS)


@user.command()
@click.argument("name", metavar="USER")
@at_brokers(reads)
async def show(
    call: Call,
    access: AccessAdmin,
    name: str,
) -> None:
    """Show USER and its rights."""

    users = await known_user(access, name)
    rights = await access.rights_of(name)
    if call.output.for_people:
        for each in users:
            say(f"{each.name}: {_type(each)}, {_status(each)} at {', '.join(each.brokers)}")
        if not rights:
            return
    call.output.show(
        rights,
        RIGHTS,
        document=lambda rows: {"users": [row_of(each, _USERS) for each in users], "rights": rows},
    )


@user.command()
@click.argument("name", metavar="USER")
@click.option("--super", "is_super", is_flag=True, help="May do everything.")
@password_option
@at_brokers(changes)
def create(call: Call, name: str, is_super: bool, password_file: str | None) -> Rest:
    """Create USER, without rights: `rocketrio acl grant` gives them. The password is asked for."""
    password = "" if call.dry_run and password_file is None else read_password(password_file, name)

    async def rest(access: AccessAdmin) -> None:
        if call.dry_run and (known := await access.user(name)):
            fail(f"{name} exists already at {', '.join(known[0].brokers)}")
        await show_change(
            call,
            access,
            name,
            "created",
            lambda: access.create_user(name, password, is_super=is_super),
            user=name,
        )

    return rest


@user.command()
@click.argument("name", metavar="USER")
@click.option("--super/--normal", "is_super", default=None, help="May do everything, or not.")
@click.option("--enable/--disable", "is_enabled", default=None, help="Whether it may log in.")
@click.option("--password", "asks", is_flag=True, help="Ask for a new password.")
@password_option
@at_brokers(changes)
def update(
    call: Call,
    name: str,
    is_super: bool | None,
    is_enabled: bool | None,
    asks: bool,
    password_file: str | None,
) -> Rest:
    """Change the password, type or status of USER.

    At a rocketrio broker the former password remains valid, so that clients can change over, until the new one is set a
    second time.
    """
    password = None
    if password_file is not None or (asks and not call.dry_run):
        password = read_password(password_file, name)
    if not asks and (is_super, is_enabled, password) == (None, None, None):
        raise click.UsageError("give one of --password, --password-file, --super, --enable ...")

    async def rest(access: AccessAdmin) -> None:
        if call.dry_run and not await access.user(name):
            fail(f"no master has the user {name}")
        await show_change(
            call,
            access,
            name,
            "changed",
            lambda: access.update_user(
                name, password=password, is_super=is_super, is_enabled=is_enabled
            ),
            user=name,
        )

    return rest


@user.command()
@click.argument("name", metavar="USER")
@at_brokers(changes)
async def delete(
    call: Call,
    access: AccessAdmin,
    name: str,
) -> None:
    """Delete USER and its rights; its next request is refused."""

    await known_user(access, name)
    if not call.dry_run:
        rights = counted(len(await access.rights_of(name)), "right")
        await may_be_lost(f"{name} is lost with its password and {rights}")
    await show_change(
        call,
        access,
        name,
        "deleted",
        lambda: access.delete_user(name),
        user=name,
    )


@click.group(
    cls=Group,
    most_used=(
        "versions",
        "update producer1 --topic-perm orders=PUB --password-file secret",
        "delete producer1 --dry-run",
    ),
)
def account() -> None:
    """Change the accounts of RocketMQ 4's brokers (plain_acl.yml), which have no users and policies.

    \b
    Examples:
      rocketrio acl account update producer1 --topic-perm orders=PUB --password-file secret
      rocketrio acl account delete producer1
      rocketrio acl account versions
    """


@account.command("update")
@click.argument("name", metavar="ACCESS_KEY")
@password_option
@click.option("--admin/--no-admin", "is_admin", default=None, help="May do everything, or not.")
@click.option("--default-topic-perm", type=_PERMISSIONS, help="For topics without a permission.")
@click.option("--default-group-perm", type=_PERMISSIONS, help="For groups without a permission.")
@click.option("--topic-perm", "topic_perms", multiple=True, metavar="TOPIC=PERM")
@click.option("--group-perm", "group_perms", multiple=True, metavar="GROUP=PERM")
@at_brokers(changes)
def update_account(
    call: Call,
    name: str,
    password_file: str | None,
    is_admin: bool | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: tuple[str, ...],
    group_perms: tuple[str, ...],
) -> Rest:
    """Create the account ACCESS_KEY, or change what is given of it.

    Apache's brokers need the secret key for any change. PERM is DENY, PUB, SUB or PUB|SUB.
    """
    from rocketrio_protocol.commands.access import UpdateAccessConfigRequestHeader

    for text in topic_perms + group_perms:
        if text.partition("=")[2] not in _PERMISSIONS.choices:
            raise click.UsageError(f"{text!r} is not NAME=PUB, SUB, PUB|SUB or DENY")
    secret_key = None if call.dry_run else read_password(password_file, name)
    wanted = UpdateAccessConfigRequestHeader(
        name,
        secret_key,
        admin=is_admin,
        default_topic_perm=default_topic_perm,
        default_group_perm=default_group_perm,
        topic_perms=",".join(topic_perms) or None,
        group_perms=",".join(group_perms) or None,
    )

    async def rest(access: AccessAdmin) -> None:
        await show_change(
            call,
            access,
            f"account {name}",
            "changed",
            lambda: access.update_account(wanted),
            account=name,
        )

    return rest


@account.command("delete")
@click.argument("name", metavar="ACCESS_KEY")
@at_brokers(changes)
async def delete_account(
    call: Call,
    access: AccessAdmin,
    name: str,
) -> None:
    """Delete the account ACCESS_KEY."""

    if not call.dry_run:
        await may_be_lost(f"the account {name} is lost with its secret and permissions")
    await show_change(
        call,
        access,
        f"account {name}",
        "deleted",
        lambda: access.delete_account(name),
        account=name,
    )


@account.command()
@at_brokers(reads)
async def versions(
    call: Call,
    access: AccessAdmin,
) -> None:
    """Show the version of each broker's accounts: equal ones were changed alike."""

    found = await access.account_versions()
    call.output.show(
        [{"address": addr, "version": text} for addr, text in found.items()],
        (Column("address", "BROKER"), Column("version", "VERSION")),
    )


@account.command("white-addresses")
@click.argument("addresses", nargs=-1)
@click.option("--file", help="The file at the brokers that holds them; by default their first one.")
@at_brokers(changes)
async def white_addresses(
    call: Call,
    access: AccessAdmin,
    addresses: tuple[str, ...],
    file: str | None,
) -> None:
    """Replace the ADDRESSES from which requests need neither a signature nor rights: 10.0.0.1, 10.0.0.* ..."""

    await show_change(
        call,
        access,
        "addresses",
        "changed",
        lambda: access.set_white_addresses(addresses, file=file),
        addresses=list(addresses),
    )


def _type(user: AccessUser) -> str:
    return "super" if user.is_super else "normal"


def _status(user: AccessUser) -> str:
    return "enabled" if user.is_enabled else "disabled"
