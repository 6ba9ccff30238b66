"""From one PostgreSQL table to another through a topic, each payment exactly once, whatever is killed on the way.

    export DSN=postgresql:///shop              # a database; `pip install 'psycopg[binary]'`
    python examples/postgres_ledger.py pay 1000      # payments, each with its line in the outbox
    python examples/postgres_ledger.py relay         # the outbox to the topic, until Ctrl-C or an outage
    python examples/postgres_ledger.py apply         # the topic to the ledger, until Ctrl-C; start several
    python examples/postgres_ledger.py check         # whether both tables agree

Three transactions, of PostgreSQL alone:

    pay      the payment and its line in the outbox                     both or neither
    relay    a line is deleted after the broker has stored its message   killed between the two it sends it again
    apply    the ledger, and the ids of the payments in it               what was applied already changes nothing

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says.
"""

import os
import sys
from contextlib import suppress
from math import inf
from typing import Any, LiteralString

import psycopg
import trio

from rocketrio import Message, MessageExt, open_consumer, open_producer

TOPIC = "ledger-payments"
AT_ONCE = 500
"""Lines of the outbox, and messages, in one transaction."""
LOOK_AGAIN = 0.2
"""Seconds between two looks at an empty outbox."""
TABLES = """
CREATE TABLE IF NOT EXISTS payments (id bigserial PRIMARY KEY, account text, cents bigint);
CREATE TABLE IF NOT EXISTS outbox (id bigint PRIMARY KEY, account text, cents bigint);
CREATE TABLE IF NOT EXISTS ledger (account text PRIMARY KEY, cents bigint, payments bigint);
CREATE TABLE IF NOT EXISTS applied (id bigint PRIMARY KEY);
"""


def connect() -> psycopg.Connection:
    connection = psycopg.connect(os.environ.get("DSN", "postgresql:///shop"), autocommit=True)
    # Several processes may start at once.
    with connection.transaction():
        connection.execute("SELECT pg_advisory_xact_lock(1)")
        connection.execute(TABLES)
    return connection


# ------------------------------------------------------------------------------------------- producer


def pay(count: int) -> None:
    """The program that takes payments. It knows no broker."""
    with connect() as connection:
        for number in range(count):
            with connection.transaction():
                connection.execute(
                    "WITH paid AS (INSERT INTO payments (account, cents) VALUES (%s, %s) RETURNING *)"
                    " INSERT INTO outbox SELECT id, account, cents FROM paid",
                    (f"account-{number % 20}", number),
                )


async def relay() -> None:
    """Send the outbox. A second relay waits until this one ends: an account's payments keep their order."""
    async with open_producer() as producer:
        with connect() as connection:
            await _in_thread(connection, "SELECT pg_advisory_lock(2)")
            while True:
                lines = await _in_thread(
                    connection, "SELECT * FROM outbox ORDER BY id LIMIT %s", AT_ONCE
                )
                async with producer.pipeline() as pipeline:
                    for number, account, cents in lines:
                        message = Message(TOPIC, b"%d" % cents, keys=str(number), tags=account)
                        await pipeline.send(message, sharding_key=account)
                # The pipeline has every answer: all of them are stored, or it has raised.
                sent = [number for number, _, _ in lines]
                if sent:
                    print(f"sent {len(sent)}", flush=True)
                await _in_thread(connection, "DELETE FROM outbox WHERE id = ANY(%s)", sent)
                if not lines:
                    await trio.sleep(LOOK_AGAIN)


async def _in_thread(
    connection: psycopg.Connection, query: LiteralString, *values: object
) -> list[tuple[Any, ...]]:
    """Run a query, to its end also if this is cancelled."""

    def run() -> list[tuple[Any, ...]]:
        cursor = connection.execute(query, values)
        return cursor.fetchall() if cursor.description else []

    return await trio.to_thread.run_sync(run)


# ------------------------------------------------------------------------------------------- consumer


class Ledger:
    """The other database; what it has committed is applied."""

    def __init__(self) -> None:
        self.connection = connect()

    def apply(self, messages: list[MessageExt]) -> None:
        """Apply messages in one transaction, which also notes that they are applied."""
        if self.connection.closed:  # The database was away the last time.
            self.connection = connect()
        with self.connection.transaction():
            for message in messages:
                # Delivered twice, or sent twice by the relay: the id is the same.
                is_new = self.connection.execute(
                    "INSERT INTO applied VALUES (%s) ON CONFLICT DO NOTHING", (int(message.keys),)
                ).rowcount
                if is_new:
                    self.connection.execute(
                        "INSERT INTO ledger VALUES (%s, %s, 1) ON CONFLICT (account) DO UPDATE"
                        " SET cents = ledger.cents + excluded.cents, payments = ledger.payments + 1",
                        (message.tags, int(message.body)),
                    )


async def apply() -> None:
    ledger = Ledger()

    async def store(messages: list[MessageExt]) -> None:
        await trio.to_thread.run_sync(ledger.apply, messages)
        print(f"applied {len(messages)}", flush=True)

    async with open_consumer(
        TOPIC, group="ledger", start_from="earliest", wait_for_topic=inf
    ) as consumer:
        # One list at a time: the connection has one transaction at a time.
        await consumer.run_batches(store, AT_ONCE, concurrency=1)


def check() -> None:
    with connect() as connection:
        query = (
            "SELECT account, sum(cents), count(*) FROM payments GROUP BY account ORDER BY account"
        )
        paid = connection.execute(query).fetchall()
        applied = connection.execute("SELECT * FROM ledger ORDER BY account").fetchall()
        [waiting] = connection.execute("SELECT count(*) FROM outbox").fetchone() or (0,)
    counts = sum(row[2] for row in paid), sum(row[2] for row in applied)
    print(f"{counts[0]} payments, {counts[1]} applied, {waiting} in the outbox")
    print("the ledger is right" if paid == applied else "the ledger is not right yet")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["pay", count]:
                pay(int(count))
            case ["relay"]:
                trio.run(relay, restrict_keyboard_interrupt_to_checkpoints=True)
            case ["apply"]:
                trio.run(apply, restrict_keyboard_interrupt_to_checkpoints=True)
            case ["check"]:
                check()
            case _:
                sys.exit(__doc__)
