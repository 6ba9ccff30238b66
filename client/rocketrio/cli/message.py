"""The commands `rocketrio message ...`; `message_output.py` prints messages."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, changes, reads, streams
from rocketrio.cli.columns import Column, Row, columns_of, dashed, hidden, row_of
from rocketrio.cli.commands import Group
from rocketrio.cli.message_output import list_messages, print_message, show_message
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.say import warn
from rocketrio.cli.shell import fail
from rocketrio.cli.types import (
    GROUP,
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
from rocketrio.counts import counted
from rocketrio.queue_positions import Place, PlaceRange
from rocketrio_protocol.errors import Error, LocalProtocolError
from rocketrio_protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.message_trace import MessageTrace, TraceStep
    from rocketrio_protocol.message import MessageExt

_COUNT = 20
_BODY_BYTES = 4096
"""The bytes of a body that `get` shows, unless --max-body says otherwise."""
_WATCH_EVERY = 2.0
"""Seconds between two looks at a trace: clients send theirs within a second or five."""


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


@message.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", type=TOPIC, help="Its topic, for retries of messages without a trace.")
@click.option(
    "--trace-topic",
    type=TOPIC,
    default=TRACE_TOPIC,
    show_default=True,
    help="Where clients write their traces.",
)
@click.option("--watch", is_flag=True, help="Show what follows too, until Ctrl-C.")
@reads
async def trace(
    call: Call, message_id: str, topic: str | None, trace_topic: str, watch: bool
) -> None:
    """Show what happened to a message: who sent it, who got it, how that ended, where it went then.

    ID is the id that its producer gave. Clients that trace write what they do to a topic: rocketrio's with
    `open_client(trace=True)`, Java's with `enableMsgTrace`. Retries and dead letters come from the brokers, for the
    groups in the trace and those of --topic.

    \b
    Examples:
      rocketrio message trace AC1100020007...
      rocketrio message trace AC1100020007... --topic orders --watch
    """
    import trio

    async def look() -> MessageTrace:
        return await call.admin.message_trace(message_id, topic=topic, trace_topic=trace_topic)

    call.is_endless = watch
    async with call.asking("looking for traces", when=not watch):
        found = await look()
        shown: set[TraceStep] = set()
        while watch:
            for step in found.steps:
                if step not in shown:
                    call.output.line(
                        row_of(step, _steps(call.output)), _step_line(step, call.output)
                    )
                    shown.add(step)
            await trio.sleep(_WATCH_EVERY)
            found = await look()
    _show_trace(found, call.output)


def _show_trace(found: MessageTrace, output: Output) -> None:
    for problem in found.problems:
        warn(problem)
    if found.damaged:
        warn(f"{counted(found.damaged, 'record')} of the trace cannot be read")
    if found.is_cut:
        warn("there may be more: brokers return 64 trace messages at most")
    if not found.steps:
        where = f"no such topic: {TRACE_TOPIC}" if found.trace_topic is None else found.trace_topic
        raise Error(
            f"no trace of {found.message_id} ({where})",
            remedy="Switch on traces in clients; --topic finds retries and dead letters without them",
        )
    output.show(
        found.steps,
        _steps(output),
        document=lambda rows: {
            "message_id": found.message_id,
            "topic": found.topic,
            "trace_topic": found.trace_topic,
            "steps": rows,
            "damaged": found.damaged,
            "is_cut": found.is_cut,
            "problems": list(found.problems),
        },
    )


def _steps(output: Output) -> list[Column]:
    """Return the columns of a trace."""
    return columns_of(
        (
            Column("time", cell=lambda row: output.time(row["time"], timespec="milliseconds")),
            "what",
            "group",
            dashed("client_host"),
            dashed("where"),
            dashed("milliseconds", "ms"),
            "result",
        )
    )


def _step_line(step: TraceStep, output: Output) -> str:
    parts = [
        output.time(step.time, timespec="milliseconds"),
        step.what,
        step.group or "unknown",
        step.client_host or step.where or "",
        step.result,
    ]
    return "  ".join(part for part in parts if part)


# -------------------------------------------------------------------------------------------- status


@message.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", type=TOPIC, help="The topic: ID is then the id that its producer gave.")
@click.option("--group", type=GROUP, help="Only this group.")
@reads
async def status(call: Call, message_id: str, topic: str | None, group: str | None) -> None:
    """Show what each group that reads its topic has done with a message, and why that is known.

    Without --topic, ID is the offset id. CONSUMED: the group has committed beyond it. NOT_CONSUME_YET: not so far.
    CONSUMED_BUT_FILTERED: its members subscribe to other tags. NOT_ONLINE: it has no members. PULL: its members pull
    by themselves. CONSUME_BROADCASTING: its members keep their own offsets. UNKNOWN: a broker did not answer.

    \b
    Examples:
      rocketrio message status 7F00000100002A9F0000000000000000
      rocketrio message status AC1100020007... --topic orders --group billing
    """

    message = await found_message(call.admin, message_id, topic)
    tracks = await call.admin.message_status(message, group=group)
    call.output.show(
        tracks,
        (
            "group",
            "status",
            hidden("committed_offset"),
            hidden("queue_offset", lambda one: message.queue_offset),
            "why",
        ),
        people=None if tracks else f"no group reads {message.topic}",
    )


# ------------------------------------------------------------------------------------------ delivery


@message.command()
@click.argument("message_id", metavar="ID")
@click.option("--topic", type=TOPIC, help="The topic: ID is then the id that its producer gave.")
@click.option("--group", type=GROUP, required=True, help="The group of the member.")
@click.option(
    "--client", "client_id", required=True, help="The member's client id; see `group members`."
)
@changes
async def deliver(
    call: Call, message_id: str, topic: str | None, group: str, client_id: str
) -> None:
    """Have one member of a group handle a message now, and show how its handler ended.

    No offset moves, and nothing is sent back: this is for finding out why a message fails. The exit code is 1 unless
    the handler ended well.

    \b
    Examples:
      rocketrio message deliver 7F00000100002A9F... --group billing --client 10.0.0.9@app-7 --dry-run
      rocketrio message deliver AC1100020007... --topic orders --group billing --client 10.0.0.9@app-7
    """

    message = await found_message(call.admin, message_id, topic)
    where = f"{message.message_id} of {message.topic}"
    if call.dry_run:
        members = await call.admin.consumer_connections(group)
        if client_id not in {one.client_id for one in members.connection_set}:
            raise Error(
                f"{group} has no member {client_id}",
                remedy=f"`rocketrio group members {group}` lists them",
            )
        row = {"group": group, "client_id": client_id, "result": None, "milliseconds": None}
        text = f"{client_id} of {group} would get {where}"
        call.output.show([{**row, "remark": None}], people=text)
        return
    result = await call.admin.deliver(message, group, client_id)
    call.output.show(
        [
            {
                "group": group,
                "client_id": client_id,
                "result": result.consume_result,
                "milliseconds": result.spent_time_mills,
                "remark": result.remark,
            }
        ],
        (
            "client_id",
            "result",
            Column("milliseconds", "ms"),
            dashed("remark"),
        ),
    )
    if result.consume_result not in ("CR_SUCCESS", "CR_COMMIT"):
        fail(f"the handler of {client_id} did not end well")


def show_id(message_id: str, output: Output) -> None:
    """Print what is inside an id: `message get --decode-only`."""
    from rocketrio.admin.messages import id_parts

    try:
        parts = id_parts(message_id, datetime.now(UTC))
    except LocalProtocolError as error:
        raise click.UsageError(str(error)) from error
    rows: list[Row] = [
        {"read_as": "offset id", "address": parts.broker_address, "offset": parts.physical_offset,
         "process_id": None, "created": None},
        {"read_as": "producer's id", "address": parts.producer_host, "offset": None,
         "process_id": parts.process_id, "created": parts.created},
    ]  # fmt: skip
    output.show(
        [row for row in rows if row["address"] is not None],
        (
            "read_as",
            "address",
            dashed("offset"),
            dashed("process_id"),
            Column("created", cell=lambda row: _created(row["created"], output)),
        ),
    )


def _created(time: datetime | None, output: Output) -> str:
    return "-" if time is None else output.time(time, timespec="milliseconds")


async def found_message(admin: Admin, message_id: str, topic: str | None) -> MessageExt:
    """Return the message of an offset id, or with a topic the first with its producer's id. Raises Error."""
    if topic is None:
        return await admin.view_message(message_id)
    found = await admin.query_message(topic, message_id, is_unique_id=True)
    if not found:
        raise Error(f"no broker of {topic} knows the message {message_id}")
    return found[0]
