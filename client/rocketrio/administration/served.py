"""Which broker has given how much of a topic to a group: what of a read came from masters, and what from slaves.

Invariant: what could not be asked is None, never zero.
Answers to: `mqadmin statsAll`, for one group and by broker.
"""

from typing import Final, Literal, TypeAlias

import attrs
import trio

from rocketrio.administration.admin import Admin
from rocketrio_protocol.bodies.stats import BrokerStatsData
from rocketrio_protocol.commands.admin import ViewBrokerStatsDataRequestHeader
from rocketrio_protocol.errors import BrokerError, NotReachable

_UNKNOWN_KEY: Final = "not exist"
"""In the remark of a broker that has given the group nothing lately."""
_ASK_TIMEOUT: Final = 5.0

Period: TypeAlias = Literal["minute", "hour", "day"]


@attrs.frozen
class Served:
    """What one broker has given a group of a topic."""

    broker_name: str
    broker_id: int
    address: str
    messages: int | None
    bytes: int | None
    """Of stored records. Both are None where the broker could not be asked."""


async def served(
    admin: Admin, topic: str, group: str, *, period: Period = "minute"
) -> list[Served]:
    """What each registered broker has given `group` of `topic` in the last minute, hour or day.

    Brokers count in samples of ten seconds: what was read less than ten seconds ago may be missing. Of Apache's, ask
    for the minute; their hours and days are sums of what is finished.

    Raises NotReachable without a name server.
    """
    found: list[Served] = []
    key = f"{topic}@{group}"

    async def ask(name: str, broker_id: int, addr: str) -> None:
        messages = await _sum(admin, addr, "GROUP_GET_NUMS", key, period)
        size = await _sum(admin, addr, "GROUP_GET_SIZE", key, period)
        found.append(Served(name, broker_id, addr, messages, size))

    async with trio.open_nursery() as nursery:
        for name, broker in (await admin.cluster_info()).broker_addr_table.items():
            for broker_id, addr in broker.broker_addrs.items():
                nursery.start_soon(ask, name, broker_id, addr)
    return sorted(found, key=lambda one: (one.broker_name, one.broker_id))


async def _sum(admin: Admin, addr: str, name: str, key: str, period: Period) -> int | None:
    header = ViewBrokerStatsDataRequestHeader(name, key)
    try:
        answer = await admin.client.api.call(
            addr, header, what="statistics not read", timeout=_ASK_TIMEOUT
        )
    except NotReachable:
        return None
    except BrokerError as error:
        if _UNKNOWN_KEY in (error.remark or ""):
            return 0
        raise
    data = BrokerStatsData.from_json(answer.body)
    return {"minute": data.stats_minute, "hour": data.stats_hour, "day": data.stats_day}[period].sum
