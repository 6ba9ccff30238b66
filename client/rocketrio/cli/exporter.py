"""The command `rocketrio exporter`."""

from __future__ import annotations

import re
from typing import Any, Final, get_args

import click

from rocketrio.cli.call import Call, reads_alone
from rocketrio.cli.commands import Command
from rocketrio.cli.numbers import Duration
from rocketrio.limits import EXPORTER_NAMES
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.log_lines import LogFormat

_LEAST_PERIOD: Final = 5.0


class _Pattern(click.ParamType[str]):
    name = "REGEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is no regular expression: {error}", param, ctx)
        return str(value)


@click.command(cls=Command)
@click.option(
    "--listen",
    default=":5557",
    show_default=True,
    help="Address to serve on; without a host it is on 127.0.0.1.",
)
@click.option(
    "--every",
    type=Duration(_LEAST_PERIOD),
    default=15.0,
    show_default="15s",
    help="Time between two rounds.",
)
@click.option(
    "--names",
    default=",".join(EXPORTER_NAMES),
    show_default=True,
    help="Whose names to use: of Apache's brokers, of rocketmq-exporter, of rocketrio.",
)
@click.option(
    "--include-groups", type=_Pattern(), default="", help="Only groups that match, as '^billing-'."
)
@click.option(
    "--sizes",
    is_flag=True,
    help="Also bytes by topic and group, and messages handed back: two requests more for each in a minute.",
)
@click.option(
    "--members",
    is_flag=True,
    help="Also what each member of a group counts: a request to each in a minute.",
)
@click.option(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    default="text",
    show_default=True,
    help="How to write warnings to standard error: as text, or as one JSON object a line.",
)
@reads_alone
def exporter(
    call: Call,
    listen: str,
    every: float,
    names: str,
    include_groups: str,
    sizes: bool,
    members: bool,
    log_format: LogFormat,
) -> None:
    """Serve metrics of a whole cluster to Prometheus, for Apache's brokers of any version.

    All brokers are asked side by side, every 15 seconds. What is unknown has no series, and a broker that does not
    answer loses its series and has `rocketrio_exporter_up` 0. Rocketrio's brokers, and Apache's from 5.1 on, have
    pages of their own that say more; see docs/monitoring.md.

    \b
    Examples:
      rocketrio exporter
      rocketrio exporter --listen 0.0.0.0:5557 --names exporter --include-groups '^billing'
    """
    from rocketrio_protocol.extras import how_to_install

    chosen = [name.strip() for name in names.split(",")]
    if unknown := sorted(set(chosen) - set(EXPORTER_NAMES)):
        raise click.UsageError(f"--names {unknown[0]} is none of {', '.join(EXPORTER_NAMES)}")

    async def work() -> None:
        try:
            from rocketrio.exporter.service import Exporter
        except ModuleNotFoundError as error:
            raise ConfigError(
                f"the package {error.name} is not installed", remedy=how_to_install("metrics")
            ) from error
        from rocketrio.exporter.rounds import Rounds
        from rocketrio_protocol.remoting.tcp import listen_tcp

        listener = await listen_tcp(f"127.0.0.1{listen}" if listen.startswith(":") else listen)
        click.echo(f"ready role=exporter address={listener.addr}")
        rounds = Rounds(call.admin, include_groups=include_groups, sizes=sizes, members=members)
        await Exporter(rounds, names=chosen, period=every).run(listener)

    call.is_endless = True
    call.run(work, service_log=log_format)
