"""The commands `rocketrio offsets ...`: how far a group is, and resets of that."""

from __future__ import annotations

import csv
import json
import logging
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import click

from rocketrio.cli.call import Call, changes, changes_with, reads, without_bounds
from rocketrio.cli.cluster_options import may_be_lost
from rocketrio.cli.columns import UNKNOWN, Column, Row, hidden
from rocketrio.cli.commands import Group
from rocketrio.cli.numbers import Whole
from rocketrio.cli.output import Output
from rocketrio.cli.shell import REFUSED, fail
from rocketrio.cli.types import GROUP, QUEUE, TIME_EXAMPLE, TIME_HELP, TOPIC, typed_time
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError, Error, GroupNotExistError
from rocketrio_protocol.lag import ahead_text

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.offsets import QueueOffsets
    from rocketrio.admin.reset_plan import ResetPlan, Target
    from rocketrio_protocol.message import MessageQueue

COLUMNS: Final[tuple[str | Column, ...]] = (
    Column("broker_name", value=lambda one: one.queue.broker_name),
    Column("queue_id", value=lambda one: one.queue.queue_id),
    "min_offset",
    "max_offset",
    "committed_offset",
    Column("lag", cell=lambda row: _lag(row), right=True),
    hidden("ahead"),
)

logger = logging.getLogger("rocketrio.cli")
_COMMITTED = ("topic", "broker_name", "queue_id", "offset")


class _ShowByDefault(Group):
    """The group `offsets`, in which a first word that is no command is the topic of `show`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, *ctx.help_option_names):
            args = ["show", *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=_ShowByDefault,
    most_used=(
        "show orders --group billing",
        "reset billing --topic orders --to first --dry-run",
        "export billing",
    ),
)
def offsets() -> None:
    """Show or reset how far a group is.

    `rocketrio offsets TOPIC --group GROUP` is `rocketrio offsets show`.

    \b
    Examples:
      rocketrio offsets orders --group billing
      rocketrio offsets reset billing --topic orders --to first --dry-run
    """


@offsets.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("--group", type=GROUP, required=True, help="The consumer group.")
@click.option(
    "--reset-to",
    metavar="earliest|latest|OFFSET|TIME",
    help="Put the group there first: back to the oldest message, past the newest, to this offset, or to what was"
    f" stored from this time on ({TIME_HELP}).",
)
@click.option("--queue-id", type=Whole(0), help="Reset only the queues of this number.")
@changes_with("reset_to")
async def show(
    call: Call, topic: str, group: str, reset_to: str | None, queue_id: int | None
) -> None:
    """Show a group's progress in each queue of TOPIC, or reset it.

    `committed_offset` is the next message to consume; `lag` is the number of messages from there to `max_offset`. If it
    lies beyond the end, the lag is unknown, and `ahead` in JSON says by how much: the topic was made again, or the log
    became shorter. An unknown value, such as the committed offset of a group that never committed, is `unknown`, in
    JSON null, and never 0. (Brokers before 5.0 themselves answer 0 for such a group on a young queue.) A group that no
    broker knows is an error.

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
    if call.dry_run and reset_to is None:
        raise click.UsageError("--dry-run shows what --reset-to would do; give that too")

    async with call.asking(f"asking about {topic}"):
        found = await call.admin.offsets(topic, group)
        await _refuse_unknown(call.admin, group)
        targets: dict[MessageQueue, int] = {}
        if reset_to is not None:
            targets = await _targets(call.admin, topic, group, _chosen(found, queue_id), reset_to)
        if targets and not call.dry_run:
            await call.admin.reset_offsets(group, targets)
            found = await call.admin.offsets(topic, group)
    columns = COLUMNS
    if call.dry_run:
        columns += (
            Column(
                "target_offset",
                # Queues that are not reset have no target: it is not unknown.
                cell=lambda row: "-" if row["target_offset"] is None else str(row["target_offset"]),
                right=True,
                value=lambda one: targets.get(one.queue),
            ),
        )
    call.output.show(found, columns, notes=[*_ahead(found), _total(found)])
    call.silent.update(without_bounds(found))


