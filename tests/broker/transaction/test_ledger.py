"""The ledger against a list of what was stored, in any order of sends, decisions, looks and restarts."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.clocks import START_MS, SettableClock
from tests.support.stores import put_of, stored

from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.transaction.ledger import TransactionLedger
from rocketrio_broker.transaction.records import operation
from rocketrio_protocol.names import TRANS_HALF_TOPIC
from rocketrio_protocol.record.layout import pack_host

HOST = pack_host("10.0.0.1", 1)
TIMEOUT_MS = 6000
STORE = StoreConfig(mapped_file_size_commit_log=1 << 20, max_hash_slot_num=97, max_index_num=400)


class Halves:
    """A store with half messages, a ledger over it, and a plain list of what is decided."""

    def __init__(self) -> None:
        self.clock = SettableClock()
        self.store = MessageStore(STORE, Path("/s"), disk=MemoryDisk(), wall_clock=self.clock)
        self.store.directory.take()
        self.store.recover()
        self.ledger = TransactionLedger(self.store)
        self.decided: list[bool] = []
        self.restart(0, 0)

    def send(self, *, properties: str = "", born_ms: int | None = None) -> int:
        born_ms = self.clock.now if born_ms is None else born_ms
        put = put_of(b"x", TRANS_HALF_TOPIC, properties=properties.encode(), born_time_ms=born_ms)
        result = stored(self.store.append(put))
        self.decided.append(False)
        return result.queue_offset

    def decide(self, half_offset: int, *, tell: bool = True) -> None:
        put = operation(half_offset, host=HOST, now_ms=self.clock.now)
        result = self.store.append(put)
        self.decided[half_offset] = True
        if tell:
            self.ledger.decide(half_offset, result.queue_offset)

    def look(self) -> None:
        now_ms = self.clock.now
        while self.ledger.read_due(now_ms=now_ms, now=now_ms / 1000, timeout_ms=TIMEOUT_MS):
            pass

    def restart(self, half_offset: int, operation_offset: int) -> None:
        self.ledger.begin(half_offset, operation_offset)
        while self.ledger.load():
            pass

    @property
    def undecided(self) -> list[int]:
        return [offset for offset, is_decided in enumerate(self.decided) if not is_decided]


STEPS = st.lists(
    st.one_of(st.just("send"), st.integers(0, 5), st.just("look"), st.just("restart")),
    max_size=60,
)
"""A number decides that half message."""


@pytest.mark.slow
@given(STEPS)
@settings(max_examples=250, deadline=None)
def test_half_message_is_open_until_it_is_decided(steps: list[str | int]) -> None:
    halves = Halves()
    for step in steps:
        halves.clock.now += 1000
        if isinstance(step, int):
            if step in halves.undecided:
                halves.decide(step)
        elif step == "send":
            halves.send()
        elif step == "look":
            halves.look()
        else:
            halves.restart(*halves.ledger.progress())
        undecided = halves.undecided
        assert [n for n in range(len(halves.decided)) if halves.ledger.is_open(n)] == undecided
        assert set(halves.ledger.open) <= set(undecided)
        assert halves.ledger.progress()[0] <= min(undecided, default=len(halves.decided))
    halves.clock.now += TIMEOUT_MS
    halves.look()
    assert list(halves.ledger.open) == halves.undecided
    half_offset, operation_offset = halves.ledger.progress()
    assert half_offset == min(halves.undecided, default=len(halves.decided))
    again = TransactionLedger(halves.store)
    again.begin(half_offset, operation_offset)
    assert not again.load()
    now_ms = halves.clock.now
    while again.read_due(now_ms=now_ms, now=now_ms / 1000, timeout_ms=0):
        pass
    assert list(again.open) == halves.undecided


def test_operations_stored_while_it_loads_are_read() -> None:
    halves = Halves()
    first, second = halves.send(), halves.send()
    halves.decide(first, tell=False)
    halves.ledger.begin(0, 0)
    assert halves.ledger.is_open(first)
    halves.decide(second)
    assert not halves.ledger.load()
    assert not halves.ledger.is_open(first)
    assert not halves.ledger.is_open(second)


def test_due_is_counted_from_the_send_and_never_by_a_clock_ahead() -> None:
    halves = Halves()
    halves.send()
    halves.send(born_ms=START_MS - 1000)
    halves.send(born_ms=START_MS + 50_000)
    halves.send(properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x0130")
    halves.send(properties="CHECK_IMMUNITY_TIME_IN_SECONDS\x01soon")
    halves.clock.now += 6000
    halves.look()
    due = [round(half.due - START_MS / 1000, 3) for half in halves.ledger.open.values()]
    assert due == [6, 6, 6, 30, 6]
    assert halves.ledger.due(START_MS / 1000 + 7) == [0, 1, 2, 4]


def test_copy_of_5_x_is_decided_by_the_operation_for_its_original() -> None:
    """5.x copies what it may not ask about yet, and goes on from there; the producer knows only the original."""
    halves = Halves()
    original = halves.send()
    immunity = "CHECK_IMMUNITY_TIME_IN_SECONDS\x0130"
    copy = halves.send(properties=f"{immunity}\x02TRAN_PREPARED_QUEUE_OFFSET\x01{original}")
    halves.decide(original, tell=False)
    halves.restart(copy, 0)
    halves.clock.now += 60_000
    halves.look()
    assert list(halves.ledger.open) == []


def test_progress_beyond_the_queues_is_cut() -> None:
    halves = Halves()
    halves.send()
    halves.restart(50, 70)
    assert halves.ledger.progress() == (1, 0)


def test_unconfirmed_half_message_is_not_checked() -> None:
    halves = Halves()
    halves.send()
    halves.store.read_gate.set_reported(halves.store.max_physical_offset)
    halves.send()
    halves.clock.now += 2 * TIMEOUT_MS
    halves.look()
    assert list(halves.ledger.open) == [0]
    assert halves.ledger.progress()[0] == 0
    halves.store.read_gate.open()
    halves.look()
    assert list(halves.ledger.open) == [0, 1]
