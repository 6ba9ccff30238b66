"""`rocketrio topic create|list|show|delete`."""

import click

from rocketrio.administration.admin import MAX_QUEUES, open_admin
from rocketrio.administration.admin_values import TopicDescription
from rocketrio.cli.common import TOPIC, json_option, namesrv_option, print_json, print_table, run
from rocketrio.producing.outgoing import DEFAULT_TOPIC_QUEUE_NUMS


@click.group()
def topic() -> None:
    """Create, list, show and delete topics.

    \b
    Examples:
      rocketrio topic create orders --queues 8
      rocketrio topic list
      rocketrio topic show orders
      rocketrio topic delete orders
    """


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option(
    "--queues",
    type=click.IntRange(1, MAX_QUEUES),
    default=DEFAULT_TOPIC_QUEUE_NUMS,
    show_default=True,
    help="Queues on each broker.",
)
@click.option("--cluster", help="Only on the masters of this cluster; by default on all.")
@json_option
@namesrv_option
def create(
    name: str,
    queues: int,
    cluster: str | None,
    as_json: bool,
    namesrv: tuple[str, ...],
    verbose: int,
) -> None:
    """Create TOPIC, or change its number of queues.

    \b
    Examples:
      rocketrio topic create orders
      rocketrio topic create orders --queues 8 --cluster DefaultCluster
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            brokers = await admin.create_topic(name, queues=queues, cluster=cluster)
        if as_json:
            print_json({"topic": name, "queues": queues, "brokers": brokers})
        else:
            click.echo(f"created {name} with {queues} queues on {', '.join(brokers)}")

    run(work, verbose=verbose)


@topic.command(name="list")
@click.option("--all", "include_system", is_flag=True, help="Also RocketMQ's own and retry topics.")
@json_option
@namesrv_option
def list_topics(
    include_system: bool, as_json: bool, namesrv: tuple[str, ...], verbose: int
) -> None:
    """List topics, a name a line.

    \b
    Examples:
      rocketrio topic list
      rocketrio topic list --all --json
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            names = await admin.topics(include_system=include_system)
        if as_json:
            print_json([{"topic": name} for name in names])
        else:
            for name in names:
                click.echo(name)

    run(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@json_option
@namesrv_option
def show(name: str, as_json: bool, namesrv: tuple[str, ...], verbose: int) -> None:
    """Show where TOPIC lives and what its queues hold.

    \b
    Examples:
      rocketrio topic show orders
      rocketrio topic show orders --json
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            described = await admin.topic(name)
        if as_json:
            print_json(_as_json(described))
        else:
            _print(described)

    run(work, verbose=verbose)


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@namesrv_option
def delete(name: str, namesrv: tuple[str, ...], verbose: int) -> None:
    """Delete TOPIC with all its messages.

    \b
    Example:
      rocketrio topic delete orders
    """

    async def work() -> None:
        async with open_admin(name_servers=namesrv) as admin:
            brokers = await admin.delete_topic(name)
        click.echo(f"deleted {name} on {', '.join(brokers)}")

    run(work, verbose=verbose)


def _as_json(described: TopicDescription) -> dict[str, object]:
    route = described.route
    return {
        "topic": described.topic,
        "brokers": [
            {
                "broker": broker.broker_name,
                "cluster": broker.cluster,
                "addresses": {str(id_): addr for id_, addr in sorted(broker.broker_addrs.items())},
                "read_queues": data.read_queue_nums,
                "write_queues": data.write_queue_nums,
                "readable": data.is_readable,
                "writable": data.is_writable,
            }
            for broker in route.broker_datas
            for data in route.queue_datas
            if data.broker_name == broker.broker_name
        ],
        "queues": [
            {
                "broker": offsets.queue.broker_name,
                "queue": offsets.queue.queue_id,
                "min": offsets.min_offset,
                "max": offsets.max_offset,
            }
            for offsets in described.queues
        ],
    }


def _print(described: TopicDescription) -> None:
    for broker in described.route.broker_datas:
        places = ", ".join(f"{id_}={addr}" for id_, addr in sorted(broker.broker_addrs.items()))
        click.echo(f"{described.topic} on {broker.broker_name} of {broker.cluster}: {places}")
    rows = [
        (offsets.queue.broker_name, offsets.queue.queue_id, offsets.min_offset, offsets.max_offset)
        for offsets in described.queues
    ]
    print_table(("broker", "queue", "min", "max"), rows)
