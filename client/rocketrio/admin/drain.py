"""Takes a broker out of service for producers, and back: `admin.drain()` and `admin.undrain()`.

Name servers remove the write permission of the broker's topics from what they tell clients. Producers read that within
30 seconds and choose other brokers; the broker itself still takes what it gets, and consumers read on. A name server
forgets it when it restarts, and when the broker registers changed topics.

Groups cannot read everything that a broker stores (`Held`): delayed messages are not due yet, transactions are not
decided, and dead letters are for people.

Answers to: WipeWritePermSubCommand and AddWritePermSubCommand (`mqadmin wipeWritePerm`, `addWritePerm`; 205, 327).
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import attrs
import trio

from rocketrio.admin.brokers import BrokerAdmin
from rocketrio.admin.cluster_questions import whole_sum
from rocketrio.admin.lag import LagAdmin
from rocketrio.admin.lag_values import LagReport
from rocketrio.admin.transactions import ask_transactions
from rocketrio.limits import QUIET_SECONDS
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error, NotReachableError, RouteNotFoundError
from rocketrio_protocol.lag import lag_of
from rocketrio_protocol.names import DEAD_LETTER_PREFIX, SCHEDULE_TOPIC
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.tasks import every

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


@attrs.frozen
class Held:
    """What a broker stores that groups cannot read, or not yet.

    A count is None if the broker's numbers contradict each other.
    """

    delayed: int | None
    """Messages that are not due; those that wait for another try are among them."""
    transactions: int | None
    """Open transactions; those that were decided within the last minute may be among them."""
    dead_letters: int | None
    """All that the broker keeps, also those that were sent again."""

    @property
    def comes_later(self) -> bool:
        """Whether groups may still get some of it without an operator's help."""
        return self.delayed != 0 or self.transactions != 0


class DrainAdmin(LagAdmin, BrokerAdmin):
    """The methods of `Admin` that take a broker out of service."""

    __slots__ = ()

    async def drain(self, name: str) -> WritePermission:
        """Have name servers tell producers that the broker of this name takes no messages.

        Raises RouteNotFoundError for a name that is not registered, NotReachableError if no name server answers.
        """
        return await self._set_writable(name, writable=False)

    async def undrain(self, name: str) -> WritePermission:
        """Take back what `drain` did; otherwise like it."""
        return await self._set_writable(name, writable=True)

    async def wait_quiet(self, name: str) -> None:
        """Wait until the master of this name has stored nothing for 35 seconds: no producer uses it any more.

        Raises RouteNotFoundError if it has no master, NotReachableError if the master does not answer.
        """
        addr = await self._master(name)
        end: str | None = None
        since = trio.current_time()
        while trio.current_time() - since < QUIET_SECONDS:
            now = (await self.calls.runtime_info(addr)).get("commitLogMaxOffset")
            if now is None or now != end:
                end, since = now, trio.current_time()
            await trio.sleep(CHECK_EVERY)

    async def wait_drained(self, name: str) -> None:
        """Drain a broker, and wait until groups have read all of it and nothing more can come.

        Every round drains: a name server that restarted has let producers write again. Then the broker must store
        nothing for 35 seconds, have no delayed message and no open transaction, and each group must have read
        everything. Dead letters do not count. A server that goes away meanwhile is waited for. Raises what `drain`
        raises at first, and BrokerError.
        """
        await self.drain(name)
        async for _ in every(CHECK_EVERY):
            with suppress(NotReachableError, RouteNotFoundError):
                await self.drain(name)
                await self.wait_quiet(name)
                held, report = await self.held(name), await self.lag(seconds=0)
                if not held.comes_later and not unread_at(report, name):
                    return

    async def held(self, name: str) -> Held:
        """Return what the master of this name stores that groups cannot read: delayed and half messages, dead letters.

        Raises RouteNotFoundError if it has no master, NotReachableError or BrokerError if the master does not answer.
        """
        addr = await self._master(name)
        runtime = await self.calls.runtime_info(addr)
        delayed = [
            lag_of(max(one.min_offset, _delivered(runtime, queue.queue_id + 1)), one.max_offset)
            for queue, one in (
                await self.calls.topic_stats(addr, SCHEDULE_TOPIC)
            ).offset_table.items()
        ]
        dead_letters = [
            lag_of(one.min_offset, one.max_offset)
            for topic in await self.calls.topics(addr)
            if topic.startswith(DEAD_LETTER_PREFIX)
            for one in (await self.calls.topic_stats(addr, topic)).offset_table.values()
        ]
        return Held(
            whole_sum(delayed),
            (await ask_transactions(self.calls, addr)).open,
            whole_sum(dead_letters),
        )

    async def _set_writable(self, broker_name: str, *, writable: bool) -> WritePermission:
        """Give or take a broker's write permission at every name server.

        Raises RouteNotFoundError for a name that is not registered, NotReachableError if no name server answers. A
        cancel may leave some of them changed; doing it again is harmless.
        """
        info = await self.cluster_info()
        if broker_name not in info.broker_addr_table:
            known = ", ".join(sorted(info.broker_addr_table)) or "none"
            raise RouteNotFoundError(
                f"no broker {broker_name!r} is registered; known names: {known}",
                remedy="Check the name and the name servers",
            )
        answers = await self.client.name_servers.set_writable(broker_name, writable=writable)
        changed = {at: answer for at, answer in answers.items() if isinstance(answer, int)}
        failed = {at: answer for at, answer in answers.items() if isinstance(answer, Error)}
        if not changed:
            raise next(iter(failed.values()))
        return WritePermission(
            broker_name, writable, changed, {at: error.what for at, error in failed.items()}
        )

    async def _master(self, broker_name: str) -> str:
        """Return the address of a broker's master. Raises RouteNotFoundError if it has none now."""
        info = await self.cluster_info()
        broker = info.broker_addr_table.get(broker_name)
        if broker is None or MASTER_ID not in broker.broker_addrs:
            raise RouteNotFoundError(f"broker {broker_name!r} has no master now")
        return broker.broker_addrs[MASTER_ID]


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


def _delivered(runtime: Mapping[str, str], level: int) -> int:
    """Return where the deliveries of a delay level are; 0 before the first one, when brokers omit it."""
    text, _, _ = runtime.get(f"scheduleMessageOffset_{level}", "").partition(",")
    return decimal_value(text) or 0
