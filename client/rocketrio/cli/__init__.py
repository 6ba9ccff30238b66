"""The command `rocketrio`: topics, groups, cluster, brokers, produce, consume, offsets, dead letters.

Each command has a file; `common` has their shared options, and their handling of errors and signals.
"""

import click

from rocketrio.cli.broker import broker
from rocketrio.cli.cluster import cluster
from rocketrio.cli.common import Shell
from rocketrio.cli.consume import consume
from rocketrio.cli.dead_letters import dead_letters
from rocketrio.cli.group import group
from rocketrio.cli.offsets import offsets
from rocketrio.cli.produce import produce
from rocketrio.cli.topic import topic

__all__ = ["main"]


@click.group(
    cls=Shell, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100}
)
@click.version_option(package_name="rocketrio")
def main() -> None:
    """Work with a RocketMQ cluster: Apache's or rocketrio's.

    \b
    A first round trip, with the name server at 127.0.0.1:9876:
      rocketrio topic create orders
      seq 10 | rocketrio produce orders
      rocketrio consume orders --group billing --until-caught-up
      rocketrio offsets orders --group billing

    To use other name servers, give --namesrv HOST:PORT or set the environment variable NAMESRV_ADDR (separate several
    by semicolons).

    Exit codes: 0 success, 2 wrong usage, 1 any other error.
    """


for _command in (topic, group, cluster, broker, produce, consume, offsets, dead_letters):
    main.add_command(_command)
