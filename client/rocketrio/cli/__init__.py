"""The command `rocketrio`: topics, groups, cluster, brokers, produce, consume, offsets, dead letters.

One file a command; `common` has the options they share and how they end.
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

    Another name server is given by --namesrv HOST:PORT or the environment variable NAMESRV_ADDR (several are
    separated by semicolons).

    Exit codes: 0 done, 2 wrong use, 1 anything else.
    """


for _command in (topic, group, cluster, broker, produce, consume, offsets, dead_letters):
    main.add_command(_command)
