"""The commands `rocketrio acl grant|revoke|list|check|import|sign`; `acl_users.py` has the groups `user|account`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketrio.cli.acl_common import at_brokers, known_user, plain_option, show_change
from rocketrio.cli.acl_users import RIGHTS, account, user
from rocketrio.cli.call import Call, changes, changes_with, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import row_of
from rocketrio.cli.commands import CallableT, Group
from rocketrio.cli.output import Output
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say
from rocketrio.cli.shell import fail
from rocketrio.counts import counted
from rocketrio_protocol.access.model import ACTION_NAMES
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

if TYPE_CHECKING:
    from rocketrio.admin.access import AccessAdmin, AccessRight, AccessUser
    from rocketrio_protocol.access.model import AccessTable, Resource, User

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


def resource_options(function: CallableT) -> CallableT:
    """Add the options that name resources, and collect them in `topics`, `groups` and `resources`."""
    for name, dest, text in (
        ("--resource", "resources", "Any resource, as Cluster:* or *; may be repeated."),
        ("--group", "groups", "A group, or a prefix as pay*; may be repeated."),
        ("--topic", "topics", "A topic, or a prefix as pay*; may be repeated."),
    ):
        function = click.option(name, dest, multiple=True, help=text)(function)
    return function


def _read_actions(context: click.Context, parameter: click.Parameter, text: str) -> tuple[str, ...]:
    from rocketrio.admin.access import ACTIONS

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
@at_brokers(changes)
async def grant(
    call: Call,
    access: AccessAdmin,
    name: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    resources: tuple[str, ...],
    actions: tuple[str, ...],
    source_ips: tuple[str, ...],
    deny: bool,
    is_default: bool,
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
    from rocketrio.admin.access import CUSTOM, DEFAULT

    wanted = resource_names(topics, groups, resources)
    if not wanted:
        raise click.UsageError("give at least one --topic, --group or --resource")

    if call.dry_run:
        replaced = [right for right in await access.rights_of(name) if right.resource in wanted]
        if replaced and call.output.for_people:
            click.echo("these would be replaced:")
            call.output.show(replaced, RIGHTS)
    await show_change(
        call,
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


@acl.command()
@click.argument("name", metavar="USER")
@resource_options
@click.option("--all", "is_all", is_flag=True, help="All rights of the user.")
@at_brokers(changes)
async def revoke(
    call: Call,
    access: AccessAdmin,
    name: str,
    topics: tuple[str, ...],
    groups: tuple[str, ...],
    resources: tuple[str, ...],
    is_all: bool,
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

    removed = [
        right for right in await access.rights_of(name) if is_all or right.resource in wanted
    ]
    if not removed:
        fail(f"{name} has no right on {', '.join(wanted) or 'anything'}")
    if call.dry_run and call.output.for_people:
        call.output.show(removed, RIGHTS)
    if not call.dry_run:
        on = ", ".join(sorted({each.resource for each in removed}))
        await may_be_lost(f"{name} loses {counted(len(removed), 'right')}: on {on}")

    async def remove() -> list[str]:
        addrs: list[str] = []
        for policy, resource in sorted({(each.policy, each.resource) for each in removed}):
            addrs = await access.revoke(name, resource, policy=policy)
        return addrs

    await show_change(
        call,
        access,
        f"{counted(len(removed), 'right')} of {name}",
        "removed",
        remove,
        user=name,
        rights=[row_of(each, RIGHTS) for each in removed],
    )


@acl.command(name="list")
@click.option("--user", "user_part", default="", help="Only users whose names contain this text.")
@click.option(
    "--resource", "resource_part", default="", help="Only resources that contain this text."
)
@at_brokers(reads)
async def list_rights(
    call: Call,
    access: AccessAdmin,
    user_part: str,
    resource_part: str,
) -> None:
    """List the rights of all users; one that masters have differently appears more than once."""

    rights = await access.rights(user_part, resource_part)
    call.output.show(rights, RIGHTS)


@acl.command()
@click.argument("fields", nargs=-1, metavar="NAME=VALUE")
@click.option(
    "--body-file", type=click.Path(exists=True, dir_okay=False), help="The body as it is sent."
)
@reads
async def sign(call: Call, fields: tuple[str, ...], body_file: str | None) -> None:
    """Print what is signed in a request with these fields, and its Signature, to compare with another client's.

    No request is sent. The security token is not shown. Requests of rocketrio also have a proof, which is not shown.

    \b
    Examples:
      rocketrio acl sign topic=orders key=k1 maxNum=32 --credentials-file tools.yml
    """
    import trio

    from rocketrio.cluster.account import open_account
    from rocketrio_protocol.frame import FRAME_SIZE_LIMIT
    from rocketrio_protocol.signature import SECURITY_TOKEN, SIGNATURE

    given = dict(field.partition("=")[::2] for field in fields)
    if len(given) < len(fields) or not all("=" in field for field in fields):
        raise click.UsageError("each field is NAME=VALUE, and has another name")
    body = b"" if body_file is None else _content(body_file)
    if len(body) > FRAME_SIZE_LIMIT:
        raise click.UsageError(f"{body_file} is larger than a request may be")

    account = await open_account(call.client.get("credentials"))
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
    call.output.show([row], document=lambda rows: rows[0], people=text)


@attrs.frozen
class Decision:
    """The decision of one broker about one action on one resource."""

    broker: str
    resource: str
    is_allowed: bool
    because: str


def _content(path: str) -> bytes:
    return Path(path).read_bytes()


@acl.command()
@click.argument("name", metavar="USER")
@click.option("--topic", help="A topic.")
@click.option("--group", help="A group.")
@click.option("--resource", help="Any resource, as Cluster:lab.")
@click.option(
    "--action",
    required=True,
    type=click.Choice([name.lower() for name in ACTION_NAMES if name != "All"]),
)
@click.option("--source-ip", default="127.0.0.1", show_default=True, help="Where it comes from.")
@at_brokers(reads)
async def check(
    call: Call,
    access: AccessAdmin,
    name: str,
    topic: str | None,
    group: str | None,
    resource: str | None,
    action: str,
    source_ip: str,
) -> None:
    """Say whether USER may do something, and which right decides; the exit code is 1 if it may not.

    Rights are judged as rocketrio's brokers and releases of RocketMQ after 5.3.3 do.

    \b
    Examples:
      rocketrio acl check producer1 --topic orders --action pub
    """
    from rocketrio_protocol.access.model import Resource

    named = [
        f"{kind}:{text}" for kind, text in (("Topic", topic), ("Group", group)) if text is not None
    ]
    named += [] if resource is None else [resource]
    if len(named) != 1:
        raise click.UsageError("give one of --topic, --group and --resource")

    users = await known_user(access, name)
    rights = await access.rights_of(name)
    found = [
        decision(addr, user, rights, Resource.parse(named[0]), action, source_ip)
        for user in users
        for addr in user.brokers
    ]
    call.output.show(
        [attrs.asdict(each) for each in found],
        people=[
            f"{name} {'may' if each.is_allowed else 'may not'} {action} {each.resource} at {each.broker}: "
            f"{each.because}"
            for each in found
        ],
    )
    if not all(each.is_allowed for each in found):
        raise click.exceptions.Exit(1)


def decision(
    addr: str,
    user: AccessUser,
    rights: Sequence[AccessRight],
    resource: Resource,
    action: str,
    source_ip: str,
) -> Decision:
    """Decide as the broker at an address does, which has this user and those of the rights that name it."""
    from rocketrio.admin.access import acl_info
    from rocketrio_protocol.access.model import AccessDecision, User
    from rocketrio_protocol.access.wire_forms import merged_acl

    own = [right for right in rights if addr in right.brokers]
    judged = User(user.name, (), is_super=user.is_super, is_enabled=user.is_enabled)
    if own:
        judged = merged_acl(judged, acl_info(own))
    wanted = ACTION_NAMES[action.capitalize()]
    verdict = judged.verdict(resource.kind, resource.name, wanted, source_ip)
    is_allowed = verdict is AccessDecision.ALLOWED and user.is_enabled
    if not user.is_enabled:
        because = "the user is disabled"
    elif user.is_super:
        because = "it is a super user"
    else:
        deciding = judged.entries_about(resource.kind, resource.name, wanted, source_ip)
        first = next(deciding, None)
        because = "no right matches" if first is None else f"by the right on {first.resource}"
    return Decision(addr, str(resource), is_allowed, because)


@attrs.frozen
class _Plan:
    """What becomes of one account."""

    user: User
    rights: list[AccessRight]
    is_known: bool
    """Whether there is a user of its name already, which stays as it is."""


@acl.command("import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--apply", "applies", is_flag=True, help="Create the users; otherwise only show them."
)
@plain_option
@at_brokers(changes_with("applies"))
async def import_accounts(
    call: Call,
    access: AccessAdmin,
    file: Path,
    applies: bool,
) -> None:
    """Make users of the accounts in FILE, a plain_acl.yml of RocketMQ 4; without --apply only show what would be made.

    Users that exist stay as they are. An admin becomes a super user. White addresses are not carried over: give the
    clients there an account.

    \b
    Examples:
      rocketrio acl import plain_acl.yml
      rocketrio acl import plain_acl.yml --apply
    """
    from rocketrio_protocol.access.plain_acl import FILE_SIZE_LIMIT, parse_plain_acl

    try:
        table = parse_plain_acl(read_private(file, f"file {file}", size_max=FILE_SIZE_LIMIT), file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error

    applies = applies and not call.dry_run

    created = 0
    plans: list[_Plan] = []
    async with showing_progress(
        "asking about users", lambda: len(plans), noun="user", total=len(table.users)
    ):
        for user in table.users.values():
            plans.append(await _plan(access, user))
    if applies:
        wanted = [plan for plan in plans if not plan.is_known]
        async with showing_progress(
            "creating users", lambda: created, noun="user", total=len(wanted)
        ):
            for plan in wanted:
                await _create(access, plan)
                created += 1
    if call.output.for_people:
        _print(plans, table, call.output, applies=applies)
        return
    call.output.show(
        map(_as_json, plans),
        document=lambda rows: {
            "users": rows,
            "dropped_white_addresses": _white(table),
            "dry_run": not applies,
        },
    )


async def _plan(access: AccessAdmin, user: User) -> _Plan:
    from rocketrio.admin.access import rights_in
    from rocketrio_protocol.access.wire_forms import acl_info

    acl = acl_info(user)
    rights = [] if acl is None else rights_in(acl)
    return _Plan(user, rights, bool(await access.user(user.name)))


async def _create(access: AccessAdmin, plan: _Plan) -> None:
    user = plan.user
    await access.create_user(user.name, user.secrets[0].decode(), is_super=user.is_super)
    if plan.rights:
        await access.grant_all(plan.rights)


def _print(plans: list[_Plan], table: AccessTable, output: Output, *, applies: bool) -> None:
    done = "created" if applies else "would be created"
    for plan in plans:
        kind = "super user" if plan.user.is_super else "user"
        state = "exists already, and stays as it is" if plan.is_known else done
        say(f"{kind} {plan.user.name} {state}")
    rights = [right for plan in plans if not plan.is_known for right in plan.rights]
    if rights:
        output.show(rights, RIGHTS)
    if white := _white(table):
        click.echo(f"not carried over: white addresses {', '.join(white)}", err=True)
    if not applies:
        click.echo("nothing was changed; --apply does it")


def _as_json(plan: _Plan) -> dict[str, Any]:
    return {
        "user": plan.user.name,
        "type": "super" if plan.user.is_super else "normal",
        "exists": plan.is_known,
        "rights": [row_of(each, RIGHTS) for each in plan.rights],
    }


def _white(table: AccessTable) -> list[str]:
    of_users = [pattern for user in table.users.values() for pattern in user.white]
    return [pattern.text for pattern in (*table.white, *of_users)]
