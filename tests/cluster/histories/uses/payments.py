"""Transactions: a producer that comes, goes and crashes, its work, and its answers to brokers that ask.

The application is as plain as can be: work is done or it is not, and what is not done when a broker asks never will
be. So no producer may be asked about work that is under way.
"""

import random
from typing import Final

import attrs
import trio
from tests.cluster.histories.events import Note, now
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.uses.events import Checked, Worked
from tests.cluster.histories.uses.names import PAYMENTS
from tests.cluster.histories.uses.sending import note_answer, note_offer, sender
from tests.cluster.histories.world import World

from rocketrio import Error, Message, MessageExt, Producer, TransactionState
from rocketrio_protocol.remoting.tasks import background_nursery

SEND_PAUSE: Final = 1.2
SEND_TIMEOUT: Final = 6.0
"""Seconds; a half message is asked about before that, where its answer waits for a disk or slave."""
AT_ONCE: Final = 2
"""Transactions under way at the same time."""
PAYER: Final = "payer-0"
OPEN_AGAIN_PAUSE: Final = 1.0


class _NotPaidError(Exception):
    """Ends a block: the work was not done."""


@attrs.define
class _Books:
    """What the application knows, whichever of its processes asks."""

    world: World
    done: set[bytes] = attrs.Factory(set)
    unsure: dict[bytes, int] = attrs.Factory(dict)
    """How often the answer is still `UNKNOWN`."""

    def pay(self, body: bytes) -> None:
        """Do the work."""
        self.done.add(body)
        self.world.history.add(Worked(at=now(), body=body))

    async def check(self, message: MessageExt) -> TransactionState:
        """What a broker gets as the answer."""
        body = message.body
        if self.unsure.get(body):
            self.unsure[body] -= 1
            state = TransactionState.UNKNOWN
        else:
            is_done = body in self.done
            state = TransactionState.COMMIT if is_done else TransactionState.ROLLBACK
        self.world.history.add(Checked(at=now(), body=body, state=state.name))
        return state


async def pay_in_lives(world: World) -> None:
    """One process after the other; the last one stays, and answers."""
    rng, books, life = world.rng(PAYER), _Books(world), 0
    while True:
        host = world.new_host(PAYER, life)
        ends = trio.current_time() + rng.choice((6.0, 15.0, 60.0)) * rng.uniform(0.7, 1.3)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_live, world, books, host, life)
            if ends >= world.schedule.sending_ends:
                await trio.sleep_forever()
            await trio.sleep_until(ends)
            if rng.random() < 0.6:
                world.cluster.memory_network.silence(host)
            nursery.cancel_scope.cancel()
        world.history.add(Note(at=now(), who=PAYER, text="is gone"))
        await trio.sleep(rng.uniform(0.5, 4.0))
        life += 1


async def _live(world: World, books: _Books, host: str, life: int) -> None:
    while True:
        try:
            async with (
                client_at(world, host, f"payer/{life}") as client,
                sender(
                    "payers", client, timeout=SEND_TIMEOUT, check_transaction=books.check
                ) as producer,
                background_nursery() as nursery,
            ):
                for number in range(AT_ONCE):
                    nursery.start_soon(_pay, world, books, producer, f"{life}.{number}")
                await trio.sleep_forever()
        except Error as error:
            world.history.add(Note(at=now(), who=PAYER, text=f"cannot pay: {error}"))
        await trio.sleep(OPEN_AGAIN_PAUSE)


async def _pay(world: World, books: _Books, producer: Producer, name: str) -> None:
    rng, number = world.rng(f"payments {name}"), 0
    while trio.current_time() < world.schedule.sending_ends:
        message = Message(PAYMENTS, f"{name}.{number}".encode())
        number += 1
        try:
            await _transaction(world, books, producer, message, rng)
        except _NotPaidError:
            pass
        except Error as error:
            text = f"{message.body!r} {type(error).__name__}: {error}"
            world.history.add(Note(at=now(), who=PAYER, text=text))
        await trio.sleep(rng.expovariate(1 / SEND_PAUSE))


async def _transaction(
    world: World, books: _Books, producer: Producer, message: Message, rng: random.Random
) -> None:
    body = message.body
    started = note_offer(world, message)
    async with producer.transaction(message) as transaction:
        note_answer(world, message, transaction.sent, started)
        # The longest is checked meanwhile.
        await trio.sleep(rng.choice((0.0, 0.1, 0.5, 6.0)))
        is_done = rng.random() < 0.6
        if is_done:
            books.pay(body)
            # A crash here leaves done what was not told.
            await trio.sleep(rng.choice((0.0, 0.5)))
        way = rng.random()
        if way < 0.4:
            books.unsure[body] = rng.choice((0, 0, 1, 3))
            transaction.leave_open()
        elif not is_done and way < 0.7:
            transaction.rollback()
        elif not is_done:
            raise _NotPaidError
