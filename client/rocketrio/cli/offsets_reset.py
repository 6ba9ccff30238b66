"""The command `rocketrio offsets reset`."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rocketrio.cli.call import Call, changes
from rocketrio.cli.columns import Column, hidden
from rocketrio.cli.commands import Command
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.shell import REFUSED, fail
from rocketrio.cli.types import GROUP, QUEUE, TIME_HELP, TOPIC
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.reset_plan import ResetPlan, Target
    from rocketrio_protocol.message import MessageQueue


@click.command(cls=Command)
@click.argument("group", type=GROUP)
@click.option("--topic", "topics", type=TOPIC, multiple=True, help="May be repeated.")
@click.option("--all-topics", is_flag=True, help="All topics in which the group has committed.")
@click.option(
    "--to",
    "place",
    metavar="PLACE",
    help=f"first, last, N, +N after the first, -N before the end, @TIME ({TIME_HELP}), or @-1h30m for a time ago.",
)
@click.option(
    "--shift", type=Whole(), metavar="±N", help="Messages after or before the committed one."
)
@click.option("--to-group", type=GROUP, help="Where this group is.")
@click.option(
    "--from-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A CSV or JSON file with topic, broker_name, queue_id and offset, as `offsets export` writes.",
)
@click.option("--queue", "queues", type=QUEUE, multiple=True, help="May be repeated.")
@click.option(
    "--offline", is_flag=True, help="Commit although the group has members, which may undo it."
)
@changes
async def reset(
    call: Call,
    group: str,
    topics: tuple[str, ...],
    all_topics: bool,
    place: str | None,
    shift: int | None,
    to_group: str | None,
    from_file: Path | None,
    queues: tuple[tuple[str, int], ...],
    offline: bool,
) -> None:
    """Set GROUP back or forward, by a plan, and read back what became of it.

    A group without members gets its offsets committed (`offline`). If it has members, the brokers direct them to a time
    (`online`), which takes up to half a minute, and queues that no member moved are committed afterwards (`both`).
    Apache's members can be directed to first, last and times only: stop them for any other place.

    `after` is what was committed in the end. The exit code is 1 if a queue is not at its target then, and 4 if the plan
    did not hold any more, in which case nothing was changed.

    \b
    Examples:
      rocketrio offsets reset billing --topic orders --to first --dry-run
      rocketrio offsets reset billing --topic orders --to @-2h
      rocketrio offsets reset billing --all-topics --to last
      rocketrio offsets reset billing --topic orders --shift -100 --queue broker-a/3
    """
    from rocketrio.admin.reset_plan import PlanChangedError
    from rocketrio_protocol.message import MessageQueue

    given = [one for one in (place, shift, to_group, from_file) if one is not None]
    if len(given) != 1:
        raise click.UsageError("give one of --to, --shift, --to-group and --from-file")
    if (len(topics) > 0) == all_topics and from_file is None:
        raise click.UsageError("give --topic or --all-topics")
    async with call.asking(f"resetting {group}"):
        named: list[str] = [*topics]
        if all_topics:
            named = await call.admin.topics_of_group(group)
        target = await _target(call.admin, named, place, shift, to_group, from_file)
        if not named:
            named = sorted({queue.topic for queue in target.offsets or ()})
        chosen = None
        if queues:
            chosen = {MessageQueue(topic, *queue) for topic in named for queue in queues}
        plan = await call.admin.plan_reset(group, named, target, queues=chosen, offline=offline)
        if not call.dry_run:
            try:
                plan = await call.admin.apply_reset(plan)
            except PlanChangedError as error:
                fail(str(error), code=REFUSED)
    _show(plan, call.output, dry_run=call.dry_run)
    if not call.dry_run and not all(one.has_arrived for one in plan.queues):
        sys.exit(1)


async def _target(
    admin: Admin,
    topics: list[str],
    place: str | None,
    shift: int | None,
    to_group: str | None,
    from_file: Path | None,
) -> Target:
    from rocketrio.admin.reset_plan import Target, target_of

    if place is not None:
        return target_of(place, admin.client.wall_clock.now_ms())
    if shift is not None:
        return Target(shift=shift)
    if from_file is not None:
        return Target(offsets=_read(from_file))
    assert to_group is not None
    await admin.group(to_group)  # Raises if there is none.
    return Target(
        offsets={
            one.queue: one.committed_offset
            for topic in topics
            for one in await admin.offsets(topic, to_group)
            if one.committed_offset is not None
        }
    )


def _read(path: Path) -> dict[MessageQueue, int]:
    """Return the offsets in a file that `offsets export` wrote, as CSV or as JSON."""
    from rocketrio_protocol.message import MessageQueue

    text = path.read_text()
    try:
        rows = (
            json.loads(text)
            if text.lstrip().startswith("[")
            else list(csv.DictReader(text.splitlines()))
        )
        return {
            MessageQueue(row["topic"], row["broker_name"], int(row["queue_id"])): int(row["offset"])
            for row in rows
        }
    except (KeyError, TypeError, ValueError, csv.Error) as error:
        raise ConfigError(
            f"{path} is not CSV or JSON with topic, broker_name, queue_id and offset: {error}"
        ) from None


def _show(plan: ResetPlan, output: Output, *, dry_run: bool) -> None:
    from rocketrio.admin.reset_plan import Way

    output.show(
        plan.queues,
        (
            *(_of_queue(key) for key in ("topic", "broker_name", "queue_id")),
            *("from_offset", "to_offset", "messages_again", "messages_skipped", "way"),
            # In a dry run nothing was done, so there is nothing after it: it is not unknown.
            Column("after", cell=(lambda row: "-") if dry_run else None),
            hidden("has_arrived", lambda one: None if dry_run else one.has_arrived),
        ),
        document=lambda queues: {
            "group": plan.group,
            "members": plan.members,
            "way": plan.way.value,
            "is_dry_run": dry_run,
            "queues": queues,
        },
    )
    if not output.for_people:
        return
    ways = {
        Way.OFFLINE: "offsets are committed; the group has no members",
        Way.ONLINE: f"{counted(plan.members, 'member')} {'is' if plan.members == 1 else 'are'} directed there",
    }
    if plan.way is Way.OFFLINE and plan.members:
        click.echo(
            f"offsets are committed; {counted(plan.members, 'member')} may commit theirs again"
        )
    else:
        click.echo(ways[plan.way])
    if dry_run:
        click.echo("nothing was changed")
    elif not all(one.has_arrived for one in plan.queues):
        click.echo(
            "some queues are not at their target: members may have undone the reset", err=True
        )


def _of_queue(key: str) -> Column:
    return Column(key, value=lambda one: getattr(one.queue, key))
