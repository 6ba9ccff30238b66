"""The master is killed while a group reads, and comes back: reading goes on, no committed offset goes backwards.

The outage begins at two fifths and ends at four fifths of the topic.
"""

from collections.abc import Mapping, Sequence
from time import perf_counter

import trio
from cluster import MASTER_ID, Demo
from rich.table import Table
from steps import BATCH, READ_LIMIT, TOPIC, show_tables

from rocketrio import Consumer, MessageQueue, open_client, open_consumer


async def survive_outage(demo: Demo, total: int) -> None:
    """The master is killed mid-way and comes back; no offset goes backwards."""
    assert demo.master is not None
    demo.report.step(7, "kill -9 of the master mid-way, and its return")
    history: dict[MessageQueue, list[int]] = {}
    moments: list[str] = []
    async with open_consumer(
        TOPIC,
        group="demo-outage",
        start_from="earliest",
        auto_commit=False,
        name_servers=demo.name_servers,
    ) as consumer:

        async def note(moment: str) -> None:
            moments.append(moment)
            for queue in consumer.assignment:
                history.setdefault(queue, []).append(await consumer.committed_offset(queue))

        read = await _read_until(consumer, 0, total * 2 // 5)
        await consumer.commit()
        await note("before the kill")
        await demo.master.kill()
        killed = perf_counter()
        demo.report.say(f"killed the master (pid {demo.master.process.pid}) at {read:,}")
        cached = sum(queue.cached_messages for queue in consumer.statistics().queues.values())
        read = await _read_until(consumer, read, read + cached + 1)
        gap = perf_counter() - killed
        read = await _read_until(consumer, read, total * 4 // 5)
        await consumer.commit()
        await note("at the slave, the master down")
        show_tables(demo, "while the master is down", consumer)
        demo.report.check(
            "reading went on from the slave",
            holds=read >= total * 4 // 5,
            detail=f"{read:,} messages; the first one not yet pulled before the kill came "
            f"{gap * 1000:,.0f} ms after it",
        )
        demo.master = await demo.start_broker(
            "master",
            broker_id=MASTER_ID,
            listen=demo.master.address,
            ha_listen=demo.master.ready["ha_address"],
        )
        demo.report.say(f"the master is back (pid {demo.master.process.pid})")
        # Asked of the master itself: the client might still ask the slave.
        returned = await _committed_at_master(demo, "demo-outage", list(history))
        await note("the master back")
        read = await _read_until(consumer, read, total)
        await consumer.commit()
        await note("at the end")
        at_master = await _committed_at_master(demo, "demo-outage", list(history))
    demo.report.show(_offsets_table(moments, history))
    before, at_slave = (sum(offsets[look] for offsets in history.values()) for look in (0, 1))
    demo.report.check(
        "the returned master has what the slave got",
        holds=sum(returned.values()) == at_slave > before,
        detail=f"committed {before:,} before the kill, {at_slave:,} at the slave, "
        f"{sum(returned.values()):,} as the master tells on its return (Apache 5.3.3 tells 0)",
    )
    demo.report.check(
        "no offset went backwards",
        holds=bool(history) and all(offsets == sorted(offsets) for offsets in history.values()),
        detail=f"{len(history)} queues, {len(moments)} looks each",
    )
    demo.report.check(
        "commits are back at the master",
        holds=sum(at_master.values()) == total,
        detail=f"the master holds {sum(at_master.values()):,} of {total:,}",
    )


def _offsets_table(moments: Sequence[str], history: Mapping[MessageQueue, Sequence[int]]) -> Table:
    """The group's committed offsets, a line a queue."""
    table = Table("committed", *moments, box=None, pad_edge=False, header_style="bold")
    for column in table.columns[1:]:
        column.justify = "right"
    for queue, offsets in sorted(history.items()):
        table.add_row(f"queue {queue.queue_id}", *[f"{offset:,}" for offset in offsets])
    sums = [sum(offsets) for offsets in zip(*history.values(), strict=True)]
    table.add_row("together", *[f"{offset:,}" for offset in sums], style="bold")
    return table


async def _read_until(consumer: Consumer, read: int, goal: int) -> int:
    with trio.move_on_after(READ_LIMIT):
        while read < goal:
            read += len(await consumer.receive_batch(min(BATCH, goal - read)))
    return read


async def _committed_at_master(
    demo: Demo, group: str, queues: list[MessageQueue]
) -> dict[MessageQueue, int]:
    assert demo.master is not None
    async with open_client(name_servers=demo.name_servers) as client:
        api = client.api
        return {
            queue: await api.query_consumer_offset(demo.master.address, group, queue)
            for queue in queues
        }
