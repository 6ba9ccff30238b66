"""Checks that a broker is still the master before its answer moves a consumer back.

A route is up to 30 s old. Meanwhile another broker may have become master. The log of the former master is shorter, and
the consumer's position lies beyond its end. So the name servers are asked again before a position is lowered.

Invariant: the answer of a broker that is not the master by the newest route lowers no position and no committed offset.
Invariant: while no name server answers, the broker of the last known route is believed: its log may really be shorter.
Answers to: nothing; Java believes whatever address it asked.
"""

import logging

from rocketrio.client import ClientInstance
from rocketrio_protocol.message import MessageQueue

logger = logging.getLogger("rocketrio.consumer")


async def is_master_still(client: ClientInstance, queue: MessageQueue, addr: str) -> bool:
    """Ask the name servers whether `addr` is the master of the queue's broker."""
    await client.refresh_topic_route(queue.topic)
    master = client.routing.find_broker_address_in_publish(queue.broker_name)
    if master == addr:
        return True
    logger.warning(
        "answer dropped, its broker is not the master queue=%s addr=%s master=%s",
        queue, addr, master,
    )  # fmt: skip
    return False
