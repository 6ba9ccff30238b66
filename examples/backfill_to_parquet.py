"""Copy a topic into Parquet files, each message into exactly one of them, however often this is stopped and started.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/produce.py
    python examples/backfill_to_parquet.py orders /tmp/orders

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Needs `pip install '.[columns]'`. It ends when
everything that was there is copied, or by Ctrl-C.

A file is named by its queue and its first offset, and is complete before its messages are committed. Who is killed in
between begins at the same offset again, and writes the same file again.
"""

# pyright: basic
# (Arrow's Python library has no types.)

import os
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import trio

from rocketrio import Prefetch, open_consumer

COLUMNS = ("broker_name", "queue_id", "queue_offset", "store_time", "keys", "tags", "body")
PULLED_AHEAD = 20_000
"""Messages of a queue, and so about the rows of a file."""


def write(folder: Path, table: pa.Table) -> int:
    """One file a queue of this table; how many."""
    queues = table.group_by(["broker_name", "queue_id"]).aggregate([("queue_offset", "min")])
    for queue in queues.to_pylist():
        is_here = (pc.field("broker_name") == queue["broker_name"]) & (
            pc.field("queue_id") == queue["queue_id"]
        )
        name = f"{queue['broker_name']}-{queue['queue_id']}-{queue['queue_offset_min']:020}.parquet"
        unfinished = folder / f".{name}"
        pq.write_table(table.filter(is_here), unfinished, compression="zstd")
        with unfinished.open("rb") as file:
            os.fsync(file)  # On disk before its messages are committed.
        unfinished.rename(folder / name)
    return len(queues)


async def main(topic: str, folder: Path) -> None:
    rows = files = 0
    try:
        async with open_consumer(
            topic,
            group="backfill",
            start_from="earliest",
            auto_commit=False,
            prefetch=Prefetch(queue_messages=PULLED_AHEAD),
        ) as consumer:
            print("copying", flush=True)
            read = partial(consumer.read_arrow, max_wait=1.0, columns=COLUMNS)
            async for table in consumer.until_caught_up(read):
                files += await trio.to_thread.run_sync(write, folder, table)
                await consumer.commit()
                rows += table.num_rows
    finally:
        print(f"{rows} messages of {topic} in {files} files under {folder}")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        folder = Path(sys.argv[2])
        folder.mkdir(parents=True, exist_ok=True)
        trio.run(main, sys.argv[1], folder, restrict_keyboard_interrupt_to_checkpoints=True)
