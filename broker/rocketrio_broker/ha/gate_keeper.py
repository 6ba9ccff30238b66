"""Moves the read gate of a master: readers see what enough slaves have, or, if too few keep up, what its own disk has.

    enough level slaves     the gate follows the k-th greatest address that they acknowledged; k is in_sync_slaves
    too few of them for slave_timeout, while there is log beyond the gate
        serve               it follows what this disk has synced, until enough slaves are level again
        wait                it stays

A slave is level once it was seen to keep up on its connection: within LEVEL_WITHIN seconds it had everything up to what
was the log's end. Until then its reports confirm nothing, because a slave that copies for hours would hold the readers
back for hours. The same holds after the disk has stood in: a slave must catch up before it confirms again.

Invariant: the gate never goes back during a role, except if the log is cut.
Invariant: a message that level slaves have, and that was answered PUT_OK, is visible to every pull after that answer.
Invariant: in the mode `serve` the gate reaches the end of an idle log.
Answers to: nothing in 4.x; AutoSwitchHAService.computeConfirmOffset of 5.x, which has a controller's list in place of
level slaves, and does not continue when that list is not complete.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.waiting.watermark import Watermark

logger = logging.getLogger("rocketrio_broker.ha")

LEVEL_WITHIN: Final = 1.0
"""Seconds within which a level slave gets everything up to the log's end: readers wait about as long for it at most."""


@attrs.frozen
class GateStatistics:
    """How far readers see, and what decides that."""

    is_gating: bool
    """Whether stored messages may be hidden from readers."""
    end: int
    """Readers see messages that end at or before this address; it is the end of the log if nothing is hidden."""
    by: str
    """What sets it: the `slaves`; this `disk`, while too few slaves keep up; `nobody`, while the gate waits for slaves;
    or, on a slave, the `master`."""


@attrs.frozen
class _Round:
    """The end of the log at some time, and that time: a slave is level if it reaches that end soon enough."""

    end: int
    since: float


class GateKeeper:
    """Keeps the gate of one master; on a slave it does nothing."""

    def __init__(
        self,
        gate: ReadGate,
        appended: Watermark,
        flushed: Watermark,
        *,
        timeout: float,
        in_sync_slaves: int = 1,
        serves_unconfirmed: Callable[[], bool] = lambda: True,
        current_time: Callable[[], float] = trio.current_time,
    ) -> None:
        """`timeout` is how long readers wait for `in_sync_slaves` slaves, in seconds."""
        self.is_keeping = False
        """Whether this broker is a master whose readers see only confirmed messages."""
        self.level: set[str] = set()
        """The slaves whose reports confirm messages."""
        self.is_disk_confirming = False
        """Whether this disk confirms messages, because there are too few level slaves."""
        self._gate = gate
        self._appended = appended
        self._flushed = flushed
        self._timeout = timeout
        self._in_sync_slaves = in_sync_slaves
        self._serves_unconfirmed = serves_unconfirmed
        self._current_time = current_time
        self._rounds: dict[str, _Round] = {}
        self._progress_at = 0.0
        self._scope = trio.CancelScope()

    def __repr__(self) -> str:
        by = "this disk" if self.is_disk_confirming else f"{len(self.level)} level slaves"
        return f"<GateKeeper of {self._gate!r} by {by}>"

    def statistics(self) -> GateStatistics:
        if not self.is_keeping:
            by = "master"
        elif self.is_disk_confirming:
            by = "disk"
        else:
            by = "slaves" if len(self.level) >= self._in_sync_slaves else "nobody"
        return GateStatistics(
            self._gate.is_gating, min(self._gate.end.value, self._appended.value), by
        )

    # --- the role ----------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin a master's role in which readers see only confirmed messages.

        At first they see what the previous master confirmed last, or what this broker showed before: everything if
        nothing was hidden.
        """
        if not self.is_keeping:
            # Not if it keeps already, as at a change of its mode: the gate would take back what readers have seen.
            self._gate.begin(min(self._gate.end.value, self._appended.value))
        self._change_role(is_keeping=True)

    def follow(self) -> None:
        """Begin a slave's role: what it showed stays visible until its master sends where the gate is."""
        self._change_role(is_keeping=False)

    def leave_open(self) -> None:
        """Begin a role in which readers see everything."""
        self._change_role(is_keeping=False)
        self._gate.open()

    def _change_role(self, *, is_keeping: bool) -> None:
        self.is_keeping = is_keeping
        self.is_disk_confirming = False
        self._progress_at = self._current_time()
        self._scope.cancel()

    # --- reports -----------------------------------------------------------------------------

    def note_report(self, slave: str, acknowledged: int) -> None:
        """Note that a slave has everything before this address, and whether it is level now."""
        if slave in self.level:
            return
        end, now = self._appended.value, self._current_time()
        its_round = self._rounds.get(slave)
        if its_round is None:
            its_round = _Round(end, now)
        elif acknowledged >= its_round.end and now - its_round.since > LEVEL_WITHIN:
            its_round = _Round(end, now)  # Too slow: it must now reach the present end in time.
        if acknowledged >= its_round.end:
            self._rounds.pop(slave, None)
            self.level.add(slave)
        else:
            self._rounds[slave] = its_round

    def left(self, slave: str) -> None:
        """Forget a slave whose connection ended."""
        self.level.discard(slave)
        self._rounds.pop(slave, None)

    def confirm(self, address: int) -> None:
        """Move the gate to this address, before which enough level slaves have everything."""
        if not self.is_keeping:
            return
        if self.is_disk_confirming:
            self._stand_back(address)
        if address > self._gate.end.value:
            self._progress_at = self._current_time()
            self._gate.pass_to(address)

    # --- time --------------------------------------------------------------------------------

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch the time while this broker takes writes."""
        task_status.started()
        try:
            while True:
                with trio.CancelScope() as self._scope:
                    if not self.is_keeping:
                        await trio.sleep_forever()
                    await self._wait_without_progress()
                    await self._stand_in()
        finally:
            self.is_disk_confirming = False

    async def _wait_without_progress(self) -> None:
        """Return once readers have waited long enough for slaves."""
        gate_end, appended = self._gate.end, self._appended
        while True:
            await appended.wait_past(gate_end.value)
            self._progress_at = max(self._progress_at, self._current_time())
            # Checked when the time may be up, not at each report.
            while gate_end.value < appended.value:
                deadline = self._progress_at + self._timeout
                if self._current_time() < deadline:
                    await trio.sleep_until(deadline)
                elif self._serves_unconfirmed():
                    return
                else:
                    await trio.sleep(self._timeout)

    async def _stand_in(self) -> None:
        """Show what this disk has, until `confirm` or a change of role ends that."""
        gate, flushed = self._gate, self._flushed
        self.is_disk_confirming = True
        self.level.clear()
        self._rounds.clear()
        logger.warning(
            "readers see what too few slaves have seconds=%g end=%d shown=%d",
            self._timeout, self._appended.value, flushed.value,
        )  # fmt: skip
        while True:
            # What the disk has, and not what is appended: a power cut must not take away what a reader has seen.
            gate.pass_to(flushed.value)
            await flushed.wait_past(flushed.value)

    def _stand_back(self, address: int) -> None:
        self.is_disk_confirming = False
        logger.info("readers see what slaves have again shown=%d", address)
        self._scope.cancel()
