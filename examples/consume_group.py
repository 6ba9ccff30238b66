"""Consume orders as a member of a group: start it twice, and the two share the queues.

    python examples/produce.py
    python examples/consume_group.py            # until Ctrl-C
    python examples/consume_group.py 100        # a hundred messages

A message is committed when the next one is asked for: what was in work when the program died comes again.
"""

import json
import sys
from contextlib import suppress

import trio

from rocketrio import open_consumer


async def main(count: int | None) -> None:
    async with open_consumer("orders", group="billing", start_from="earliest") as consumer:
        print("queues", [f"{queue.broker_name}:{queue.queue_id}" for queue in consumer.assignment])
        received = 0
        async for message in consumer:
            order = json.loads(message.body)
            print(
                f"{message.queue_id}:{message.queue_offset} {message.tags} order {order['order']}"
            )
            received += 1
            if received == count:
                break
        print("lag", sum(lag or 0 for lag in (await consumer.lag()).values()))


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        count = int(sys.argv[1]) if len(sys.argv) > 1 else None
        trio.run(main, count, restrict_keyboard_interrupt_to_checkpoints=True)
