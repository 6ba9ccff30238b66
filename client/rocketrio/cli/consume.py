"""The command `rocketrio consume`."""

import base64
import json
import sys
from contextlib import aclosing
from typing import Any

import click
import trio

from rocketrio.admin.cluster_questions import readable_queues
from rocketrio.cli.common import (
    GROUP,
    TIME_EXAMPLE,
    TIME_HELP,
    TOPIC,
    namesrv_option,
    run,
    time_of,
)
from rocketrio.cli.outages import telling_outages
from rocketrio.consuming.consume import open_consumer
from rocketrio.consuming.consumer import BATCH_MAX_MESSAGES, Consumer
from rocketrio.consuming.consumer_parts import COMMIT_GRACE
from rocketrio.consuming.fetch import StartFrom
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import MessageExt


class _Start(click.ParamType[StartFrom]):
    name = "start"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> StartFrom:
        if value == "earliest" or value == "latest":
            return "earliest" if value == "earliest" else "latest"
        try:
            return time_of(str(value))
        except ValueError:
            self.fail(
                f"{value!r} is neither earliest, latest nor a time like {TIME_EXAMPLE}", param, ctx
            )


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--group", type=GROUP, required=True, help="The consumer group: it shares queues and progress."
)
@click.option("--tags", help="Only messages with one of these tags: `a || b`.")
@click.option(
    "--from",
    "start_from",
    type=_Start(),
    metavar="earliest|latest|TIME",
    default="earliest",
    show_default=True,
    help=f"Where a group begins that never committed; a time is {TIME_HELP}.",
)
@click.option("--count", type=click.IntRange(1), help="End after this many messages.")
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
@namesrv_option
def consume(
    topic: str,
    group: str,
    tags: str | None,
    start_from: StartFrom,
    count: int | None,
    until_caught_up: bool,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Print the messages of TOPIC, one body per line, and commit what was printed.

    Ends with --count, --until-caught-up or Ctrl-C; the next run of the group continues from there. With --json a body
    that is not UTF-8 is printed as base64, with `"encoding": "base64"` in the object; keys and tags that a message
    lacks are null. While a broker cannot be reached, standard error says so.

    \b
    Examples:
      rocketrio consume orders --group billing
      rocketrio consume orders --group billing --tags 'paid || refunded' --count 10
      rocketrio consume orders --group billing --until-caught-up --json
    """

    async def work() -> None:
        async with open_consumer(
            topic, group=group, tags=tags, start_from=start_from, name_servers=namesrv
        ) as consumer:
            printer = _Printer(as_json)
            try:
                # For a topic that may not be read the consumer would wait for ever, or find nothing and end.
                await readable_queues(consumer.client, topic)
                async with telling_outages(consumer.client, topic, writes=False):
                    if until_caught_up:
                        await _until_caught_up(consumer, printer, count)
                    else:
                        await _forever(consumer, printer, count)
                consumer.settle()
            finally:
                await _commit(consumer)

    run(work, verbose=verbose, interrupted_is_done=not until_caught_up and count is None)


async def _commit(consumer: Consumer) -> None:
    # Leaving the consumer's block commits too, but only logs a failure.
    with trio.move_on_after(COMMIT_GRACE, shield=True):
        errors = await consumer.commit_done()
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

    def __init__(self, as_json: bool) -> None:
        self.printed = 0
        self._line = _json_line if as_json else _body_line

    async def write(self, messages: list[MessageExt]) -> None:
        data = b"".join([self._line(message) for message in messages])
        await trio.to_thread.run_sync(self._write, data)
        self.printed += len(messages)

    @staticmethod
    def _write(data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


def _body_line(message: MessageExt) -> bytes:
    return message.body + b"\n"


def _json_line(message: MessageExt) -> bytes:
    fields: dict[str, object] = {
        "topic": message.topic,
        "broker_name": message.broker_name,
        "queue_id": message.queue_id,
        "queue_offset": message.queue_offset,
        "keys": message.keys or None,
        "tags": message.tags,
    }
    try:
        fields["body"] = message.body.decode()
    except UnicodeDecodeError:
        fields["body"] = base64.b64encode(message.body).decode()
        fields["encoding"] = "base64"
    return json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _room(printer: _Printer, count: int | None) -> int:
    return BATCH_MAX_MESSAGES if count is None else min(BATCH_MAX_MESSAGES, count - printer.printed)


async def _forever(consumer: Consumer, printer: _Printer, count: int | None) -> None:
    while room := _room(printer, count):
        await printer.write(await consumer.receive_batch(room))


async def _until_caught_up(consumer: Consumer, printer: _Printer, count: int | None) -> None:
    received = consumer.until_caught_up(lambda: consumer.receive_batch(_room(printer, count)))
    async with aclosing(received) as batches:
        async for messages in batches:
            await printer.write(messages)
            if not _room(printer, count):
                return
