"""Where a reader's history and the log's part, by the epoch that the reader names.

1 | 0 1 2      3 | 3 4 5      6 | 6 7 8      epochs of the log, and the offsets of one queue in each
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.broker.epoch_lines import begin, epoch, fill
from tests.support.stores import opened, put_of, stored
from trio.testing import MockClock

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.errors import RemoteProtocolError

GROUP = "billing"
TOPIC, QUEUE_ID = put_of(b"").topic, put_of(b"").queue_id


@asynccontextmanager
async def log_of_three_epochs() -> AsyncIterator[tuple[MessageStore, ConsumerOffsetManager]]:
    disk = MemoryDisk()
    file = ConfigFile(Path("/data/config/consumerOffset.json"), disk=disk)
    async with opened(disk) as store:
        epochs = await begin(store)
        for number in (1, 3, 6):
            await epochs.open(epoch(store, number))
            fill(store, 3)
        yield store, ConsumerOffsetManager(file=file, disk=disk)


async def test_reader_of_a_known_epoch_has_read_up_to_its_end(autojump_clock: MockClock) -> None:
    async with log_of_three_epochs() as (store, offsets):
        epochs = ReaderEpochs(store, offsets)
        starts = {line.number: line.start for line in store.epochs.lines}
        assert epochs.current == f"6.{starts[6]}.id6.id3"
        found = {
            number: epochs.divergence_offset(f"{number}.{start}.id{number}", GROUP, TOPIC, QUEUE_ID)
            for number, start in starts.items()
        }
        assert found == {1: 3, 3: 6, 6: 9}
        assert epochs.divergence_offset(f"1.{starts[1]}.id1", GROUP, "another topic", 0) == 0


async def test_reader_of_an_unknown_epoch_behind_a_known_one_is_not_sent_back(
    autojump_clock: MockClock,
) -> None:
    """A master that is killed before it writes anything opens another epoch at the same address."""
    async with log_of_three_epochs() as (store, offsets):
        epochs = ReaderEpochs(store, offsets)
        offsets.commit_offset(GROUP, TOPIC, QUEUE_ID, 2)
        starts = {line.number: line.start for line in store.epochs.lines}
        end = store.max_physical_offset

        def divergence(epoch: str) -> int | None:
            return epochs.divergence_offset(epoch, GROUP, TOPIC, QUEUE_ID)

        assert divergence(f"7.{end}.lost.id6") == 9
        assert divergence(f"5.{starts[6]}.lost.id3") == 6
        assert divergence(f"5.{end}.lost.id3") == 6
        assert divergence(f"5.{starts[6]}.lost.unknown") == 2


@pytest.mark.parametrize(
    ("number", "at", "committed", "offset"),
    [
        (5, 6, -1, 6),  # It began where ours of the next number began: nothing was left of it.
        (5, 8, -1, 6),  # It began behind: as much.
        (5, 4, -1, 4),  # Another branch began before: what it wrote is not here.
        (5, 4, 2, 2),  # And that may have parted earlier: only what the group committed is certain.
        (5, 4, 8, 4),
        (6, 7, 8, 6),  # Two masters took one number.
        (
            9,
            8,
            -1,
            6,
        ),  # No report of it reached this master: what it wrote itself is not that reader's.
        (9, 8, 5, 5),
        (9, 1, -1, 1),
    ],
)
async def test_reader_of_an_unknown_epoch(
    autojump_clock: MockClock, number: int, at: int, committed: int, offset: int
) -> None:
    async with log_of_three_epochs() as (store, offsets):
        if committed >= 0:
            offsets.commit_offset(GROUP, TOPIC, QUEUE_ID, committed)
        entry = store.queue_table.by_key[TOPIC, QUEUE_ID].entry(at)
        assert entry is not None
        text = f"{number}.{entry[0]}.of another"
        assert (
            ReaderEpochs(store, offsets).divergence_offset(text, GROUP, TOPIC, QUEUE_ID) == offset
        )


@pytest.mark.parametrize(
    ("number", "committed", "offset"),
    [
        (3, 5, 5),  # Where its epoch began says nothing.
        (3, 8, 6),  # What was lost with the file ends where the next epoch began.
        (6, 5, 5),  # This broker did not know that number any more when it began an epoch.
        (3, -1, 0),
    ],
)
async def test_reader_of_an_epoch_whose_line_was_lost_goes_back_to_what_its_group_committed(
    autojump_clock: MockClock, number: int, committed: int, offset: int
) -> None:
    async with log_of_three_epochs() as (store, offsets):
        last = store.epochs.lines[-1]
        await store.epochs.forget()
        await store.epochs.adopt([last])
        if committed >= 0:
            offsets.commit_offset(GROUP, TOPIC, QUEUE_ID, committed)
        text = f"{number}.0.lost.id"
        assert (
            ReaderEpochs(store, offsets).divergence_offset(text, GROUP, TOPIC, QUEUE_ID) == offset
        )


async def test_reader_epoch_is_unknown_without_epochs(autojump_clock: MockClock) -> None:
    disk = MemoryDisk()
    file = ConfigFile(Path("/data/config/consumerOffset.json"), disk=disk)
    async with opened(disk) as store:
        stored(store.append(put_of(b"x")))
        epochs = ReaderEpochs(store, ConsumerOffsetManager(file=file, disk=disk))
        assert epochs.current is None
        assert epochs.divergence_offset("1.0.id1", GROUP, TOPIC, QUEUE_ID) is None


@pytest.mark.parametrize("text", ["", "1", "1.x.id", "one.2.id"])
async def test_text_that_is_not_an_epoch_is_refused(autojump_clock: MockClock, text: str) -> None:
    async with log_of_three_epochs() as (store, offsets):
        with pytest.raises(RemoteProtocolError, match="is not an epoch"):
            ReaderEpochs(store, offsets).divergence_offset(text, GROUP, TOPIC, QUEUE_ID)


async def test_shared_ends_stop_where_the_epoch_of_the_other_log_ends_here(
    autojump_clock: MockClock,
) -> None:
    async with log_of_three_epochs() as (store, offsets):
        epochs = ReaderEpochs(store, offsets)
        starts = {line.number: line.start for line in store.epochs.lines}
        end = store.max_physical_offset

        def shared_end(epoch: str) -> int | None:
            ends = epochs.shared_ends(epoch)
            return None if ends is None else ends(TOPIC, QUEUE_ID)

        assert shared_end(f"1.{starts[1]}.id1.") == 3
        assert shared_end(f"3.{starts[3]}.id3.id1") == 6
        assert shared_end(f"6.{starts[6]}.id6.id3") == 9
        fill(store, 1)
        assert shared_end(f"6.{starts[6]}.id6.id3") == 10
        assert shared_end(f"5.{starts[6]}.other.id3") == 6
        assert shared_end(f"5.{end}.other.id3") == 6
        assert shared_end(f"7.{end}.other.id6") == 9
        assert shared_end("1.0.other.") is None
        assert shared_end(f"5.{starts[6]}.other.unknown") is None
        assert shared_end("not an epoch") is None


async def test_own_offsets_of_an_unknown_epoch_count_only_what_is_older_than_all_known_ones(
    autojump_clock: MockClock,
) -> None:
    disk = MemoryDisk()
    file = ConfigFile(Path("/data/config/consumerOffset.json"), disk=disk)
    async with opened(disk) as store:
        lines = await begin(store)
        epochs = ReaderEpochs(store, ConsumerOffsetManager(file=file, disk=disk))
        fill(store, 2)
        assert epochs.own_ends("1.0.other.") is None
        for number in (3, 6):
            await lines.open(epoch(store, number))
            fill(store, 3)

        def own_end(text: str) -> int:
            ends = epochs.own_ends(text)
            assert ends is not None
            return ends(TOPIC, QUEUE_ID)

        third, sixth = store.epochs.lines
        assert own_end("1.0.other.") == 2
        assert own_end(f"3.{third.start}.{third.id}.") == 5
        assert own_end(f"4.{sixth.start}.other.{third.id}") == 5
        assert own_end(f"6.{sixth.start}.{sixth.id}.{third.id}") == 8
