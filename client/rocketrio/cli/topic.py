"""The commands `rocketrio topic create|list|show|delete`; `topic_tables.py` has the others."""

from typing import Any, Final

import click

from rocketrio.admin.admin import MAX_QUEUES, Admin, open_admin
from rocketrio.admin.admin_values import TopicDescription
from rocketrio.admin.topic_admin import MESSAGE_TYPE, readers_of, topic_overviews
from rocketrio.cli.asking import asking
from rocketrio.cli.commands import Group
from rocketrio.cli.common import (
    TOPIC,
    changes,
    client_options,
    may_be_lost,
    reads,
    run,
    run_in_part,
    without_bounds,
)
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.say import say
from rocketrio.cli.topic_tables import (
    LONG,
    PERMISSIONS,
    groups,
    order,
    overview_row,
    perm,
    stats,
)
from rocketrio.connect import ClientOptions
from rocketrio.counts import counted, plural
from rocketrio.producing.outgoing import DEFAULT_TOPIC_QUEUE_NUMS
from rocketrio_protocol.bodies.route import QueueData
from rocketrio_protocol.errors import Error, NoBrokerRegisteredError, RouteNotFoundError

_TYPES: Final = ("normal", "fifo", "delay", "transaction")


def _read_attributes(
    context: click.Context, parameter: click.Parameter, texts: tuple[str, ...]
) -> dict[str, str | None]:
    """Return the attributes by name; None for one without a value, which is to be removed."""
    return {name: value or None for name, _, value in (text.partition("=") for text in texts)}


