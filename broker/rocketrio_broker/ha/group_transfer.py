"""Keeps what enough live slaves have: the address up to which a synchronous master may answer PUT_OK.

Each slave that is connected and has reported counts with its own last report, and no longer counts once it has left.
The address that puts wait for is the k-th greatest of these, k being the number of slaves that must have a message.

A slave that lost its connection reconnects, perhaps long before the old connection is dropped for its silence, and an
Apache slave does not identify itself in the stream: counted twice it would be two of the slaves that must have a
message. So when a slave connects, the older connections from its host are in doubt until they report again: a slave has
one connection at a time, and an old connection that reports belongs to another slave.

The same reports decide what readers may see: the k-th greatest report of the slaves that are level (gate_keeper.py).

Invariant: `replicated` is what at least k live slaves have; it falls when one of them leaves.
Invariant: with fewer than k live slaves `replicated` is 0, and no put is released.
Invariant: no put is released by bytes that no slave was sent, whatever a slave reports when it connects.
Invariant: no put is released by a connection in doubt; puts still wait for it, as it may be another slave.
Answers to: GroupTransferService, push2SlaveMaxOffset, isSlaveOK; RocketMQ reference, section 6.5.
Unlike Java: no thread, no polling, and no offset that outlives the slave that reported it.
"""

from typing import Final, Protocol

import attrs

from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.remoting.ports import split_addr

SLAVE_FALLBEHIND_MAX: Final = 256 << 20
"""The bytes by which a slave may be behind and puts still wait for it (haSlaveFallbehindMax)."""

_NOTHING: Final = 0


@attrs.frozen
class GroupTransferStatistics:
    """The state of the slaves that puts wait for."""

    is_required: bool
    """Whether puts wait for slaves here: the role is sync-master."""
    in_sync_slaves: int
    """The number of slaves that must have a message."""
    live_slaves: int
    """The number of slaves that are connected and have reported, without connections in doubt."""
    replicated_offset: int
    """At least `in_sync_slaves` live slaves have everything before this address; 0 with too few of them."""
    last_slave: str | None
    """The slave whose report raised it last."""


class WaitsForSlaves(Protocol):
    """A part that is notified when slaves have more: the queue of waiting answers."""

    def answer_replicated(self) -> None: ...


