"""The commands `rocketrio topic create|list|show|delete`."""

from typing import Final

import click

from rocketrio.admin.admin import MAX_QUEUES, open_admin
from rocketrio.admin.admin_values import TopicDescription
from rocketrio.cli.common import TOPIC, json_option, namesrv_option, print_json, print_table, run
from rocketrio.producing.outgoing import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio_protocol.bodies.route import QueueData
from rocketrio_protocol.bodies.topics import READ_WRITE, Permission

_PERMISSIONS: Final = {"r": Permission.READ, "w": Permission.WRITE, "rw": READ_WRITE}


def _read_attributes(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | None]:
    """Return the attributes by name; None for one without a value, which is to be removed."""
    return {name: value or None for name, _, value in (text.partition("=") for text in texts)}


@click.group()
def topic() -> None:
    """Create, list, show and delete topics.

    \b
    Examples:
      rocketrio topic create orders --queues 8
      rocketrio topic list
      rocketrio topic show orders
      rocketrio topic delete orders
    """


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option(
    "--queues",
    type=click.IntRange(1, MAX_QUEUES),
    help=f"Queues on each broker; {DEFAULT_TOPIC_QUEUE_NUMS} for a new topic.",
)
@click.option(
    "--perm",
    type=click.Choice(sorted(_PERMISSIONS)),
    help="Permissions: read, write or both; both for a new topic.",
)
@click.option(
    "--attribute",
    "attributes",
    multiple=True,
    callback=_read_attributes,
    metavar="NAME=VALUE",
    help="An attribute of RocketMQ 5; without a value it is removed. May be repeated.",
)
@click.option("--cluster", help="Only on the masters of this cluster; by default on all.")
@json_option
@namesrv_option
def create(
    name: str,
    queues: int | None,
    perm: str | None,
    attributes: dict[str, str | None],
    cluster: str | None,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Create TOPIC, or change the given settings of it.

    With fewer queues than before, the messages of the others are hidden.

    \b
    Examples:
      rocketrio topic create orders
      rocketrio topic create orders --queues 8 --cluster DefaultCluster
      rocketrio topic create %DLQ%billing --perm rw
      rocketrio topic create payments --attribute message.type=FIFO
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            made = await admin.create_topic(
                name,
                queues=queues,
                perm=None if perm is None else _PERMISSIONS[perm],
                cluster=cluster,
                attributes=attributes,
            )
        shapes = [
            QueueData(broker, config.read_queue_nums, config.write_queue_nums, config.perm)
            for broker, config in made.items()
        ]
        if as_json:
            brokers = [
                _shape_as_json(shape, made[shape.broker_name].attributes) for shape in shapes
            ]
            print_json({"topic": name, "brokers": brokers})
        else:
            for shape in shapes:
                kept = made[shape.broker_name].attributes
                click.echo(f"{name} on {shape.broker_name}: {_shape(shape, kept)}")

    run(work, verbose=verbose)


@topic.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system and retry topics.")
@json_option
@namesrv_option
def list_topics(
    include_system: bool, as_json: bool, namesrv: tuple[str, ...], verbose: int
) -> None:
    """List topics, one name per line.

    \b
    Examples:
      rocketrio topic list
      rocketrio topic list --all --json
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            names = await admin.topics(include_system=include_system)
        if as_json:
            print_json([{"topic": name} for name in names])
        else:
            for name in names:
                click.echo(name)

    run(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@json_option
@namesrv_option
def show(name: str, as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """Show which brokers have TOPIC and the offsets of its queues.

    \b
    Examples:
      rocketrio topic show orders
      rocketrio topic show orders --json
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            described = await admin.topic(name)
        if as_json:
            print_json(_as_json(described))
        else:
            _print(described)

    run(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--dry-run", is_flag=True, help="Show what would be deleted; change nothing.")
@namesrv_option
def delete(name: str, dry_run: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """Delete TOPIC with all its messages.

    \b
    Examples:
      rocketrio topic delete orders --dry-run
      rocketrio topic delete orders
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            if dry_run:
                _print(await admin.topic(name))
                return
            brokers = await admin.delete_topic(name)
        click.echo(f"deleted {name} on {', '.join(brokers)}")

    run(work, verbose=verbose)


def _as_json(described: TopicDescription) -> dict[str, object]:
    route = described.route
    return {
        "topic": described.topic,
        "brokers": [
            {
                "cluster": broker.cluster,
                "addresses": {str(id_): addr for id_, addr in sorted(broker.broker_addrs.items())},
                **_shape_as_json(data, described.attributes[data.broker_name]),
            }
            for broker in route.broker_datas
            for data in route.queue_datas
            if data.broker_name == broker.broker_name
        ],
        "queues": [
            {
                "broker_name": offsets.queue.broker_name,
                "queue_id": offsets.queue.queue_id,
                "min_offset": offsets.min_offset,
                "max_offset": offsets.max_offset,
            }
            for offsets in described.queues
        ],
    }


def _shape_as_json(data: QueueData, attributes: dict[str, str] | None) -> dict[str, object]:
    return {
        "broker_name": data.broker_name,
        "read_queues": data.read_queue_nums,
        "write_queues": data.write_queue_nums,
        "readable": data.is_readable,
        "writable": data.is_writable,
        "attributes": attributes,
    }


def _print(described: TopicDescription) -> None:
    shapes = {
        data.broker_name: _shape(data, described.attributes[data.broker_name])
        for data in described.route.queue_datas
    }
    for broker in described.route.broker_datas:
        places = ", ".join(f"{id_}={addr}" for id_, addr in sorted(broker.broker_addrs.items()))
        shape = shapes.get(broker.broker_name, "no queues")
        click.echo(
            f"{described.topic} on {broker.broker_name} of {broker.cluster}: {places}; {shape}"
        )
    rows = [
        (offsets.queue.broker_name, offsets.queue.queue_id, offsets.min_offset, offsets.max_offset)
        for offsets in described.queues
    ]
    print_table(("broker_name", "queue_id", "min_offset", "max_offset"), rows)


def _shape(data: QueueData, attributes: dict[str, str] | None) -> str:
    """Describe the number of queues, missing permissions, and the attributes."""
    reads, writes = data.read_queue_nums, data.write_queue_nums
    words = [f"{reads} queues" if reads == writes else f"{reads} queues to read, {writes} to write"]
    if not data.is_readable:
        words.append("may not be read")
    if not data.is_writable:
        words.append("may not be written")
    words += [f"{name}={value}" for name, value in sorted((attributes or {}).items())]
    return ", ".join(words)
