"""Fetches newer offsets, topics and groups from the slaves, before a broker that becomes or is again master serves.

It asks the name servers (106) which slaves its name has, and each slave for its topics and groups (21, 201) and for
its offsets (43). For each queue the newer version counts (docs/decisions/0014); an Apache slave has no versions, so its
offset counts if it is higher. A peer that cannot be asked is asked again until a time limit; then the master serves
without its answer, and logs that.

Invariant: no committed offset of this master is lowered, except by a reset or seek that the slave took.
Invariant: no offset lies beyond the end of its queue here (`queue_end`), neither one of this broker nor a slave's:
messages that get those numbers now would be skipped. This broker has such offsets after its log lost its end, or if it
was a slave.
Invariant: no offset is lowered to the end of a log that still grows, nor by a broker that may yet yield to another
master: until then the slaves' offsets wait (`TakenOver.offsets`), and its own are not compared with its queues.
Invariant: an offset of a slave counts messages of this log. A rocketrio slave names the epoch of the log that its
offsets count, and they count up to the address where the logs part (`shared_ends`): a former master may have, or have
just cut off, a tail or a whole log of its own. Offsets of the slave from which this whole log was copied count messages
of it, whatever epochs either has lost (`TakenOver.log_of`).
Unlike Java: Apache's master restarts with what it last knew, and the periodic copy then lowers its slaves' offsets.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import starmap
from typing import Final, TypeVar

import attrs
import trio

from rocketrio_broker.ha.peers import ASK_AGAIN_PAUSE, CALL_TIMEOUT, PeerCaller, Peers, ask
from rocketrio_broker.ha.survey import no_answer
from rocketrio_broker.offsets.delayed import DelayOffsets
from rocketrio_broker.offsets.manager import LEDGER_KEYS, ConsumerOffsetManager
from rocketrio_broker.offsets.table import QueueEnd
from rocketrio_broker.tables.config_file import read_table
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper, VersionedConsumerOffsets
from rocketrio_protocol.bodies.topics import SubscriptionGroupWrapper, TopicConfigSerializeWrapper
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import (
    GetAllConsumerOffsetRequestHeader,
    GetAllDelayOffsetRequestHeader,
    GetAllDelayOffsetResponseHeader,
    GetAllSubscriptionGroupConfigRequestHeader,
    GetAllTopicConfigRequestHeader,
)
from rocketrio_protocol.errors import Error

Answer = TypeVar("Answer")
SharedEnds = Callable[[str, str], QueueEnd | None]
"""Returns where the queues end in what this log shares with a slave's log of an epoch; None if that is unknown."""

logger = logging.getLogger("rocketrio_broker.ha")

GATHER_LIMIT: Final = 5.0
"""Seconds a starting master waits for name servers and slaves it cannot reach (Java has none; a call takes 3 s at
most)."""


@attrs.define
class TakenOver:
    """The tables, the log and the offsets that a master got from its slaves since it began to lead."""

    tables_of: set[str] = attrs.field(factory=set)
    """Slaves whose tables are here already, and which are not asked for them again."""
    log_of: str | None = None
    """The slave from which this whole log was copied, if it was empty."""
    offsets: dict[str, VersionedConsumerOffsets] = attrs.field(factory=dict)
    """By the address of a slave, its offsets, which are joined with this broker's once this log is whole."""
    is_whole: bool = False
    """True once nothing more is fetched for this log. Offsets that come later are joined immediately."""


@attrs.frozen
class SlaveTables:
    """The broker's own topics and groups, which are joined with those of slaves.

    A slave copies its master's tables periodically. When the two change places, only the former master, which is a
    slave now, knows what was created or changed since the last copy. The same holds after a power cut that destroyed a
    table's file. A new master of Apache's has what it happened to copy last.
    """

    topics: TopicConfigManager
    groups: SubscriptionGroupManager
    delay_offsets: DelayOffsets | None = None
    taken_from: set[str] = attrs.field(factory=set)
    """Slaves whose tables are here already, and which are not asked for them again."""

    async def take_over(self, call: PeerCaller, addr: str) -> None:
        """Join the tables of one slave (21, 201) with these; take its delay offsets (45) if those here are unreadable.

        Raises Error if the slave cannot be asked, ConfigFileError if this disk takes nothing.
        """
        if addr in self.taken_from:
            return
        body = await ask(call, addr, GetAllTopicConfigRequestHeader())
        self.topics.join(read_table(body, TopicConfigSerializeWrapper, what="topics"))
        body = await ask(call, addr, GetAllSubscriptionGroupConfigRequestHeader())
        self.groups.join(read_table(body, SubscriptionGroupWrapper, what="groups"))
        if self.delay_offsets is not None and self.delay_offsets.file.unreadable:
            await self._take_delay_offsets(self.delay_offsets, call, addr)
        self.taken_from.add(addr)

    async def _take_delay_offsets(self, ours: DelayOffsets, call: PeerCaller, addr: str) -> None:
        response = await call(addr, GetAllDelayOffsetRequestHeader(), timeout=CALL_TIMEOUT)
        header = response.header(GetAllDelayOffsetResponseHeader)
        if response.code == ResponseCode.SUCCESS and header.log_end_offset is not None:
            read_table(response.body, DelayOffsetWrapper, what="delay offsets")
            ours.take_over(bytes(response.body), header.log_end_offset)


