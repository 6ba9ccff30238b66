"""A range of a topic as a DuckDB file, each message in it once, however often this is killed and started again.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio --slaves 1 &
    python examples/produce.py
    pip install '.[columns]' duckdb
    python examples/range_to_duckdb.py /tmp/orders.duckdb orders                            # what is there now
    python examples/range_to_duckdb.py /tmp/day.duckdb orders 2026-11-27T00:00+01:00 2026-11-28T00:00+01:00

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. A file holds one range: started again, this continues
where the file ends, and without times it goes on to the present end of the topic. Where each queue is, is a table of
the same file, written in the transaction of the messages; the broker is not asked to remember anything.

Messages come from a slave while one is within five seconds of its master. In memory are at most one table of ROWS rows,
what is pulled ahead (PULLED_AHEAD bytes), and what DuckDB may use.
"""

# pyright: basic
# (Arrow's Python library has no types.)

import sys
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import trio

from rocketrio import Consumer, MessageQueue, Prefetch, open_admin, open_client, open_consumer

ROWS = 20_000
PULLED_AHEAD = 64 * 1024 * 1024
COLUMNS = ("broker_name", "queue_id", "queue_offset", "store_time", "keys", "tags", "body")
TABLES = """
    SET memory_limit = '512MB';
    CREATE TABLE IF NOT EXISTS messages (
        broker_name TEXT, queue_id INTEGER, queue_offset BIGINT,
        store_time TIMESTAMPTZ, keys TEXT, tags TEXT, body BLOB);
    CREATE TABLE IF NOT EXISTS source (range TEXT);
    CREATE TABLE IF NOT EXISTS progress (broker_name TEXT, queue_id INTEGER, next BIGINT, stop BIGINT);
"""
STORE = """
    INSERT INTO messages SELECT batch.* FROM batch JOIN progress USING (broker_name, queue_id)
        WHERE queue_offset >= next AND queue_offset < stop;
    UPDATE progress SET next = least(read.next, stop)
        FROM (SELECT broker_name, queue_id, max(queue_offset) + 1 AS next FROM batch GROUP BY ALL) read
        WHERE progress.broker_name = read.broker_name AND progress.queue_id = read.queue_id;
"""


class Range:
    """The file: the messages of a range, and how far each queue is read."""

    def __init__(self, path: Path, name: str) -> None:
        self.connection = duckdb.connect(str(path))
        self.connection.execute(TABLES)
        known = self.connection.execute("SELECT range FROM source").fetchall()
        if not known:
            self.connection.execute("INSERT INTO source VALUES (?)", [name])
        elif known != [(name,)]:
            sys.exit(f"{path} holds the range {known[0][0]!r}, not {name!r}: use another file")

    def progress(self, topic: str) -> dict[MessageQueue, tuple[int, int]]:
        """Return the next offset and the end of each queue."""
        rows = self.connection.execute("SELECT * FROM progress").fetchall()
        return {MessageQueue(topic, row[0], row[1]): (row[2], row[3]) for row in rows}

    def set_progress(self, places: Mapping[MessageQueue, tuple[int, int]]) -> None:
        rows = [(queue.broker_name, queue.queue_id, *place) for queue, place in places.items()]
        self.connection.execute("BEGIN; DELETE FROM progress")
        self.connection.executemany("INSERT INTO progress VALUES (?, ?, ?, ?)", rows)
        self.connection.execute("COMMIT")

    def store(self, batch: pa.Table) -> int:
        """Add the messages of a table that are in the range; return how many the file has."""
        self.connection.register("batch", batch)
        self.connection.execute(f"BEGIN; {STORE} COMMIT")
        self.connection.unregister("batch")
        [(count,)] = self.connection.execute("SELECT count(*) FROM messages").fetchall()
        return int(count)


async def places(
    consumer: Consumer,
    known: Mapping[MessageQueue, tuple[int, int]],
    since: datetime | None,
    until: datetime | None,
) -> dict[MessageQueue, tuple[int, int]]:
    """Return where to read each queue from, and where to stop."""
    first, last = await consumer.min_offsets(), await consumer.max_offsets()
    begin = first if since is None else await consumer.seek_to_time(since)
    end = last if until is None else await consumer.seek_to_time(until)
    found = {}
    for queue in consumer.assignment:
        (least, start, stop) = (first[queue], begin[queue], end[queue])
        if least is None or start is None or stop is None:
            sys.exit(f"the bounds of {queue} are unknown: a broker does not answer")
        if queue in known:
            start = known[queue][0]
            stop = stop if until is None else known[queue][1]
        if start < least and start < stop:
            print(f"{queue}: {min(least, stop) - start} messages were deleted unread", flush=True)
        found[queue] = (max(start, least), stop)
    return found


async def main(path: Path, topic: str, times: list[datetime]) -> None:
    since, until = times or (None, None)
    target = Range(path, f"{topic} from {since or 'the first'} to {until or 'the last'}")
    async with open_client() as client:
        async with open_admin(client=client) as admin:
            queues = [one.queue for one in (await admin.topic(topic)).queues]
        async with open_consumer(
            queues=queues,
            group="range-to-duckdb",  # It commits nothing, and is no member.
            auto_commit=False,
            read_from="replica",
            max_staleness=5.0,
            prefetch=Prefetch(queue_messages=ROWS, total_bytes=PULLED_AHEAD),
            client=client,
        ) as consumer:
            todo = await places(consumer, target.progress(topic), since, until)
            target.set_progress(todo)
            for queue, (start, _) in todo.items():
                consumer.seek(queue, start)
            ends = {queue: stop for queue, (_, stop) in todo.items()}
            read = partial(consumer.read_arrow, ROWS, max_wait=1.0, columns=COLUMNS)
            print("reading", flush=True)
            async for table in consumer.until_caught_up(read, ends):
                print(f"{await trio.to_thread.run_sync(target.store, table)} messages", flush=True)
                # What is stored behind the end would be read for nothing.
                consumer.pause(
                    queue for queue, end in ends.items() if (consumer.position(queue) or 0) >= end
                )
            replicas = {one.pulled_from for one in consumer.statistics().queues.values()}
    print("complete, read from", *sorted(addr for addr in replicas if addr))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case [path, topic, *words] if len(words) in (0, 2):
                times = [datetime.fromisoformat(word).astimezone(UTC) for word in words]
                if any(time > datetime.now(UTC) for time in times):
                    sys.exit("a range ends in the past: what is stored later would be missing")
                trio.run(
                    main, Path(path), topic, times, restrict_keyboard_interrupt_to_checkpoints=True
                )
            case _:
                sys.exit(__doc__)
