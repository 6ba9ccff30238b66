"""The commands `rocketrio acl account update|delete|versions|white-addresses`, for brokers of RocketMQ 4."""

import click

from rocketrio.cli.acl_common import (
    AclCall,
    acl_options,
    password_option,
    read_password,
)
from rocketrio.cli.commands import Group
from rocketrio.cli.common import changes, may_be_lost, reads
from rocketrio.cli.output import Column
from rocketrio_protocol.commands.access import UpdateAccessConfigRequestHeader

_PERMISSIONS = click.Choice(["DENY", "PUB", "SUB", "PUB|SUB"])


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


@account.command()
@click.argument("name", metavar="ACCESS_KEY")
@password_option
@click.option("--admin/--no-admin", "is_admin", default=None, help="May do everything, or not.")
@click.option("--default-topic-perm", type=_PERMISSIONS, help="For topics without a permission.")
@click.option("--default-group-perm", type=_PERMISSIONS, help="For groups without a permission.")
@click.option("--topic-perm", "topic_perms", multiple=True, metavar="TOPIC=PERM")
@click.option("--group-perm", "group_perms", multiple=True, metavar="GROUP=PERM")
@acl_options(changes)
def update(
    name: str,
    password_file: str | None,
    plain_passwords: bool,
    is_admin: bool | None,
    default_topic_perm: str | None,
    default_group_perm: str | None,
    topic_perms: tuple[str, ...],
    group_perms: tuple[str, ...],
    call: AclCall,
) -> None:
    """Create the account ACCESS_KEY, or change what is given of it.

    Apache's brokers need the secret key for any change. PERM is DENY, PUB, SUB or PUB|SUB.
    """
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

    async def work() -> None:
        async with call.access(plain_passwords=plain_passwords) as access:
            await call.changed(
                access,
                f"account {name}",
                "changed",
                lambda: access.update_account(wanted),
                account=name,
            )

    call.run(work)


@account.command()
@click.argument("name", metavar="ACCESS_KEY")
@acl_options(changes)
def delete(name: str, call: AclCall) -> None:
    """Delete the account ACCESS_KEY."""

    async def work() -> None:
        async with call.access() as access:
            if not call.dry_run:
                await may_be_lost(f"the account {name} is lost with its secret and permissions")
            await call.changed(
                access,
                f"account {name}",
                "deleted",
                lambda: access.delete_account(name),
                account=name,
            )

    call.run(work)


@account.command()
@acl_options(reads)
def versions(call: AclCall) -> None:
    """Show the version of each broker's accounts: equal ones were changed alike."""

    async def work() -> None:
        async with call.access() as access:
            found = await access.account_versions()
        call.output.show(
            [{"address": addr, "version": text} for addr, text in found.items()],
            (Column("address", "BROKER"), Column("version", "VERSION")),
        )

    call.run(work)


@account.command("white-addresses")
@click.argument("addresses", nargs=-1)
@click.option("--file", help="The file at the brokers that holds them; by default their first one.")
@acl_options(changes)
def white_addresses(addresses: tuple[str, ...], file: str | None, call: AclCall) -> None:
    """Replace the ADDRESSES from which requests need neither a signature nor rights: 10.0.0.1, 10.0.0.* ..."""

    async def work() -> None:
        async with call.access() as access:
            await call.changed(
                access,
                "addresses",
                "changed",
                lambda: access.set_white_addresses(addresses, file=file),
                addresses=list(addresses),
            )

    call.run(work)
