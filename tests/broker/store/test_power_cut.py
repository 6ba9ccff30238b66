"""Whatever instant the power goes: what was flushed is there, and no queue entry points at nothing.

A story of puts, flushes, checkpoints and deletions runs on a disk that fails at its n-th operation, for every n;
what was not synced is then lost, kept or torn. The store opens again, is compared with what was put, and goes on.
"""

import random

import attrs
import pytest
import trio
import trio.testing
from tests.broker.store.generated_logs import use_columns_from
from tests.support.clocks import SettableClock
from tests.support.faulty_disk import FaultyDisk, PowerCutError
from tests.support.further import every_other, first_of
from tests.support.stores import ROOT, body_of, opened, put_of, read_all, stored

from rocketrio_broker.store import consume_queue, consume_queue_table
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_protocol.record.decode import scan_record

CONFIG = StoreConfig(
    mapped_file_size_commit_log=4096,
    mapped_file_size_consume_queue=200,
    max_hash_slot_num=7,
    max_index_num=12,
    flush_interval_commit_log=0.5,
    flush_interval_consume_queue=0.3,
    flush_consume_queue_thorough_interval=1.1,
    clean_resource_interval=1000.0,
)
TOPICS = ("orders", "payments")


@attrs.define
class Put:
    """One message of the story and where it went."""

    topic: str
    queue_id: int
    queue_offset: int
    body: bytes
    key: str
    physical_offset: int
    end_offset: int


@attrs.define
class Story:
    """All that was put, in order, and up to where it is promised to stay."""

    rng: random.Random
    clock: SettableClock
    puts: list[Put] = attrs.Factory(list)
    flushed: int = 0
    count: int = 0

    def put(self, store: MessageStore) -> None:
        self.clock.now += self.rng.choice((0, 1, 400, 2500))
        topic, queue_id = self.rng.choice(TOPICS), self.rng.randrange(2)
        batch = self.rng.randrange(1, 4) if self.rng.random() < 0.2 else 0
        entries = [self.message() for _ in range(batch or 1)]
        if batch:
            result = store.append_batch(
                put_of(topic=topic, queue_id=queue_id),
                mixed_entries([(0, body, f"KEYS\1{key}".encode()) for body, key in entries]),
            )
        else:
            ((body, key),) = entries
            properties = f"KEYS\1{key}\2TAGS\1a".encode()
            result = store.append(put_of(body, topic, queue_id, properties=properties))
        stored(result)
        offsets = result.physical_offsets or [result.physical_offset]
        for number, ((body, key), offset) in enumerate(zip(entries, offsets, strict=True)):
            queue_offset = result.queue_offset + number
            end = [*offsets, result.end_offset][number + 1]
            self.puts.append(Put(topic, queue_id, queue_offset, body, key, offset, end))

    def message(self) -> tuple[bytes, str]:
        self.count += 1
        size = self.rng.choice((0, 10, 100, 700))
        return self.rng.randbytes(size), f"k{self.count}"

    async def act(self, store: MessageStore, steps: int) -> None:
        for _ in range(steps):
            for _ in range(self.rng.randrange(1, 4)):
                self.put(store)
            await trio.sleep(self.rng.choice((0.0, 0.1, 0.7)))
            self.flushed = max(self.flushed, store.flushed.value)

    def forget_lost(self, store: MessageStore) -> None:
        """Compare with the reopened store; what was not flushed may be gone, from some point on."""
        end = store.max_physical_offset
        assert end >= self.flushed, "flushed bytes are gone"
        self.puts = [put for put in self.puts if put.end_offset <= end]
        self.flushed = end
        for topic in TOPICS:
            for queue_id in range(2):
                expected = [p for p in self.puts if (p.topic, p.queue_id) == (topic, queue_id)]
                records = read_all(store, topic, queue_id)
                assert [body_of(record) for record in records] == [put.body for put in expected]
                for put, record in zip(expected, records, strict=True):
                    header = scan_record(record, 0, len(record))
                    assert (header.topic, header.queue_id) == (topic, queue_id)
                    assert header.queue_offset == put.queue_offset
                    assert header.physical_offset == put.physical_offset
        for put in self.puts:
            found = store.query_message(put.topic, put.key, 32, 0, 1 << 62)
            assert [body_of(bytes(record)) for record in found.buffers] == [put.body]


