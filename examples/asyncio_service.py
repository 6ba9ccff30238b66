"""An asyncio program with a producer and a consumer: it takes orders, bills them, and stays asyncio.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/asyncio_service.py            # until Ctrl-C
    python examples/asyncio_service.py 100        # a hundred orders

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says. The client runs on trio, as a guest of the asyncio loop:
`run` and `open` are called in asyncio, `on_asyncio` in a trio function. docs/asyncio.md says more.
"""

import asyncio
import sys
from contextlib import suppress
from functools import partial
from itertools import count

from rocketrio import (
    Consumer,
    Message,
    MessageExt,
    Producer,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.aio import TrioSide, open_trio

TOPIC = "asyncio-orders"


class Billing:
    """The asyncio part: it would talk to a database, and knows nothing of trio."""

    def __init__(self, wanted: int | None) -> None:
        self.wanted = wanted
        self.cents = self.billed = 0
        self.is_finished = asyncio.Event()

    async def bill(self, message: MessageExt) -> None:
        """A message is done when this returns; an exception hands it back to the group."""
        await asyncio.sleep(0.001)
        self.cents += message.json(int)
        self.billed += 1
        if self.billed == self.wanted:
            self.is_finished.set()


def order(number: int) -> Message:
    return Message(TOPIC, b"%d" % number, keys=f"order-{number}")


async def take_orders(side: TrioSide, producer: Producer, wanted: int | None) -> None:
    for number in count() if wanted is None else range(wanted):
        await side.run(producer.send, order(number))


async def bill_orders(side: TrioSide, consumer: Consumer, billing: Billing) -> None:
    async def handle(message: MessageExt) -> None:  # Called on the trio side.
        await side.on_asyncio(billing.bill, message)

    await side.run(partial(consumer.run, handler=handle, concurrency=8))


async def main(wanted: int | None) -> None:
    billing = Billing(wanted)
    try:
        async with (
            open_trio() as side,
            side.open(open_producer(group="asyncio-shop")) as producer,
        ):
            async with side.open(open_admin()) as admin:
                await side.run(admin.create_topic, TOPIC)  # Nothing happens where it is there.
            consumer = open_consumer(TOPIC, group="asyncio-billing", start_from="earliest")
            print("taking orders", flush=True)
            async with side.open(consumer) as opened, asyncio.TaskGroup() as tasks:
                tasks.create_task(take_orders(side, producer, wanted))
                work = tasks.create_task(bill_orders(side, opened, billing))
                await billing.is_finished.wait()
                work.cancel()
    finally:
        print(f"billed {billing.billed} orders, {billing.cents} cents", flush=True)


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else None))
