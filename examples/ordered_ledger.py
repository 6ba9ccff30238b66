"""A ledger: the entries of an account are applied one after the other, each once, whichever member has its queue.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/ordered_ledger.py keep /tmp/ledger.db    # until Ctrl-C; a second one shares the accounts
    python examples/ordered_ledger.py post 100               # in another shell

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. Money goes into an account before it is taken out again,
so that an entry out of order would overdraw it. An entry that fails is tried again in its place, and what follows it
waits. An entry that comes twice, after a crash, is seen by its offset, which is stored with the balance.
"""

import sqlite3
import sys
from contextlib import closing, suppress
from pathlib import Path

import attrs
import msgspec
import trio

from rocketrio import Message, MessageExt, open_admin, open_consumer, open_producer

TOPIC, GROUP = "ledger-entries", "ledger"
ACCOUNTS = ("ada", "bea", "cleo", "dora", "eve")
OPEN_LIMIT, WRITE_LIMIT = 30.0, 1.0
"""Seconds to wait for another process; while an entry waits, nothing else of this one goes on."""
TABLES = """
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER CHECK (cents >= 0));
    CREATE TABLE IF NOT EXISTS applied (queue TEXT PRIMARY KEY, next INTEGER);
"""


@attrs.frozen
class Entry:
    """Cents into an account, or out of it."""

    account: str
    cents: int


class Ledger:
    """The database; an entry and how far its queue is are stored together."""

    def __init__(self, path: Path) -> None:
        # Another keeper may be writing one entry after the other: nothing waits for us yet, so we can wait for it.
        self.connection = sqlite3.connect(path, timeout=OPEN_LIMIT)
        self.connection.executescript(TABLES)
        self.connection.execute(f"PRAGMA busy_timeout = {WRITE_LIMIT * 1000:.0f}")
        self.applied = 0

    def close(self) -> None:
        self.connection.close()

    def apply(self, queue: str, offset: int, entry: Entry) -> None:
        """Raises sqlite3.IntegrityError if it would overdraw, OperationalError if another process writes too long."""
        with self.connection:
            (following,) = self.connection.execute(
                "SELECT coalesce(max(next), 0) FROM applied WHERE queue = ?", (queue,)
            ).fetchone()
            if offset < following:
                return
            self.connection.execute(
                "INSERT OR IGNORE INTO accounts VALUES (?, 0)", (entry.account,)
            )
            self.connection.execute(
                "UPDATE accounts SET cents = cents + ? WHERE name = ?", (entry.cents, entry.account)
            )
            self.connection.execute("REPLACE INTO applied VALUES (?, ?)", (queue, offset + 1))
        self.applied += 1

    def balances(self) -> dict[str, int]:
        return dict(self.connection.execute("SELECT name, cents FROM accounts ORDER BY name"))


async def keep(path: Path) -> None:
    async with open_admin() as admin:
        await admin.create_topic(TOPIC)  # Nothing happens where it is there.
    with closing(Ledger(path)) as ledger:

        async def handle(message: MessageExt) -> None:
            queue = f"{message.broker_name}:{message.queue_id}"
            ledger.apply(queue, message.queue_offset, message.json(Entry))
            if ledger.applied % 50 == 0:
                print(f"applied {ledger.applied}", flush=True)

        try:
            async with open_consumer(
                TOPIC, group=GROUP, start_from="earliest", orderly=True
            ) as consumer:
                print(f"keeping {len(consumer.assignment)} queues", flush=True)
                await consumer.run(handle)
        finally:
            print(f"applied {ledger.applied} entries, now {ledger.balances()}", flush=True)


def posting(entry: Entry) -> Message:
    return Message(TOPIC, msgspec.json.encode(entry), keys=entry.account)


async def post(count: int) -> None:
    async with open_producer(group="bank") as producer, producer.pipeline() as pipeline:
        for _ in range(count):
            for account in ACCOUNTS:
                for cents in (100, -100):
                    entry = Entry(account, cents)
                    await pipeline.send(posting(entry), sharding_key=account)
    print(f"posted {2 * count * len(ACCOUNTS)} entries")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["keep", path]:
                trio.run(keep, Path(path), restrict_keyboard_interrupt_to_checkpoints=True)
            case ["post", count]:
                trio.run(post, int(count))
            case _:
                sys.exit(__doc__)
