"""Makes the parts of a broker do what its standing allows: the only code that sets store, gate, locks and the like.

    part                  what a change of standing does to it
    store, refusals       appends refused with a reason, or taken; replication writes the log, or this broker
    gate, group_transfer  readers and sends wait for slaves, or do not; a slave's readers see what its master shows
    registration          nothing is sent, or the role is registered
    queue_locks           dropped, or taken over from the last run
    ha_service            followers are sent away

Everything happens without an await, in the order of the table: appends are refused before anything else changes, and
taken after everything else.
"""

from typing import Final

import trio

from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.ha.group_transfer import GroupTransferService
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.registration import BrokerRegistration
from rocketrio_broker.role.standing import (
    ASIDE,
    FOLLOWING,
    LOOKING,
    UNRESOLVED,
    CurrentStanding,
    Event,
    Listing,
    Standing,
)
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.refusals import Refuser

_LOCKS_ELSEWHERE: Final = (FOLLOWING, UNRESOLVED, ASIDE)
"""The standings of brokers beside which another one locks queues."""


class Switchboard:
    """The parts of one broker that depend on its standing."""

    def __init__(
        self,
        standing: CurrentStanding,
        *,
        config: LiveConfig,
        store: MessageStore,
        gate_keeper: GateKeeper,
        group_transfer: GroupTransferService,
        registration: BrokerRegistration,
        queue_locks: QueueLocks,
        ha_service: HAService,
    ) -> None:
        self._standing = standing
        self._config = config
        self._store = store
        self._gate_keeper = gate_keeper
        self._group_transfer = group_transfer
        self._registration = registration
        self._queue_locks = queue_locks
        self._ha_service = ha_service

    def __repr__(self) -> str:
        return f"<Switchboard {self._standing.now}>"

    def note(self, event: Event, reason: str = "", *, other: str | None = None) -> None:
        """Take the standing that follows from an event, and set all parts.

        `reason` says why no writes are taken; `other` is the live master for which this broker stands aside. Raises
        IllegalEventError, and then nothing changed.
        """
        before = self._standing.note(event, reason, other=other)
        now = self._standing.now
        # First: nothing is appended under the new standing with the mode, the gate or the locks of the former one.
        if not now.writes:
            self._store.refusals.refuse(Refuser.STANDING, reason)
        if now.copies and not before.copies:
            self._store.begin_replication()
        elif before.copies and not now.copies:
            self._store.end_replication()
        if now.listing is Listing.HELD:
            self._registration.hold()
        # After `end_replication`, which may cut the log: the gate and the acknowledgements
        # count from the end that is left.
        if now in (FOLLOWING, UNRESOLVED, LOOKING) or before.copies:
            self.set_mode()
        self._set_locks(before, now)
        if now is ASIDE:
            self._ha_service.end_followers()
        # Last, for the same reason.
        if now.writes:
            self._store.refusals.lift(Refuser.STANDING)

    def serve(self) -> None:
        """Note that the role serves: register it if its standing waits for that, and wake tasks that wait for it."""
        if self._standing.now.listing is Listing.ONCE_IT_SERVES:
            self._registration.register_now()
        self._standing.served.advance(self._standing.served.value + 1)

    def set_mode(self) -> None:
        """Begin or stop to wait for slaves, and to hide from readers what they lack; the log's end counts from now."""
        self.expect_acknowledgements()
        if self._standing.now.copies:
            self._gate_keeper.follow()
        elif self._config.broker.gates_readers:
            self._gate_keeper.begin()
        else:
            self._gate_keeper.leave_open()

    def expect_acknowledgements(self) -> None:
        """Count what slaves acknowledge from the log's present end on: what is before it may be another master's."""
        self._group_transfer.change_role(
            is_required=self._config.broker.role == "sync-master",
            max_physical_offset=self._store.max_physical_offset,
        )

    def _set_locks(self, before: Standing, now: Standing) -> None:
        if now in _LOCKS_ELSEWHERE:
            self._queue_locks.clear()
        elif now.locks and not before.locks:
            self._queue_locks.take_over(
                now=trio.current_time(), is_new=not self._store.max_physical_offset
            )
