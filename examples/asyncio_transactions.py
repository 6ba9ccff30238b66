"""An asyncio service that sells: the sale in its table and its message, both or neither, whatever is killed.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/asyncio_transactions.py serve /tmp/shop.db 8080    # until Ctrl-C
    python examples/asyncio_transactions.py buy 8080 order-1 2         # in another shell: two of a hundred
    rocketrio consume sales --group watching                           # the messages

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. The message of a sale is stored first, where consumers do
not see it. Then one transaction of the database sells, and notes in the table `decisions` that the message is to be
delivered. A process that is killed before or after that leaves the message undecided, and the broker asks this service,
or the next one, what became of it. Where no decision is noted, the answer notes one: a rollback. The sale, if another
process is still at it, then finds the place taken and fails: the first to write the row has decided.
"""

import asyncio
import sqlite3
import sys
from collections.abc import Generator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from rocketrio import Error, Message, MessageExt, Producer, TransactionState, open_producer
from rocketrio.aio import TrioSide, open_trio

TOPIC, ARTICLE = "sales", "teapot"
LOCK_LIMIT = 60.0
"""Seconds to wait for another process that writes."""
TABLES = """
    CREATE TABLE IF NOT EXISTS stock (article TEXT PRIMARY KEY, pieces INTEGER);
    CREATE TABLE IF NOT EXISTS sales (number TEXT PRIMARY KEY, pieces INTEGER);
    CREATE TABLE IF NOT EXISTS decisions (message_id TEXT PRIMARY KEY, decision TEXT);
"""


class NotSoldError(Exception):
    """No sale, and so no message."""


class Shop:
    """The state of the service. Its functions block, so they run in threads, each with a connection of its own."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with closing(sqlite3.connect(path, timeout=LOCK_LIMIT)) as connection, connection:
            connection.executescript(TABLES)
            connection.execute("INSERT OR IGNORE INTO stock VALUES (?, 100)", (ARTICLE,))

    @contextmanager
    def transaction(self) -> Generator[sqlite3.Connection]:
        with closing(sqlite3.connect(self.path, timeout=LOCK_LIMIT)) as connection, connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection

    def sell(self, number: str, pieces: int, message_id: str) -> None:
        with self.transaction() as connection:
            try:
                connection.execute("INSERT INTO decisions VALUES (?, 'COMMIT')", (message_id,))
                connection.execute("INSERT INTO sales VALUES (?, ?)", (number, pieces))
            except sqlite3.IntegrityError:
                raise NotSoldError("sold before, or given up") from None
            left = connection.execute(
                "UPDATE stock SET pieces = pieces - ? WHERE article = ? AND pieces >= ?",
                (pieces, ARTICLE, pieces),
            )
            if not left.rowcount:
                raise NotSoldError("too few are left")

    def decision(self, message_id: str) -> TransactionState:
        """Return what was decided; if nothing was, a rollback is from now on."""
        with self.transaction() as connection:
            connection.execute(
                "INSERT OR IGNORE INTO decisions VALUES (?, 'ROLLBACK')", (message_id,)
            )
            query = "SELECT decision FROM decisions WHERE message_id = ?"
            [decision] = connection.execute(query, (message_id,)).fetchone()
        return TransactionState[decision]


class Service:
    """The asyncio part: a line in, `order-1 2`, and a line out."""

    def __init__(self, shop: Shop, side: TrioSide) -> None:
        self.shop = shop
        self.side = side
        self.producer: Producer | None = None

    async def sell(self, number: str, pieces: int) -> None:
        assert self.producer is not None
        message = Message(TOPIC, b"%d" % pieces, keys=number)
        async with self.side.open(
            self.producer.transaction(message, sharding_key=ARTICLE)
        ) as transaction:
            print(f"{number} begun", flush=True)
            await asyncio.to_thread(self.shop.sell, number, pieces, transaction.message_id)
            print(f"{number} sold", flush=True)

    async def what_became_of(self, message: MessageExt) -> TransactionState:
        """Asked by brokers that have received no decision."""
        decision = await asyncio.to_thread(self.shop.decision, message.message_id)
        print(f"asked about {message.keys}: {decision.name}", flush=True)
        return decision

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            try:
                number, pieces = (await reader.readline()).decode().split()
                await self.sell(number, int(pieces))
                answer = "sold"
            except (NotSoldError, ValueError) as error:
                answer = f"not sold: {error}"
            except Error as error:
                # Asked again with the same number, the database knows.
                answer = f"ask again: {error}"
            writer.write(f"{answer}\n".encode())
            await writer.drain()


async def serve(path: Path, port: int) -> None:
    async with open_trio() as side:
        service = Service(Shop(path), side)

        async def check(message: MessageExt) -> TransactionState:  # Called on the trio side.
            return await side.on_asyncio(service.what_became_of, message)

        async with side.open(open_producer(group="shop", check_transaction=check)) as producer:
            service.producer = producer
            async with await asyncio.start_server(service.handle, "127.0.0.1", port) as server:
                print("selling", flush=True)
                await server.serve_forever()


async def buy(port: int, number: str, pieces: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(f"{number} {pieces}\n".encode())
        print((await reader.readline()).decode(), end="")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["serve", path, port]:
                asyncio.run(serve(Path(path), int(port)))
            case ["buy", port, number, pieces]:
                asyncio.run(buy(int(port), number, pieces))
            case _:
                sys.exit(__doc__)
