"""`rocketrio cluster list`."""

import click

from rocketrio.admin import open_admin
from rocketrio.cli.common import json_option, namesrv_option, print_json, print_table, run

_COLUMNS = (
    "cluster",
    "name",
    "id",
    "role",
    "address",
    "ha_address",
    "min_physical_offset",
    "max_physical_offset",
)


@click.group()
def cluster() -> None:
    """Look at brokers.

    \b
    Example:
      rocketrio cluster list
    """


@cluster.command(name="list")
@json_option
@namesrv_option
def list_brokers(as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """List the registered brokers, a line each.

    A slave has caught up when its max_physical_offset is its master's. What a broker does not tell is `unknown`, in
    JSON null.

    \b
    Examples:
      rocketrio cluster list
      rocketrio cluster list --json --namesrv 10.0.0.1:9876
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            brokers = await admin.brokers()
        rows = [[getattr(broker, column) for column in _COLUMNS] for broker in brokers]
        if as_json:
            print_json([dict(zip(_COLUMNS, row, strict=True)) for row in rows])
        else:
            print_table(_COLUMNS, rows)

    run(work, verbose=verbose)
