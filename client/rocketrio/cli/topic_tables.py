"""The commands `rocketrio topic perm|order|groups|stats`, and the table of `topic list --long`."""

from collections.abc import Mapping

import click

from rocketrio.admin.admin import open_admin
from rocketrio.admin.admin_calls import Period
from rocketrio.admin.admin_values import permission_text
from rocketrio.admin.name_server_admin import ORDER_NAMESPACE, order_text, texts
from rocketrio.admin.topic_admin import (
    TopicOverview,
    set_permission,
    topic_counts_and_failures,
    topic_readers,
)
from rocketrio.cli.asking import asking
from rocketrio.cli.cells import dashed
from rocketrio.cli.commands import Command
from rocketrio.cli.common import (
    TOPIC,
    changes,
    client_options,
    end_in_part,
    reads,
    run,
    run_in_part,
)
from rocketrio.cli.namesrv import change_text
from rocketrio.cli.output import Column, Output, rate_column
from rocketrio.cli.progress import showing_progress
from rocketrio.connect import ClientOptions
from rocketrio_protocol.bodies.topics import READ_WRITE, Permission
from rocketrio_protocol.errors import ConfigError, Error

PERMISSIONS = {
    "r": Permission.READ,
    "w": Permission.WRITE,
    "rw": READ_WRITE,
    "none": Permission(0),
}
_WINDOWS = {"minute": 60, "hour": 3_600, "day": 86_400}


