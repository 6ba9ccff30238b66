"""Read a long backlog from the slave, so that the master is left to those who follow its end.

    rocketrio-broker cluster --listen 127.0.0.1:9876 --data /tmp/rocketrio --slaves 1 &
    python examples/produce.py
    python examples/read_backlog_from_slave.py

A broker suggests a slave by itself to a group that has fallen far behind. Here the choice is ours: broker id 1, with
the master as the fallback when the slave is away. Progress is committed at the master all the same.
"""

from collections import Counter

import trio

from rocketrio import open_client, open_consumer

SLAVE_ID = 1


async def main() -> None:
    async with (
        open_client(connect_broker_by_user=True, default_broker_id=SLAVE_ID) as client,
        open_consumer("orders", group="archive", start_from="earliest", client=client) as consumer,
    ):
        tags: Counter[str | None] = Counter()
        async for messages in consumer.until_caught_up(consumer.receive_batch):
            tags.update(message.tags for message in messages)
        for queue, broker_id in consumer.pull_from_which_node_table.items():
            addr = client.routing.broker_addr_table[queue.broker_name].get(broker_id, "away")
            print(f"{queue} was read from broker id {broker_id} at {addr}")
        print(f"read {tags.total()} messages: {dict(tags)}")


if __name__ == "__main__":
    trio.run(main)
