"""Caches of many processes that forget a price when it changes: every process gets every message.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/cache_invalidator.py serve /tmp/shop.db a     # in as many shells as you like, until Ctrl-C
    python examples/cache_invalidator.py change /tmp/shop.db sku-7 1299

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Each process keeps its own progress, in a file of its own:
one that was away forgets first what changed meanwhile. Here a process starts with an empty cache, and so it begins with
what comes now; its file matters where caches outlive their processes.
"""

import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import trio

from rocketrio import Consumer, Message, open_admin, open_consumer, open_producer

TOPIC = "price-changes"
LOOK = 0.5
"""Seconds between two customers."""


class Prices:
    """Read through a cache: a hit costs nothing, a miss a query."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        self.connection.execute("CREATE TABLE IF NOT EXISTS prices (sku TEXT PRIMARY KEY, cents)")
        self.cached: dict[str, int | None] = {}

    def close(self) -> None:
        self.connection.close()

    def price(self, sku: str) -> int | None:
        if sku not in self.cached:
            query = "SELECT cents FROM prices WHERE sku = ?"
            row: tuple[int] | None = self.connection.execute(query, (sku,)).fetchone()
            self.cached[sku] = row[0] if row else None
        return self.cached[sku]

    def change(self, sku: str, cents: int) -> None:
        with self.connection:
            self.connection.execute("REPLACE INTO prices VALUES (?, ?)", (sku, cents))

    async def forget_changed(self, consumer: Consumer, name: str) -> None:
        async for message in consumer:
            self.cached.pop(message.keys, None)
            print(f"{name} forgets {message.keys}", flush=True)


async def serve(path: Path, name: str) -> None:
    with closing(Prices(path)) as prices:
        async with open_admin() as admin:
            await admin.create_topic(TOPIC)  # Nothing happens where it is there.
        async with (
            open_consumer(
                TOPIC,
                group="price-caches",
                mode="broadcasting",
                offsets_path=path.with_suffix(f".{name}.json"),
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(prices.forget_changed, consumer, name)
            shown: int | None = -1
            while True:  # A customer asks for the price again and again.
                if (price := prices.price("sku-7")) != shown:
                    print(f"{name}: sku-7 costs {price}", flush=True)
                    shown = price
                await trio.sleep(LOOK)


async def tell(sku: str) -> None:
    async with open_producer(group="prices") as producer:
        await producer.send(Message(TOPIC, b"", keys=sku))


async def change(path: Path, sku: str, cents: int) -> None:
    with closing(Prices(path)) as prices:
        # First the change, then the news: who hears it finds the new price.
        prices.change(sku, cents)
    await tell(sku)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["serve", path, name]:
                trio.run(serve, Path(path), name, restrict_keyboard_interrupt_to_checkpoints=True)
            case ["change", path, sku, cents]:
                trio.run(change, Path(path), sku, int(cents))
            case _:
                sys.exit(__doc__)