@attrs.frozen
class SlaveOffsets:
    """The broker's own offsets, which are joined with those of slaves."""

    consumer_offsets: ConsumerOffsetManager
    queue_end: QueueEnd | None = None
    shared_ends: SharedEnds = lambda _slave, _epoch: None
    """Called with a slave and the last epoch of a log whose messages its offsets count."""

    def cut(self) -> None:
        """Lower what lies beyond the ends of the queues here.

        That comes before anything is taken over: an offset beyond the end would win over a slave's lower one, and skip
        the messages that get these numbers.
        """
        if self.queue_end is not None:
            self.consumer_offsets.cut(self.queue_end)

    def take_over(self, addr: str, offsets: VersionedConsumerOffsets) -> int:
        """Take what is newer at a slave; return the number of queues that have a newer offset now."""
        raised = 0
        for epoch, some in _by_epoch(offsets):
            # Of the epoch that the slave names: the same number may be another message in this log.
            queue_end = self.shared_ends(addr, epoch) if epoch else self.queue_end
            if epoch and queue_end is None:
                logger.warning(
                    "offsets of another history are not taken slave=%s epoch=%s", addr, epoch
                )
            else:
                raised += self.consumer_offsets.take_over(some, queue_end=queue_end)
        return raised

    def take_over_waiting(self, taken: TakenOver) -> None:
        """Take over what has waited until this log was whole."""
        self.cut()
        raised = sum(starmap(self.take_over, taken.offsets.items()))
        _log_taken(taken.offsets, raised)
        taken.offsets, taken.is_whole = {}, True


@attrs.define
class GatheredOffsets:
    """The result of asking the slaves."""

    slaves_asked: list[str] = attrs.field(factory=list)
    """Addresses of the slaves that answered."""
    raised: int = 0
    """The number of queues that have a newer offset now."""
    unreachable: dict[str, Error] = attrs.field(factory=dict)
    """Name servers and slaves that could not be asked, and why."""
    slaves_missing: set[str] = attrs.field(factory=set)
    """The slaves among the unreachable peers."""


async def gather_slave_offsets(
    *,
    peers: Peers,
    consumer_offsets: ConsumerOffsetManager,
    tables: SlaveTables | None = None,
    queue_end: QueueEnd | None = None,
    shared_ends: SharedEnds = lambda _slave, _epoch: None,
    silent: Collection[str] = (),
    limit: float = GATHER_LIMIT,
    level: int = logging.WARNING,
) -> GatheredOffsets:
    """Raise `consumer_offsets`, and `tables`, to what the slaves of this name have. Never fails.

    The other arguments are those of `SlaveOffsets` and `ask_slaves`. A cancel leaves what was merged so far.
    """
    ours = SlaveOffsets(consumer_offsets, queue_end, shared_ends)
    ours.cut()
    result = await ask_slaves(
        peers=peers, take=ours.take_over, tables=tables, silent=silent, limit=limit, level=level
    )
    _log_taken(result.slaves_asked, result.raised)
    return result


