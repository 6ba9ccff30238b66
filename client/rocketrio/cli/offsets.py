"""`rocketrio offsets`."""

from collections.abc import Sequence

import click

from rocketrio.admin import open_admin
from rocketrio.admin_values import QueueOffsets
from rocketrio.cli.common import (
    GROUP,
    TOPIC,
    json_option,
    namesrv_option,
    print_json,
    print_table,
    run,
)
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.message import MessageQueue

COLUMNS = ("broker", "queue", "min", "max", "committed", "lag")


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("--group", type=GROUP, required=True, help="The consumer group.")
@click.option(
    "--reset-to",
    metavar="first|last|OFFSET",
    help="Put the group there first: back to the oldest message, past the newest, or to this offset.",
)
@click.option("--queue", "queue_id", type=int, help="Reset only the queue of this number.")
@json_option
@namesrv_option
def offsets(
    topic: str,
    group: str,
    reset_to: str | None,
    queue_id: int | None,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Show how far a group has come in each queue of TOPIC, or put it elsewhere.

    `committed` is the next message to consume; `lag` is what lies between it and `max`. What is not known, as the
    committed offset of a group that never committed, is `unknown`, in JSON null, and never 0. (Brokers before 5.0
    answer 0 themselves for such a group on a young queue.)

    A reset wins over whatever members committed, on master and slaves. Stop them first: those that run keep their
    position, and commit nothing more of a queue that was set back until they take it over again.

    \b
    Examples:
      rocketrio offsets orders --group billing
      rocketrio offsets orders --group billing --json
      rocketrio offsets orders --group billing --reset-to first
      rocketrio offsets orders --group billing --reset-to 120 --queue 3
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            found = await admin.offsets(topic, group)
            if reset_to is not None:
                await admin.reset_offsets(group, _targets(found, reset_to, queue_id))
                found = await admin.offsets(topic, group)
        rows = [
            (
                queue.queue.broker_name,
                queue.queue.queue_id,
                queue.min_offset,
                queue.max_offset,
                queue.committed,
                queue.lag,
            )
            for queue in found
        ]
        if as_json:
            print_json([dict(zip(COLUMNS, row, strict=True)) for row in rows])
        else:
            print_table(COLUMNS, rows)

    run(work, verbose=verbose)


def _targets(
    found: Sequence[QueueOffsets], reset_to: str, queue_id: int | None
) -> dict[MessageQueue, int]:
    """Where each queue goes. Raises ConfigError for what is no place, Error where a queue's bounds are not known."""
    chosen = [one for one in found if queue_id in (None, one.queue.queue_id)]
    if not chosen:
        raise ConfigError(f"--queue {queue_id} is none of {len(found)} queues")
    if reset_to not in ("first", "last") and not reset_to.isdecimal():
        raise ConfigError(f"--reset-to {reset_to} is neither first, last nor an offset")
    targets = {}
    for one in chosen:
        if one.min_offset is None or one.max_offset is None:
            raise Error(f"the bounds of {one.queue} are not known, nothing was reset")
        place = {"first": one.min_offset, "last": one.max_offset}
        target = place[reset_to] if reset_to in place else int(reset_to)
        if not one.min_offset <= target <= one.max_offset:
            raise ConfigError(
                f"--reset-to {reset_to} is not within {one.min_offset} and {one.max_offset} of {one.queue}"
            )
        targets[one.queue] = target
    return targets
