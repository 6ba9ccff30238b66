"""`rocketrio offsets`."""

import click

from rocketrio.admin import open_admin
from rocketrio.cli.common import (
    GROUP,
    TOPIC,
    json_option,
    namesrv_option,
    print_json,
    print_table,
    run,
)


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("--group", type=GROUP, required=True, help="The consumer group.")
@json_option
@namesrv_option
def offsets(topic: str, group: str, as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """Show how far a group has come in each queue of TOPIC.

    `committed` is the next message to consume; `lag` is what lies between it and `max`. What is not known, as the
    committed offset of a group that never committed, is `unknown`, in JSON null, and never 0. (Brokers before 5.0
    answer 0 themselves for such a group on a young queue.)

    \b
    Examples:
      rocketrio offsets orders --group billing
      rocketrio offsets orders --group billing --json
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            found = await admin.offsets(topic, group)
        columns = ("broker", "queue", "min", "max", "committed", "lag")
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
            print_json([dict(zip(columns, row, strict=True)) for row in rows])
        else:
            print_table(columns, rows)

    run(work, verbose=verbose)
