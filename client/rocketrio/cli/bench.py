"""The commands `rocketrio bench produce|consume|pingpong|replication`: measure a cluster from here."""

from __future__ import annotations

import csv
import functools
import io
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from rocketrio.cli.call import Call, sends
from rocketrio.cli.commands import Group
from rocketrio.cli.json_values import json_text
from rocketrio.cli.numbers import Duration, Rate, Whole
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.say import warn
from rocketrio.cli.shell import fail
from rocketrio.cli.types import TOPIC
from rocketrio.counts import counted
from rocketrio.limits import BENCH_MESSAGES, MAX_MESSAGE_SIZE
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error

if TYPE_CHECKING:
    from rocketrio.client import ClientInstance

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.bench.figures import Figures, Recorder

CLEANUP_TIMEOUT: Final = 15.0
QUEUES: Final = 8
"""Queues of a topic that is made for a measurement."""


@click.group(cls=Group, most_used=("produce", "consume", "pingpong"))
def bench() -> None:
    """Measure how many messages a cluster takes and gives, and how long each one waits.

    A topic is made for the measurement and removed after it, also after Ctrl-C, which prints what was measured until
    then; a TOPIC that you name is kept. This program needs a processor of its own: one client sends some ten thousand
    messages per second at most.

    \b
    Examples:
      rocketrio bench produce --messages 100000 --in-flight 64
      rocketrio bench produce --rate 2000 --duration 1m
      rocketrio bench pingpong --messages 1000
      rocketrio bench replication --json
    """


def bench_options(function: Callable[..., Any]) -> Callable[..., None]:
    """Add the options of all measurements; the function gets a `_Bench`, and returns the figures."""

    @click.argument("topic", required=False, type=TOPIC, metavar="[TOPIC]")
    @click.option("--topic", "also", type=TOPIC, help="The same as TOPIC.")
    @click.option("--queues", type=Whole(1, 1024), default=QUEUES, help="Queues of a new topic.")
    @click.option(
        "--messages",
        type=Whole(1),
        help=f"Stop after this number.  [default: {BENCH_MESSAGES}]",
    )
    @click.option("--duration", type=Duration(0.1), help="Stop after this time, as 30s or 5m.")
    @click.option(
        "--size",
        type=Whole(1, MAX_MESSAGE_SIZE),
        default=128,
        show_default=True,
        help="Bytes of a body; they are random.",
    )
    @click.option("--keep", is_flag=True, help="Keep the topic and the group.")
    @click.option(
        "--csv", "as_csv", is_flag=True, help="Print a line of headings and one of figures."
    )
    @click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
    @sends
    @functools.wraps(function)
    def command(
        call: Call,
        *,
        topic: str | None,
        also: str | None,
        queues: int,
        messages: int | None,
        duration: float | None,
        size: int,
        keep: bool,
        as_csv: bool,
        as_json: bool,
        **options: Any,
    ) -> None:
        from rocketrio.bench.figures import Recorder

        if as_csv and as_json:
            raise click.UsageError("give --csv or --json, not both")
        if topic is not None and also is not None:
            raise click.UsageError("give the topic once: as TOPIC or with --topic")
        topic = topic or also
        if messages is None and duration is None:
            messages = BENCH_MESSAGES
        recorder = Recorder(click.get_current_context().info_name or "")
        measure = function(messages=messages, duration=duration, size=size, **options)

        async def work() -> None:
            try:
                async with _places(call.admin, topic, queues, keep=keep) as (used, group):
                    line = showing_progress(
                        f"bench {recorder.what}",
                        lambda: recorder.messages + recorder.errors,
                        total=messages,
                        share=lambda: _part_of(recorder, duration),
                    )
                    await measure(_Bench(call, used, group, recorder, line))
            finally:
                if recorder.began is not None:
                    _show(recorder.figures(), as_csv=as_csv, as_json=as_json)

        call.run(work)
        if recorder.errors:
            fail(
                f"{recorder.errors:,} of {counted(recorder.errors + recorder.messages, 'message')} failed"
            )

    return command


