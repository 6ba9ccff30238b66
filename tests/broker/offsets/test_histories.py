"""A master, a slave and clients that come and go, by chance: what the brokers agree on once every report has arrived.

Each client is our client's rule in few lines (offset_store.py): it commits the position and version that it got, claims
where it is not known, and stops when a reset reaches it.
"""

import attrs
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.broker.builders import config_file, versioned

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.version import Commit, Generation
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.commands.offset import CommitOutcome

pytestmark = pytest.mark.slow

QUEUE = "G", "T", 0

brokers = st.integers(0, 1)
offsets = st.integers(0, 20)


@attrs.define
class Client:
    """A member that has, or had, the queue."""

    generation: Generation
    claims: dict[int, str]
    is_overruled: bool = False


def broker() -> ConsumerOffsetManager:
    disk = MemoryDisk()
    return ConsumerOffsetManager(file=config_file("consumerOffset.json", disk), disk=disk)


class Histories(RuleBasedStateMachine):
    """Two brokers that hear different things, and tell each other now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.brokers = [broker(), broker()]
        self.clients: list[Client] = []
        self.least = -1
        """What must stand at least once every report has arrived: acknowledged, and not lowered since."""
        self.reset_to: int | None = None
        """Where an operator put the group, if no client that learned this went on since."""
        self.sought: int | None = None
        """Where its owner put it, if no commit or reset came since."""
        self.has_told_all = True

    @initialize()
    def somebody_reads(self) -> None:
        for manager in self.brokers:
            manager.commit_offset(*QUEUE, 10)
        self.least = 10
        self.client_takes_over(0)

    def _lowered(self, offset: int) -> None:
        self.least = min(self.least, offset)
        self.has_told_all = False

    def _raised(self, offset: int) -> None:
        if self.has_told_all:  # Otherwise a lowering elsewhere may be newer.
            self.least = max(self.least, offset)

    @rule(at=brokers)
    def client_takes_over(self, at: int) -> None:
        stands = self.brokers[at].query_version(*QUEUE)
        claim = self.brokers[at].claim(*QUEUE, f"client-{len(self.clients)}")
        self.clients.append(Client(stands.generation, {at: claim}))

    @rule(at=brokers, offset=offsets, is_seek=st.booleans(), late=st.integers(0, 2))
    def client_commits(self, at: int, offset: int, is_seek: bool, late: int) -> None:
        """The newest client, or an earlier one that does not know that it lost the queue."""
        if len(self.clients) <= late or self.clients[-1 - late].is_overruled:
            return
        manager, client, is_newest = self.brokers[at], self.clients[-1 - late], not late
        if is_newest and at not in client.claims:
            client.claims[at] = manager.claim(*QUEUE, f"client-{len(self.clients)}")
        claim = client.claims.get(at, "none here")
        before = manager.query_version(*QUEUE)
        commit = Commit(offset, client.generation, manager.is_owner(*QUEUE, claim), is_seek)
        outcome, stands = manager.commit_version(*QUEUE, commit)
        if not commit.is_owner:
            assert stands.offset >= before.offset, "only the owner lowers"
        if outcome is CommitOutcome.RESET:
            assert stands == before
            client.is_overruled = True
        elif outcome is CommitOutcome.STORED:
            has_heard_of_reset = client.generation.resets >= stands.generation.resets > 0
            client.generation = stands.generation
            self.sought = offset if is_seek and self.has_told_all else None
            if is_seek or stands.offset < before.offset:
                self._lowered(offset)
            else:
                self._raised(offset)
            if has_heard_of_reset:
                self.reset_to = None

    @rule(at=brokers, offset=offsets)
    def java_commits(self, at: int, offset: int) -> None:
        """The last one wins."""
        before = self.brokers[at].query_offset(*QUEUE)
        self.brokers[at].commit_offset(*QUEUE, offset)
        assert self.brokers[at].query_offset(*QUEUE) == offset
        self._raised(offset) if offset >= before else self._lowered(offset)
        self.reset_to = self.sought = None

    @rule(at=brokers, offset=offsets)
    def operator_resets(self, at: int, offset: int) -> None:
        before = self.brokers[at].query_version(*QUEUE)
        self.brokers[at].commit_version(*QUEUE, Commit(offset, is_reset=True))
        self._lowered(offset)
        self.sought = None
        other = self.brokers[1 - at].query_version(*QUEUE)
        is_known = other.generation.resets <= before.generation.resets
        self.reset_to = offset if offset < before.offset and is_known else None

    @rule()
    def brokers_tell_each_other(self) -> None:
        first, second = self.brokers
        second.join(first.table)
        first.take_over(versioned(second))
        assert first.query_version(*QUEUE) == second.query_version(*QUEUE)
        stands = first.query_offset(*QUEUE)
        assert stands >= self.least
        if self.reset_to is not None:
            assert stands == self.reset_to
        if self.sought is not None:
            assert stands == self.sought
        self.has_told_all = True
        self.least = max(self.least, stands)

    @invariant()
    def an_answer_is_never_nothing(self) -> None:
        for manager in self.brokers:
            assert manager.query_offset(*QUEUE) >= -1


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=300, stateful_step_count=30, deadline=None)
