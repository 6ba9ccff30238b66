"""Takes a broker out of service for producers, and back: `admin.drain()` and `admin.undrain()`.

Name servers remove the write permission of the broker's topics from what they tell clients. Producers read that within
30 seconds and choose other brokers; the broker itself still takes what it gets, and consumers read on. A name server
forgets it when it restarts, and when the broker registers changed topics.

Answers to: WipeWritePermSubCommand and AddWritePermSubCommand (`mqadmin wipeWritePerm`, `addWritePerm`; 205, 327).
"""

from collections.abc import Mapping
from typing import Final

import attrs
import trio

from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.lag_values import LagReport
from rocketrio.client import ClientInstance
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error, RouteNotFoundError

QUIET_SECONDS: Final = 35.0
"""Producers read routes every 30 seconds; a log that has not grown for this long gets no more messages from them."""
CHECK_EVERY: Final = 1.0
"""Seconds between two checks of the log's end."""


@attrs.frozen
class WritePermission:
    """What name servers answered to a change of a broker's write permission."""

    broker_name: str
    writable: bool
    topics: Mapping[str, int]
    """How many topics changed, by name server."""
    silent: Mapping[str, str]
    """Why the others did not change anything, by name server: their clients see what was before."""


@attrs.frozen
class Unread:
    """What a group has not read on one broker."""

    group: str
    topic: str
    messages: int | None
    """None if it is unknown."""


def unread_at(report: LagReport, broker_name: str) -> list[Unread]:
    """Return what groups have not read on a broker; groups that have read everything there are left out."""
    found: list[Unread] = []
    for row in report.rows:
        lags = [one.lag for one in row.queues if one.queue.broker_name == broker_name]
        known = [lag for lag in lags if lag is not None]
        messages = sum(known) if len(known) == len(lags) else None
        if row.topic is not None and lags and messages != 0:
            found.append(Unread(row.group, row.topic, messages))
    return found


async def set_writable(
    client: ClientInstance, broker_name: str, *, writable: bool
) -> WritePermission:
    """Give or take a broker's write permission at every name server.

    Raises RouteNotFoundError for a name that is not registered, NotReachableError if no name server answers. A cancel
    may leave some of them changed; doing it again is harmless.
    """
    info = await client.name_servers.cluster_info()
    if broker_name not in info.broker_addr_table:
        known = ", ".join(sorted(info.broker_addr_table)) or "none"
        raise RouteNotFoundError(
            f"no broker {broker_name!r} is registered; known names: {known}",
            remedy="Check the name and the name servers",
        )
    answers = await client.name_servers.set_writable(broker_name, writable=writable)
    changed = {at: answer for at, answer in answers.items() if isinstance(answer, int)}
    failed = {at: answer for at, answer in answers.items() if isinstance(answer, Error)}
    if not changed:
        raise next(iter(failed.values()))
    return WritePermission(
        broker_name, writable, changed, {at: error.what for at, error in failed.items()}
    )


async def wait_quiet(client: ClientInstance, calls: AdminCalls, broker_name: str) -> None:
    """Wait until the log of a broker's master has not grown for 35 seconds.

    Raises RouteNotFoundError if the broker has no master, NotReachableError if the master does not answer.
    """
    info = await client.name_servers.cluster_info()
    broker = info.broker_addr_table.get(broker_name)
    if broker is None or MASTER_ID not in broker.broker_addrs:
        raise RouteNotFoundError(f"broker {broker_name!r} has no master now")
    addr = broker.broker_addrs[MASTER_ID]
    end: str | None = None
    since = trio.current_time()
    while trio.current_time() - since < QUIET_SECONDS:
        now = (await calls.runtime_info(addr)).get("commitLogMaxOffset")
        if now is None or now != end:
            end, since = now, trio.current_time()
        await trio.sleep(CHECK_EVERY)
