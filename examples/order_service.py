"""An order service: orders are billed by eight workers, failures are tried again later, what never works is set aside.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/order_service.py serve         # until Ctrl-C
    python examples/order_service.py order 100     # in another shell; every tenth has no amount
    python examples/order_service.py dead          # what was set aside
    python examples/order_service.py mend          # sends it again, with an amount

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. The broker keeps who is to be tried again, so that any
member of the group may do it, also after a restart. Handling is at least once: billing must bear the same order twice.
"""

import random
import sys
from contextlib import suppress
from datetime import timedelta
from math import inf

import attrs
import trio

from rocketrio import (
    GIVE_UP,
    BodyUnreadableError,
    ConsumeLater,
    Consumer,
    Message,
    MessageExt,
    RouteNotFoundError,
    open_admin,
    open_consumer,
    open_producer,
)

TOPIC, GROUP = "shop-orders", "billing"
DEAD_LETTERS = f"%DLQ%{GROUP}"
QUIET = 3.0
"""Seconds without a message after which there are no more dead letters."""


@attrs.frozen
class Order:
    """What a customer wants to pay."""

    number: int
    cents: int


class BusyError(Exception):
    """The payment provider asks to come back later."""


class Billing:
    """Stands for a payment provider that is busy for every fifth order, the first time."""

    def __init__(self) -> None:
        self.cents: dict[int, int] = {}

    async def charge(self, order: Order, *, is_first: bool) -> None:
        await trio.sleep(random.uniform(0, 0.01))
        if is_first and order.number % 5 == 0:
            raise BusyError
        self.cents[order.number] = order.cents  # The same order twice is one payment.


async def serve() -> None:
    billing = Billing()

    async def handle(message: MessageExt) -> None:
        try:
            order = message.json(Order)
            await billing.charge(order, is_first=message.reconsume_times == 0)
        except BodyUnreadableError:
            raise ConsumeLater(GIVE_UP) from None  # It will not be better the next time.
        except BusyError:
            raise ConsumeLater(
                timedelta(seconds=1)
            ) from None  # Anything else: later and later, and a log.
        print(f"billed {order.number} attempt {message.reconsume_times + 1}", flush=True)

    print("serving", flush=True)
    try:
        async with open_consumer(  # It may be started before the first order makes the topic.
            TOPIC, group=GROUP, start_from="earliest", wait_for_topic=inf
        ) as consumer:
            await consumer.run(handle, concurrency=8)
    finally:
        print(f"{len(billing.cents)} orders, {sum(billing.cents.values())} cents", flush=True)


async def order(count: int) -> None:
    async with open_producer(group="shop") as producer, producer.pipeline() as pipeline:
        for number in range(1, count + 1):
            cents = f', "cents": {100 * number}' if number % 10 else ""
            body = f'{{"number": {number}{cents}}}'
            await pipeline.send(Message(TOPIC, body.encode(), keys=f"order-{number}"))


async def dead() -> None:
    """What was set aside stays where it is for some days; looking at it changes nothing."""
    async with open_admin() as admin:
        messages = await admin.dead_letters(GROUP).messages()
    for message in messages:
        print(f"{message.keys} {message.body.decode()}")
    print(f"{len(messages)} dead letters")


async def mend() -> None:
    """Dead letters are a topic like any other: a group of its own mends each of them once."""
    count = 0
    with suppress(RouteNotFoundError):  # Nothing was ever set aside.
        async with (
            open_producer(group="shop") as producer,
            open_consumer(DEAD_LETTERS, group="mending", start_from="earliest") as consumer,
        ):
            while (message := await next_message(consumer)) is not None:
                count += 1
                print(f"{message.keys} {message.body.decode()}", flush=True)
                number = message.json(dict[str, int])["number"]
                body = f'{{"number": {number}, "cents": 1}}'
                await producer.send(Message(TOPIC, body.encode(), keys=message.keys))
    print(f"{count} dead letters")


async def next_message(consumer: Consumer) -> MessageExt | None:
    with trio.move_on_after(QUIET):  # A cancelled receive takes nothing.
        return await consumer.receive()
    return None


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["serve"]:
                trio.run(serve, restrict_keyboard_interrupt_to_checkpoints=True)
            case ["order", count]:
                trio.run(order, int(count))
            case ["dead"]:
                trio.run(dead)
            case ["mend"]:
                trio.run(mend)
            case _:
                sys.exit(__doc__)
