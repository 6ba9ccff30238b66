"""The command `rocketrio consume`."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from rocketrio.cli.call import Call, sends
from rocketrio.cli.commands import Command
from rocketrio.cli.format_strings import Printer, message_printer
from rocketrio.cli.json_values import json_text
from rocketrio.cli.message_output import body_fields, message_row, warn_of_unreadable
from rocketrio.cli.numbers import Whole
from rocketrio.cli.outages import reporting_outages
from rocketrio.cli.progress import showing_progress, writes_to_file
from rocketrio.cli.types import GROUP, PLACE, RANGE, RANGE_HELP, TOPIC, Template, range_to
from rocketrio.counts import counted
from rocketrio.queue_positions import FIRST, LAST, AtTime, Place, PlaceRange
from rocketrio_protocol.errors import Error
from rocketrio_protocol.log_lines import visible
from rocketrio_protocol.times import nearest_time

if TYPE_CHECKING:
    from rocketrio.client import ClientInstance

if TYPE_CHECKING:
    from rocketrio.consuming.consumer import Consumer
    from rocketrio.consuming.consumer_options import StartFrom
    from rocketrio_protocol.message import MessageExt, MessageQueue


@click.command(cls=Command)
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--group", type=GROUP, required=True, help="The consumer group: it shares queues and progress."
)
@click.option("--tags", help="Only messages with one of these tags: `a || b`.")
@click.option(
    "--from",
    "start",
    type=RANGE,
    default="first",
    show_default=True,
    help=f"Where a group begins that never committed; others continue: {RANGE_HELP}.",
)
@click.option("--to", "until", type=PLACE, help="End before there, in each queue: as --from.")
@click.option("-n", "--count", type=Whole(1), help="End after this many messages.")
@click.option(
    "--until-caught-up",
    is_flag=True,
    help="End when all messages that were there at the start are consumed.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON object per line: topic, broker_name, queue_id, queue_offset, keys, tags, body.",
)
@click.option(
    "-f",
    "--format",
    "template",
    type=Template(),
    help="Print each message so, as '%d{iso} %t %k %v\\n'; docs/commands.md has the letters.",
)
@sends
async def consume(
    call: Call,
    topic: str,
    group: str,
    tags: str | None,
    start: PlaceRange,
    until: Place | None,
    count: int | None,
    until_caught_up: bool,
    as_json: bool,
    template: str | None,
) -> None:
    """Print the messages of TOPIC, one body per line, and commit what was printed.

    Ends with --count, --to, --until-caught-up or Ctrl-C; the next run of the group continues from there. With --json a
    body that is not UTF-8 is printed as base64, with `"encoding": "base64"` in the object; keys and tags that a message
    lacks are null. A body that cannot be read is null, with the reason in `body_error`; without --json standard error
    names it. While a broker cannot be reached, standard error says so. If the messages go to a file, it ends with
    their number.

    \b
    Examples:
      rocketrio consume orders --group billing
      rocketrio consume orders --group billing --tags 'paid || refunded' --count 10
      rocketrio consume orders --group billing --until-caught-up --json
      rocketrio consume orders --group billing --from -1h -f '%d{strftime[%T]} %k %v\\n'
      rocketrio consume orders --group audit --from @2026-11-21:2026-11-22
    """
    from rocketrio.admin.browse import TopicMessages
    from rocketrio.admin.cluster_questions import readable_queues
    from rocketrio.connect import open_client

    if as_json and template is not None:
        raise click.UsageError("give --json or --format, not both")
    where = range_to(start, until)
    if until_caught_up and where.end is not None:
        raise click.UsageError("give --until-caught-up or an end, not both")
    source = click.get_current_context().get_parameter_source("start")
    is_given = source is not ParameterSource.DEFAULT
    goal = LAST if until_caught_up else where.end
    to_file = writes_to_file()
    call.is_endless = goal is None and count is None
    async with (
        open_client(**call.client) as shared,
        _opened(shared, topic, group, tags, where.start, is_given=is_given) as consumer,
    ):
        printer = _Printer(_json_line if as_json else _body_line, template)
        shows_count = to_file
        try:
            # For a topic that may not be read the consumer would wait for ever, or find nothing and end.
            queues = await readable_queues(consumer.client, topic)
            async with (
                reporting_outages(consumer.client, topic, writes=False),
                showing_progress(
                    f"consuming {topic}", lambda: printer.printed, total=count, when=to_file
                ),
            ):
                if goal is None:
                    await _forever(consumer, printer, count)
                else:
                    messages = TopicMessages(shared, topic)
                    ends = {queue: await messages.offset_of(queue, goal) for queue in queues}
                    await _until(consumer, printer, count, ends)
            consumer._settle()
        except OSError:  # The output: there is nothing to count.
            shows_count = False
            raise
        finally:
            await _commit(consumer)
            if shows_count:
                click.echo(f"consumed {counted(printer.printed, 'message')}", err=True)


@asynccontextmanager
async def _opened(
    client: ClientInstance,
    topic: str,
    group: str,
    tags: str | None,
    start: Place,
    *,
    is_given: bool,
) -> AsyncGenerator[Consumer]:
    """Open a consumer that begins at a place where its group never committed; report where a given one is not used."""
    from rocketrio.admin.cluster_questions import committed_in, readable_queues
    from rocketrio.consuming.consume import open_consumer

    start_from: StartFrom = "earliest"
    if isinstance(start, AtTime):
        start_from = nearest_time(start.time_ms)
    if is_given:
        answers = await committed_in(client, group, await readable_queues(client, topic))
        committed = [answer for answer in answers.values() if isinstance(answer, int)]
        if committed:
            where = f"{len(committed)} of {len(answers)} queues of {topic}"
            click.echo(
                f"note: {group} has committed in {where} and continues there, whatever --from says; "
                "`rocketrio offsets reset` moves it",
                err=True,
            )
        if start != FIRST and not isinstance(start, AtTime):
            await _commit_start(client, topic, group, answers, start)
    async with open_consumer(
        topic, group=group, tags=tags, start_from=start_from, client=client
    ) as consumer:
        yield consumer


async def _commit_start(
    client: ClientInstance,
    topic: str,
    group: str,
    committed: Mapping[MessageQueue, int | Error | None],
    start: Place,
) -> None:
    """Commit a place where nothing is committed: members know only the first message and times as beginnings."""
    from rocketrio.admin.admin import open_admin

    for answer in committed.values():
        if isinstance(answer, Error):  # Its queue may have an offset, which must not be replaced.
            raise answer
    async with open_admin(client=client) as admin:
        messages = admin.messages(topic)
        targets = {
            queue: await messages.offset_of(queue, start)
            for queue, offset in committed.items()
            if offset is None
        }
        await admin.reset_offsets(group, targets)


async def _commit(consumer: Consumer) -> None:
    # Leaving the consumer's block commits too, but only logs a failure.
    import trio

    from rocketrio.consuming.composing import COMMIT_GRACE

    with trio.move_on_after(COMMIT_GRACE, shield=True):
        errors = await consumer._commit_done()
        if not errors:
            return
        raise Error(
            f"the messages printed last are not committed, and the group reads them again: {errors[0]}"
        )
    raise Error(
        f"no broker confirmed the commit of the printed messages within {COMMIT_GRACE:.0f} s"
    )


class _Printer:
    """Writes messages to standard output, in a thread because the reader may be slow.

    Invariant: `write` returns once the last byte has left the process, so that the printed messages may be committed.
    """

    def __init__(self, line: Callable[[MessageExt], bytes], template: str | None) -> None:

        self.printed = 0
        self._template = template
        self._warns = line is not _json_line
        self._line: Printer = lambda message, number: line(message)
        if template is not None:
            self._line = message_printer(template, message_row)

    async def write(self, messages: list[MessageExt]) -> None:
        import trio

        first = self.printed + 1
        data = b"".join(
            [self._line(message, number) for number, message in enumerate(messages, first)]
        )
        await trio.to_thread.run_sync(self._write, data)
        if self._warns:
            warn_of_unreadable(messages, self._template)
        self.printed += len(messages)

    @staticmethod
    def _write(data: bytes) -> None:
        # Not to a terminal as they are: bodies may have been written to steer it.
        if sys.stdout.isatty():
            data = visible(data.decode("utf-8", "backslashreplace")).encode()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _body_line(message: MessageExt) -> bytes:
    """Return the body as a line; nothing for one that cannot be read, which is named on standard error."""
    return b"" if message.body_error is not None else message.body + b"\n"


def _json_line(message: MessageExt) -> bytes:
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "keys": message.keys or None,
        "tags": message.tags,
        **body_fields(message),
    }
    return json_text(fields).encode() + b"\n"


def _room(printer: _Printer, count: int | None) -> int:
    from rocketrio.consuming.consumer import BATCH_MAX_MESSAGES

    return BATCH_MAX_MESSAGES if count is None else min(BATCH_MAX_MESSAGES, count - printer.printed)


async def _forever(consumer: Consumer, printer: _Printer, count: int | None) -> None:
    while room := _room(printer, count):
        await printer.write(await consumer.receive_batch(room))


async def _until(
    consumer: Consumer, printer: _Printer, count: int | None, ends: Mapping[MessageQueue, int]
) -> None:
    """Print what lies below the ends; what was received beyond them is given back, for the group's next run."""
    from rocketrio.consuming.redelivered import RedeliveredMessage

    queues = {(queue.broker_name, queue.queue_id): queue for queue in ends}

    def passed(message: MessageExt) -> MessageQueue | None:
        """Return the queue whose end lies before a message."""
        queue = queues.get((message.broker_name, message.queue_id))
        # One that comes again is from the group's retry topic, which is read whatever the end.
        if queue is None or isinstance(message, RedeliveredMessage):
            return None
        return queue if message.queue_offset >= ends[queue] else None

    received = consumer.until_caught_up(lambda: consumer.receive_batch(_room(printer, count)), ends)
    async with aclosing(received) as batches:
        async for messages in batches:
            await printer.write([message for message in messages if passed(message) is None])
            for queue in {queue for message in messages if (queue := passed(message))}:
                consumer.seek(queue, ends[queue])
                consumer.pause([queue])
            if not _room(printer, count):
                return
