"""Delayed messages: sent with a level, and looked for at the end where they are delivered to."""

from typing import Final

import trio
from tests.cluster.histories.readers import client_at
from tests.cluster.histories.uses.names import REMINDERS, SENT_LEVELS
from tests.cluster.histories.uses.sending import post, sender
from tests.cluster.histories.world import World

from rocketrio import Message

SEND_PAUSE: Final = 0.7


async def remind(world: World) -> None:
    """One after the other, until sending ends."""
    rng = world.rng(REMINDERS)
    async with (
        client_at(world, world.host("user-0"), REMINDERS) as client,
        sender(REMINDERS, client) as producer,
    ):
        number = 0
        while trio.current_time() < world.schedule.sending_ends:
            level = rng.randint(1, SENT_LEVELS)
            await post(world, producer, Message(REMINDERS, b"%d" % number, delay_level=level))
            number += 1
            await trio.sleep(rng.expovariate(1 / SEND_PAUSE))
