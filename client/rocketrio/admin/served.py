"""Asks how much of a topic each broker has served to a group: the shares of masters and of slaves.

Invariant: a value that could not be read is None, never zero.
Answers to: `mqadmin statsAll`, for one group and by broker.
"""

from typing import Final, Literal, TypeAlias

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio_protocol.bodies.stats import BrokerStatsData
from rocketrio_protocol.commands.admin import ViewBrokerStatsDataRequestHeader
from rocketrio_protocol.errors import BrokerError, NotReachable

_UNKNOWN_KEY: Final = "not exist"
"""A part of the remark of a broker that has served nothing to the group lately."""
_ASK_TIMEOUT: Final = 5.0

Period: TypeAlias = Literal["minute", "hour", "day"]


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
