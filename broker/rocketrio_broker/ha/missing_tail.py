"""Before serving, fetches log entries that slaves have and a new master lacks: they may have been acknowledged already.

A power cut can take entries from a master with asynchronous flush that a live slave still has; of two slaves one may be
ahead when the other is promoted; and an operator may promote a slave that does not have all of a living master's log.
A survey (`survey.py`) says where the logs end of the slaves that name servers list, of each slave that was known
recently (known_slaves.py), and of the master that this broker followed; the one by which the broker found no other
master counts if it is fresh and complete, otherwise they are asked again. The broker with the longest log is followed
like a master, its log compared first, until this log is as long; then any broker whose log is longer still.

Before that the end of this log is compared with theirs, however long they are: records that a crash damaged, but that
look whole, are replaced (torn_end.py).

Invariant: a log of another history is never followed, however long it is.
Invariant: no write is taken until every slave that can be asked was asked, within a time limit or without one
(`ReturnRule`).
Answers to: nothing in 4.x; there the master overwrites what its slave has, or the slave is stuck for ever.
"""

import logging
from collections.abc import Callable
from math import inf
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.errors import NoRoomError, ReplicationError, SilentPeerError
from rocketrio_broker.ha.judgement import (
    is_fresh,
    longer_logs,
    silent_brokers,
    tail_sources,
    unasked,
)
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.peers import ASK_AGAIN_PAUSE
from rocketrio_broker.ha.survey import Survey, Surveyor
from rocketrio_broker.ha.torn_end import PeerLog, TornEnd
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.waiting.watermark import wait_any_past
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.ports import Dial, WallClock

logger = logging.getLogger("rocketrio_broker.ha")

AGAIN_LIMIT: Final = 3.0
"""Seconds for which a slave is followed once more that sent nothing, and answers when the time is up."""
_FETCHING: Final = "this master is getting from a slave what it lacks"


@attrs.frozen
class ReturnRule:
    """What to do about a slave that cannot be asked."""

    serves_without: bool = True
    wait: float = 10.0
    """Seconds until this broker serves without the slave, or refuses writes with a reason that says that it waits."""
    expects_slaves: bool = False
    """Whether there must be a slave, so that an empty log without a slave to ask may be a lost log: a name server that
    was started together with this broker lists slaves only once they have registered again."""


@attrs.define
class FetchedTail:
    """The result of asking."""

    sources: list[str] = attrs.field(factory=list)
    """The slaves from which something was fetched."""
    refused: dict[str, Error] = attrs.field(factory=dict)
    """The slaves whose log is longer and has another history, and why it was refused."""
    unreachable: dict[str, Error] = attrs.field(factory=dict)
    """The name servers and slaves that could not be asked at the end, and why."""
    copied_from: str | None = None
    """The slave from which this whole log was copied; None if this log was not empty, or that is not whole."""
    compared: frozenset[str] = frozenset()
    """The brokers with whose logs this one was compared at the end: of these it has all that it can get."""
    survey: Survey = attrs.field(factory=Survey)
    """What the peers answered since; nothing if they were not asked again."""


