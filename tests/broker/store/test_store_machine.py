"""The store against a dict of lists: any order of puts, batches, reads, restarts, replication and truncation."""

from collections import defaultdict
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.support.clocks import SettableClock
from tests.support.stores import ROOT, SMALL, body_of, put_of, stored

from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.store.put_message import AppendResult
from rocketrio_broker.testing.memory_disk import MemoryDisk

CONFIG = attrs.evolve(SMALL, mapped_file_size_commit_log=4096, max_index_num=20)
TOPICS = st.sampled_from(["a", "b"])
QUEUES = st.integers(0, 1)
BODIES = st.binary(max_size=600)


@attrs.define
class Kept:
    """What the model knows of one message."""

    body: bytes
    physical_offset: int
    store_time_ms: int


class StoreMachine(RuleBasedStateMachine):
    """Runs the store without its services: each rule does by hand what they would do."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = SettableClock()
        self.disk = MemoryDisk()
        self.store = self.open()
        self.model: dict[tuple[str, int], list[Kept]] = defaultdict(list)

    def open(self) -> MessageStore:
        store = MessageStore(CONFIG, ROOT, disk=self.disk, wall_clock=self.clock)
        store.directory.take()
        store.recover()
        self.run(store.checkpoint)
        return store

    def run(self, work: Any) -> None:
        trio.run(work, clock=trio.testing.MockClock(autojump_threshold=0))

    def keep(self, key: tuple[str, int], bodies: list[bytes], result: AppendResult) -> None:
        kept = self.model[key]
        assert result.queue_offset == len(kept)
        offsets = result.physical_offsets or [result.physical_offset]
        for body, offset in zip(bodies, offsets, strict=True):
            kept.append(Kept(body, offset, result.store_time_ms))

    @rule(topic=TOPICS, queue_id=QUEUES, body=BODIES, later_ms=st.integers(-5, 2000))
    def put(self, topic: str, queue_id: int, body: bytes, later_ms: int) -> None:
        self.clock.now += later_ms
        result = self.store.append(put_of(body, topic, queue_id, properties=b"KEYS\1same"))
        self.keep((topic, queue_id), [body], stored(result))

    @rule(topic=TOPICS, queue_id=QUEUES, bodies=st.lists(BODIES, min_size=1, max_size=4))
    def put_batch(self, topic: str, queue_id: int, bodies: list[bytes]) -> None:
        put = put_of(topic=topic, queue_id=queue_id)
        result = self.store.append_batch(put, mixed_entries([(0, body, b"") for body in bodies]))
        self.keep((topic, queue_id), bodies, stored(result))

    @rule(crashed=st.booleans(), written=st.booleans())
    def restart(self, crashed: bool, written: bool) -> None:
        if not crashed:
            self.run(self.store.finish)
        elif written:
            self.run(self.store.checkpoint)
        self.store.release()
        self.store = self.open()

    @rule(topic=TOPICS, queue_id=QUEUES, data=st.data())
    def read(self, topic: str, queue_id: int, data: st.DataObject) -> None:
        kept = self.model[topic, queue_id]
        offset = data.draw(st.integers(0, len(kept)))
        count = data.draw(st.integers(1, 40))
        result = self.store.get_message(topic, queue_id, offset, count)
        expected = [message.body for message in kept[offset : offset + min(count, 32)]]
        found = []
        for buffer in result.buffers:
            position = 0
            while position < len(buffer):
                size = int.from_bytes(buffer[position : position + 4])
                found.append(body_of(bytes(buffer[position : position + size])))
                position += size
        assert found == expected
        assert result.message_count == len(expected)

    @rule(topic=TOPICS, queue_id=QUEUES, later_ms=st.integers(-3000, 10))
    def search_by_time(self, topic: str, queue_id: int, later_ms: int) -> None:
        kept = self.model[topic, queue_id]
        time_ms = self.clock.now + later_ms
        at_or_after = [n for n, message in enumerate(kept) if message.store_time_ms >= time_ms]
        expected = at_or_after[0] if at_or_after else len(kept)
        assert self.store.offset_by_time(topic, queue_id, time_ms, "LOWER") == expected

    @rule(topic=TOPICS)
    def query(self, topic: str) -> None:
        result = self.store.query_message(topic, "same", 64, 0, 1 << 62)
        for record in result.buffers:
            assert any(
                body_of(bytes(record)) == message.body
                for queue_id in (0, 1)
                for message in self.model[topic, queue_id]
            )

    @rule(share=st.floats(0, 1))
    def truncate(self, share: float) -> None:
        offsets = sorted(
            message.physical_offset for kept in self.model.values() for message in kept
        )
        if not offsets:
            return
        end = offsets[int(share * (len(offsets) - 1))]
        self.store.truncate_to(end)
        for kept in self.model.values():
            kept[:] = [message for message in kept if message.physical_offset < end]

    @rule(step=st.integers(1, 5000))
    def replicate(self, step: int) -> None:
        """A second store fed with the bytes of this one has the same queues."""
        disk = MemoryDisk()
        slave = MessageStore(CONFIG, ROOT, disk=disk, wall_clock=self.clock)
        slave.directory.take()
        slave.recover()
        slave.begin_replication()
        offset = 0
        while (data := self.store.read_log(offset, step)) is not None:
            slave.append_raw(offset, data)
            offset += len(data)
            slave._reput.dispatch_all()
        for key, queue in self.store.queue_table.by_key.items():
            if queue.max_offset:
                other = slave.queue_table.by_key[key]
                assert other.entries(0, 1000) == queue.entries(0, 1000)
        slave.release()

    @invariant()
    def bounds_are_those_of_the_model(self) -> None:
        for key, kept in self.model.items():
            assert self.store.next_queue_offset(*key) == len(kept)
        assert self.store.dispatched.value == self.store.max_physical_offset

    def teardown(self) -> None:
        self.store.release()


StoreMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


@pytest.mark.slow
class TestStoreMachine(StoreMachine.TestCase):
    """The machine as a test."""
