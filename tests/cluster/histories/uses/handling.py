"""Handlers that note what they get, take a while, and fail as a message's name decides."""

import random
from typing import Final

import attrs
import trio
from tests.cluster.histories.events import now
from tests.cluster.histories.uses.events import Began, Finished
from tests.cluster.histories.uses.names import DELAY_LEVELS, RECONSUME_LIMIT
from tests.cluster.histories.world import World

from rocketrio import ConsumeLater, MessageExt

LONGEST: Final = 3.0
"""Seconds that a handler may take."""
NEVER: Final = RECONSUME_LIMIT + 100


class _FailedError(Exception):
    """What a handler raises."""


@attrs.frozen
class Plan:
    """What a handler does with one message."""

    seconds: float
    fails: int
    """It fails until it was tried so often."""
    level: int
    """What it asks for then: 0 to leave that to the broker."""

    @classmethod
    def of(cls, seed: int, topic: str, body: bytes) -> "Plan":
        """The same for each member that handles it, and at any time."""
        rng = random.Random(f"plan {seed} {topic} {body.decode()}")
        seconds = rng.choice((0.0, 0.0, 0.0, 0.1, 0.5, LONGEST))
        fails = rng.choice((0, 0, 0, 0, 0, 0, 1, 2, NEVER))
        return cls(seconds, fails, rng.choice((0, 0, 2)))


@attrs.define
class NotingHandler:
    """The handler of one member's life."""

    world: World
    who: str

    async def __call__(self, message: MessageExt) -> None:
        plan = Plan.of(self.world.schedule.seed, message.topic, message.body)
        began = Began(
            at=now(),
            who=self.who,
            topic=message.topic,
            queue_id=message.queue_id,
            queue_offset=message.queue_offset,
            body=message.body,
            times=message.reconsume_times,
            address=message.physical_offset,
        )
        self.world.history.add(began)
        outcome, level = "cancelled", 0
        try:
            await trio.sleep(plan.seconds)
            if message.reconsume_times < plan.fails:
                outcome, level = "failed", plan.level
                raise ConsumeLater(DELAY_LEVELS[level - 1]) if level else _FailedError
            outcome = "done"
        finally:
            fields = attrs.asdict(began) | {"at": now(), "outcome": outcome, "level": level}
            self.world.history.add(Finished(**fields))