async def ask_slaves(
    *,
    peers: Peers,
    take: Callable[[str, VersionedConsumerOffsets], int],
    tables: SlaveTables | None = None,
    silent: Collection[str] = (),
    limit: float = GATHER_LIMIT,
    level: int = logging.WARNING,
) -> GatheredOffsets:
    """Call `take` with the offsets of each slave, and raise `tables` to what they have. Never fails.

    Takes `limit` seconds at most; a peer that could not be asked is logged at `level`. A peer in `silent`, which has
    not answered for long, is asked only once. `take` returns how many queues it raised.
    """
    gathering = _Gathering(peers, take, tables, silent)
    began = trio.current_time()
    with trio.move_on_after(limit):
        async with trio.open_nursery() as nursery:
            gathering.ask_slaves(peers.remembered(), nursery)
            for addr in peers.name_servers:
                nursery.start_soon(gathering.ask_name_server, addr, nursery)
    result = gathering.result
    for addr, error in result.unreachable.items():
        logger.log(
            level,
            "serving without the offsets of a peer that could not be asked; "
            "what was committed to a slave meanwhile may be read again "
            "peer=%s waited=%.1f reason=%s",
            addr, trio.current_time() - began, error,
        )  # fmt: skip
    return result


def _log_taken(slaves: Collection[str], raised: int) -> None:
    if slaves:
        logger.info("offsets taken over slaves=%s raised=%d", ",".join(slaves), raised)


class _Gathering:
    """One attempt to ask all peers."""

    def __init__(
        self,
        peers: Peers,
        take: Callable[[str, VersionedConsumerOffsets], int],
        tables: SlaveTables | None,
        silent: Collection[str],
    ) -> None:
        self.result = GatheredOffsets()
        self._silent = silent
        self._peers = peers
        self._known: set[str] = set()
        self._take = take
        self._tables = tables

    async def ask_name_server(self, addr: str, nursery: trio.Nursery) -> None:
        """Ask a name server until it answers, and then ask the slaves that it lists."""
        self.ask_slaves(await self._insist(addr, self._peers.listed_slaves) or (), nursery)

    def ask_slaves(self, addrs: Sequence[str], nursery: trio.Nursery) -> None:
        """Ask those slaves that were not asked yet, each in a task of its own."""
        for slave in addrs:
            if slave not in self._known:
                self._known.add(slave)
                nursery.start_soon(self._ask_slave, slave)

    async def _ask_slave(self, addr: str) -> None:
        # Missing until its answer is here: the time limit may end this at any await.
        self.result.slaves_missing.add(addr)
        # Offsets first: a slow link may leave time for one answer, and tables change less often.
        offsets = await self._insist(addr, self._offsets)
        if offsets is None:
            return  # Another question would hide that its offsets are missing, and wait once more.
        self.result.slaves_asked.append(addr)
        self.result.raised += self._take(addr, offsets)
        if self._tables is not None:
            await self._insist(addr, partial(self._tables.take_over, self._peers.call))
        self.result.slaves_missing.discard(addr)

    async def _offsets(self, addr: str) -> VersionedConsumerOffsets:
        body = await ask(self._peers.call, addr, GetAllConsumerOffsetRequestHeader(versions=True))
        offsets = read_table(body, VersionedConsumerOffsets, what="consumer offsets")
        # The progress of transactions counts on decisions in the slave's log, which this log may lack.
        for topic, group in LEDGER_KEYS:
            offsets.offset_table.pop(f"{topic}@{group}", None)
        return offsets

    async def _insist(self, addr: str, asking: Callable[[str], Awaitable[Answer]]) -> Answer | None:
        """Repeat a query until the peer answers it, and return the answer.

        A silent peer is asked once: without an answer the result is None. Until it answers, a peer is among the
        unreachable ones.
        """
        unreachable = self.result.unreachable
        unreachable[addr] = no_answer(addr)
        while True:
            try:
                answer = await asking(addr)
            except Error as error:
                unreachable[addr] = error
                if addr in self._silent:
                    return None
                await trio.sleep(ASK_AGAIN_PAUSE)
            else:
                del unreachable[addr]
                return answer


def _by_epoch(body: VersionedConsumerOffsets) -> Iterator[tuple[str, VersionedConsumerOffsets]]:
    """Yield the epochs whose messages a slave's offsets count, each with these offsets."""
    versions = body.rocketrio_versions
    if versions is None or not versions.epochs:
        yield "" if versions is None else versions.epoch, body
        return
    parts: dict[str, VersionedConsumerOffsets] = {}
    for name, queues in body.offset_table.items():
        for queue_id, offset in queues.items():
            epoch = versions.epochs.get(name, {}).get(queue_id, versions.epoch)
            part = parts.setdefault(epoch, VersionedConsumerOffsets({}, versions))
            part.offset_table.setdefault(name, {})[queue_id] = offset
    yield from parts.items()
