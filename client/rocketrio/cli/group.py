"""The commands `rocketrio group create|list|show|members|delete`."""

import click
import msgspec

from rocketrio.admin.admin import open_admin
from rocketrio.admin.group_admin import GroupSettings
from rocketrio.cli.common import GROUP, json_option, namesrv_option, print_json, print_table, run
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.errors import ConsumerNotOnline

_SETTINGS = (
    ("broker_name", None),
    ("consume", "consume_enable"),
    ("broadcast", "consume_broadcast_enable"),
    ("max_retries", "retry_max_times"),
    ("retry_queues", "retry_queue_nums"),
    ("reads_from", "broker_id"),
    ("slow_reads_from", "which_broker_when_consume_slowly"),
)
_MEMBERS = ("client_id", "address", "language", "version")


@click.group()
def group() -> None:
    """Create, list, show and delete consumer groups.

    \b
    Examples:
      rocketrio group list
      rocketrio group create billing --max-retries 3
      rocketrio group show billing
      rocketrio group members billing
      rocketrio group delete billing
    """


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--cluster", help="Only on the masters of this cluster; by default on all.")
@click.option(
    "--max-retries",
    type=click.IntRange(-1),
    help="Redeliveries of a message until it goes to the dead-letter topic.",
)
@click.option("--retry-queues", type=click.IntRange(0), help="Queues of the retry topic.")
@click.option("--reads-from", type=click.IntRange(0), help="Broker id that members read from.")
@click.option(
    "--slow-reads-from",
    type=click.IntRange(0),
    help="Broker id that members read from when they are far behind; 1, the default, is any slave.",
)
@click.option("--consume/--no-consume", default=None, help="Whether members get messages.")
@json_option
@namesrv_option
def create(
    name: str,
    cluster: str | None,
    max_retries: int | None,
    retry_queues: int | None,
    reads_from: int | None,
    slow_reads_from: int | None,
    consume: bool | None,
    as_json: bool,
    namesrv: tuple[str, ...],
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
        async with open_admin(name_servers=namesrv) as admin:
            brokers = await admin.create_group(name, cluster=cluster, **settings)
        if as_json:
            print_json({"group": name, "broker_names": brokers})
        else:
            click.echo(f"created {name} on {', '.join(brokers)}")

    run(work, verbose=verbose)


@group.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system groups.")
@json_option
@namesrv_option
def list_groups(
    include_system: bool, as_json: bool, namesrv: tuple[str, ...], verbose: int
) -> None:
    """List the groups that brokers know."""

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            names = await admin.groups(include_system=include_system)
        if as_json:
            print_json([{"group": name} for name in names])
        else:
            print_table(("group",), [(name,) for name in names])

    run(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@json_option
@namesrv_option
def show(name: str, as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """Show the settings of GROUP on each broker.

    The columns are named like the options of `group create`. With --json the settings have RocketMQ's names in
    snake_case, as in Python.
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            found = await admin.group(name)
        rows = [
            (broker, *(getattr(settings, field) for _, field in _SETTINGS if field is not None))
            for broker, settings in sorted(found.items())
        ]
        if as_json:
            print_json(
                [
                    {"broker_name": broker_name, "group": name, "settings": _as_json(settings)}
                    for broker_name, settings in sorted(found.items())
                ]
            )
        else:
            print_table([column for column, _ in _SETTINGS], rows)

    run(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@json_option
@namesrv_option
def members(name: str, as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """List the clients connected for GROUP."""

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            try:
                found = (await admin.consumer_connections(name)).connection_set
            except ConsumerNotOnline:
                await admin.group(name)  # Fails if no broker knows the group.
                found = []
        rows = sorted((one.client_id, one.client_addr, one.language, one.version) for one in found)
        if as_json:
            print_json([dict(zip(_MEMBERS, row, strict=True)) for row in rows])
        else:
            print_table(_MEMBERS, rows)

    run(work, verbose=verbose)


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@click.option("--keep-offsets", is_flag=True, help="Keep the group's committed offsets.")
@click.option("--dry-run", is_flag=True, help="Show where it would be deleted; change nothing.")
@json_option
@namesrv_option
def delete(
    name: str,
    keep_offsets: bool,
    dry_run: bool,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Delete GROUP and its commits. Stop its members first: their heartbeats create it again."""

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            if dry_run:
                brokers = sorted(await admin.group(name))
            else:
                brokers = await admin.delete_group(name, with_offsets=not keep_offsets)
        if as_json:
            print_json({"group": name, "broker_names": brokers})
        else:
            done = f"{name} would be deleted" if dry_run else f"deleted {name}"
            click.echo(f"{done} from {', '.join(brokers)}")

    run(work, verbose=verbose)


def _as_json(settings: SubscriptionGroupConfig) -> dict[str, object]:
    shown = msgspec.structs.asdict(settings)
    del shown["group_name"]
    return shown
