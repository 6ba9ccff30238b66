"""The command `rocketrio offsets`."""

from collections.abc import Sequence
from datetime import datetime

import click

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.admin.admin_values import QueueOffsets
from rocketrio.cli.common import (
    GROUP,
    TIME_EXAMPLE,
    TIME_HELP,
    TOPIC,
    json_option,
    namesrv_option,
    print_json,
    print_table,
    run,
    time_of,
)
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue

COLUMNS: tuple[str, ...] = (
    "broker_name",
    "queue_id",
    "min_offset",
    "max_offset",
    "committed_offset",
    "lag",
)


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("--group", type=GROUP, required=True, help="The consumer group.")
@click.option(
    "--reset-to",
    metavar="earliest|latest|OFFSET|TIME",
    help="Put the group there first: back to the oldest message, past the newest, to this offset, or to what was"
    f" stored from this time on ({TIME_HELP}).",
)
@click.option("--queue-id", type=int, help="Reset only the queues of this number.")
@click.option(
    "--dry-run", is_flag=True, help="Show where --reset-to would put the group; change nothing."
)
@json_option
@namesrv_option
def offsets(
    topic: str,
    group: str,
    reset_to: str | None,
    queue_id: int | None,
    dry_run: bool,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Show a group's progress in each queue of TOPIC, or reset it.

    `committed_offset` is the next message to consume; `lag` is the number of messages from there to `max_offset`. An
    unknown value, such as the committed offset of a group that never committed, is `unknown`, in JSON null, and never
    0. (Brokers before 5.0 themselves answer 0 for such a group on a young queue.)

    A reset replaces what members committed, on master and slaves. Stop the members first: running members keep their
    position, and commit nothing more for a queue that was set back until one of them takes it over again.

    \b
    Examples:
      rocketrio offsets orders --group billing
      rocketrio offsets orders --group billing --json
      rocketrio offsets orders --group billing --reset-to earliest
      rocketrio offsets orders --group billing --reset-to 120 --queue-id 3
      rocketrio offsets orders --group billing --reset-to 2026-11-21T08:00+01:00 --dry-run
    """
    if dry_run and reset_to is None:
        raise click.UsageError("--dry-run shows what --reset-to would do; give that too")

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            found = await admin.offsets(topic, group)
            targets: dict[MessageQueue, int] = {}
            if reset_to is not None:
                targets = await _targets(admin, topic, group, _chosen(found, queue_id), reset_to)
            if targets and not dry_run:
                await admin.reset_offsets(group, targets)
                found = await admin.offsets(topic, group)
        rows: list[tuple[object, ...]] = [
            (
                queue.queue.broker_name,
                queue.queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.committed_offset,
                queue.lag,
            )
            for queue in found
        ]
        columns = COLUMNS
        if dry_run:
            columns = (*COLUMNS, "target_offset")
            rows = [(*row, targets.get(one.queue)) for row, one in zip(rows, found, strict=True)]
        if as_json:
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            if dry_run:  # Queues that are not reset have no target: it is not unknown.
                rows = [(*row, "-" if target is None else target) for *row, target in rows]
            print_table(columns, rows)
            lags = [one.lag for one in found]
            click.echo(
                f"lag in all: {sum(filter(None, lags))}"
                + (" and what is unknown" if None in lags else "")
            )

    run(work, verbose=verbose)


def _chosen(found: Sequence[QueueOffsets], queue_id: int | None) -> list[QueueOffsets]:
    chosen = [one for one in found if queue_id in (None, one.queue.queue_id)]
    if not chosen:
        raise ConfigError(f"--queue-id {queue_id} is not one of the {len(found)} queues")
    return chosen


async def _targets(
    admin: Admin, topic: str, group: str, chosen: Sequence[QueueOffsets], reset_to: str
) -> dict[MessageQueue, int]:
    """Return the new offset of each queue. Raises ConfigError for an invalid position, Error if one is unknown."""
    if reset_to not in ("earliest", "latest") and not reset_to.isdecimal():
        resets = await admin.reset_to_time(topic, group, _time(reset_to), dry_run=True)
        queues = {one.queue for one in chosen}
        return {reset.queue: reset.target_offset for reset in resets if reset.queue in queues}
    targets = {}
    for one in chosen:
        if one.min_offset is None or one.max_offset is None:
            raise Error(f"the bounds of {one.queue} are unknown; nothing was reset")
        # A group may be ahead of what readers see, after a change of masters.
        place = {
            "earliest": one.min_offset,
            "latest": max(one.max_offset, one.committed_offset or 0),
        }
        target = place[reset_to] if reset_to in place else int(reset_to)
        if not one.min_offset <= target <= place["latest"]:
            raise ConfigError(
                f"--reset-to {reset_to} is not within {one.min_offset} and {place['latest']} of {one.queue}"
            )
        targets[one.queue] = target
    return targets


def _time(text: str) -> datetime:
    try:
        return time_of(text)
    except ValueError:
        raise ConfigError(
            f"--reset-to {text} is neither earliest, latest, an offset nor a time like {TIME_EXAMPLE}"
        ) from None