@click.command(cls=Command)
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.argument("permission", type=click.Choice(sorted(PERMISSIONS)), metavar="rw|r|w|none")
@click.option("--broker", help="Only on this broker; by default on all that have the topic.")
@changes
@client_options
def perm(
    name: str,
    permission: str,
    broker: str | None,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Set whether clients may read TOPIC, write to it, both or nothing.

    Clients see it within 30 seconds. `none` hides its messages; they stay until retention deletes them.

    \b
    Examples:
      rocketrio topic perm orders r --dry-run
      rocketrio topic perm orders rw --broker broker-a
    """

    async def work() -> None:
        async with open_admin(**client) as admin:
            found = await set_permission(
                admin, name, PERMISSIONS[permission], broker_name=broker, dry_run=dry_run
            )
        output.show(
            [
                {
                    "topic": name,
                    "broker_name": one.broker_name,
                    "before": permission_text(one.before),
                    "after": permission_text(one.after),
                }
                for one in found
            ],
            ("broker_name", "before", "after"),
        )

    run(work, verbose=verbose)


@click.command(cls=Command)
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.argument("queues", nargs=-1, metavar="[BROKER:QUEUES]...")
@click.option("--remove", is_flag=True, help="The topic has no order any more.")
@changes
@client_options
def order(
    name: str,
    queues: tuple[str, ...],
    remove: bool,
    dry_run: bool,
    output: Output,
    client: ClientOptions,
    verbose: int,
) -> None:
    """Fix the queues of an ordered topic at the name servers, show them, or remove that.

    Clients then use exactly these queues, also while a broker is away: a key stays in its queue, and sends to a broker
    that is away fail. A name server tells clients only with its setting orderMessageEnable.

    \b
    Examples:
      rocketrio topic order orders
      rocketrio topic order orders broker-a:4 broker-b:4
      rocketrio topic order orders --remove
    """
    if queues and remove:
        raise click.UsageError("give queues or --remove, not both")
    if queues or remove:
        value = None if remove else order_text(_queues(queues))
        change_text(
            ORDER_NAMESPACE, name, value,
            dry_run=dry_run, output=output, client=client, verbose=verbose,
        )  # fmt: skip
        return
    failed: dict[str, str] = {}

    async def work() -> None:
        async with open_admin(**client) as admin:
            found = await texts(admin, ORDER_NAMESPACE)
        rows = []
        for address, table in found.items():
            if isinstance(table, Error):
                failed[address] = table.what
            elif name in table:
                rows.append({"address": address, "key": name, "value": table[name]})
        people = None if rows else f"the queues of {name} are not fixed"
        output.show(rows, ("address", "key", "value"), people=people)

    run(work, verbose=verbose)
    end_in_part(failed)


def _queues(given: tuple[str, ...]) -> Mapping[str, int]:
    found: dict[str, int] = {}
    for text in given:
        broker_name, colon, count = text.rpartition(":")
        if not colon or not broker_name or not count.isdecimal():
            raise click.UsageError(f"{text!r} is not BROKER:QUEUES, as broker-a:4")
        if broker_name in found:
            raise click.UsageError(f"{broker_name} is named twice")
        found[broker_name] = int(count)
    try:
        order_text(found)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    return found


# -------------------------------------------------------------------------------------------- tables


@click.command(cls=Command)
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option("--online", is_flag=True, help="Only groups that have members now.")
@reads
@client_options
def groups(name: str, online: bool, output: Output, client: ClientOptions, verbose: int) -> None:
    """List the groups that read TOPIC, with their lag and whether it is a problem.

    The verdict is that of the brokers' last minute; `rocketrio lag` looks for longer.

    \b
    Example:
      rocketrio topic groups orders --online
    """

    async def work() -> None:
        async with asking(f"asking about {name}", client) as admin:
            found = await topic_readers(admin, name)
        rows = [
            {
                "group": one.group,
                "model": one.model,
                "members": one.members,
                "lag": one.lag,
                "verdict": one.verdict,
                "why": one.why,
            }
            for one in found
            if one.members or not online
        ]
        model = Column("model", cell=lambda row: _model(row["model"], row["members"]))
        output.show(
            rows,
            ("group", model, "members", "lag", "verdict", "why"),
            people=None if rows else f"no group reads {name}",
        )

    run(work, verbose=verbose)


def _model(model: str | None, members: int | None) -> str:
    if model is None:
        return "-" if members == 0 else "unknown"
    return model.lower()


@click.command(cls=Command)
@click.argument("name", type=TOPIC, metavar="[TOPIC]", required=False)
@click.option(
    "--window",
    type=click.Choice(list(_WINDOWS)),
    default="minute",
    show_default=True,
    help="The time that brokers counted. Apache's hours and days contain finished periods only.",
)
@reads
@client_options
def stats(
    name: str | None, window: Period, output: Output, client: ClientOptions, verbose: int
) -> None:
    """Show how many messages are stored in TOPIC, or in each topic, and how many each group reads, in a second.

    A row without a group is what was stored. `today` is the sum of the last 24 hours. Groups that only a broker knows
    that does not answer are missing.

    \b
    Examples:
      rocketrio topic stats orders
      rocketrio topic stats --window hour --sort -messages_per_second
    """

    async def work(silent: dict[str, str]) -> None:
        async with open_admin(**client) as admin, showing_progress("asking about topics"):
            names = [name] if name is not None else await admin.topics()
            found, without = await topic_counts_and_failures(admin, names, period=window)
        silent.update(without)
        seconds = _WINDOWS[window]
        output.show(
            [
                {
                    "topic": one.topic,
                    "group": one.group,
                    "messages_per_second": _rate(one.messages, seconds),
                    "bytes_per_second": _rate(one.bytes, seconds),
                    "messages": one.messages,
                    "messages_today": one.messages_today,
                }
                for one in found
            ],
            (
                "topic",
                dashed("group"),
                rate_column("messages_per_second", "messages/s"),
                rate_column("bytes_per_second", "bytes/s"),
                Column("messages_today", "today"),
            ),
        )

    run_in_part(work, verbose=verbose)


def _rate(count: int | None, seconds: int) -> float | None:
    return None if count is None else round(count / seconds, 3)


LONG = (
    "topic", "queues", "perm", "brokers", "message_type", "messages",
    rate_column("messages_per_second", "in/s"),
    "last_stored", dashed("groups", unknown=True),
)  # fmt: skip
"""The columns of `topic list --long`."""


def overview_row(one: TopicOverview) -> dict[str, object]:
    """Return a row of `topic list --long`."""
    return {
        "topic": one.topic,
        "queues": one.queues,
        "perm": None if one.permission is None else permission_text(one.permission),
        "brokers": list(one.brokers),
        "message_type": one.message_type,
        "messages": one.messages,
        "messages_per_second": None if one.per_second is None else round(one.per_second, 3),
        "last_stored": one.last_stored,
        "groups": None if one.groups is None else list(one.groups),
    }
