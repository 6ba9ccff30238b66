"""Stops a master whose log begins now from serving beside an older log of its name.

A master whose data was lost, together with the name server that listed its slaves, finds no broker to ask and begins at
address 0. Its slave connects later, with all that was acknowledged; the two logs have nothing in common. So whenever a
slave connects, the slaves that the name servers list are asked for the end of their logs, and their last records are
fetched. What happens if this log does not have these records depends on their source:

    a slave that was known when this broker started, or a
    link that authenticates it (secret or certificate)       this master takes no more writes
    any other: any host that reaches a name server can be
    listed as a slave there                                  an alarm, in the log and the status

Such a master takes none until it is restarted, or until its log is another broker's. A change of its mode, a time as a
slave and a hand-over that fails do not end that.

Invariant: a claim alone never stops a master: what counts are records that were fetched and are whole.
Invariant: a log that parted from this one later is no second history; it has an epoch of this log.
Answers to: nothing in Apache's brokers; there the slave is sent the log from wherever its own log ends.
"""

import logging
from collections.abc import Collection
from itertools import islice
from typing import Final

import trio

from rocketrio_broker.ha.exchange import READER, ask_welcome
from rocketrio_broker.ha.judgement import tail_sources
from rocketrio_broker.ha.survey import Surveyor
from rocketrio_broker.ha.torn_end import (
    COMPARED_SIZE,
    PeerLog,
    bytes_of,
    have_same_records,
    read_log,
    records_of,
)
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.refusals import Refuser
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.errors import Error
from rocketrio_protocol.record.decode import RecordStatus, possible_records, scan_record
from rocketrio_protocol.remoting.ports import Dial

logger = logging.getLogger("rocketrio_broker.ha")

CHECK_PERIOD: Final = 30.0
"""Seconds between checks while no slave connects, as between registrations."""

SETTLE_TIME: Final = 1.0
"""Seconds to wait after a slave connected: by then it is registered, and has repaired its end if a crash damaged
that."""

_TRIES: Final = 100
"""The most places to try that look like the beginning of a record; bodies contain hardly any."""


class SecondHistory:
    """Searches for logs that are older than this master's."""

    def __init__(
        self,
        store: MessageStore,
        *,
        surveyor: Surveyor,
        dial: Dial,
        accepted: Watermark,
        known: Collection[str],
        is_proved: bool,
    ) -> None:
        """`dial` reaches replication ports, and authenticates the broker there if `is_proved`.

        `accepted` counts the slaves that connect; `known` are the slaves of the last run.
        """
        self._store = store
        self._surveyor = surveyor
        self._dial = dial
        self._accepted = accepted
        self._known = frozenset(known)
        self._is_proved = is_proved
        self._has_begun = False
        self._found: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<SecondHistory {', '.join(self._found) or 'none'}>"

    def problems(self) -> list[str]:
        """Return the problems for the status."""
        return list(self._found.values())

    def begin(self, *, is_new_log: bool) -> None:
        """Note that this broker is about to take writes, and whether its log begins with them."""
        # Neither a change of its mode nor a time as a slave makes a new log
        # the right one. An operator decides, by a restart.
        self._has_begun = self._has_begun or is_new_log
        if not self._is_new_log:
            self._found.clear()
            self._store.refusals.lift(Refuser.SECOND_HISTORY)

    async def watch(self) -> None:
        """Check whenever a slave connects, and periodically, while the log is new and this master takes writes."""
        while self._is_new_log and not self._store.refusals.of(Refuser.SECOND_HISTORY):
            # Read before the check: a slave that connects meanwhile is asked in the next round.
            seen = self._accepted.value
            if await self._check():
                return
            with trio.move_on_after(CHECK_PERIOD):
                await self._accepted.wait_past(seen)
            await trio.sleep(SETTLE_TIME)

    @property
    def _is_new_log(self) -> bool:
        """Whether this log began while the broker ran, and no other broker has written to it."""
        lines, own = self._store.epochs.lines, self._store.epochs.member
        # With an epoch of another broker it is not new: it is the log of that one.
        return self._has_begun and bool(lines) and all(line.member == own for line in lines)

    async def _check(self) -> bool:
        found = await self._surveyor.survey(self._known, slaves_only=True)
        for view in found.views.values():
            if view.is_given_away(found.broker_name):
                self._found.pop(view.addr, None)
        for slave in tail_sources(found):
            try:
                is_other = await self._is_other_history(slave)
            except Error as error:
                logger.debug(
                    "a slave's log could not be read slave=%s reason=%s", slave.addr, error
                )
                continue
            if not is_other:
                self._found.pop(slave.addr, None)
            # Any host that reaches a name server can be listed as a slave, with a
            # log that it made up: no such host stops a master.
            elif self._is_proved or slave.addr in self._known:
                self._refuse(slave)
                return True
            else:
                self._alarm(slave)
        return False

    async def _is_other_history(self, slave: PeerLog) -> bool:
        """Return whether the slave's log has nothing to do with this one."""
        # With a common epoch the logs parted later: the rules for epochs say which of the two gives up its end.
        return await self._has_other_records(slave) and not await self._shares_an_epoch(slave)

    async def _has_other_records(self, slave: PeerLog) -> bool:
        """Return whether the slave's last records are whole and not in this log."""
        if not slave.end:
            return False
        log = self._store.commit_log
        start = max(0, slave.end - COMPARED_SIZE)
        data = await read_log(self._dial, slave, start, slave.end)
        # A claimed length proves nothing: there must be a whole record that this log does not have.
        first = _first_record(data, start)
        if first is None:
            return False
        start, data = start + first, data[first:]
        if log.max_offset < start + len(data):
            return True
        own = bytes_of(log, start, start + len(data))
        return not have_same_records(own, data, start, records_of([data], start, log.file_size))

    async def _shares_an_epoch(self, slave: PeerLog) -> bool:
        if not slave.knows_epochs:
            return False
        transport = await self._dial(slave.ha_addr)
        try:
            lines = (await ask_welcome(transport, READER)).epochs
        finally:
            await transport.aclose()
        own = {line.key for line in self._store.epochs.lines}
        return not own.isdisjoint(line.key for line in lines)

    def _refuse(self, slave: PeerLog) -> None:
        reason = (
            f"this broker's log is new, and its slave at {slave.addr} has another one of {slave.end} bytes: make that "
            "one master; or empty this broker's data directory and start it again, it gets all of that log then; "
            "or, if the new log is the right one, restart this broker"
        )
        self._found = {slave.addr: reason}
        logger.error("no writes are taken reason=%s", reason)
        self._store.refusals.refuse(Refuser.SECOND_HISTORY, reason)

    def _alarm(self, slave: PeerLog) -> None:
        if slave.addr in self._found:
            return
        self._found[slave.addr] = problem = (
            f"this broker's log is new, and {slave.addr}, listed as its slave, has another one of {slave.end} bytes; "
            "nothing proves whose it is (ha_secret_file, ha_tls_*). If it is the older log of this name, make that "
            "broker master, or empty this one's data directory and start it again"
        )
        logger.error("a second history has begun problem=%s", problem)


def _first_record(data: bytes, start: int) -> int | None:
    """Return the place of the first whole record in bytes that begin at an address; None if there is none."""
    for at in islice(possible_records(data, 0, len(data)), _TRIES):
        record = scan_record(data, at, len(data))
        if record.status is RecordStatus.RECORD and record.physical_offset == start + at:
            return at
    return None