async def tell(story: Story, disk: FaultyDisk, *, steps: int) -> None:
    async with opened(disk, CONFIG, clock=story.clock) as store:
        story.forget_lost(store)
        await story.act(store, steps)


def run(story: Story, disk: FaultyDisk, steps: int = 8) -> bool:
    """Tell on; whether the power was cut meanwhile."""
    was_cut = False
    try:
        trio.run(
            lambda: tell(story, disk, steps=steps),
            clock=trio.testing.MockClock(autojump_threshold=0),
        )
    except* PowerCutError:
        was_cut = True
    return was_cut


def operations_of_a_story(seed: int) -> int:
    disk = FaultyDisk()
    assert not run(Story(random.Random(seed), SettableClock()), disk)
    return disk.operations


def live_through(seed: int, fail_at: int, kept: float) -> None:
    """A cut in the first life, one in the second (its recovery perhaps), and a third that must stand."""
    story = Story(random.Random(seed), SettableClock())
    disk = FaultyDisk(fail_at)
    run(story, disk)
    disk = disk.after_cut(seed * 1000 + fail_at, kept)
    disk.fail_at = random.Random(fail_at).randrange(60)
    run(story, disk, steps=3)
    disk = disk.after_cut(seed * 2000 + fail_at, kept)
    assert not run(story, disk, steps=3)


@pytest.mark.parametrize("kept", [0.0, 0.5, 1.0], ids=["lost", "torn", "killed"])
def test_power_cut_keeps_what_was_flushed(kept: float) -> None:
    for fail_at in range(3, operations_of_a_story(1), 40):
        live_through(1, fail_at, kept)


def test_power_cut_keeps_what_was_flushed_when_it_is_read_in_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    use_columns_from(monkeypatch, 1)
    for fail_at in range(5, operations_of_a_story(1), 40):
        live_through(1, fail_at, 0.5)


def test_power_cut_keeps_what_was_flushed_when_all_queues_are_synced_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consume_queue_table, "ONE_BY_ONE_LIMIT", 0)
    for fail_at in range(5, operations_of_a_story(1), 40):
        live_through(1, fail_at, 0.5)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [0, 64])
def test_power_cut_keeps_what_was_flushed_when_queues_grow_between_the_steps_of_a_checkpoint(
    limit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consume_queue_table, "ONE_BY_ONE_LIMIT", limit)
    monkeypatch.setattr(consume_queue_table, "QUEUES_A_STEP", 1)
    monkeypatch.setattr(consume_queue, "TAIL_LIMIT", 20)
    for fail_at in range(5, operations_of_a_story(1), 15):
        live_through(1, fail_at, 0.3)


@pytest.mark.slow
@pytest.mark.parametrize("kept", every_other([0.0, 0.3, 1.0, 0.7]))
@pytest.mark.parametrize("seed", first_of(1, [2, 3, 4]))
def test_power_cut_at_every_operation(seed: int, kept: float) -> None:
    for fail_at in range(operations_of_a_story(seed)):
        live_through(seed, fail_at, kept)


def test_the_story_reaches_every_kind_of_file() -> None:
    disk = FaultyDisk()
    run(Story(random.Random(1), SettableClock()), disk)
    kinds = {path.relative_to(ROOT).parts[0] for path in disk.files}
    assert kinds == {"commitlog", "consumequeue", "index", "checkpoint", "rocketrioQueues", "lock"}
    assert sum(path.parent.name == "commitlog" for path in disk.files) > 2
    assert sum(path.parent.name == "index" for path in disk.files) > 1