@click.group(cls=Group, most_used=("list --long", "show orders", "create orders --queues 8"))
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
    type=Whole(1, MAX_QUEUES),
    help=f"Queues on each broker; {DEFAULT_TOPIC_QUEUE_NUMS} for a new topic.",
)
@click.option(
    "--perm",
    type=click.Choice(sorted(PERMISSIONS)),
    help="Permissions: read, write, both or none; both for a new topic.",
)
@click.option(
    "--order/--no-order",
    default=None,
    help="Whether it is an ordered topic: kept by brokers, 4.9 ignores it. See `topic order`.",
)
@click.option(
    "--message-type",
    type=click.Choice(_TYPES),
    help="What it is for (RocketMQ 5): a short form of --attribute message.type=....",
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
@changes
@client_options
def create(
    name: str,
    queues: int | None,
    perm: str | None,
    order: bool | None,
    message_type: str | None,
    attributes: dict[str, str | None],
    cluster: str | None,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Create TOPIC, or change the given settings of it.

    With fewer queues than before, the messages of the others are hidden.

    \b
    Examples:
      rocketrio topic create orders
      rocketrio topic create orders --queues 8 --cluster DefaultCluster
      rocketrio topic create %DLQ%billing --perm rw
      rocketrio topic create payments --message-type fifo
    """
    if message_type is not None:
        if MESSAGE_TYPE in attributes:
            raise click.UsageError(f"give --message-type or --attribute {MESSAGE_TYPE}, not both")
        attributes[MESSAGE_TYPE] = message_type.upper()

    async def work() -> None:
        async with open_admin(**client) as admin:
            made = await admin.create_topic(
                name,
                queues=queues,
                perm=None if perm is None else int(PERMISSIONS[perm]),
                order=order,
                cluster=cluster,
                attributes=attributes,
                dry_run=dry_run,
            )
        shapes = [
            QueueData(broker, config.read_queue_nums, config.write_queue_nums, config.perm)
            for broker, config in made.items()
        ]
        rows = [_shape_as_json(shape, made[shape.broker_name].attributes) for shape in shapes]
        would = "would be " if dry_run else ""
        output.show(
            rows,
            document=lambda rows: {"topic": name, "brokers": rows},
            people=[
                f"{name} on {shape.broker_name}: {would}{_shape(shape, made[shape.broker_name].attributes)}"
                for shape in shapes
            ],
        )

    run(work, verbose=verbose)


topic.add_command(perm)
topic.add_command(order)
topic.add_command(groups)
topic.add_command(stats)


@topic.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system and retry topics.")
@click.option(
    "--long", "is_long", is_flag=True, help="With queues, messages, rates and groups of each."
)
@reads
@client_options
def list_topics(
    include_system: bool, is_long: bool, output: Output, client: ClientOptions, verbose: int
) -> None:
    """List topics, one name per line; with --long a table, for which every master is asked about each.

    \b
    Examples:
      rocketrio topic list
      rocketrio topic list --long --sort -messages_per_second
      rocketrio topic list --all --json
    """

    async def work(silent: dict[str, str]) -> None:
        async with asking("asking about topics", client) as admin:
            if is_long:
                found, without = await topic_overviews(admin, include_system=include_system)
                silent.update(without)
            else:
                names = await admin.topics(include_system=include_system)
        if is_long:
            output.show([overview_row(one) for one in found], LONG)
        else:
            output.show([{"topic": name} for name in names], people=names)

    run_in_part(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@reads
@client_options
def show(name: str, output: Output, client: ClientOptions, verbose: int) -> None:
    """Show which brokers have TOPIC and the offsets of its queues.

    \b
    Examples:
      rocketrio topic show orders
      rocketrio topic show orders --json
    """

    async def work(silent: dict[str, str]) -> None:
        async with asking(f"asking about {name}", client) as admin:
            described = await admin.topic(name)
        _show(described, output)
        silent.update(without_bounds(described.queues))

    run_in_part(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@changes
@client_options
def delete(name: str, dry_run: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """Delete TOPIC with all its messages. In a terminal it asks first, and says what is lost.

    \b
    Examples:
      rocketrio topic delete orders --dry-run
      rocketrio topic delete orders
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            if dry_run:
                _show(await admin.topic(name), output)
                return
            messages, groups = await _content(admin, name)
            lost = "an unknown number of messages"
            if messages is not None:
                lost = counted(sum(messages.values()), "message")
            if groups:
                lost += f", which {', '.join(groups)} {'reads' if len(groups) == 1 else 'read'}"
            await may_be_lost(f"{name} has {lost}; they are lost with it")
            brokers = await admin.delete_topic(name)
        output.show(
            [
                {
                    "topic": name,
                    "broker_name": broker,
                    "messages": None if messages is None else messages.get(broker, 0),
                }
                for broker in brokers
            ],
            people=f"deleted {name} on {', '.join(brokers)}: {lost}",
        )

    run(work, verbose=verbose)


async def _content(admin: Admin, name: str) -> tuple[dict[str, int] | None, list[str]]:
    """Return the messages of a topic on each broker, None if they are not known, and the groups that read it."""
    messages: dict[str, int] = {}
    try:
        for one in (await admin.topic(name)).queues:
            if one.max_offset is None or one.min_offset is None:
                return None, []
            broker = one.queue.broker_name
            messages[broker] = messages.get(broker, 0) + one.max_offset - one.min_offset
        # A topic that may not be read reports no queues.
        return messages or None, sorted(await readers_of(admin, name))
    except NoBrokerRegisteredError:
        raise
    except RouteNotFoundError as error:
        remedy = "`rocketrio topic list` shows what there is to delete"
        raise RouteNotFoundError(error.what, topic=name, remedy=remedy) from error
    except Error:  # The right to delete does not need the right to read.
        return None, []


def _as_json(described: TopicDescription) -> dict[str, Any]:
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


def _show(described: TopicDescription, output: Output) -> None:
    shapes = {
        data.broker_name: _shape(data, described.attributes[data.broker_name])
        for data in described.route.queue_datas
    }
    if output.for_people:
        for broker in described.route.broker_datas:
            places = ", ".join(f"{id_}={addr}" for id_, addr in sorted(broker.broker_addrs.items()))
            shape = shapes.get(broker.broker_name, "no queues")
            say(f"{described.topic} on {broker.broker_name} of {broker.cluster}: {places}; {shape}")
    document = _as_json(described)
    output.show(document["queues"], document=lambda queues: {**document, "queues": queues})


def _shape(data: QueueData, attributes: dict[str, str] | None) -> str:
    """Describe the number of queues, missing permissions, and the attributes."""
    reads, writes = data.read_queue_nums, data.write_queue_nums
    words = [f"{reads} {plural(reads, 'queue')}"]
    if reads != writes:
        words = [f"{reads} {plural(reads, 'queue')} to read, {writes} to write"]
    if not data.is_readable:
        words.append("may not be read")
    if not data.is_writable:
        words.append("may not be written")
    words += [f"{name}={value}" for name, value in sorted((attributes or {}).items())]
    return ", ".join(words)