class MissingTail:
    """Fetches what one broker's log lacks; call `fetch` each time the broker becomes master."""

    def __init__(
        self,
        store: MessageStore,
        *,
        surveyor: Surveyor,
        dial: Dial,
        wall_clock: WallClock,
        config: HAConfig,
        rule: Callable[[], ReturnRule],
    ) -> None:
        """`dial` reaches replication ports; `rule` is called each time it is needed."""
        self._store = store
        self._surveyor = surveyor
        self._peers = surveyor.peers
        self._dial = dial
        self._wall_clock = wall_clock
        self._config = attrs.evolve(
            config,
            # No put waits for these reports.
            acknowledge="memory",
            # As often as a slave that does not answer is asked: one that comes back before the time is up is noticed.
            reconnect_pause=ASK_AGAIN_PAUSE,
            longest_reconnect_pause=ASK_AGAIN_PAUSE,
        )
        self._rule = rule
        self._torn_end = TornEnd(store, dial=dial, wall_clock=wall_clock)

    def __repr__(self) -> str:
        return f"<MissingTail of {self._peers.broker_name}>"

    async def fetch(
        self,
        report_waiting: Callable[[str], None],
        found: Survey,
    ) -> FetchedTail:
        """Fetch everything that a slave has beyond this log. Never fails.

        A slave that has just connected is asked too, and not waited for.
        `report_waiting` is called with the reason why no write is taken, once that takes longer than it should. `found`
        is what the peers have just answered. Those in its `also`, such as the previous master, are asked like slaves,
        but not waited for; those that were silent then, only while others are waited for. A cancel leaves what was
        fetched so far.
        """
        result = FetchedTail()
        began = trio.current_time()
        is_waiting_reported = is_logged = False
        asked_too, were_silent = found.also, silent_brokers(found)
        silent: dict[str, Error] = {}
        tried: set[str] = set()
        must_ask = not is_fresh(found, trio.current_time())
        while True:
            if must_ask:
                also = asked_too if is_logged else asked_too - were_silent
                found = await self._surveyor.survey(
                    also.union(self._peers.connecting()), slaves_only=True
                )
                result.survey = result.survey.joined(found)
            must_ask = True
            slaves, result.unreachable = tail_sources(found), unasked(found) | silent
            before, result.compared = result.compared, frozenset(slave.addr for slave in slaves)
            if not result.compared <= before:
                await self._compare(slaves)
            end = self._store.max_physical_offset
            longer = longer_logs(found, end, result.refused.keys() | silent.keys())
            if longer:
                source = max(longer, key=lambda slave: slave.end)
                is_again = source.addr in tried
                silence = await self._follow(source, result, AGAIN_LIMIT if is_again else inf)
                if isinstance(silence, SilentPeerError) and not is_again:
                    # One that answers now has perhaps just come back.
                    tried.add(source.addr)
                else:
                    silent = {**silent, source.addr: silence} if silence else {}
                # Either takes time, and the answers are old then: who did not answer may answer now.
                continue
            silent, tried = {}, set()  # The next round tries them again.
            rule = self._rule()
            has_waited = trio.current_time() - began >= rule.wait
            if not result.unreachable:
                if slaves or not self._store.commit_log.is_empty or not rule.expects_slaves:
                    break
                if has_waited:
                    logger.warning("a new log begins, no slave has come waited=%g", rule.wait)
                    break
                if not is_logged:
                    is_logged = True
                    logger.info(
                        "no log yet, waiting for a slave that may have it wait=%g", rule.wait
                    )
                await trio.sleep(ASK_AGAIN_PAUSE)
                continue
            if not is_logged:
                is_logged = True
                logger.info(
                    "not serving yet, asking again for messages that only a slave may have "
                    "unreachable=%s ha_return_wait=%g",
                    self._named(result), rule.wait,
                )  # fmt: skip
            # A log that takes no bytes cannot take writes either: waiting for room on the disk loses no time.
            has_room = not any(
                isinstance(error, NoRoomError) for error in result.unreachable.values()
            )
            if has_waited:
                if rule.serves_without and has_room:
                    self._log_unreachable(result, rule)
                    break
                if not is_waiting_reported:
                    is_waiting_reported = True
                    report_waiting(self._why_waiting(result))
            await trio.sleep(ASK_AGAIN_PAUSE)
        return result

    # --- comparing ---------------------------------------------------------------------------

    async def _compare(self, slaves: list[PeerLog]) -> None:
        """Compare the end of this log with theirs, even if they are not longer, and repair what is damaged here."""
        store = self._store
        store.refusals.refuse(Refuser.MISSING_TAIL, _FETCHING)
        store.begin_replication()
        try:
            await self._torn_end.compare(slaves)
        except (Error, OSError) as error:
            logger.error("the end of this log was not repaired reason=%s", error)
        finally:
            store.end_replication()
            store.refusals.lift(Refuser.MISSING_TAIL)

    # --- following ---------------------------------------------------------------------------

    async def _follow(self, slave: PeerLog, result: FetchedTail, limit: float) -> Error | None:
        """Follow a slave until this log is as long as that slave's was; return why if nothing comes any more."""
        store = self._store
        begin = store.max_physical_offset
        logger.warning(
            "this log is shorter than a slave's, getting what it lacks slave=%s offset=%d bytes=%d",
            slave.addr, begin, slave.end - begin,
        )  # fmt: skip

        async def knows_epochs() -> bool:
            return slave.knows_epochs

        # With the default rules (`HistoryRules`): of this log only what no producer
        # was answered for is given up for a slave's.
        client = HAClient(
            store,
            address=MasterAddress(slave.ha_addr),
            dial=self._dial,
            wall_clock=self._wall_clock,
            config=self._config,
            knows_epochs=knows_epochs,
        )
        problem: list[Error] = []
        store.refusals.refuse(Refuser.MISSING_TAIL, _FETCHING)
        store.begin_replication()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(client.run)
                nursery.start_soon(self._watch, client, problem, limit, nursery.cancel_scope)
                await store.appended.wait_reached(slave.end)
                nursery.cancel_scope.cancel()
        finally:
            # The end of the slave's role completes the queues and cuts off a partial record.
            store.end_replication()
            store.refusals.lift(Refuser.MISSING_TAIL)
        fetched = store.max_physical_offset - begin
        if fetched > 0:
            result.sources.append(slave.addr)
            logger.info("fetched from a slave slave=%s bytes=%d", slave.addr, fetched)
            if not begin and not store.min_physical_offset and not problem:
                result.copied_from = slave.addr
        if not begin and store.min_physical_offset:
            logger.warning(
                "an empty log was given its end only, as Apache's brokers do; what lies before is on "
                "the slave alone slave=%s begin=%d",
                slave.addr, store.min_physical_offset,
            )  # fmt: skip
        for error in problem:
            if isinstance(error, SilentPeerError | NoRoomError):
                return error
            result.refused[slave.addr] = error
            logger.error(
                "a slave is longer than this log and was not followed slave=%s reason=%s",
                slave.addr, error,
            )  # fmt: skip
        return None

    async def _watch(
        self, client: HAClient, problem: list[Error], limit: float, scope: trio.CancelScope
    ) -> None:
        """Stop when the histories differ, or nothing was received for `ReturnRule.wait` or `limit` seconds."""
        store = self._store
        seen, since = store.max_physical_offset, trio.current_time()
        while not problem:
            if store.max_physical_offset > seen:
                seen, since = store.max_physical_offset, trio.current_time()
            failures = client.failures.value
            with trio.move_on_at(since + min(self._rule().wait, limit)) as waiting:
                await wait_any_past((store.appended, seen), (client.failures, failures))
            if isinstance(client.problem, ReplicationError):
                problem.append(client.problem)
            elif waiting.cancelled_caught:
                last = client.problem
                if isinstance(last, OSError):
                    last = NoRoomError(f"This disk takes nothing: {last}")
                silent = SilentPeerError("Nothing came from the slave")
                problem.append(last if isinstance(last, NoRoomError) else silent)
        scope.cancel()

    # --- saying so ---------------------------------------------------------------------------

    def _log_unreachable(self, result: FetchedTail, rule: ReturnRule) -> None:
        for addr, error in result.unreachable.items():
            logger.warning(
                "serving without asking a peer that cannot be reached, messages that only a slave still "
                "has are lost for readers setting=%s peer=%s waited=%g reason=%s",
                "ha_return=serve", self._name(addr), rule.wait, error,
            )  # fmt: skip

    def _name(self, addr: str) -> str:
        kind = "name server" if addr in self._peers.name_servers else "slave"
        return f"{kind} {addr}"

    def _named(self, result: FetchedTail) -> str:
        return ", ".join(sorted(map(self._name, result.unreachable)))

    def _why_waiting(self, result: FetchedTail) -> str:
        for error in result.unreachable.values():
            if isinstance(error, NoRoomError):
                logger.error("no writes are taken until there is room reason=%s", error)
                return f"this master has no room for what only a slave has of its log: {error}"
        peers = self._named(result)
        logger.error("no writes are taken until a peer can be asked peers=%s", peers)
        return (
            f"this master waits until {peers} can be asked for messages it may lack: bring it back, "
            "or set ha_return to serve"
        )
