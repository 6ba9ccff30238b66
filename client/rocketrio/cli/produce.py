"""The command `rocketrio produce`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypeAlias

import click

from rocketrio.cli.call import Call, sends
from rocketrio.cli.commands import Command
from rocketrio.cli.format_strings import RecordReader
from rocketrio.cli.json_values import json_text
from rocketrio.cli.numbers import Whole
from rocketrio.cli.outages import reporting_outages
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import one_line, say
from rocketrio.cli.shell import fail
from rocketrio.cli.types import TOPIC, Template
from rocketrio.counts import counted, plural
from rocketrio.limits import MAX_MESSAGE_SIZE
from rocketrio.producing.delays import DELAY_LEVELS
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import Message

if TYPE_CHECKING:
    from rocketrio.producing.pipeline import SendPipeline
    from rocketrio.producing.send_result import SendStatus

DEFAULT_SIZE: Final = 128
ANSWERS: Final = ("commit", "rollback", "unknown")
"""As the states of `TransactionState`, which is imported only to answer."""
REASONS_SHOWN: Final = 10
"""The largest number of reasons that are printed: one for each queue, and a few more."""
RANGES_SHOWN: Final = 20
"""The largest number of ranges of line numbers for each reason."""
RECORD_SIZE_MAX: Final = 4 * MAX_MESSAGE_SIZE
"""Bytes of a record of --format: a body may be written in hexadecimal digits, or escaped."""
Record: TypeAlias = Mapping[str, bytes]
"""The fields of a message by their letter in a format string."""
_TOO_LONG: Final = f"a line is longer than the {MAX_MESSAGE_SIZE} bytes a message may have"
_READ_SIZE: Final = 64 * 1024
_PRINTABLE: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def _shown_delay(delay: timedelta) -> str:
    seconds = int(delay.total_seconds())
    unit, name = next(one for one in ((3600, "h"), (60, "m"), (1, "s")) if seconds % one[0] == 0)
    return f"{seconds // unit}{name}"


DELAYS: Final = {_shown_delay(delay): level for level, delay in enumerate(DELAY_LEVELS, 1)}


@click.command(cls=Command)
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("-n", "--count", type=Whole(1), help="Send this many generated messages instead.")
@click.option(
    "--size",
    type=Whole(0, MAX_MESSAGE_SIZE),
    help=f"Body bytes of each generated message (with --count).  [default: {DEFAULT_SIZE}]",
)
@click.option("--keys", default="", help="Keys of every message, separated by spaces.")
@click.option("--tags", help="Tag of every message.")
@click.option("--sharding-key", help="Send all to one queue, chosen by this text, in order.")
@click.option(
    "--delay",
    type=click.Choice(list(DELAYS)),
    help="Let groups receive each message this much later; these are the levels of a broker's defaults.",
)
@click.option(
    "--transaction-check",
    "check_answer",
    type=click.Choice(ANSWERS),
    help="Send each message in a transaction without a decision, wait until the broker asks, and answer this.",
)
@click.option(
    "--no-create", is_flag=True, help="Fail if the topic does not exist, instead of creating it."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
@click.option(
    "-f",
    "--format",
    "template",
    type=Template(is_read=True),
    help="How records are written on standard input, as '%k %v\\n': %v body, %k keys, %g tag, %t topic.",
)
@sends
async def produce(
    call: Call,
    topic: str,
    count: int | None,
    size: int | None,
    keys: str,
    tags: str | None,
    sharding_key: str | None,
    delay: str | None,
    check_answer: str | None,
    no_create: bool,
    as_json: bool,
    template: str | None,
) -> None:
    """Send the lines of standard input to TOPIC, each as one message, or send --count generated messages.

    A body is the bytes of its line without the newline; a carriage return before it belongs to the body. Ends with a
    summary, and with exit code 1 if a message was not stored: standard error says which lines were not, and why. The
    same is printed after an interrupt. While no broker takes messages, standard error says so.

    --transaction-check shows whether brokers ask for a transaction's decision that they did not receive, and what
    groups get then: the messages after `commit`, and nothing after `rollback`. After `unknown` a broker asks again, and
    in the end it drops the message.

    \b
    Examples:
      echo hello | rocketrio produce orders
      rocketrio produce orders --keys k1 --tags paid < orders.jsonl
      rocketrio produce orders --count 100000 --size 128
      echo 'pay now' | rocketrio produce reminders --delay 30m
      echo paid | rocketrio produce orders --transaction-check commit
      rocketrio consume orders --group copy -f '%k %v{base64}\\n' | rocketrio produce copies -f '%k %v{base64}\\n'
    """
    import trio

    from rocketrio.producing.pipeline import MessagesNotStoredError
    from rocketrio.producing.produce import open_producer

    if template is not None and count is not None:
        raise click.UsageError("--format reads standard input, and --count does not")
    if size is not None and count is None:
        raise click.UsageError(
            "--size needs --count: without it the lines of standard input are sent"
        )
    if check_answer is not None and delay is not None:
        raise click.UsageError(
            "--delay and --transaction-check exclude each other: brokers delay no message of a transaction"
        )
    if count is None and sys.stdin is None:
        raise click.UsageError("standard input is closed; give it lines, or --count")
    if template is not None:
        records, what = _records(RecordReader(template)), "record"
    elif count is None:
        records, what = _bodies(_lines()), "line"
    else:
        made_up = _made_up(count, DEFAULT_SIZE if size is None else size)
        records, what = _bodies(made_up), "message"

    def message_of(record: Record, number: int) -> _Line:
        message = _Line(
            _text(record, "t", topic),
            record["v"],
            keys=_text(record, "k", keys),
            tags=_text(record, "g", tags or "") or None,
            delay_level=0 if delay is None else DELAYS[delay],
        )
        message.number = number
        return message

    if check_answer is not None:
        from rocketrio.cli.produce_transactions import produce_half_messages
        from rocketrio.producing.transaction_checks import TransactionState

        messages = (message_of(record, 0) async for record in records)
        answer = TransactionState[check_answer.upper()]
        await produce_half_messages(
            topic,
            messages,
            answer,
            call.client,
            auto_create_topic=not no_create,
            sharding_key=sharding_key,
            as_json=as_json,
        )
        return

    not_stored = _NotStored()
    pipeline: SendPipeline | None = None

    def stored() -> int:
        return 0 if pipeline is None else sum(pipeline.statistics().stored.values())

    is_reported = False
    wrong: str | None = None
    started = trio.current_time()

    def summarise() -> int:
        assert pipeline is not None
        statistics = pipeline.statistics()
        failed = statistics.failed + not_stored.too_long
        seconds = trio.current_time() - started
        _summarise(topic, statistics.stored, failed, statistics.pending, seconds, as_json=as_json)
        return failed

    try:
        async with (
            open_producer(**call.client, auto_create_topic=not no_create) as producer,
            reporting_outages(producer.client, topic, writes=True),
            showing_progress(
                f"producing {topic}",
                stored,
                total=count,
                share=_part_read,
                when=count is not None or not sys.stdin.isatty(),
            ),
        ):
            try:
                async with producer.pipeline() as pipeline:
                    try:
                        async for record in records:
                            not_stored.lines += 1
                            if len(record["v"]) > MAX_MESSAGE_SIZE:
                                not_stored.add(not_stored.lines, _TOO_LONG)
                                not_stored.too_long += 1
                                continue
                            message = message_of(record, not_stored.lines)
                            await pipeline.send(message, sharding_key=sharding_key)
                        not_stored.is_whole = True
                    except ConfigError as error:
                        if template is None:
                            raise
                        wrong = str(error)
            except MessagesNotStoredError as error:
                for failure in error.failures:
                    assert isinstance(failure.message, _Line)
                    not_stored.add(failure.message.number, str(failure.error))
        is_reported, failed = True, summarise()
    except Error:
        is_reported = True
        if not_stored.lines > 1:
            not_stored.show(what)
        raise
    finally:
        if pipeline is not None and not is_reported:  # Interrupted.
            summarise()
    if wrong is not None:
        fail(f"{wrong}; nothing was sent from this record on")
    if not_stored:
        not_stored.show(what)
        verb = "was" if failed == 1 else "were"
        fail(f"{counted(failed, 'message')} {verb} not stored; the first one: {not_stored.first}")


class _Line(Message):
    """A message with the number of its line."""

    __slots__ = ("number",)
    number: int


class _NotStored:
    """The lines that were not stored, by reason."""

    def __init__(self) -> None:
        self.lines = 0
        """The number of lines that were read."""
        self.too_long = 0
        self.is_whole = False
        """Whether all lines were passed to the pipeline, which ends early after very many failures."""
        self._numbers: dict[str, list[int]] = {}

    def __bool__(self) -> bool:
        return bool(self._numbers)

    @property
    def first(self) -> str:
        """The reason of the first line that was not stored."""
        return min(self._numbers, key=lambda reason: min(self._numbers[reason]))

    def add(self, number: int, reason: str) -> None:
        self._numbers.setdefault(reason, []).append(number)

    def show(self, what: str) -> None:
        """Print one line for each reason to standard error."""
        for reason, numbers in list(self._numbers.items())[:REASONS_SHOWN]:
            ranges = _ranges(sorted(numbers))
            shown = ", ".join(ranges[:RANGES_SHOWN])
            more = f" and {len(ranges) - RANGES_SHOWN} more" if len(ranges) > RANGES_SHOWN else ""
            lines = plural(len(numbers), what)
            say(f"not stored: {lines} {shown}{more}: {one_line(reason)}", err=True)
        if not self.is_whole:
            click.echo(f"not sent: {what}s from {self.lines} on", err=True)


def _ranges(numbers: Sequence[int]) -> list[str]:
    """Return sorted numbers as `3-7`, `9`."""
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return [str(first) if first == last else f"{first}-{last}" for first, last in ranges]


async def _made_up(count: int, size: int) -> AsyncIterator[bytes]:
    filling = (_PRINTABLE * (size // len(_PRINTABLE) + 1))[:size]
    for number in range(count):
        label = b"%d " % number
        yield (label + filling)[:size]


def _text(record: Record, letter: str, otherwise: str) -> str:
    """Return a field of a record; `otherwise` if the format has no such field. Raises ConfigError if it is no text."""
    if letter not in record:
        return otherwise
    try:
        return record[letter].decode()
    except UnicodeDecodeError as error:
        raise ConfigError(f"%{letter} is {record[letter]!r}, which is not UTF-8 text") from error


async def _bodies(bodies: AsyncIterator[bytes]) -> AsyncIterator[Record]:
    async for body in bodies:
        yield {"v": body}


async def _records(reader: RecordReader) -> AsyncIterator[Record]:
    """Yield the records of standard input. Raises ConfigError for one that is wrong."""
    async for chunk in _chunks():
        for record in reader.feed(chunk):
            yield record
        if reader.waiting > RECORD_SIZE_MAX:
            raise ConfigError(
                f"record {reader.records + 1} has no end within {RECORD_SIZE_MAX} bytes; is the format right?"
            )
    for record in reader.end():
        yield record


async def _chunks() -> AsyncIterator[bytes]:
    # In a thread, and only what is available: a terminal or a slow pipe must not delay lines that were read.
    # This bypasses Python's buffer, whose lock an abandoned thread would hold until the end of the process.
    import trio

    while chunk := await trio.to_thread.run_sync(
        os.read, sys.stdin.fileno(), _READ_SIZE, abandon_on_cancel=True
    ):
        yield chunk


def _part_read() -> float | None:
    """Return which part of standard input was read, from 0 to 1; None if it is not a file."""
    try:
        size = os.fstat(sys.stdin.fileno()).st_size
        return os.lseek(sys.stdin.fileno(), 0, os.SEEK_CUR) / size if size else None
    except OSError:  # A pipe has no position.
        return None


async def _lines() -> AsyncIterator[bytes]:
    """Yield the lines; of a line that is too long only as much as shows that it is."""
    rest = b""
    async for chunk in _chunks():
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line
        rest = rest[: MAX_MESSAGE_SIZE + 1]
    if rest:
        yield rest


def _summarise(
    topic: str,
    statuses: Mapping[SendStatus, int],
    failed: int,
    unknown: int,
    seconds: float,
    *,
    as_json: bool,
) -> None:
    stored = {status.name: count for status, count in statuses.items()}
    total = sum(stored.values())
    rate = total / seconds if seconds > 0 else 0.0
    if as_json:
        click.echo(
            json_text(
                {
                    "topic": topic,
                    "stored": total,
                    "statuses": stored,
                    "failed": failed,
                    "unknown": unknown,
                    "seconds": round(seconds, 3),
                    "messages_per_second": round(rate),
                }
            )
        )
        return
    what = plural(total, "message")
    click.echo(f"stored {total:,} {what} in {topic} in {seconds:.2f} s ({rate:,.0f} messages/s)")
    for status, number in stored.items():
        if status != "SEND_OK":
            click.echo(f"  {number} of them {status}")
    if failed:
        click.echo(f"not stored: {failed}")
    if unknown:
        click.echo(f"not known to be stored: {unknown}")
