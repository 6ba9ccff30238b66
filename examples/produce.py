"""Send orders: one and wait, several as a batch, many through a pipeline.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio &
    python examples/produce.py

The name server is 127.0.0.1:9876, or what NAMESRV_ADDR says.
"""

import json

import trio

from rocketrio import Message, open_producer

TOPIC = "orders"


def order(number: int) -> Message:
    """One order as JSON; its key finds it again, its tag is what consumers may filter by."""
    body = json.dumps({"order": number, "cents": 100 * number}).encode()
    return Message(TOPIC, body, keys=f"order-{number}", tags="paid" if number % 2 else "open")


async def main() -> None:
    async with open_producer(group="shop") as producer:
        # Awaited: the result says where it is stored, and how safely.
        result = await producer.send(order(1))
        print(
            f"{result.status.name} {result.queue} offset {result.queue_offset} id {result.message_id}"
        )

        # One key, one queue: these two stay in order.
        for number in (2, 3):
            await producer.send(order(number), sharding_key="customer-7")

        # All or none, one after the other in one queue.
        result = await producer.send_batch([order(number) for number in range(4, 10)])
        print(f"batch of {len(result.message_ids)} in {result.queue}")

        # Many: batches form while others travel. Leaving the block waits for every answer.
        async with producer.pipeline() as pipeline:
            for number in range(10, 1010):
                await pipeline.send(order(number), sharding_key=f"customer-{number % 50}")
        print(f"pipeline stored {sum(pipeline.statistics().stored.values())}")


if __name__ == "__main__":
    trio.run(main)
