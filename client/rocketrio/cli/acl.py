"""The commands `rocketrio acl grant|revoke|list|check|import|sign`, and the groups `user` and `account`."""

from pathlib import Path
from typing import Final

import click
import trio

from rocketrio.admin.access_admin import ACTIONS, CUSTOM, DEFAULT
from rocketrio.cli.acl_accounts import account
from rocketrio.cli.acl_check import check
from rocketrio.cli.acl_common import AclCall, acl_options
from rocketrio.cli.acl_import import import_accounts
from rocketrio.cli.acl_users import RIGHTS, right_as_json, user
from rocketrio.cli.commands import Group
from rocketrio.cli.common import FunctionT, changes, client_options, may_be_lost, reads, run
from rocketrio.cli.output import Output
from rocketrio.cli.shell import fail
from rocketrio.cluster.account import open_account
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted
from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
from rocketrio_protocol.signature import SECURITY_TOKEN, SIGNATURE

_TOKEN_SHOWN: Final = "<SecurityToken>"


@click.group(
    cls=Group,
    most_used=(
        "list",
        "grant billing --topic orders --group billing --actions sub,get",
        "check billing --topic orders --action sub",
    ),
)
def acl() -> None:
    """Show and change users and their rights.

    The commands work with brokers of rocketrio and of RocketMQ 5; `account` is for those of RocketMQ 4.

    \b
    Examples:
      rocketrio acl user create producer1
      rocketrio acl grant producer1 --topic orders --actions pub
      rocketrio acl grant billing --topic orders --group billing --actions sub,get
      rocketrio acl list --user billing
      rocketrio acl revoke producer1 --topic orders
      rocketrio acl check producer1 --topic orders --action pub
      rocketrio acl import plain_acl.yml
    """


acl.add_command(user)
acl.add_command(account)
acl.add_command(check)
acl.add_command(import_accounts)


def resource_options(function: FunctionT) -> FunctionT:
    """Add the options that name resources, and collect them in `topics`, `groups` and `resources`."""
    for name, dest, text in (
        ("--resource", "resources", "Any resource, as Cluster:* or *; may be repeated."),
        ("--group", "groups", "A group, or a prefix as pay*; may be repeated."),
        ("--topic", "topics", "A topic, or a prefix as pay*; may be repeated."),
    ):
        function = click.option(name, dest, multiple=True, help=text)(function)
    return function


