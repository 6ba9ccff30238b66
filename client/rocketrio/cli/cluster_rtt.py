"""The command `rocketrio cluster rtt`."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, changes
from rocketrio.cli.columns import Column, dashed
from rocketrio.cli.commands import Command
from rocketrio.cli.numbers import Whole

if TYPE_CHECKING:
    pass


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
async def rtt(call: Call, count: int, size: int, broker: str | None) -> None:
    """Measure how long each master takes to store a message: it sends some, one after the other.

    The messages go to the topic that each broker has under its own name, which no group reads; retention deletes them.
    The exit code is 1 if a send failed.

    \b
    Examples:
      rocketrio cluster rtt
      rocketrio cluster rtt --broker broker-a --count 200 --size 1024
    """
    from rocketrio.admin.round_trips import round_trips

    if call.dry_run:
        names = sorted(await call.admin.masters())
        call.output.show(
            [
                {"broker_name": name, "sends": count, "bytes": size}
                for name in names
                if broker in (None, name)
            ],
            notes=["nothing was sent"],
        )
        return
    found = await round_trips(call.admin, broker_name=broker, count=count, size=size)
    call.output.show(
        found,
        (
            "broker_name",
            "sends",
            Column("median_ms", "p50 ms", value=lambda one: _milliseconds(one.median)),
            Column("p99_ms", "p99 ms", value=lambda one: _milliseconds(one.p99)),
            "failures",
            "unsafe",
            dashed("problem"),
        ),
    )
    if any(one.failures for one in found):
        sys.exit(1)


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)
