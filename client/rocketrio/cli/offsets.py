"""The commands `rocketrio offsets show`; `offsets_reset.py` has `reset`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final

import click

from rocketrio.cli.call import Call, changes_with, without_bounds
from rocketrio.cli.columns import UNKNOWN, Column, Row, hidden
from rocketrio.cli.commands import Group
from rocketrio.cli.numbers import Whole
from rocketrio.cli.offsets_files import delete, export
from rocketrio.cli.offsets_reset import reset
from rocketrio.cli.types import GROUP, TIME_EXAMPLE, TIME_HELP, TOPIC, typed_time
from rocketrio_protocol.errors import ConfigError, Error, GroupNotExistError
from rocketrio_protocol.lag import ahead_text

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin
    from rocketrio.admin.admin_values import QueueOffsets
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


offsets.add_command(reset)
offsets.add_command(export)
offsets.add_command(delete)


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
    from rocketrio.admin.offset_files import committed_offsets

    try:
        await committed_offsets(admin, group)
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
