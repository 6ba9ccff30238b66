"""The commands `rocketrio topic ...`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from rocketrio.cli.call import Call, changes, reads, without_bounds
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import Column, dashed, hidden, model_column, rate_column
from rocketrio.cli.commands import Group
from rocketrio.cli.namesrv import change_text
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.say import say
from rocketrio.cli.types import TOPIC
from rocketrio.counts import counted, plural
from rocketrio.limits import DEFAULT_TOPIC_QUEUE_NUMS, MAX_QUEUES
from rocketrio_protocol.errors import (
    ConfigError,
    Error,
    NoBrokerRegisteredError,
    RouteNotFoundError,
)

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.admin_calls import Period
    from rocketrio.admin.topics import TopicDescription
    from rocketrio_protocol.bodies.route import QueueData
    from rocketrio_protocol.bodies.topics import Permission

_OVERVIEW: Final = (
    "topic",
    "queues",
    Column("perm", value=lambda one: _permission_text(one.permission)),
    "brokers",
    "message_type",
    "messages",
    rate_column(
        "messages_per_second",
        "in/s",
        value=lambda one: None if one.per_second is None else round(one.per_second, 3),
    ),
    "last_stored",
    dashed("groups", unknown=True),
)
"""The columns of `topic list --long`."""
_WINDOWS: Final = {"minute": 60, "hour": 3_600, "day": 86_400}
PERMISSIONS: Final = ("none", "r", "rw", "w")
_READERS: Final = ("group", model_column(), "members", "lag", "verdict", "why")
"""The columns of `topic groups`."""
_TYPES: Final = ("normal", "fifo", "delay", "transaction")


def _permission(text: str) -> Permission:
    from rocketrio_protocol.bodies.topics import Permission

    flags = {"r": Permission.READ, "w": Permission.WRITE}
    return Permission(sum(flag for letter, flag in flags.items() if letter in text))


def _permission_text(permission: int | None) -> str | None:
    from rocketrio.admin.topics import permission_text

    return None if permission is None else permission_text(permission)


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
    type=click.Choice(PERMISSIONS),
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
async def create(
    call: Call,
    name: str,
    queues: int | None,
    perm: str | None,
    order: bool | None,
    message_type: str | None,
    attributes: dict[str, str | None],
    cluster: str | None,
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
    from rocketrio.admin.topics import MESSAGE_TYPE
    from rocketrio_protocol.bodies.route import QueueData

    if message_type is not None:
        if MESSAGE_TYPE in attributes:
            raise click.UsageError(f"give --message-type or --attribute {MESSAGE_TYPE}, not both")
        attributes[MESSAGE_TYPE] = message_type.upper()

    made = await call.admin.create_topic(
        name,
        queues=queues,
        perm=None if perm is None else int(_permission(perm)),
        order=order,
        cluster=cluster,
        attributes=attributes,
        dry_run=call.dry_run,
    )
    shapes = [
        QueueData(broker, config.read_queue_nums, config.write_queue_nums, config.perm)
        for broker, config in made.items()
    ]
    rows = [_shape_as_json(shape, made[shape.broker_name].attributes) for shape in shapes]
    would = "would be " if call.dry_run else ""
    call.output.show(
        rows,
        document=lambda rows: {"topic": name, "brokers": rows},
        people=[
            f"{name} on {shape.broker_name}: {would}{_shape(shape, made[shape.broker_name].attributes)}"
            for shape in shapes
        ],
    )


@topic.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Include system and retry topics.")
@click.option(
    "--long", "is_long", is_flag=True, help="With queues, messages, rates and groups of each."
)
@reads
async def list_topics(call: Call, include_system: bool, is_long: bool) -> None:
    """List topics, one name per line; with --long a table, for which every master is asked about each.

    \b
    Examples:
      rocketrio topic list
      rocketrio topic list --long --sort -messages_per_second
      rocketrio topic list --all --json
    """

    async with call.asking("asking about topics"):
        if is_long:
            found, without = await call.admin.topic_overviews(include_system=include_system)
            call.silent.update(without)
        else:
            names = await call.admin.topics(include_system=include_system)
    if is_long:
        call.output.show(found, _OVERVIEW)
    else:
        call.output.show([{"topic": name} for name in names], people=names)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@reads
async def show(call: Call, name: str) -> None:
    """Show which brokers have TOPIC and the offsets of its queues.

    \b
    Examples:
      rocketrio topic show orders
      rocketrio topic show orders --json
    """
    async with call.asking(f"asking about {name}"):
        described = await call.admin.topic(name)
    _show(described, call.output)
    call.silent.update(without_bounds(described.queues))


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@changes
async def delete(call: Call, name: str) -> None:
    """Delete TOPIC with all its messages. In a terminal it asks first, and says what is lost.

    \b
    Examples:
      rocketrio topic delete orders --dry-run
      rocketrio topic delete orders
    """
    if call.dry_run:
        _show(await call.admin.topic(name), call.output)
        return
    messages, groups = await _content(call.admin, name)
    lost = "an unknown number of messages"
    if messages is not None:
        lost = counted(sum(messages.values()), "message")
    if groups:
        lost += f", which {', '.join(groups)} {'reads' if len(groups) == 1 else 'read'}"
    await may_be_lost(f"{name} has {lost}; they are lost with it")
    brokers = await call.admin.delete_topic(name)
    call.output.show(
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
        return messages or None, sorted(await admin.readers_of(name))
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


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.argument("permission", type=click.Choice(PERMISSIONS), metavar="rw|r|w|none")
@click.option("--broker", help="Only on this broker; by default on all that have the topic.")
@changes
async def perm(call: Call, name: str, permission: str, broker: str | None) -> None:
    """Set whether clients may read TOPIC, write to it, both or nothing.

    Clients see it within 30 seconds. `none` hides its messages; they stay until retention deletes them.

    \b
    Examples:
      rocketrio topic perm orders r --dry-run
      rocketrio topic perm orders rw --broker broker-a
    """
    from rocketrio.admin.topics import permission_text

    found = await call.admin.set_topic_permission(
        name, _permission(permission), broker_name=broker, dry_run=call.dry_run
    )
    call.output.show(
        found,
        (
            hidden("topic", lambda one: name),
            "broker_name",
            Column("before", value=lambda one: permission_text(one.before)),
            Column("after", value=lambda one: permission_text(one.after)),
        ),
    )


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.argument("queues", nargs=-1, metavar="[BROKER:QUEUES]...")
@click.option("--remove", is_flag=True, help="The topic has no order any more.")
@changes
async def order(call: Call, name: str, queues: tuple[str, ...], remove: bool) -> None:
    """Fix the queues of an ordered topic at the name servers, show them, or remove that.

    Clients then use exactly these queues, also while a broker is away: a key stays in its queue, and sends to a broker
    that is away fail. A name server tells clients only with its setting orderMessageEnable.

    \b
    Examples:
      rocketrio topic order orders
      rocketrio topic order orders broker-a:4 broker-b:4
      rocketrio topic order orders --remove
    """
    from rocketrio.admin.name_servers import ORDER_NAMESPACE, order_text

    if queues and remove:
        raise click.UsageError("give queues or --remove, not both")
    if queues or remove:
        value = None if remove else order_text(_queues(queues))
        await change_text(call, ORDER_NAMESPACE, name, value)
        return
    found = await call.admin.name_server_texts(ORDER_NAMESPACE)
    rows = []
    for address, table in found.items():
        if isinstance(table, Error):
            call.silent[address] = table.what
        elif name in table:
            rows.append({"address": address, "key": name, "value": table[name]})
    people = None if rows else f"the queues of {name} are not fixed"
    call.output.show(rows, ("address", "key", "value"), people=people)


def _queues(given: tuple[str, ...]) -> Mapping[str, int]:
    from rocketrio.admin.name_servers import order_text

    found: dict[str, int] = {}
    for text in given:
        broker_name, colon, count = text.rpartition(":")
        if not colon or not broker_name or not count.isdecimal():
            raise click.UsageError(f"{text!r} is not BROKER:QUEUES, as broker-a:4")
        if broker_name in found:
            raise click.UsageError(f"{broker_name} is named twice")
        found[broker_name] = int(count)
    try:
        order_text(found)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return found


# -------------------------------------------------------------------------------------------- tables


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--online", is_flag=True, help="Only groups that have members now.")
@reads
async def groups(call: Call, name: str, online: bool) -> None:
    """List the groups that read TOPIC, with their lag and whether it is a problem.

    The verdict is that of the brokers' last minute; `rocketrio lag` looks for longer.

    \b
    Example:
      rocketrio topic groups orders --online
    """

    async with call.asking(f"asking about {name}"):
        found = await call.admin.topic_readers(name)
    shown = [one for one in found if one.members or not online]
    people = None if shown else f"no group reads {name}"
    call.output.show(shown, _READERS, people=people)


@topic.command()
@click.argument("name", type=TOPIC, metavar="[TOPIC]", required=False)
@click.option(
    "--window",
    type=click.Choice(list(_WINDOWS)),
    default="minute",
    show_default=True,
    help="The time that brokers counted. Apache's hours and days contain finished periods only.",
)
@reads
async def stats(call: Call, name: str | None, window: Period) -> None:
    """Show how many messages are stored in TOPIC, or in each topic, and how many each group reads, in a second.

    A row without a group is what was stored. `today` is the sum of the last 24 hours. Groups that only a broker knows
    that does not answer are missing.

    \b
    Examples:
      rocketrio topic stats orders
      rocketrio topic stats --window hour --sort -messages_per_second
    """

    async with call.asking("asking about topics"):
        names = [name] if name is not None else await call.admin.topics()
        found, without = await call.admin.topic_counts_and_failures(names, period=window)
    call.silent.update(without)

    def per_second(count: int | None) -> float | None:
        return None if count is None else round(count / _WINDOWS[window], 3)

    columns = (
        "topic",
        dashed("group"),
        rate_column(
            "messages_per_second", "messages/s", value=lambda one: per_second(one.messages)
        ),
        rate_column("bytes_per_second", "bytes/s", value=lambda one: per_second(one.bytes)),
        hidden("messages"),
        Column("messages_today", "today"),
    )
    call.output.show(found, columns)