class GroupTransferService:
    """Receives every report, and keeps the address that enough slaves have reached."""

    def __init__(
        self,
        *,
        is_required: bool,
        in_sync_slaves: int = 1,
        slave_fallbehind_max: int = SLAVE_FALLBEHIND_MAX,
        max_physical_offset: int = 0,
        gate_keeper: GateKeeper | None = None,
    ) -> None:
        """`slave_fallbehind_max` is in bytes: puts do not wait for slaves further behind than this.

        `max_physical_offset` is the log's end now: slaves may have everything before it from an earlier connection.
        """
        self.is_required = is_required
        """Whether puts wait for slaves."""
        self.replicated = Watermark(_NOTHING)
        """Enough live slaves have everything before this address."""
        self.available_until = _NOTHING
        """Puts do not wait for slaves from this address on: too few slaves are live, or near enough to it."""
        self.last_slave: str | None = None
        """The slave whose report raised `replicated` last."""
        self._waiting: WaitsForSlaves | None = None
        self._in_sync_slaves = in_sync_slaves
        self._slave_fallbehind_max = slave_fallbehind_max
        self._slave_ack_offsets: dict[str, int] = {}
        self._in_doubt: set[str] = set()
        self._sent_to = max_physical_offset
        self._gate_keeper = gate_keeper

    def __repr__(self) -> str:
        return (
            f"<GroupTransferService {self.replicated.value} of {len(self._slave_ack_offsets)} slaves"
            f", {self._in_sync_slaves} required>"
        )

    def statistics(self) -> GroupTransferStatistics:
        """Return the state of the slaves now."""
        return GroupTransferStatistics(
            self.is_required,
            self._in_sync_slaves,
            len(self._slave_ack_offsets) - len(self._in_doubt),
            self.replicated.value,
            self.last_slave,
        )

    def connections(self) -> frozenset[str]:
        """Return the connections that count."""
        return frozenset(self._slave_ack_offsets)

    def notify(self, waiting: WaitsForSlaves) -> None:
        """Register `waiting` to be notified when `replicated` advances."""
        self._waiting = waiting

    def change_role(self, *, is_required: bool, max_physical_offset: int) -> None:
        """Note that this broker writes the log from this address on.

        Slaves may have what is before it from another master. The caller must answer the waiting puts before this, with
        `WaitingAnswers.answer_all`.
        """
        self.is_required = is_required
        self._sent_to = max_physical_offset

    def transfer_sent(self, end_offset: int) -> None:
        """Note that a slave was sent everything before this address."""
        self._sent_to = max(self._sent_to, end_offset)

    def slave_reported(
        self, addr: str, slave_ack_offset: int, *, is_first: bool, is_named: bool = False
    ) -> None:
        """Record that a slave has everything before this address; its first report makes it live.

        `is_first`: the slave has been sent nothing on its connection that would be new to it.
        `is_named`: the slave identified itself, so its older connection has been ended, and no other is in doubt.
        """
        if is_first and slave_ack_offset > self._sent_to:
            # These bytes are not from this master, perhaps from a copied directory: they count once the slave has
            # received what follows them from here.
            slave_ack_offset = self._sent_to
        if addr not in self._slave_ack_offsets:
            # Before the new connection counts: the older one may be the same slave's, which would be two of k.
            if not is_named:
                self._doubt_older(addr)
        # A slave has one connection at a time: an old one that reports is another slave's.
        elif self._in_doubt:
            self._in_doubt.discard(addr)
        self._slave_ack_offsets[addr] = slave_ack_offset
        before = self.replicated.value
        self._set_replicated()
        if self.replicated.value > before:
            self.last_slave = addr
            if self._waiting is not None:
                self._waiting.answer_replicated()
        if self._gate_keeper is not None:
            self._confirm(self._gate_keeper, addr, slave_ack_offset)

    def _confirm(self, keeper: GateKeeper, addr: str, slave_ack_offset: int) -> None:
        """Move the gate to what enough level slaves have."""
        keeper.note_report(addr, slave_ack_offset)
        offsets, level = self._slave_ack_offsets, keeper.level
        if len(level) == len(offsets) and not self._in_doubt:
            reached = self.replicated.value if len(level) >= self._in_sync_slaves else None
        else:
            reached = self._kth_greatest(
                [offsets[each] for each in level if each not in self._in_doubt]
            )
        if reached is not None:
            keeper.confirm(reached)

    def slave_left(self, addr: str) -> None:
        """Forget a connection that ended; what that slave had no longer counts."""
        self._in_doubt.discard(addr)
        if self._gate_keeper is not None:
            self._gate_keeper.left(addr)
        if self._slave_ack_offsets.pop(addr, None) is not None:
            self._set_replicated()

    def _doubt_older(self, addr: str) -> None:
        """Put the older connections of a new slave's host in doubt: one of them may be that slave's previous one."""
        host, _ = split_addr(addr)
        self._in_doubt.update(
            older for older in self._slave_ack_offsets if split_addr(older)[0] == host
        )

    def _set_replicated(self) -> None:
        """Set `replicated` to the k-th greatest acknowledged address."""
        offsets = self._slave_ack_offsets
        reached = self._kth_greatest(list(offsets.values()))
        # With the connections in doubt, unlike `replicated`: a put rather waits too long than not at all.
        self.available_until = _NOTHING if reached is None else reached + self._slave_fallbehind_max
        if self._in_doubt:
            reached = self._kth_greatest(
                [offset for addr, offset in offsets.items() if addr not in self._in_doubt]
            )
        # `reset`, because it must fall when a slave leaves: what that slave had releases no put any more.
        self.replicated.reset(_NOTHING if reached is None else reached)

    def _kth_greatest(self, offsets: list[int]) -> int | None:
        """Return the offset that at least k slaves have reached; None with fewer than k slaves."""
        if len(offsets) < self._in_sync_slaves:
            return None
        offsets.sort(reverse=True)
        return offsets[self._in_sync_slaves - 1]
