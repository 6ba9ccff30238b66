"""How long brokers take to store messages: `admin.round_trips` sends some to each master, and measures.

The messages go to the topic that every broker has under its own name, which no group reads; retention deletes them.

Invariant: a send that failed counts as a failure, never as a fast one.
Answers to: CLusterSendMsgRTCommand, CheckMsgSendRTCommand, SendMsgStatusCommand (`mqadmin clusterRT`, `checkMsgSendRT`,
`sendMsgStatus`).
"""

import math
from collections.abc import Sequence
from typing import Final

import attrs
import trio

from rocketrio.client import ClientInstance
from rocketrio.producing.produce import open_producer
from rocketrio.producing.send_result import SendStatus
from rocketrio_protocol.errors import Error
from rocketrio_protocol.message import Message, MessageQueue

SEND_TIMEOUT: Final = 3.0
"""Seconds for one send, without any second try."""


@attrs.frozen
class RoundTrips:
    """The sends to one broker."""

    broker_name: str
    """Also the name of the topic."""
    sends: int
    failures: int
    unsafe: int
    """Stored, but not flushed or replicated as the broker is configured to."""
    median: float | None
    """Seconds of the sends that did not fail; None if all failed."""
    p99: float | None
    problem: str | None
    """Why the last failed send failed."""


def percentile(seconds: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least this share of the values do not exceed; None without values."""
    if not seconds:
        return None
    # Rounding: 0.999 * 1000 is a little more than 999.
    rank = math.ceil(round(share * len(seconds), 6))
    return sorted(seconds)[max(rank, 1) - 1]


async def measured(client: ClientInstance, name: str, count: int, size: int) -> RoundTrips:
    """Return the times of sends to one master, one after the other."""
    queue = MessageQueue(name, name, 0)
    times: list[float] = []
    failures = unsafe = 0
    problem: str | None = None
    async with open_producer(client=client, retries=0, compress_over=max(size, 1) + 1) as producer:
        for number in range(count + 1):
            started = trio.current_time()
            try:
                result = await producer.send(
                    Message(name, bytes(size)), queue=queue, timeout=SEND_TIMEOUT
                )
            except Error as error:
                failures += number > 0
                problem = error.what
                continue
            if number > 0:
                times.append(trio.current_time() - started)
                unsafe += result.status is not SendStatus.SEND_OK
    return RoundTrips(
        name, count, failures, unsafe, percentile(times, 0.5), percentile(times, 0.99),
        problem,
    )  # fmt: skip
