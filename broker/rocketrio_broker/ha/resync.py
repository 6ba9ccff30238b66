"""Decides what a slave does if its master's log is not just a longer one: where it asks next, what it gives up.

    equal to this log's end     follows
    ends before this log        ahead: waits, and continues to compare
    differs from some address   diverged: refuses, or (ha_divergent_tail = cut) puts its own end aside and follows
    begins after this log       history is missing: refuses, or (ha_missing_history = restart) copies everything again

Two rocketrio brokers first exchange which epochs their logs have (`exchange.py`), and then know where they part:

    this log ends there              compares its end, as above, and follows
    it continues, this broker alone wrote the rest, and no producer got PUT_OK for it, by what its slaves acknowledged
    to it (store/acknowledged.py) and by what they say
                                     cuts the rest off, puts it aside, and follows
    it continues otherwise           waits, and reports how many messages that are, or (ha_divergent_tail = cut) cuts

A rocketrio master that is asked for an address outside its log immediately sends where the log begins or ends: a
heartbeat with that address, and then closes. An Apache master sends heartbeats for the address that it was asked for;
then a slave asks from further back, finally from the beginning of its last file.

Invariant: bytes are given up only if no producer got PUT_OK for them and no reader was shown them before the last
start, or by a rule that an operator set; never because a master is empty or sends nothing.
Invariant: the epoch file names no epoch beyond a cut; a crash between the two leaves lines that begin beyond the end.
Answers to: nothing in DefaultHAClient; AutoSwitchHAClient truncates by epochs.
"""

import logging
from collections.abc import Callable
from typing import Final, Literal

import attrs
from attrs import validators

from rocketrio_broker.ha.epochs import common_boundary, why_kept
from rocketrio_broker.ha.errors import (
    AheadOfMasterError,
    AskAgainError,
    BeyondBoundaryError,
    DivergedHistoryError,
    HistoryMismatchError,
    MissingHistoryError,
    UnfinishedMasterError,
)
from rocketrio_broker.ha.history import WINDOWS, HistoryCheck, last_boundary, window_start
from rocketrio_broker.ha.tail_count import Beyond, count_beyond
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import Epoch, Welcome
from rocketrio_protocol.remoting.ports import WallClock

logger = logging.getLogger("rocketrio_broker.ha")

SILENT_HEARTBEATS: Final = 2
"""Heartbeats in a row that mean that the master has nothing to send: a single one comes before data too (4.9 after a
pause)."""


@attrs.frozen(kw_only=True)
class HistoryRules:
    """What may be given up to follow a master."""

    divergent_tail: Literal["refuse", "cut"] = attrs.field(
        default="refuse", validator=validators.in_(("refuse", "cut"))
    )
    missing_history: Literal["refuse", "restart"] = attrs.field(
        default="refuse", validator=validators.in_(("refuse", "restart"))
    )


@attrs.frozen(kw_only=True)
class _Question:
    """The address from which a connection asks."""

    window: int = 0
    """How far back to begin, as an index of WINDOWS; the index after the last means the first byte."""
    floor: int = 0
    """Where the master's log begins, as far as the master sent it."""
    ceiling: int | None = None
    """Where the master's log ends, if the master sent that it ends before this log."""
    from_end: bool = False
    """Whether to ask from the end without a comparison, because the master does not have what lies before it."""


