"""The commands `rocketrio message trace|status|deliver`: what happened to one message, and its delivery to a member."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, changes, reads
from rocketrio.cli.columns import Column, Row, dashed
from rocketrio.cli.commands import Command
from rocketrio.cli.output import Output
from rocketrio.cli.say import warn
from rocketrio.cli.shell import fail
from rocketrio.cli.types import GROUP, TOPIC
from rocketrio.counts import counted
from rocketrio_protocol.errors import Error, LocalProtocolError
from rocketrio_protocol.names import TRACE_TOPIC

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.message_trace import MessageTrace, TraceStep
    from rocketrio_protocol.message import MessageExt

_WATCH_EVERY = 2.0
"""Seconds between two looks at a trace: clients send theirs within a second or five."""


@click.command(cls=Command)
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

    from rocketrio.admin.message_admin import message_trace

    async def look() -> MessageTrace:
        return await message_trace(call.admin, message_id, topic=topic, trace_topic=trace_topic)

    call.is_endless = watch
    async with call.asking("looking for traces", when=not watch):
        found = await look()
        shown: set[TraceStep] = set()
        while watch:
            for step in found.steps:
                if step not in shown:
                    call.output.line(_row(step), _line(step, call.output))
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
        [_row(step) for step in found.steps],
        (
            Column("time", cell=lambda row: output.time(row["time"], timespec="milliseconds")),
            "what",
            "group",
            dashed("client_host"),
            dashed("where"),
            dashed("milliseconds", "ms"),
            "result",
        ),
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


def _row(step: TraceStep) -> dict[str, object]:
    return {
        "time": step.time,
        "what": step.what,
        "group": step.group,
        "client_host": step.client_host,
        "where": step.where,
        "milliseconds": step.milliseconds,
        "result": step.result,
    }


def _line(step: TraceStep, output: Output) -> str:
    parts = [
        output.time(step.time, timespec="milliseconds"),
        step.what,
        step.group or "unknown",
        step.client_host or step.where or "",
        step.result,
    ]
    return "  ".join(part for part in parts if part)


# -------------------------------------------------------------------------------------------- status


@click.command(cls=Command)
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
    from rocketrio.admin.message_admin import message_status

    message = await found_message(call.admin, message_id, topic)
    tracks = await message_status(call.admin, message, group=group)
    call.output.show(
        [
            {
                "group": one.group,
                "status": one.status,
                "committed_offset": one.committed_offset,
                "queue_offset": message.queue_offset,
                "why": one.why,
            }
            for one in tracks
        ],
        ("group", "status", "why"),
        people=None if tracks else f"no group reads {message.topic}",
    )


# ------------------------------------------------------------------------------------------ delivery


@click.command(cls=Command)
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
    from rocketrio.admin.message_admin import deliver as deliver_to

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
    result = await deliver_to(call.admin, message, group, client_id)
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
    from rocketrio.admin.id_parts import id_parts

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
