"""The commands `rocketrio group ...`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
import click

from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column, Row, dashed, model_column
from rocketrio.cli.commands import Group
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.types import GROUP, TOPIC
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConsumerNotOnlineError, Error
from rocketrio_protocol.names import RETRY_PREFIX
from rocketrio_protocol.versions import version_name

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.groups import GroupMember, GroupSettings, Mode
    from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig

_OVERVIEW: Final = (
    "group", model_column(), "members", dashed("topics"), "lag", "verdict", "why",
)  # fmt: skip
"""The columns of `group list --long`."""
_MEMBERS: tuple[Column, ...] = (
    Column("client_id"),
    Column("address"),
    Column("language"),
    Column("version", value=lambda one: version_name(one.version)),
)
_SETTINGS: Final = (
    ("consume", "consume_enable"),
    ("broadcast", "consume_broadcast_enable"),
    ("max_retries", "retry_max_times"),
    ("retry_queues", "retry_queue_nums"),
    ("reads_from", "broker_id"),
    ("slow_reads_from", "which_broker_when_consume_slowly"),
)


@click.group(cls=Group, most_used=("list --long", "members billing", "check billing"))
def group() -> None:
    """Create, list, show and delete consumer groups.

    \b
    Examples:
      rocketrio group list
      rocketrio group create billing --max-retries 3
      rocketrio group show billing
      rocketrio group members billing
      rocketrio group check billing
      rocketrio group delete billing
    """


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--cluster", help="Only on the masters of this cluster; by default on all.")
@click.option(
    "--max-retries",
    type=Whole(-1),
    help="Redeliveries of a message until it goes to the dead-letter topic.",
)
@click.option("--retry-queues", type=Whole(0), help="Queues of the retry topic.")
@click.option("--reads-from", type=Whole(0), help="Broker id that members read from.")
@click.option(
    "--slow-reads-from",
    type=Whole(0),
    help="Broker id that members read from when they are far behind; 1, the default, is any slave.",
)
@click.option("--consume/--no-consume", default=None, help="Whether members get messages.")
@changes
async def create(
    call: Call,
    name: str,
    cluster: str | None,
    max_retries: int | None,
    retry_queues: int | None,
    reads_from: int | None,
    slow_reads_from: int | None,
    consume: bool | None,
) -> None:
    """Create GROUP, or change only the given settings of it.

    \b
    Examples:
      rocketrio group create billing
      rocketrio group create billing --max-retries 3 --reads-from 1
    """
    settings: GroupSettings = {}
    if max_retries is not None:
        settings["retry_max_times"] = max_retries
    if retry_queues is not None:
        settings["retry_queue_nums"] = retry_queues
    if reads_from is not None:
        settings["broker_id"] = reads_from
    if slow_reads_from is not None:
        settings["which_broker_when_consume_slowly"] = slow_reads_from
    if consume is not None:
        settings["consume_enable"] = consume

    brokers = await call.admin.create_group(name, cluster=cluster, dry_run=call.dry_run, **settings)
    done = f"{name} would be created or changed" if call.dry_run else f"created {name}"
    _show_brokers(call.output, name, brokers, f"{done} on {', '.join(brokers)}")


@group.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system groups.")
@click.option("--long", "is_long", is_flag=True, help="With members, topics, lag and verdict.")
@reads
async def list_groups(call: Call, include_system: bool, is_long: bool) -> None:
    """List the groups that brokers know; with --long how they keep up, the worst first.

    The verdicts are those of the brokers' last minute; `rocketrio lag` looks for longer.

    \b
    Examples:
      rocketrio group list
      rocketrio group list --long --sort -lag
    """

    if is_long:
        async with call.asking("asking about groups"):
            found, without = await call.admin.group_overviews(include_system=include_system)
        call.silent.update(without)
        call.output.show(found, _OVERVIEW)
        return
    async with call.asking("asking about groups"):
        names, failed = await call.admin.groups_and_failures(include_system=include_system)
    call.silent.update((name, error.what) for name, error in failed.items())
    call.output.show([{"group": name} for name in names], ("group",))


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@reads
async def show(call: Call, name: str) -> None:
    """Show the settings of GROUP on each broker.

    The columns are named like the options of `group create`. With --json the settings have RocketMQ's names in
    snake_case, as in Python.
    """
    async with call.asking(f"asking about {name}"):
        found, failed = await call.admin.group_and_failures(name)
    call.silent.update((broker, error.what) for broker, error in failed.items())
    call.output.show(
        [
            {"broker_name": broker_name, "group": name, **_as_json(settings)}
            for broker_name, settings in sorted(found.items())
        ],
        [Column("broker_name"), *(Column(field, option) for option, field in _SETTINGS)],
        document=lambda rows: [_nested(row) for row in rows],
    )


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--subscription", is_flag=True, help="What each member subscribes to.")
@click.option("--queues", is_flag=True, help="The queues that each member owns.")
@reads
async def members(call: Call, name: str, subscription: bool, queues: bool) -> None:
    """List the clients connected for GROUP.

    For --subscription and --queues each member is asked; what a silent one does not report is unknown.

    \b
    Examples:
      rocketrio group members billing
      rocketrio group members billing --subscription --queues
    """

    columns = _MEMBERS
    found: Sequence[Any]
    async with call.asking(f"asking about {name}"):
        if subscription or queues:
            found, without = await call.admin.group_members(name)
            call.silent.update(without)
            columns += (
                Column("since"),
                Column("subscriptions", value=_subscriptions, in_table=subscription),
                Column("queues", value=_owned, in_table=queues),
            )
        else:
            found = await _connected(call.admin, name)
        if not found:
            await call.admin.group(name)  # Fails if no broker knows the group.
    call.output.show(found, columns)


async def _connected(admin: Admin, name: str) -> list[dict[str, object]]:
    try:
        found = (await admin.consumer_connections(name)).connection_set
    except ConsumerNotOnlineError:
        return []
    rows = sorted(
        (one.client_id, one.client_addr, one.language, version_name(one.version)) for one in found
    )
    return [dict(zip((column.key for column in _MEMBERS), row, strict=True)) for row in rows]


def _subscriptions(one: GroupMember) -> dict[str, str] | None:
    if one.subscriptions is None:
        return None
    # Each member has a retry topic of its own.
    return {
        each.topic: each.sub_string
        for each in one.subscriptions
        if not each.topic.startswith(RETRY_PREFIX)
    }


def _owned(one: GroupMember) -> list[str] | None:
    if one.queues is None:
        return None
    return [
        f"{each.topic} {each.broker_name}/{each.queue_id}"
        for each in one.queues
        if not each.topic.startswith(RETRY_PREFIX)
    ]


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@reads
async def check(call: Call, name: str) -> None:
    """Show what is wrong with the members of GROUP, with advice; exit with 1 if anything is.

    It compares subscriptions, looks for queues without an owner or with several, and for members that get nothing.
    Whether the group keeps up is in `rocketrio lag GROUP`.

    \b
    Example:
      rocketrio group check billing
    """
    async with call.asking(f"asking about {name}"):
        result = await call.admin.check_group(name)
    members = sorted(result.answers.members)
    well = None
    if not result.findings:
        well = (
            "whether anything is wrong is not known"
            if result.answers.silent
            else f"nothing is wrong with {counted(len(members), 'member')}"
        )
    call.output.show(
        map(attrs.asdict, result.findings),
        ("severity", "code", "where", "what", "advice"),
        document=lambda rows: {
            "group": name,
            "is_well": not result.findings,
            "members": members,
            "findings": rows,
            "silent": dict(result.answers.silent),
        },
        people=well,
    )
    if result.findings:
        sys.exit(1)
    call.silent.update(result.answers.silent)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.argument("client_id", metavar="CLIENT")
@reads
async def stacks(call: Call, name: str, client_id: str) -> None:
    """Print what all tasks and threads of a member are doing; `group members` lists the members.

    \b
    Example:
      rocketrio group stacks billing 10.0.0.9@app-7
    """
    text = await call.admin.member_stacks(name, client_id)
    if not text:
        raise Error(f"{client_id} reported no stacks")
    call.output.show(
        [{"group": name, "client_id": client_id, "stacks": text}], people=text.splitlines()
    )


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="Keep the group's committed offsets.")
@changes
async def delete(call: Call, name: str, keep_offsets: bool) -> None:
    """Delete GROUP and its commits. Stop its members first: their heartbeats create it again.

    In a terminal it asks first, and says what is lost.
    """
    if call.dry_run:
        brokers = sorted(await call.admin.group(name))
    else:
        if not keep_offsets:
            topics = await _committed_topics(call.admin, name)
            await may_be_lost(f"{name} loses its settings, and its progress in {topics}")
        brokers = await call.admin.delete_group(name, with_offsets=not keep_offsets)
    done = f"{name} would be deleted" if call.dry_run else f"deleted {name}"
    _show_brokers(call.output, name, brokers, f"{done} from {', '.join(brokers)}")


async def _committed_topics(admin: Admin, name: str) -> str:
    await admin.group(name)  # Fails if no broker knows the group.
    try:
        return ", ".join(await admin.topics_of_group(name)) or "no topic"
    except Error:  # The right to delete does not need the right to read.
        return "topics that are not known"


def _show_brokers(output: Output, name: str, brokers: Sequence[str], text: str) -> None:
    output.show(
        [{"group": name, "broker_name": broker} for broker in brokers],
        document=lambda rows: {"group": name, "broker_names": [row["broker_name"] for row in rows]},
        people=text,
    )


def _nested(row: Row) -> Row:
    settings = dict(row)
    return {key: settings.pop(key) for key in ("broker_name", "group")} | {"settings": settings}


def _as_json(settings: SubscriptionGroupConfig) -> dict[str, object]:
    import msgspec

    shown = msgspec.structs.asdict(settings)
    del shown["group_name"]
    return shown


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.argument("topic", type=TOPIC)
@click.argument("mode", type=click.Choice(["pull", "pop"]), metavar="pull|pop")
@click.option(
    "--share-queues",
    type=Whole(0),
    default=0,
    show_default=True,
    help="In pop mode: how many more members share the queues of one.",
)
@changes
async def mode(call: Call, name: str, topic: str, mode: Mode, share_queues: int) -> None:
    """Have the members of GROUP ask for the messages of TOPIC by pull or by pop, at Apache's brokers of 5.0 and later.

    Java's members that leave the sharing of queues to brokers follow it within 20 seconds; others pull. Rocketrio
    brokers, and Apache's before 5.0, know pull only.

    \b
    Example:
      rocketrio group mode billing orders pop --dry-run
    """

    found = await call.admin.set_consume_mode(
        name, topic, mode, share_queues=share_queues, dry_run=call.dry_run
    )
    call.output.show(
        found,
        ("broker_name", Column("before", cell=lambda row: row["before"] or "pull"), "after"),
    )