class Resync:
    """Decides for one slave how to continue with its master's history."""

    def __init__(
        self, store: MessageStore, *, rules: Callable[[], HistoryRules], wall_clock: WallClock
    ) -> None:
        self._store = store
        self._log = store.commit_log
        self._rules = rules
        self._wall_clock = wall_clock
        self._question = _Question()
        self._next = _Question()
        self._offered: list[Epoch] | None = None
        self.beyond: Beyond | None = None
        """What this log has beyond its boundary with the master, while the slave waits because of it; None if there is
        nothing."""

    def __repr__(self) -> str:
        return f"<Resync {self._question}>"

    def begin(self) -> HistoryCheck:
        """Return the comparison for a new connection, already complete if there is nothing to compare."""
        question, self._next = self._next, _Question()
        self._question = question
        log, end = self._log, self._log.max_offset
        if question.from_end or log.is_empty:
            return HistoryCheck(log, end)
        compared_end = end if question.ceiling is None else min(end, question.ceiling)
        window = WINDOWS[question.window] if question.window < len(WINDOWS) else None
        start = max(window_start(log, compared_end, window), question.floor)
        return HistoryCheck(log, min(start, end))

    # --- epochs ------------------------------------------------------------------------------

    async def take_welcome(self, welcome: Welcome, master: str) -> None:
        """Find where both logs part; take the master's epochs over if this log ends there.

        Raises BeyondBoundaryError or UnfinishedMasterError otherwise, and OSError if an epoch's line cannot be written.
        If no epoch is common the bytes are compared, and `adopt` follows once they are equal.
        """
        store, epochs, end = self._store, self._store.epochs, self._log.max_offset
        self._offered = welcome.epochs
        boundary = common_boundary(epochs.lines, end, welcome.epochs, welcome.end)
        if self._log.is_empty:
            await self.adopt()
            return
        if boundary is None:
            return
        address, count = boundary.address, boundary.own_count
        if end <= address:
            self.beyond = None
            await self.adopt()
            return
        theirs = welcome.epochs[boundary.their_count :]
        if not theirs or theirs[0].start > welcome.end:
            raise UnfinishedMasterError(
                f"The master's log ends at {welcome.end}, in an epoch of which this one has"
                f" {end - address} bytes more",
                broker_addr=master,
            )
        known = store.acknowledged
        why = why_kept(epochs.lines, epochs.member, address, end, theirs, known.slaves, known.shown)
        if self.beyond is None or (self.beyond.start, self.beyond.end) != (address, end):
            self.beyond = count_beyond(store.commit_log, address, why)
        raise BeyondBoundaryError(
            f"This log and the one of {master} are the same up to {address}, where its epoch "
            f"{theirs[0].number} begins; beyond lie {self.beyond}" + (f": {why}" if why else ""),
            broker_addr=master,
            cut_at=address,
            epoch_count=count,
            why_kept=why,
        )

    async def adopt(self) -> None:
        """Take over the master's epochs, since this log is the same as the master's up to its end. Raises OSError."""
        if self._offered is not None:
            offered, self._offered = self._offered, None
            await self._store.epochs.adopt(offered)

    @property
    def must_adopt(self) -> bool:
        """Whether the master's epochs must still be taken over."""
        return self._offered is not None

    # --- what a connection found -------------------------------------------------------------

    def misplaced(self, check: HistoryCheck, address: int, master: str) -> Error:
        """Return why to end the connection when the master sends from another address than it was asked for."""
        end = self._log.max_offset
        if check.position > check.start:
            if address > check.position:
                self._next = attrs.evolve(self._question, from_end=True)
                logger.warning(
                    "the master's log has a hole, what lies here behind it is not compared "
                    "master=%s hole=%d end=%d",
                    master, check.position, end,
                )  # fmt: skip
                return AskAgainError(f"The master has nothing to send at {check.position}")
            return HistoryMismatchError(
                f"The master sends from {address}, after what lies before {check.position}",
                broker_addr=master,
            )
        if address > end:
            return MissingHistoryError(
                f"The master's log begins at {address}, this slave's ends at {end}",
                broker_addr=master,
                is_reported=True,
            )
        if address > check.start:
            return self._ask_again(attrs.evolve(self._question, floor=address))
        lower = attrs.evolve(self._question, ceiling=address)
        if window_start(self._log, address, WINDOWS[0]) < check.start:
            return self._ask_again(lower)
        return AheadOfMasterError(
            f"The master's log ends at {address}, this slave's begins at {self._log.min_offset}"
            f" and ends at {end}",
            broker_addr=master,
        )

    def diverged(self, check: HistoryCheck, master: str) -> Error:
        """Return why to end the connection after a byte that differs."""
        log, at = self._log, check.difference
        assert at is not None
        can_go_back = check.start > max(
            window_start(log, log.max_offset, None), self._question.floor
        )
        if at > check.start:
            cut_at = last_boundary(log, check.start, at)
            if cut_at >= check.start or not can_go_back:
                return self._diverged_from(at, cut_at, master)
        if can_go_back:
            return self._further_back()
        # All bytes that were compared differ.
        return self._diverged_from(at, log.min_offset, master)

    def _diverged_from(self, at: int, cut_at: int, master: str) -> DivergedHistoryError:
        end = self._log.max_offset
        return DivergedHistoryError(
            f"This slave's log differs from the master's from {at} on: the record at {cut_at} is the"
            f" first that only this slave has, its log ends at {end} ({end - cut_at} bytes more)",
            broker_addr=master,
            cut_at=cut_at,
        )

    def nothing_more(self, check: HistoryCheck, master: str) -> Error:
        """Return the problem when the master has had nothing to send for a while.

        AskAgainError means that it may have something at another address.
        """
        log = self._log
        end = log.max_offset
        if check.position > check.start:
            return AheadOfMasterError(
                f"The master's log ends at {check.position}, this slave's is equal up to there and"
                f" has {end - check.position} bytes more",
                broker_addr=master,
            )
        if self._question.window < len(WINDOWS) and check.start > window_start(log, end, None):
            return self._further_back()
        # The master's log may begin in the file in which this one ends.
        last_file = end - end % log.file_size
        if self._question.floor < last_file:
            return self._ask_again(_Question(floor=last_file))
        return MissingHistoryError(
            f"The master answers, and has nothing that lies in this slave's log ({log.min_offset}"
            f" to {end})",
            broker_addr=master,
            is_reported=False,
        )

    def _further_back(self) -> AskAgainError:
        question = self._question
        return self._ask_again(attrs.evolve(question, window=question.window + 1))

    def _ask_again(self, question: _Question) -> AskAgainError:
        self._next = question
        return AskAgainError("What is common with the master lies further from the end")

    # --- what is given up --------------------------------------------------------------------

    async def resolve(self, problem: Error) -> bool:
        """Act on the problem that ended a connection; return whether the same master can be followed now.

        Raises OSError when the disk has no room for what would be put aside. A cancel changes nothing.
        """
        rules, store = self._rules(), self._store
        if isinstance(problem, DivergedHistoryError):
            is_proven = isinstance(problem, BeyondBoundaryError) and problem.why_kept is None
            if is_proven or rules.divergent_tail == "cut":
                await self._cut(problem, is_proven=is_proven)
                return True
        is_empty = self._log.is_empty and store.max_physical_offset
        # Only if the master said where its log begins: one that is empty, or sends nothing, may have lost what is here.
        is_missing = isinstance(problem, MissingHistoryError) and problem.is_reported
        if is_missing and (is_empty or rules.missing_history == "restart"):
            logger.warning(
                "the log is dropped and copied again setting=%s begin=%d end=%d master=%s",
                "ha_missing_history=restart", store.min_physical_offset, store.max_physical_offset, problem.broker_addr,
            )  # fmt: skip
            await self._start_over()
            return True
        if is_empty and isinstance(problem, AheadOfMasterError):
            await self._start_over()
            return True
        return False

    async def _cut(self, problem: DivergedHistoryError, *, is_proven: bool) -> None:
        store, at = self._store, problem.cut_at
        end = store.max_physical_offset
        if not is_proven:
            # Before the bytes go: after a crash in between this broker must not vouch for what it had reported.
            await store.epochs.lose()
        path = await store.cut_tail(at, now_ms=self._wall_clock.now_ms())
        count = problem.epoch_count if isinstance(problem, BeyondBoundaryError) else None
        # After the bytes: lines beyond the end do no harm, but bytes beyond their line would
        # count as those of the last epoch that both logs have.
        await store.epochs.cut(at, count)
        self.beyond = None
        logger.warning(
            "divergent tail cut off reason=%s offset=%d bytes=%d kept_in=%s master=%s",
            "no producer got PUT_OK for it" if is_proven else "ha_divergent_tail=cut",
            at, end - at, path, problem.broker_addr,
        )  # fmt: skip

    async def _start_over(self) -> None:
        await self._store.epochs.lose()
        self._store.start_over()
        await self._store.epochs.forget()
