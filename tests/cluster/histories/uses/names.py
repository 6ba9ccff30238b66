"""What the uses of a run are called: their topics, groups and delays.

reminders   delayed messages                     payments   transactions
ledger      read in order, queues locked         tasks      handlers that fail, retries, dead letters
rounds      read by static members
"""

from datetime import timedelta
from typing import Final

import attrs
from tests.cluster.histories.schedule import Use

from rocketrio_protocol.names import TRANS_CHECK_MAX_TIME_TOPIC, dead_letter_topic, retry_topic

REMINDERS: Final = "reminders"
PAYMENTS: Final = "payments"
LEDGER: Final = "ledger"
CLERKS: Final = "clerks"
TASKS: Final = "tasks"
WORKERS: Final = "workers"
ROUNDS: Final = "rounds"
REGULARS: Final = "regulars"
NOTICES: Final = "notices"
READERS: Final = "readers"

QUEUES_OF_USE: Final = 4
"""As many as a topic has that a send creates: one that a new master has not heard of is the same again."""

DELAYS: Final = (1, 2, 3, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30, 40)
"""Seconds of the levels 1, 2, ..., in place of hours."""
DELAY_LEVELS: Final = tuple(timedelta(seconds=seconds) for seconds in DELAYS)
SENT_LEVELS: Final = 8
"""Levels that reminders are sent with; the others would be due after the run."""
ROUNDING: Final = 0.002
"""Seconds by which two times of one clock may differ that were rounded to milliseconds."""
RECONSUME_LIMIT: Final = 2
"""Redeliveries before a message is a dead letter."""


@attrs.frozen
class Kept:
    """Queues that a use fills, read at the end."""

    topic: str
    queues: int
    group: str = ""
    """Who has to have read all of it at the end."""


_KEPT: Final[dict[Use, tuple[Kept, ...]]] = {
    "delayed": (Kept(REMINDERS, QUEUES_OF_USE),),
    "transactions": (Kept(PAYMENTS, QUEUES_OF_USE), Kept(TRANS_CHECK_MAX_TIME_TOPIC, 1)),
    "ledger": (Kept(LEDGER, QUEUES_OF_USE, CLERKS), Kept(dead_letter_topic(CLERKS), QUEUES_OF_USE)),
    "retries": (
        Kept(TASKS, QUEUES_OF_USE, WORKERS),
        Kept(retry_topic(WORKERS), QUEUES_OF_USE, WORKERS),
        Kept(dead_letter_topic(WORKERS), QUEUES_OF_USE),
    ),
    "static": (Kept(ROUNDS, QUEUES_OF_USE, REGULARS),),
    "broadcast": (Kept(NOTICES, QUEUES_OF_USE),),
}
TOPICS: Final[dict[Use, str]] = {use: kept[0].topic for use, kept in _KEPT.items()}


def kept_of(uses: tuple[Use, ...]) -> list[Kept]:
    """The queues of these uses."""
    return [kept for use in uses for kept in _KEPT[use]]


def level_table() -> str:
    """The broker's setting for `DELAYS`."""
    return " ".join(f"{seconds}s" for seconds in DELAYS)
