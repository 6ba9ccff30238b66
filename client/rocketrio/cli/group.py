"""The commands `rocketrio group create|list|show|members|check|stacks|delete`."""

import sys
from collections.abc import Sequence

import attrs
import click
import msgspec

from rocketrio.admin.admin import Admin, GroupSettings, open_admin
from rocketrio.admin.diagnosis import GroupCheck
from rocketrio.admin.group_overview import group_members, group_overviews
from rocketrio.cli.asking import asking
from rocketrio.cli.commands import Group
from rocketrio.cli.common import (
    GROUP,
    changes,
    client_options,
    end_in_part,
    may_be_lost,
    reads,
    run,
    run_in_part,
)
from rocketrio.cli.group_mode import mode
from rocketrio.cli.group_tables import LONG, MEMBERS, member_columns, member_row, overview_row
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Column, Output, Row
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.errors import ConsumerNotOnlineError, Error
from rocketrio_protocol.versions import version_name

_SETTINGS = (
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


group.add_command(mode)


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
@client_options
def create(
    name: str,
    cluster: str | None,
    max_retries: int | None,
    retry_queues: int | None,
    reads_from: int | None,
    slow_reads_from: int | None,
    consume: bool | None,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
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

    async def work() -> None:
        async with open_admin(**client) as admin:
            brokers = await admin.create_group(name, cluster=cluster, dry_run=dry_run, **settings)
        done = f"{name} would be created or changed" if dry_run else f"created {name}"
        _show_brokers(output, name, brokers, f"{done} on {', '.join(brokers)}")

    run(work, verbose=verbose)


@group.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system groups.")
@click.option("--long", "is_long", is_flag=True, help="With members, topics, lag and verdict.")
@reads
@client_options
def list_groups(
    include_system: bool, is_long: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """List the groups that brokers know; with --long how they keep up, the worst first.

    The verdicts are those of the brokers' last minute; `rocketrio lag` looks for longer.

    \b
    Examples:
      rocketrio group list
      rocketrio group list --long --sort -lag
    """

    async def work(silent: dict[str, str]) -> None:
        rows: list[dict[str, object]]
        async with asking("asking about groups", client) as admin:
            if is_long:
                found, without = await group_overviews(admin, include_system=include_system)
                silent.update(without)
                rows = [overview_row(one) for one in found]
            else:
                names, failed = await admin.groups_and_failures(include_system=include_system)
                silent.update((name, error.what) for name, error in failed.items())
                rows = [{"group": name} for name in names]
        output.show(rows, LONG if is_long else ("group",))

    run_in_part(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@reads
@client_options
def show(name: str, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show the settings of GROUP on each broker.

    The columns are named like the options of `group create`. With --json the settings have RocketMQ's names in
    snake_case, as in Python.
    """

    async def work(silent: dict[str, str]) -> None:
        async with asking(f"asking about {name}", client) as admin:
            found, failed = await admin.group_and_failures(name)
        silent.update((broker, error.what) for broker, error in failed.items())
        output.show(
            [
                {"broker_name": broker_name, "group": name, **_as_json(settings)}
                for broker_name, settings in sorted(found.items())
            ],
            [Column("broker_name"), *(Column(field, option) for option, field in _SETTINGS)],
            document=lambda rows: [_nested(row) for row in rows],
        )

    run_in_part(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--subscription", is_flag=True, help="What each member subscribes to.")
@click.option("--queues", is_flag=True, help="The queues that each member owns.")
@reads
@client_options
def members(
    name: str,
    subscription: bool,
    queues: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """List the clients connected for GROUP.

    For --subscription and --queues each member is asked; what a silent one does not report is unknown.

    \b
    Examples:
      rocketrio group members billing
      rocketrio group members billing --subscription --queues
    """

    async def work(silent: dict[str, str]) -> None:
        async with asking(f"asking about {name}", client) as admin:
            if subscription or queues:
                members, without = await group_members(admin, name)
                silent.update(without)
                rows = [member_row(one) for one in members]
            else:
                rows = await _connected(admin, name)
            if not rows:
                await admin.group(name)  # Fails if no broker knows the group.
        output.show(rows, member_columns(subscription=subscription, queues=queues))

    run_in_part(work, verbose=verbose)


async def _connected(admin: Admin, name: str) -> list[dict[str, object]]:
    try:
        found = (await admin.consumer_connections(name)).connection_set
    except ConsumerNotOnlineError:
        return []
    rows = sorted(
        (one.client_id, one.client_addr, one.language, version_name(one.version)) for one in found
    )
    return [dict(zip(MEMBERS, row, strict=True)) for row in rows]


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@reads
@client_options
def check(name: str, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show what is wrong with the members of GROUP, with advice; exit with 1 if anything is.

    It compares subscriptions, looks for queues without an owner or with several, and for members that get nothing.
    Whether the group keeps up is in `rocketrio lag GROUP`.

    \b
    Example:
      rocketrio group check billing
    """
    found: list[GroupCheck] = []

    async def work() -> None:
        async with asking(f"asking about {name}", client) as admin:
            found.append(await admin.check_group(name))

    run(work, verbose=verbose)
    (result,) = found
    members = sorted(result.answers.members)
    well = None
    if not result.findings:
        well = (
            "whether anything is wrong is not known"
            if result.answers.silent
            else f"nothing is wrong with {counted(len(members), 'member')}"
        )
    output.show(
        [attrs.asdict(one) for one in result.findings],
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
    end_in_part(result.answers.silent)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.argument("client_id", metavar="CLIENT")
@reads
@client_options
def stacks(name: str, client_id: str, output: Output, client: ClientOptions, verbose: int) -> None:
    """Print what all tasks and threads of a member are doing; `group members` lists the members.

    \b
    Example:
      rocketrio group stacks billing 10.0.0.9@app-7
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            text = await admin.member_stacks(name, client_id)
        if not text:
            raise Error(f"{client_id} reported no stacks")
        output.show(
            [{"group": name, "client_id": client_id, "stacks": text}], people=text.splitlines()
        )

    run(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="Keep the group's committed offsets.")
@changes
@client_options
def delete(
    name: str,
    keep_offsets: bool,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Delete GROUP and its commits. Stop its members first: their heartbeats create it again.

    In a terminal it asks first, and says what is lost.
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            if dry_run:
                brokers = sorted(await admin.group(name))
            else:
                if not keep_offsets:
                    topics = await _committed_topics(admin, name)
                    await may_be_lost(f"{name} loses its settings, and its progress in {topics}")
                brokers = await admin.delete_group(name, with_offsets=not keep_offsets)
        done = f"{name} would be deleted" if dry_run else f"deleted {name}"
        _show_brokers(output, name, brokers, f"{done} from {', '.join(brokers)}")

    run(work, verbose=verbose)


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
    shown = msgspec.structs.asdict(settings)
    del shown["group_name"]
    return shown
