"""The command `rocketrio`: topics, groups, lag, cluster, brokers, produce, consume, offsets, dead letters,
access, metrics.

Each command has a file; `common` has their shared options, and their handling of errors and signals.
"""

import json
from platform import python_version
from typing import Final

import click

from rocketrio import __version__
from rocketrio.cli.shell import VERSION_AS_JSON, Shell

__all__ = ["main"]


_LINES: Final = {
    "acl": "Show and change users and their rights.",
    "apply": "Make the cluster have what FILEs say, as `rocketrio export` writes them, and show each change.",
    "bench": "Measure how many messages a cluster takes and gives, and how long each one waits.",
    "broker": "Change or check a running broker.",
    "check": "Check one side of a cluster for Nagios, Icinga, cron or a probe.",
    "clients": "List all clients that are connected to brokers: producers, and members of groups.",
    "cluster": "Show the state of brokers.",
    "completion": "Print the script that lets bash, zsh or fish complete commands, options and names.",
    "context": "Name clusters, with the account to use there, and select one.",
    "consume": "Print the messages of TOPIC, one body per line, and commit what was printed.",
    "dead-letters": "List the messages that a group could not handle, and send them again.",
    "doctor": "Find what is wrong with a cluster: name servers, brokers, replication, storage, groups, settings.",
    "export": "Write topics, groups, settings and the texts of name servers as TOML, for `rocketrio apply`.",
    "exporter": "Serve metrics of a whole cluster to Prometheus, for Apache's brokers of any version.",
    "group": "Create, list, show and delete consumer groups.",
    "lag": "Show how far behind groups are, the worst first, and whether that is a problem.",
    "message": "Find and show messages; none is committed or removed.",
    "namesrv": "Show name servers and whether they agree, and change their settings and texts.",
    "offsets": "Show or reset how far a group is.",
    "produce": "Send the lines of standard input to TOPIC, each as one message, or send --count generated messages.",
    "producers": "List the producers that are connected to the brokers of TOPIC.",
    "top": "Show brokers, groups or topics (VIEW: cluster, groups, topics) live, in the whole terminal.",
    "topic": "Create, list, show and delete topics.",
}
"""The line of help of each command, as its own help text begins."""


def _version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if not value or ctx.resilient_parsing:
        return
    if ctx.meta.get(VERSION_AS_JSON):
        fields = {"program": "rocketrio", "version": __version__, "python": python_version()}
        click.echo(json.dumps(fields))
    else:
        click.echo(f"rocketrio, version {__version__}")
    ctx.exit()


@click.group(
    cls=Shell,
    lines=_LINES,
    most_used=("lag", "cluster health", "message browse orders --last"),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_version,
    help="Show the version, with --json for programs, and exit.",
)
def main() -> None:
    """Work with a RocketMQ cluster: Apache's or rocketrio's.

    \b
    A first round trip, with the name server at 127.0.0.1:9876:
      rocketrio topic create orders
      seq 10 | rocketrio produce orders
      rocketrio consume orders --group billing --until-caught-up
      rocketrio offsets orders --group billing

    To use other name servers, give --namesrv HOST:PORT or set the environment variable NAMESRV_ADDR (separate several
    by semicolons), or name clusters by `rocketrio context add`, and choose one by --context NAME. Options of the
    cluster may stand before the command or after it.

    To use a cluster with access control, give --credentials-file FILE, or set ROCKETRIO_ACCESS_KEY and
    ROCKETRIO_SECRET_KEY.

    To use a cluster with TLS, give --tls, or --tls-ca FILE for an authority that this machine does not know.

    `rocketrio help COMMAND` is `rocketrio COMMAND --help`.

    Exit codes: 0 success, 1 error, 2 wrong usage, 3 some brokers did not answer, 4 refused: a plan does not hold any
    more, or the context is protected, 130 ended by Ctrl-C before it was done. A command without an end, such as
    `message tail`, `consume` or `top`, ends with 0 on Ctrl-C.
    """
