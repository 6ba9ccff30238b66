"""The command `rocketrio acl check`: whether a user may do something, and which right decides."""

from collections.abc import Sequence

import attrs
import click

from rocketrio.admin.access_admin import AccessRight, AccessUser, acl_info
from rocketrio.cli.acl_common import AclCall, acl_options, known_user
from rocketrio.cli.commands import Command
from rocketrio.cli.common import reads
from rocketrio_protocol.access.model import ACTION_NAMES, Resource, User, Verdict
from rocketrio_protocol.access.wire_forms import merged_acl


@attrs.frozen
class Decision:
    """The decision of one broker about one action on one resource."""

    broker: str
    resource: str
    is_allowed: bool
    because: str


@click.command(cls=Command)
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
@acl_options(reads)
def check(
    name: str,
    topic: str | None,
    group: str | None,
    resource: str | None,
    action: str,
    source_ip: str,
    call: AclCall,
) -> None:
    """Say whether USER may do something, and which right decides; the exit code is 1 if it may not.

    Rights are judged as rocketrio's brokers and releases of RocketMQ after 5.3.3 do.

    \b
    Examples:
      rocketrio acl check producer1 --topic orders --action pub
    """
    named = [
        f"{kind}:{text}" for kind, text in (("Topic", topic), ("Group", group)) if text is not None
    ]
    named += [] if resource is None else [resource]
    if len(named) != 1:
        raise click.UsageError("give one of --topic, --group and --resource")

    async def work() -> None:
        async with call.access() as access:
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

    call.run(work)


def decision(
    addr: str,
    user: AccessUser,
    rights: Sequence[AccessRight],
    resource: Resource,
    action: str,
    source_ip: str,
) -> Decision:
    """Decide as the broker at an address does, which has this user and those of the rights that name it."""
    own = [right for right in rights if addr in right.brokers]
    judged = User(user.name, (), is_super=user.is_super, is_enabled=user.is_enabled)
    if own:
        judged = merged_acl(judged, acl_info(own))
    wanted = ACTION_NAMES[action.capitalize()]
    verdict = judged.verdict(resource.kind, resource.name, wanted, source_ip)
    is_allowed = verdict is Verdict.ALLOWED and user.is_enabled
    if not user.is_enabled:
        because = "the user is disabled"
    elif user.is_super:
        because = "it is a super user"
    else:
        deciding = judged.entries_about(resource.kind, resource.name, wanted, source_ip)
        first = next(deciding, None)
        because = "no right matches" if first is None else f"by the right on {first.resource}"
    return Decision(addr, str(resource), is_allowed, because)