async def _refuse_unknown(admin: Admin, group: str) -> None:
    """Raise GroupNotExistError if all masters answer, and none knows the group."""

    try:
        await admin.committed_offsets(group)
    except GroupNotExistError:
        raise
    except Error as error:  # A master that does not answer, or may not be asked, may know it.
        logger.info("not known whether the group exists group=%s error=%s", group, error)


def _lag(row: Row) -> str:
    if row["ahead"]:
        return "ahead"
    return UNKNOWN if row["lag"] is None else str(row["lag"])


def _ahead(found: Sequence[QueueOffsets]) -> list[str]:
    return [
        ahead_text(f"queue {one.queue.queue_id} of {one.queue.broker_name}", one.ahead)
        for one in found
        if one.ahead
    ]


def _total(found: Sequence[QueueOffsets]) -> str:
    known = [one.lag for one in found if one.lag is not None]
    if not known:
        return f"lag in all: {UNKNOWN}"
    return f"lag in all: {sum(known)}" + (" and what is unknown" if len(known) < len(found) else "")


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
        end = one.reachable_end
        if one.min_offset is None or end is None:
            raise Error(f"the bounds of {one.queue} are unknown; nothing was reset")
        place = {"earliest": one.min_offset, "latest": end}
        target = place[reset_to] if reset_to in place else int(reset_to)
        if not one.min_offset <= target <= end:
            raise ConfigError(
                f"--reset-to {reset_to} is not within {one.min_offset} and {end} of {one.queue}"
            )
        targets[one.queue] = target
    return targets


def _time(text: str) -> datetime:
    try:
        return typed_time(text)
    except ValueError:
        raise ConfigError(
            f"--reset-to {text} is neither earliest, latest, an offset nor a time like {TIME_EXAMPLE}"
        ) from None


@offsets.command()
@click.argument("group", type=GROUP)
@reads
async def export(call: Call, group: str) -> None:
    """Print all committed offsets of GROUP as CSV, or with --json: what `offsets reset --from-file` takes.

    Its retry topic is included. It is an error if a master does not answer: a part would reset a part.

    \b
    Examples:
      rocketrio offsets export billing > billing.csv
      rocketrio offsets reset billing --from-file billing.csv --dry-run
    """

    async with call.asking(f"asking about {group}"):
        found = await call.admin.committed_offsets(group)
    if call.output.for_people:  # A table could not be read back.
        call.output = attrs.evolve(call.output, form="csv")
    call.output.show(found, _COMMITTED)


@offsets.command()
@click.argument("group", type=GROUP)
@changes
async def delete(call: Call, group: str) -> None:
    """Delete all committed offsets of GROUP, and keep the group; it must have no members.

    Members that start later begin where new groups do. Keep what is deleted: `offsets export` writes it to a file.

    \b
    Examples:
      rocketrio offsets delete billing --dry-run
      rocketrio offsets delete billing
    """

    if not call.dry_run:
        lost = counted(len(await call.admin.committed_offsets(group)), "committed offset")
        await may_be_lost(f"{group} loses {lost}; `rocketrio offsets export` keeps them")
    found = await call.admin.delete_offsets(group, dry_run=call.dry_run)
    call.output.show(
        found,
        _COMMITTED,
        people=None if found else f"{group} has committed nothing",
        notes=[
            "nothing was deleted" if call.dry_run else f"deleted {counted(len(found), 'offset')}"
        ],
    )


@offsets.command()
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
        target = await _target_of(call.admin, named, place, shift, to_group, from_file)
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
    _show_reset(plan, call.output, dry_run=call.dry_run)
    if not call.dry_run and not all(one.has_arrived for one in plan.queues):
        sys.exit(1)


async def _target_of(
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
        return Target(offsets=_offsets_in(from_file))
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


def _offsets_in(path: Path) -> dict[MessageQueue, int]:
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


def _show_reset(plan: ResetPlan, output: Output, *, dry_run: bool) -> None:
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
