"""Asks how much of a topic each broker has served to a group: the shares of masters and of slaves.

Invariant: a value that could not be read is None, never zero.
Answers to: `mqadmin statsAll`, for one group and by broker.
"""

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.admin_calls import Period
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.tasks import ungrouped


@attrs.frozen
class Served:
    """How much of a topic one broker has served to a group."""

    broker_name: str
    broker_id: int
    address: str
    messages: int | None
    bytes: int | None
    """The size of the stored records. Both are None if the broker could not be asked."""


async def served(
    admin: Admin, topic: str, group: str, *, period: Period = "minute"
) -> list[Served]:
    """Return how much of `topic` each registered broker has served to `group` in the last minute, hour or day.

    Brokers count in samples of ten seconds, so reads of the last ten seconds may be missing. With Apache's brokers ask
    for the minute; their hours and days contain finished periods only.

    Raises NotReachableError without a name server.
    """
    found: list[Served] = []
    key = f"{topic}@{group}"

    async def ask(name: str, broker_id: int, addr: str) -> None:
        messages = await _sum(admin, addr, "GROUP_GET_NUMS", key, period)
        size = await _sum(admin, addr, "GROUP_GET_SIZE", key, period)
        found.append(Served(name, broker_id, addr, messages, size))

    with ungrouped():
        async with trio.open_nursery() as nursery:
            for name, broker in (await admin.cluster_info()).broker_addr_table.items():
                for broker_id, addr in broker.broker_addrs.items():
                    nursery.start_soon(ask, name, broker_id, addr)
    return sorted(found, key=lambda one: (one.broker_name, one.broker_id))


async def _sum(admin: Admin, addr: str, name: str, key: str, period: Period) -> int | None:
    try:
        return (await admin.calls.counted(addr, name, key, period)).sum
    except NotReachableError:
        return None
