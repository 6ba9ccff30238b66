"""The steps of ordinary days, in the order they run: start, publish, replicate, and later consume.

Each prints as it goes and notes what was true in the report.
"""

from collections import Counter
from time import perf_counter

import trio
from cluster import ANY_PORT, MASTER_ID, SLAVE_ID, Demo
from flights import Flight

from rocketrio import Consumer, Message, open_admin, open_consumer, open_producer

TOPIC = "flights"
QUEUES = 4
BATCH = 2000
"""Messages handed out at once."""
READ_LIMIT = 180.0
"""Seconds for reading the whole topic."""
MASTER_HOME, SLAVE_HOME = "the master", "the slave"


async def start_cluster(demo: Demo) -> None:
    """A name server, a master and a slave, each a process of its own."""
    demo.report.step(1, "A name server, a master and a slave, each a process of its own")
    demo.name_server = await demo.processes.start("namesrv", "namesrv", "--listen", ANY_PORT)
    demo.master = await demo.start_broker("master", broker_id=MASTER_ID)
    demo.slave = await demo.start_broker("slave", broker_id=SLAVE_ID)
    for server in (demo.name_server, demo.master, demo.slave):
        fields = " ".join(f"{name}={value}" for name, value in server.ready.items())
        demo.report.say(f"{fields} pid={server.process.pid}")
    demo.report.say(f"data under {demo.data}")


async def publish(demo: Demo, flights: list[Flight]) -> None:
    """Every flight as one message, ordered by aircraft."""
    demo.report.step(2, f"Publish {len(flights):,} flights, ordered by aircraft")
    started = perf_counter()
    async with open_admin(name_servers=demo.name_servers) as admin:
        await admin.create_topic(TOPIC, queues=QUEUES, cluster="demo")
    async with open_producer(group="demo", name_servers=demo.name_servers) as producer:
        with demo.report.progress("sent", len(flights), "messages") as bar:
            async with producer.pipeline() as pipeline:
                for number, flight in enumerate(flights, start=1):
                    message = Message(TOPIC, flight.body, keys=flight.key, tags=flight.tag)
                    await pipeline.send(message, sharding_key=flight.order_key)
                    if number % BATCH == 0:
                        bar.advance(BATCH)
                await pipeline.flush()
                bar.advance(len(flights) % BATCH)
                stored = {
                    status.name: count for status, count in pipeline.statistics().stored.items()
                }
    rate = len(flights) / (perf_counter() - started)
    demo.report.check(
        "every flight is stored",
        holds=stored == {"SEND_OK": len(flights)},
        detail=f"{stored}, {rate:,.0f} messages/s over {QUEUES} queues",
    )


async def watch_replication(demo: Demo) -> None:
    """The slave has the same bytes."""
    demo.report.step(3, "The slave catches up, byte for byte")
    demo.report.check(
        "the slave has every byte",
        holds=await demo.wait_level("bytes at the slave"),
        detail="acknowledged as far as the master's log goes",
    )
    await demo.check_same_log("both commit logs are the same")


async def consume_group(demo: Demo, total: int) -> None:
    """A group reads everything; the broker moves it to the slave and, caught up, back."""
    demo.report.step(6, "A consumer group reads it all: master, slave, and back")
    homes: list[str] = []
    airports: Counter[str] = Counter()
    read = 0
    async with open_consumer(
        TOPIC, group="demo-board", start_from="earliest", name_servers=demo.name_servers
    ) as consumer:

        def look() -> None:
            home = _home(consumer)
            if homes[-1:] != [home]:
                homes.append(home)
                show_tables(demo, f"after {read:,} messages: {home}", consumer)

        look()
        with (
            demo.report.progress("read", total, "messages") as bar,
            trio.move_on_after(READ_LIMIT),
        ):
            while read < total:
                batch = await consumer.receive_batch(BATCH)
                read += len(batch)
                bar.advance(len(batch))
                airports.update(message.tags or "" for message in batch)
                look()
            while homes[-1] != MASTER_HOME:
                await trio.sleep(0.1)
                look()
        await consumer.commit()
    demo.report.check(
        "the group has read every message once",
        holds=airports.total() == total,
        detail=f"{read:,} messages, by airport {dict(sorted(airports.items()))}",
    )
    demo.report.check(
        "pulls moved to the slave and back to the master",
        holds=homes[0] == homes[-1] == MASTER_HOME and SLAVE_HOME in homes,
        detail=" → ".join(homes),
    )


def show_tables(demo: Demo, title: str, consumer: Consumer) -> None:
    demo.report.routing_tables(
        title,
        consumer.client.routing.broker_addr_table,
        {
            f"{queue.broker_name}/{queue.queue_id}": node
            for queue, node in consumer.pull_from_which_node_table.items()
        },
    )


def _home(consumer: Consumer) -> str:
    """Where the next pulls go to."""
    nodes = set(consumer.pull_from_which_node_table.values())
    if nodes == {MASTER_ID}:
        return MASTER_HOME
    return SLAVE_HOME if MASTER_ID not in nodes else "both"
