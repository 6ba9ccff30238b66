"""What enough live slaves have: the address up to which a synchronous master may say "stored".

Each slave that is connected and has reported counts with its own last report, and with nothing once it has left. The
number that puts wait for is the k-th greatest of these, k being the slaves that must have a message.

A slave that lost its connection comes back on another one, perhaps long before the old one is dropped for its silence,
and nothing in the stream says who it is: counted twice it would be two of the slaves that must have a message. So when
a slave comes, the older connections from its host are in doubt until they report again: a slave has one connection at
a time, and an old one that speaks is another slave.

What readers may see goes by the same reports: of the slaves that are level (gate_keeper.py), the k-th greatest.

Invariant: `replicated` is what at least k live slaves have; it falls when one of them leaves.
Invariant: with fewer than k live slaves `replicated` is 0, and nothing is released.
Invariant: nothing is released by bytes that no slave was sent, whatever a slave says when it comes.
Invariant: nothing is released by a connection in doubt; it is still waited for, as it may be a slave of its own.
Answers to: GroupTransferService, push2SlaveMaxOffset, isSlaveOK; RocketMQ reference, section 6.5.
Unlike Java: no thread, no polling, and no number that a slave leaves behind.
"""

from typing import Final, Protocol

import attrs

from rocketrio_broker.ha.gate_keeper import GateKeeper
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.remoting.ports import split_addr

SLAVE_FALLBEHIND_MAX: Final = 256 << 20
"""Bytes a slave may be behind and still be waited for (haSlaveFallbehindMax)."""

_NOTHING: Final = 0


@attrs.frozen
class GroupTransferStatistics:
    """How the slaves stand that puts wait for."""

    is_required: bool
    """Whether puts wait for slaves here: the role is sync-master."""
    in_sync_slaves: int
    """How many must have a message."""
    live_slaves: int
    """How many are connected and have reported, but for connections that may be an earlier one of another slave."""
    replicated_offset: int
    """So many have everything before this address; 0 with too few of them."""
    last_slave: str | None
    """Whose report moved it last."""


class WaitsForSlaves(Protocol):
    """Who wants to know at once when slaves have more: the line of waiting answers."""

    def answer_replicated(self) -> None: ...


class GroupTransferService:
    """Hears of every report, and keeps the address that enough slaves have reached."""

    def __init__(
        self,
        *,
        is_required: bool,
        in_sync_slaves: int = 1,
        slave_fallbehind_max: int = SLAVE_FALLBEHIND_MAX,
        max_physical_offset: int = 0,
        gate_keeper: GateKeeper | None = None,
    ) -> None:
        """`slave_fallbehind_max` is in bytes: slaves further behind than this are not waited for.

        `max_physical_offset` is the log's end now: slaves may have so much from before.
        """
        self.is_required = is_required
        """Whether puts wait for slaves."""
        self.replicated = Watermark(_NOTHING)
        """Enough live slaves have everything before this address."""
        self.available_until = _NOTHING
        """Slaves are not waited for from this address on: too few of them are live, or near enough to it."""
        self.last_slave: str | None = None
        """Whose report moved `replicated` last."""
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
        """How the slaves stand now."""
        return GroupTransferStatistics(
            self.is_required,
            self._in_sync_slaves,
            len(self._slave_ack_offsets) - len(self._in_doubt),
            self.replicated.value,
            self.last_slave,
        )

    def connections(self) -> frozenset[str]:
        """The connections that count."""
        return frozenset(self._slave_ack_offsets)

    def tell(self, waiting: WaitsForSlaves) -> None:
        """Tell these, from now on, whenever slaves have more."""
        self._waiting = waiting

    def change_role(self, *, is_required: bool, max_physical_offset: int) -> None:
        """The log is ours from this address on; what is before it slaves may have from another master.

        Answers that wait are the caller's business: `WaitingAnswers.answer_all`, before this.
        """
        self.is_required = is_required
        self._sent_to = max_physical_offset

    def transfer_sent(self, end_offset: int) -> None:
        """A slave was sent everything before this address."""
        self._sent_to = max(self._sent_to, end_offset)

    def slave_reported(
        self, addr: str, slave_ack_offset: int, *, is_first: bool, is_named: bool = False
    ) -> None:
        """A slave has everything before this address; its first report makes it live.

        `is_first`: it has been sent nothing on its connection that would be new to it.
        `is_named`: it said who it is, so its older connection has been ended, and no other is in doubt.
        """
        if is_first and slave_ack_offset > self._sent_to:
            # Bytes from somewhere else, a copied directory perhaps: they count when it has got more of ours.
            slave_ack_offset = self._sent_to
        if addr not in self._slave_ack_offsets:
            if not is_named:
                self._doubt_older(addr)
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
        keeper.heard(addr, slave_ack_offset)
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
        """A connection is over; what that slave had no longer counts."""
        self._in_doubt.discard(addr)
        if self._gate_keeper is not None:
            self._gate_keeper.left(addr)
        if self._slave_ack_offsets.pop(addr, None) is not None:
            self._set_replicated()

    def _doubt_older(self, addr: str) -> None:
        """A slave came: its own last connection may be among those that stand."""
        host, _ = split_addr(addr)
        self._in_doubt.update(
            older for older in self._slave_ack_offsets if split_addr(older)[0] == host
        )

    def _set_replicated(self) -> None:
        """To the k-th greatest acknowledged address."""
        offsets = self._slave_ack_offsets
        reached = self._kth_greatest(list(offsets.values()))
        self.available_until = _NOTHING if reached is None else reached + self._slave_fallbehind_max
        if self._in_doubt:
            reached = self._kth_greatest(
                [offset for addr, offset in offsets.items() if addr not in self._in_doubt]
            )
        self.replicated.reset(_NOTHING if reached is None else reached)

    def _kth_greatest(self, offsets: list[int]) -> int | None:
        """What so many slaves have as must have a message; None with fewer slaves."""
        if len(offsets) < self._in_sync_slaves:
            return None
        offsets.sort(reverse=True)
        return offsets[self._in_sync_slaves - 1]
