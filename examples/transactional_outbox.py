"""A payment and its message: both happen, or neither, whatever dies in between. An outbox without a table for it.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/transactional_outbox.py pay /tmp/payments.db 20     # every fifth card is refused
    python examples/transactional_outbox.py crash /tmp/payments.db      # dies between payment and message
    python examples/transactional_outbox.py pay /tmp/payments.db        # the broker asks it about that one
    python examples/transactional_outbox.py listen                      # the messages, until Ctrl-C

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. The message is stored first, where none sees it; then
the database decides; then the message is delivered or dropped. Who asks later what became of it finds the answer in
the same database: the id of the message is a column of the payment. Where the payment is not there, the answer is that
it is not known yet: another process may be at it just now. Brokers ask after a minute or so, 15 times in all, and then
drop the message.
"""

import os
import sqlite3
import sys
from contextlib import closing, suppress
from functools import partial
from math import inf
from pathlib import Path

import trio

from rocketrio import Message, MessageExt, TransactionState, open_consumer, open_producer

TOPIC = "payments"
TABLE = "CREATE TABLE IF NOT EXISTS payments (message_id TEXT PRIMARY KEY, number INTEGER)"


class CardRefusedError(Exception):
    """No payment, and so no message."""


class Payments:
    """The database; what it has committed is true."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path)
        with self.connection:
            self.connection.execute(TABLE)

    def close(self) -> None:
        self.connection.close()

    def pay(self, number: int, message_id: str) -> None:
        """One database transaction: it may be about any number of tables."""
        with self.connection:
            self.connection.execute("INSERT INTO payments VALUES (?, ?)", (message_id, number))
            if number % 5 == 0:
                raise CardRefusedError

    async def what_became_of(self, message: MessageExt) -> TransactionState:
        """Asked by brokers that have heard no decision."""
        query = "SELECT number FROM payments WHERE message_id = ?"
        row = self.connection.execute(query, (message.message_id,)).fetchone()
        print(f"asked about {message.keys}: {'paid' if row else 'not known'}", flush=True)
        return TransactionState.COMMIT if row else TransactionState.UNKNOWN


def payment(number: int) -> Message:
    return Message(TOPIC, b"%d" % number, keys=f"payment-{number}")


async def pay(path: Path, count: int | None, *, crash: bool = False) -> None:
    with closing(Payments(path)) as payments:
        async with open_producer(
            group="paying", check_transaction=payments.what_became_of
        ) as producer:
            for number in range(1, (count or 0) + 1):
                with suppress(CardRefusedError):
                    async with producer.transaction(payment(number)) as transaction:
                        payments.pay(number, transaction.message_id)
            if crash:
                async with producer.transaction(payment(1001)) as transaction:
                    payments.pay(1001, transaction.message_id)
                    os._exit(1)  # No message yet, and no process left to send it.
            if count is None:
                print("ready to be asked", flush=True)
                await trio.sleep_forever()


async def listen() -> None:
    async with open_consumer(  # It may be started before the first payment makes the topic.
        TOPIC, group="listening", start_from="earliest", wait_for_topic=inf
    ) as consumer:
        async for message in consumer:
            print(f"received {message.keys}", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["pay", path]:
                trio.run(pay, Path(path), None, restrict_keyboard_interrupt_to_checkpoints=True)
            case ["pay", path, count]:
                trio.run(pay, Path(path), int(count))
            case ["crash", path]:
                trio.run(partial(pay, Path(path), 0, crash=True))
            case ["listen"]:
                trio.run(listen, restrict_keyboard_interrupt_to_checkpoints=True)
            case _:
                sys.exit(__doc__)
