"""The command `rocketrio acl import`: the accounts of a plain_acl.yml of RocketMQ 4 become users with rights."""

from pathlib import Path
from typing import Any

import attrs
import click

from rocketrio.admin.access_admin import AccessAdmin, AccessRight, rights_in
from rocketrio.cli.acl_common import AclCall, acl_options, plain_option
from rocketrio.cli.acl_users import RIGHTS, right_as_json
from rocketrio.cli.commands import Command
from rocketrio.cli.common import changes_with
from rocketrio.cli.output import Output
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import say
from rocketrio_protocol.access.model import AccessTable, User
from rocketrio_protocol.access.plain_acl import FILE_SIZE_LIMIT, parse_plain_acl
from rocketrio_protocol.access.wire_forms import acl_info
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private


@attrs.frozen
class _Plan:
    """What becomes of one account."""

    user: User
    rights: list[AccessRight]
    is_known: bool
    """Whether there is a user of its name already, which stays as it is."""


@click.command(cls=Command, name="import")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option(
    "--apply", "applies", is_flag=True, help="Create the users; otherwise only show them."
)
@plain_option
@acl_options(changes_with("applies"))
def import_accounts(file: Path, applies: bool, plain_passwords: bool, call: AclCall) -> None:
    """Make users of the accounts in FILE, a plain_acl.yml of RocketMQ 4; without --apply only show what would be made.

    Users that exist stay as they are. An admin becomes a super user. White addresses are not carried over: give the
    clients there an account.

    \b
    Examples:
      rocketrio acl import plain_acl.yml
      rocketrio acl import plain_acl.yml --apply
    """
    try:
        table = parse_plain_acl(read_private(file, f"file {file}", size_max=FILE_SIZE_LIMIT), file)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error

    applies = applies and not call.dry_run

    async def work() -> None:
        created = 0
        plans: list[_Plan] = []
        async with call.access(plain_passwords=plain_passwords) as access:
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

    call.run(work)


async def _plan(access: AccessAdmin, user: User) -> _Plan:
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
        output.show(map(right_as_json, rights), RIGHTS)
    if white := _white(table):
        click.echo(f"not carried over: white addresses {', '.join(white)}", err=True)
    if not applies:
        click.echo("nothing was changed; --apply does it")


def _as_json(plan: _Plan) -> dict[str, Any]:
    return {
        "user": plan.user.name,
        "type": "super" if plan.user.is_super else "normal",
        "exists": plan.is_known,
        "rights": [right_as_json(each) for each in plan.rights],
    }


def _white(table: AccessTable) -> list[str]:
    of_users = [pattern for user in table.users.values() for pattern in user.white]
    return [pattern.text for pattern in (*table.white, *of_users)]
