"""The commands `rocketrio message get|find|at|browse|tail`: they read, commit nothing, and make no group."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, reads, streams
from rocketrio.cli.commands import Group
from rocketrio.cli.message_output import list_messages, print_message, show_message
from rocketrio.cli.message_trace import deliver, show_id, status, trace
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.types import (
    PLACE,
    PLACE_HELP,
    QUEUE,
    RANGE,
    RANGE_HELP,
    TIME_HELP,
    TOPIC,
    Time,
    range_to,
)
from rocketrio.places import Place, PlaceRange
from rocketrio_protocol.errors import Error

if TYPE_CHECKING:
    from rocketrio_protocol.message import MessageExt

_COUNT = 20
_BODY_BYTES = 4096
"""The bytes of a body that `get` shows, unless --max-body says otherwise."""


@click.group(cls=Group, most_used=("browse orders --last", "find orders --key A-17", "tail orders"))
def message() -> None:
    """Find and show messages; none is committed or removed.

    \b
    Examples:
      rocketrio message find orders --key A-17
      rocketrio message get 0A0000010007... --topic orders
      rocketrio message browse orders --last --count 5
      rocketrio message tail orders
    """


message.add_command(trace)
message.add_command(status)
message.add_command(deliver)


@message.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", type=TOPIC, help="The topic: ID is then the id that its producer gave.")
@click.option(
    "--max-body",
    type=Whole(0),
    default=_BODY_BYTES,
    show_default=True,
    help="Bytes of the body to show.",
)
@click.option(
    "--decode-only", is_flag=True, help="Only show what is inside the id, without a cluster."
)
@reads
async def get(
    call: Call, message_id: str, topic: str | None, max_body: int, decode_only: bool
) -> None:
    """Show one message with all its properties.

    Without --topic, ID is the offset id, which contains broker and position. With it, ID is the id of the producer,
    which brokers find by their index.

    \b
    Examples:
      rocketrio message get 7F00000100002A9F0000000000000000
      rocketrio message get AC1100020007... --topic orders --json
      rocketrio message get AC1100020007... --decode-only
    """
    if decode_only:
        show_id(message_id, call.output)
        return

    async with call.asking("looking for the message"):
        if topic is None:
            found = [await call.admin.view_message(message_id)]
        else:
            found = await call.admin.query_message(topic, message_id, is_unique_id=True)
    if not found:
        raise Error(f"no broker of {topic} knows the message {message_id}")
    # A producer that sends again stores a message twice, under one id.
    show_message(call.output, found, max_body)


@message.command()
@click.argument("topic", type=TOPIC)
@click.option("--key", required=True, help="One of the keys of the messages.")
@click.option("--from", "since", type=Time(), help=f"Stored then or later, {TIME_HELP}.")
@click.option("--to", "until", type=Time(), help=f"Stored then or earlier, {TIME_HELP}.")
@click.option("-n", "--count", type=Whole(1), default=_COUNT, show_default=True, help="At most.")
@reads
async def find(
    call: Call, topic: str, key: str, since: datetime | None, until: datetime | None, count: int
) -> None:
    """List the messages of TOPIC that have a key.

    Brokers find keys by an index that forgets the oldest messages first.

    \b
    Example:
      rocketrio message find orders --key A-17 --from 2026-11-21T08:00
    """
    async with call.asking(f"looking in {topic}"):
        found = await call.admin.query_message(
            topic, key, max_messages=count + 1, begin_time=since, end_time=until
        )
    list_messages(call.output, found[:count])
    if not found:
        click.echo(f"no broker finds a message of {topic} with the key {key!r}", err=True)
    if len(found) > count:
        click.echo(f"the first {count:,} of more; --count shows more", err=True)


@message.command()
@click.argument("topic", type=TOPIC)
@click.argument("queue", type=QUEUE, metavar="BROKER/QUEUE")
@click.argument("offset", type=Whole(0))
@click.option("-n", "--count", type=Whole(1), default=1, show_default=True, help="At most.")
@reads
async def at(call: Call, topic: str, queue: tuple[str, int], offset: int, count: int) -> None:
    """List the messages at OFFSET of a queue, and after it.

    \b
    Example:
      rocketrio message at orders broker-a/3 1204 --count 5
    """
    async with call.asking(f"reading {topic}"):
        found = await call.admin.messages(topic, broker_name=queue[0], queue_id=queue[1]).at(
            offset, count
        )
    if not found:
        raise Error(f"queue {queue[1]} of {queue[0]} has no message at {offset} or after it")
    if found[0].queue_offset > offset:
        first = found[0].queue_offset
        click.echo(f"the messages before {first} are deleted", err=True)
    list_messages(call.output, found)


@message.command()
@click.argument("topic", type=TOPIC)
@click.option("--from", "since", type=RANGE, default="first", help=f"From there on: {RANGE_HELP}.")
@click.option("--to", "until", type=PLACE, help="Up to there, without it: as --from.")
@click.option("--queue", type=QUEUE, help="Only this queue.")
@click.option("-n", "--count", type=Whole(1), default=_COUNT, show_default=True, help="At most.")
@click.option("--last", is_flag=True, help="The newest instead of the oldest.")
@reads
async def browse(
    call: Call,
    topic: str,
    since: PlaceRange,
    until: Place | None,
    queue: tuple[str, int] | None,
    count: int,
    last: bool,
) -> None:
    """List messages of TOPIC in the order of storing, the oldest first.

    \b
    Examples:
      rocketrio message browse orders --last --count 5
      rocketrio message browse orders --from 2026-11-21T08:00 --to 2026-11-21T08:05
      rocketrio message browse orders --from -10 --queue broker-a/3
      rocketrio message browse orders --from 1200:1210 --queue broker-a/3
      rocketrio message browse orders --from -1h -f '%d{strftime[%T]} %k %v\\n'
    """
    broker_name, queue_id = queue or (None, None)
    where = range_to(since, until)

    async with call.asking(f"reading {topic}"):
        messages = call.admin.messages(topic, broker_name=broker_name, queue_id=queue_id)
        read = messages.last if last else messages.first
        found = await read(count, since=where.start, until=where.end)
    list_messages(call.output, found.messages)
    if found.in_all > len(found.messages):
        which = "last" if last else "first"
        click.echo(
            f"the {which} {len(found.messages):,} of {found.in_all:,}; --count shows more",
            err=True,
        )


@message.command()
@click.argument("topic", type=TOPIC)
@click.option("--from", "since", type=PLACE, help=f"Begin there: {PLACE_HELP}.")
@click.option("--queue", type=QUEUE, help="Only this queue.")
@streams
async def tail(call: Call, topic: str, since: Place | None, queue: tuple[str, int] | None) -> None:
    """Show the messages of TOPIC as they are stored, until Ctrl-C: a line each, the body last.

    \b
    Example:
      rocketrio message tail orders --json | jq .body
    """
    call.is_endless = True
    broker_name, queue_id = queue or (None, None)

    messages = call.admin.messages(topic, broker_name=broker_name, queue_id=queue_id)
    async with messages.follow(since=since) as pages:
        async for page in pages:
            for one in page:
                print_message(call.output, one, _line(one, call.output))


def _line(one: MessageExt, output: Output) -> str:
    where = f"{one.broker_name}/{one.queue_id} {one.queue_offset}"
    problem = one.body_error
    body = f"({problem})" if problem else one.body.decode("utf-8", "backslashreplace")
    return f"{output.time(one.store_time, timespec='milliseconds')} {where} {body}"