def _read_actions(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    by_lower = {action.lower(): action for action in ACTIONS}
    names = [name.strip().lower() for name in text.split(",")]
    unknown = [name for name in names if name not in by_lower]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not one of {', '.join(by_lower)}")
    return tuple(by_lower[name] for name in names)


def resource_names(
    topics: tuple[str, ...], groups: tuple[str, ...], resources: tuple[str, ...]
) -> list[str]:
    """Return the resources as brokers name them."""
    return [
        *(f"Topic:{topic}" for topic in topics),
        *(f"Group:{group}" for group in groups),
        *resources,
    ]


@acl.command()
@click.argument("name", metavar="USER")
@resource_options
@click.option(
    "--actions",
    required=True,
    callback=_read_actions,
    help="pub, sub, create, update, delete, get, list or all, separated by commas.",
)
@click.option("--source-ip", "source_ips", multiple=True, help="Only from this address or network.")
@click.option("--deny", is_flag=True, help="Forbid the actions instead of allowing them.")
@click.option("--default", "is_default", is_flag=True, help="Only where no custom right matches.")
@acl_options(changes)
def grant(
    name: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    source_ips: tuple[str, ...],
    deny: bool,
    is_default: bool,
    call: AclCall,
) -> None:
    """Allow USER some actions on topics and groups; a right for the same resource is replaced.

    A producer needs pub on its topics. A consumer needs sub and get on its topics, and sub on its group (get too, to
    see how far behind it is).

    \b
    Examples:
      rocketrio acl grant producer1 --topic orders --actions pub
      rocketrio acl grant billing --topic orders --group billing --actions sub,get
      rocketrio acl grant producer1 --topic secret* --actions all --deny
    """
    wanted = resource_names(topics, groups, resources)
    if not wanted:
        raise click.UsageError("give at least one --topic, --group or --resource")

    async def work() -> None:
        async with call.access() as access:
            if call.dry_run:
                replaced = [
                    right for right in await access.rights_of(name) if right.resource in wanted
                ]
                if replaced and call.output.for_people:
                    click.echo("these would be replaced:")
                    call.output.show(map(right_as_json, replaced), RIGHTS)
            await call.changed(
                access,
                name,
                f"{'denied' if deny else 'granted'} {','.join(actions)} on {', '.join(wanted)}",
                lambda: access.grant(
                    name,
                    wanted,
                    actions,
                    source_ips=source_ips,
                    is_allowed=not deny,
                    policy=DEFAULT if is_default else CUSTOM,
                ),
                user=name,
                resources=wanted,
            )

    call.run(work)


@acl.command()
@click.argument("name", metavar="USER")
@resource_options
@click.option("--all", "is_all", is_flag=True, help="All rights of the user.")
@acl_options(changes)
def revoke(
    name: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    resources: tuple[str, ...],
    is_all: bool,
    call: AclCall,
) -> None:
    """Remove the rights of USER on topics and groups, or all of them.

    \b
    Examples:
      rocketrio acl revoke producer1 --topic orders
      rocketrio acl revoke producer1 --all --dry-run
    """
    wanted = resource_names(topics, groups, resources)
    if bool(wanted) == is_all:
        raise click.UsageError("give at least one --topic, --group or --resource, or --all")

    async def work() -> None:
        async with call.access() as access:
            removed = [
                right
                for right in await access.rights_of(name)
                if is_all or right.resource in wanted
            ]
            if not removed:
                fail(f"{name} has no right on {', '.join(wanted) or 'anything'}")
            if call.dry_run and call.output.for_people:
                call.output.show(map(right_as_json, removed), RIGHTS)
            if not call.dry_run:
                on = ", ".join(sorted({each.resource for each in removed}))
                await may_be_lost(f"{name} loses {counted(len(removed), 'right')}: on {on}")

            async def remove() -> list[str]:
                addrs: list[str] = []
                for policy, resource in sorted({(each.policy, each.resource) for each in removed}):
                    addrs = await access.revoke(name, resource, policy=policy)
                return addrs

            await call.changed(
                access,
                f"{counted(len(removed), 'right')} of {name}",
                "removed",
                remove,
                user=name,
                rights=[right_as_json(each) for each in removed],
            )

    call.run(work)


@acl.command(name="list")
@click.option("--user", "user_part", default="", help="Only users whose names contain this text.")
@click.option(
    "--resource", "resource_part", default="", help="Only resources that contain this text."
)
@acl_options(reads)
def list_rights(user_part: str, resource_part: str, call: AclCall) -> None:
    """List the rights of all users; one that masters have differently appears more than once."""

    async def work() -> None:
        async with call.access() as access:
            rights = await access.rights(user_part, resource_part)
        call.output.show(map(right_as_json, rights), RIGHTS)

    call.run(work)


@acl.command()
@click.argument("fields", nargs=-1, metavar="NAME=VALUE")
@click.option(
    "--body-file", type=click.Path(exists=True, dir_okay=False), help="The body as it is sent."
)
@reads
@client_options
def sign(
    fields: tuple[str, ...],
    body_file: str | None,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Print what is signed in a request with these fields, and its Signature, to compare with another client's.

    No request is sent. The security token is not shown. Requests of rocketrio also have a proof, which is not shown.

    \b
    Examples:
      rocketrio acl sign topic=orders key=k1 maxNum=32 --credentials-file tools.yml
    """
    given = dict(field.partition("=")[::2] for field in fields)
    if len(given) < len(fields) or not all("=" in field for field in fields):
        raise click.UsageError("each field is NAME=VALUE, and has another name")
    body = b"" if body_file is None else Path(body_file).read_bytes()
    if len(body) > FRAME_SIZE_LIMIT:
        raise click.UsageError(f"{body_file} is larger than a request may be")

    async def work() -> None:
        account = await open_account(client.get("credentials"))
        await trio.lowlevel.checkpoint()
        if account is None:
            fail("no account: give --credentials-file FILE or --access-key KEY")
        sent = account.signer.signed(given, body)
        shown = {**sent, SECURITY_TOKEN: _TOKEN_SHOWN} if SECURITY_TOKEN in sent else sent
        names = [name for name in sorted(sent) if name != SIGNATURE]
        content = "".join(shown[name] for name in names)
        row = {
            "fields": names,
            "content": content,
            "body_size": len(body),
            "signature": sent[SIGNATURE],
        }
        text = [
            f"fields     {' '.join(names)}",
            f"content    {content}" + (f" and {len(body)} bytes of body" if body else ""),
            f"signature  {sent[SIGNATURE]}",
        ]
        output.show([row], document=lambda rows: rows[0], people=text)

    run(work, verbose=verbose)
