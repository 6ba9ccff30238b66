from pathlib import Path

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.parts import config_file, exchanges_of, read
from tests.golden.golden import VERSIONS, unpack_store

from rocketrio_broker.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.consumer_offsets import ConsumerOffsetManager, OffsetTable
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.memory_disk import MemoryDisk
from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.topic_config import ConsumerOffsetWrapper

FILE = Path("/data/config/consumerOffset.json")

keys = st.tuples(st.sampled_from(["T", "U"]), st.sampled_from(["G", "H"]))
tables = st.dictionaries(keys, st.dictionaries(st.integers(0, 3), st.integers(0, 9)))


def manager(disk: MemoryDisk | None = None) -> ConsumerOffsetManager:
    disk = MemoryDisk() if disk is None else disk
    return ConsumerOffsetManager(file=config_file(FILE.name, disk), disk=disk)


def table(offsets: dict[tuple[str, str], dict[int, int]]) -> OffsetTable:
    made = OffsetTable()
    made.put_all(offsets)
    return made


def test_a_group_that_never_committed_has_no_offset() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 5)
    assert offsets.query_offset("G", "T", 0) == 5
    assert offsets.query_offset("G", "T", 1) == -1
    assert offsets.query_offset("H", "T", 0) == -1


def test_the_last_commit_wins_a_lower_one_too() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 5)
    offsets.commit_offset("G", "T", 0, 3)
    assert offsets.query_offset("G", "T", 0) == 3


@settings(max_examples=30)
@given(tables, tables)
def test_merging_takes_the_higher_offset_of_every_queue(
    ours: dict[tuple[str, str], dict[int, int]], theirs: dict[tuple[str, str], dict[int, int]]
) -> None:
    merged = table(ours)
    merged.merge(theirs)
    for key in ours.keys() | theirs.keys():
        for queue_id in ours.get(key, {}).keys() | theirs.get(key, {}).keys():
            expected = max(
                ours.get(key, {}).get(queue_id, -1), theirs.get(key, {}).get(queue_id, -1)
            )
            assert merged.query(key, queue_id) == expected


@settings(max_examples=30)
@given(tables, tables)
def test_merging_again_changes_nothing(
    ours: dict[tuple[str, str], dict[int, int]], theirs: dict[tuple[str, str], dict[int, int]]
) -> None:
    merged = table(ours)
    merged.merge(theirs)
    changes = merged.change_count
    assert merged.merge(theirs) == 0
    assert merged.change_count == changes


def test_a_slave_replaces_whole_keys_and_keeps_others() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 9)
    offsets.commit_offset("G", "T", 1, 9)
    offsets.commit_offset("G", "U", 0, 9)
    offsets.replace(ConsumerOffsetWrapper({"T@G": {0: 4}}))
    assert offsets.offset_table == {("T", "G"): {0: 4}, ("U", "G"): {0: 9}}


def test_offsets_of_a_topic_or_a_group_are_forgotten() -> None:
    offsets = manager()
    for group, topic in (("G", "T"), ("H", "T"), ("G", "U")):
        offsets.commit_offset(group, topic, 0, 1)
    assert offsets.topics_of_group("G") == ["T", "U"]
    assert offsets.groups_of_topic("T") == ["G", "H"]
    offsets.remove_topic("T")
    assert list(offsets.offset_table) == [("U", "G")]
    offsets.remove_group("G")
    assert not offsets.offset_table


def test_a_clone_does_not_follow_its_source() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 4)
    offsets.clone_offset("G", "H", "T")
    offsets.commit_offset("G", "T", 0, 7)
    assert offsets.query_offsets("H", "T") == {0: 4}


async def test_the_file_is_written_on_a_period(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.run)
        await trio.sleep(1)
        offsets.commit_offset("G", "T", 0, 4)
        assert not disk.exists(FILE)
        await trio.sleep(5)
        assert b"{0:4" in read(disk, FILE)
        offsets.commit_offset("G", "T", 0, 5)
        await trio.sleep(5)
        assert b"{0:5" in read(disk, FILE)
        nursery.cancel_scope.cancel()


def test_an_unchanged_table_is_not_written() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets.persist()
    assert not disk.exists(FILE)


@pytest.mark.parametrize("run", VERSIONS)
def test_apache_files_are_taken_over(run: str, tmp_path: Path) -> None:
    disk = InlineDisk()
    path = unpack_store(run, "master", tmp_path) / "config" / FILE.name
    offsets = ConsumerOffsetManager(file=ConfigFile(path, disk=disk), disk=disk)
    offsets.load()
    assert offsets.query_offset("pullers", "orders", 0) == 3


def test_the_4_9_7_file_is_written_again_to_the_same_bytes(tmp_path: Path) -> None:
    path = unpack_store("4.9.7", "master", tmp_path) / "config" / FILE.name
    before = path.read_bytes()
    assert fastjson.dumps_pretty(fastjson.loads(before, ConsumerOffsetWrapper)) == before


def test_the_answer_to_43_is_written_as_java_writes_it() -> None:
    for exchange in exchanges_of("4.9.7", "broker", RequestCode.GET_ALL_CONSUMER_OFFSET):
        assert exchange.answer is not None
        body = bytes(exchange.answer.body)
        assert fastjson.dumps(fastjson.loads(body, ConsumerOffsetWrapper)) == body


async def test_a_full_disk_delays_the_file_and_ends_nothing(autojump_clock: trio.abc.Clock) -> None:
    class FullDisk(MemoryDisk):
        full = True

        def rename(self, old: Path, new: Path) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            super().rename(old, new)

    disk = FullDisk()
    offsets = manager(disk)
    async with trio.open_nursery() as nursery:
        offsets.commit_offset("G", "T", 0, 5)
        await nursery.start(offsets.run)
        await trio.sleep(12)
        disk.full = False
        await trio.sleep(5)
        again = manager(disk)
        again.load()
        assert again.query_offset("G", "T", 0) == 5
        nursery.cancel_scope.cancel()


def test_a_removed_topics_offsets_do_not_come_back_after_a_kill() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets.commit_offset("G", "T", 0, 5)
    offsets.persist()
    offsets.remove_topic("T")
    again = manager(disk)
    again.load()
    assert again.query_offset("G", "T", 0) == -1


def test_a_topic_whose_offsets_cannot_be_removed_from_the_file_keeps_them() -> None:
    class FullDisk(MemoryDisk):
        full = False

        def rename(self, old: Path, new: Path) -> None:
            if self.full:
                raise OSError(28, "No space left on device")
            super().rename(old, new)

    disk = FullDisk()
    offsets = manager(disk)
    offsets.commit_offset("G", "T", 0, 5)
    offsets.commit_offset("G", "T", 1, 6)
    offsets.persist()
    disk.full = True
    with pytest.raises(ConfigFileError, match=r"consumerOffset\.json cannot be written"):
        offsets.remove_topic("T")
    assert offsets.query_offsets("G", "T") == {0: 5, 1: 6}
    # What comes from peers is kept for the next round.
    assert offsets.merge(ConsumerOffsetWrapper({"T@G": {0: 9}})) == 1
    disk.full = False
    offsets.persist()
    again = manager(disk)
    again.load()
    assert again.query_offsets("G", "T") == {0: 9, 1: 6}