class _Bench:
    """What a measurement works with."""

    def __init__(
        self,
        call: Call,
        topic: str,
        group: str,
        recorder: Recorder,
        progress: AbstractAsyncContextManager[None],
    ) -> None:
        self.admin = call.admin
        self.topic = topic
        self.group = group
        self.recorder = recorder
        self.progress = progress
        """Shows how far the measurement itself is."""
        self._client = call.client

    @asynccontextmanager
    async def clients(self, count: int) -> AsyncIterator[list[ClientInstance]]:
        """Open clients with connections of their own; the first one is the admin's."""
        from rocketrio.connect import open_client

        async with AsyncExitStack() as stack:
            yield [
                self.admin.client,
                *[
                    await stack.enter_async_context(open_client(**self._client))
                    for _ in range(count - 1)
                ],
            ]


@asynccontextmanager
async def _places(
    admin: Admin, topic: str | None, queues: int, *, keep: bool
) -> AsyncIterator[tuple[str, str]]:
    """Make a topic and name a group for a measurement, and remove both afterwards."""
    import trio

    name = f"rocketrio-bench-{secrets.token_hex(4)}"
    try:
        if topic is None:
            await admin.create_topic(name, queues=queues)
        yield topic or name, name
    finally:
        if keep:
            click.echo(f"kept: topic {topic or name}, group {name}", err=True)
        else:
            with trio.CancelScope(shield=True), trio.move_on_after(CLEANUP_TIMEOUT):
                await _remove(admin, name if topic is None else None, name)


async def _remove(admin: Admin, topic: str | None, group: str) -> None:
    try:
        if group in await admin.groups():
            await admin.delete_group(group)
        if topic is not None:
            await admin.delete_topic(topic)
    except Error as error:
        names = f"the topic {topic} and the group {group}" if topic else f"the group {group}"
        warn(f"{names} may still be there: {error}")


Measure: TypeAlias = "Callable[[_Bench], Awaitable[Figures]]"
_in_flight = functools.partial(click.option, "--in-flight", type=Whole(1, 10_000))
_clients = click.option(
    "--clients",
    type=Whole(1, 1_000),
    default=1,
    show_default=True,
    help="Clients with connections of their own.",
)
_rate = click.option(
    "--rate",
    type=Rate(),
    help="Messages per second, as 500/s; a latency then counts from when a message was due.",
)


@bench.command()
@_in_flight(default=8, show_default=True, help="Sends of one client that wait at the same time.")
@click.option(
    "--batch",
    type=Whole(1, 10_000),
    default=1,
    show_default=True,
    help="Messages in one request.",
)
@_clients
@_rate
@bench_options
def produce(
    *, in_flight: int, batch: int, clients: int, rate: float | None, **load: Any
) -> Measure:
    """Measure sends: how many messages per second, and how long each one waits for its answer.

    Without --rate a send begins when another one ends, so that a pause of the cluster delays --in-flight messages only.
    With --rate every message that was due in the pause is late, as it would be for users.

    \b
    Examples:
      rocketrio bench produce
      rocketrio bench produce orders --duration 30s
      rocketrio bench produce --size 1024 --batch 32 --clients 4
      rocketrio bench produce --rate 500 --duration 30s --csv
    """
    from rocketrio.bench.runs import Load, measure_sends

    async def measure(on: _Bench) -> Figures:
        wanted = Load(in_flight=in_flight, batch=batch, rate=rate, **load)
        async with on.clients(clients) as opened, on.progress:
            return await measure_sends(opened, on.topic, wanted, on.recorder)

    return measure


@bench.command()
@_clients
@bench_options
def consume(*, clients: int, **load: Any) -> Measure:
    """Measure receipts by a new group, from the first message on.

    Messages are stored first, which is not measured; of TOPIC those that are there are received. A latency is the
    time for which a member waited for one message.

    \b
    Examples:
      rocketrio bench consume --messages 200000
      rocketrio bench consume orders --duration 10s
    """
    from rocketrio.bench.runs import Load, fill, measure_receives

    async def measure(on: _Bench) -> Figures:
        wanted = Load(**load)
        if on.topic == on.group:
            wanted = Load(**{**load, "messages": load["messages"] or BENCH_MESSAGES})
            async with showing_progress(
                "storing messages", lambda: on.recorder.filled, total=wanted.messages
            ):
                await fill(on.admin.client, on.topic, wanted, on.recorder)
        async with on.clients(clients) as opened, on.progress:
            return await measure_receives(opened, on.topic, on.group, wanted, on.recorder)

    return measure


