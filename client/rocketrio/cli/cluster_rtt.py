"""The command `rocketrio cluster rtt`."""

import sys

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.round_trips import RoundTrips, round_trips
from rocketrio.cli.cells import dashed
from rocketrio.cli.commands import Command
from rocketrio.cli.common import changes, client_options, run
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Column, Output
from rocketrio.connect import ClientOptions


@click.command(cls=Command)
@click.option(
    "-n", "--count", type=Whole(1), default=50, show_default=True, help="Sends to each broker."
)
@click.option(
    "--size",
    type=Whole(0, 4 << 20),
    default=128,
    show_default=True,
    help="Bytes of a message.",
)
@click.option("--broker", help="Only to the master of this name.")
@changes
@client_options
def rtt(
    count: int,
    size: int,
    broker: str | None,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Measure how long each master takes to store a message: it sends some, one after the other.

    The messages go to the topic that each broker has under its own name, which no group reads; retention deletes them.
    The exit code is 1 if a send failed.

    \b
    Examples:
      rocketrio cluster rtt
      rocketrio cluster rtt --broker broker-a --count 200 --size 1024
    """
    found: list[RoundTrips] = []

    async def work() -> None:
        async with open_admin(**client) as admin:
            if dry_run:
                names = sorted(await admin.masters())
                output.show(
                    [
                        {"broker_name": name, "sends": count, "bytes": size}
                        for name in names
                        if broker in (None, name)
                    ],
                    notes=["nothing was sent"],
                )
                return
            found.extend(await round_trips(admin, broker_name=broker, count=count, size=size))
        output.show(
            [_row(one) for one in found],
            (
                "broker_name",
                "sends",
                Column("median_ms", "p50 ms"),
                Column("p99_ms", "p99 ms"),
                "failures",
                "unsafe",
                dashed("problem"),
            ),
        )

    run(work, verbose=verbose)
    if any(one.failures for one in found):
        sys.exit(1)


def _row(one: RoundTrips) -> dict[str, object]:
    return {
        "broker_name": one.broker_name,
        "sends": one.sends,
        "median_ms": None if one.median is None else round(one.median * 1000, 2),
        "p99_ms": None if one.p99 is None else round(one.p99 * 1000, 2),
        "failures": one.failures,
        "unsafe": one.unsafe,
        "problem": one.problem,
    }