@bench.command()
@_in_flight(default=1, show_default=True, help="Messages that are on their way at the same time.")
@_rate
@bench_options
def pingpong(*, in_flight: int, rate: float | None, **load: Any) -> Measure:
    """Measure the time from a send until a member of a group has the message.

    \b
    Examples:
      rocketrio bench pingpong --messages 1000
      rocketrio bench pingpong --rate 100 --in-flight 32 --duration 30s
    """
    from rocketrio.bench.runs import Load, measure_round_trips

    async def measure(on: _Bench) -> Figures:
        wanted = Load(in_flight=in_flight, rate=rate, **load)
        async with on.progress:
            return await measure_round_trips(
                on.admin.client, on.topic, on.group, wanted, on.recorder
            )

    return measure


@bench.command()
@_in_flight(default=1, show_default=True, help="Messages that are on their way at the same time.")
@_rate
@bench_options
def replication(*, in_flight: int, rate: float | None, **load: Any) -> Measure:
    """Measure how long after a send's answer the last slave shows the message.

    Slaves are asked again and again, so a delay holds one round trip to a slave at least. Where sends wait for slaves
    (sync-master), hardly more is left.

    \b
    Examples:
      rocketrio bench replication --messages 1000
      rocketrio bench replication --rate 200 --in-flight 16 --duration 30s
    """
    from rocketrio.bench.runs import Load, measure_replication

    async def measure(on: _Bench) -> Figures:
        wanted = Load(in_flight=in_flight, rate=rate, **load)
        info = await on.admin.cluster_info()
        slaves = {
            name: [addr for number, addr in one.broker_addrs.items() if number != MASTER_ID]
            for name, one in info.broker_addr_table.items()
        }
        async with on.progress:
            return await measure_replication(on.admin.client, on.topic, slaves, wanted, on.recorder)

    return measure


def _show(found: Figures, *, as_csv: bool, as_json: bool) -> None:
    row = {
        "what": found.what,
        "messages": found.messages,
        "bytes": found.bytes,
        "seconds": round(found.seconds, 6),
        "messages_per_second": _rounded(found.rate, 3),
        "bytes_per_second": _rounded(found.bytes_per_second, 3),
        "p50_seconds": _rounded(found.p50, 9),
        "p99_seconds": _rounded(found.p99, 9),
        "p999_seconds": _rounded(found.p999, 9),
        "max_seconds": _rounded(found.max, 9),
        "errors": found.errors,
    }
    if as_json:
        click.echo(json_text({**row, "statuses": found.statuses, "is_whole": found.is_whole}))
        return
    if as_csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([*row, "is_whole"])
        writer.writerow([*row.values(), str(found.is_whole).lower()])
        click.echo(text.getvalue(), nl=False)
        return
    rate, megabytes = found.rate, found.bytes_per_second
    shown = "unknown" if rate is None else f"{rate:,.0f} messages/s"
    if megabytes is not None:
        shown += f", {megabytes / 1e6:,.2f} MB/s"
    click.echo(
        f"{found.what}: {counted(found.messages, 'message')} in {found.seconds:.2f} s: {shown}"
    )
    parts = [
        f"{name} {_milliseconds(value)}"
        for name, value in (
            ("p50", found.p50), ("p99", found.p99), ("p99.9", found.p999), ("max", found.max),
        )
    ]  # fmt: skip
    click.echo(f"latency: {', '.join(parts)}")
    click.echo(
        "answers: " + ", ".join(f"{count:,} {name}" for name, count in found.statuses.items())
    )
    if not found.is_whole:
        click.echo("interrupted: this is a part", err=True)
    sys.stdout.flush()


def _part_of(recorder: Recorder, duration: float | None) -> float | None:
    import trio

    if duration is None or recorder.began is None:
        return None
    return (trio.current_time() - recorder.began) / duration


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _milliseconds(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1000:.3g} ms"
