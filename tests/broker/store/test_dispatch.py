from pathlib import Path

import attrs
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.store.generated_logs import generated, log_of, use_columns_from, usual_log
from tests.support.stores import SMALL, opened, put_of, stored
from trio.testing import MockClock

from rocketrio_broker.store import append, consume_queue, consume_queue_table
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable, can_have_folder
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.store.dispatch import (
    DelayLevels,
    QueueDispatcher,
    QueueGapError,
    entry_tags_code,
    stored_tags_code,
)
from rocketrio_broker.store.log_walk import LogRecord, LogWalk
from rocketrio_broker.store.record_columns import FEW_RECORDS
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.names import SCHEDULE_TOPIC
from rocketrio_protocol.record.java_hash import java_string_hash, tags_code
from rocketrio_protocol.record.properties import property_value

LEVELS = DelayLevels("1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h")


def made() -> tuple[ConsumeQueueTable, QueueDispatcher]:
    table = ConsumeQueueTable(Path("/q"), 400, disk=MemoryDisk())
    return table, QueueDispatcher(table, LEVELS)


def record(address: int, queue_offset: int, *, sys_flag: int = 0, topic: bytes = b"t") -> LogRecord:
    return (address, 100, topic, 0, queue_offset, sys_flag, 1000, b"TAGS\1a")


@pytest.mark.parametrize(
    ("level", "delay_ms"), [("1", 1000), ("3", 10_000), ("5", 60_000), ("18", 7_200_000)]
)
def test_delayed_message_has_its_delivery_time_as_tags_code(level: str, delay_ms: int) -> None:
    properties = f"DELAY\1{level}\2TAGS\1a".encode()
    assert entry_tags_code(SCHEDULE_TOPIC, properties, 5000, LEVELS) == 5000 + delay_ms
    assert entry_tags_code("other", properties, 5000, LEVELS) == java_string_hash("a")


def test_level_beyond_the_last_is_the_last() -> None:
    assert entry_tags_code(SCHEDULE_TOPIC, b"DELAY\x0199", 0, LEVELS) == 7_200_000


@pytest.mark.parametrize(
    "properties",
    [
        b"",
        b"TAGS\1a",
        b"TAGS\1a\2",
        b"KEYS\1k\2TAGS\1abc\2WAIT\1true",
        b"TAGS\1first\2TAGS\1second",
        b"TAGS\1first\2TAGS\1",
        b"MYTAGS\1x",
        b"TAGS\1real\2MYTAGS\1x",
        b"A\1TAGS\1x",
        "TAGS\1ümläut\2".encode(),
        b"TAGS\1\xff\xfe",
        b"TAGS\1a||b",
    ],
)
def test_quick_tags_code_agrees_with_the_protocols(properties: bytes) -> None:
    assert stored_tags_code(properties) == tags_code(property_value(properties, "TAGS"))


def test_entry_is_at_the_queue_offset_of_its_record() -> None:
    table, dispatcher = made()
    for number in range(3):
        dispatcher.dispatch([record(number * 100, number)])
    queue = table.queue("t", 0)
    assert queue.max_offset == 3
    assert queue.entry(2) == (200, 100, java_string_hash("a"))
    assert table.take_grown() == {("t", 0)}
    assert table.take_grown() == set()


def test_dispatching_again_changes_nothing() -> None:
    table, dispatcher = made()
    for number in (0, 1, 0, 1):
        dispatcher.dispatch([record(number * 100, number)])
    assert table.queue("t", 0).max_offset == 2


@pytest.mark.parametrize(("sys_flag", "count"), [(0, 1), (4, 0), (8, 1), (12, 0), (0x301, 1)])
def test_prepared_and_rolled_back_records_have_no_entry(sys_flag: int, count: int) -> None:
    table, dispatcher = made()
    dispatcher.dispatch([record(0, 0, sys_flag=sys_flag)])
    assert sum(queue.max_offset for queue in table) == count


def test_gap_keeps_later_entries_at_their_own_index() -> None:
    table, dispatcher = made()
    dispatcher.dispatch([record(0, 0)])
    dispatcher.dispatch([record(500, 4)])
    queue = table.queue("t", 0)
    assert queue.max_offset == 5
    assert queue.entry(4) == (500, 100, java_string_hash("a"))


def test_topic_created_again_counts_from_zero() -> None:
    table, dispatcher = made()
    for number in range(3):
        dispatcher.dispatch([record(number * 100, number)])
    dispatcher.dispatch([record(900, 0)])
    queue = table.queue("t", 0)
    assert (queue.max_offset, queue.entry(0)) == (1, (900, 100, java_string_hash("a")))


def test_queue_offset_given_twice_stays_with_its_first_holder() -> None:
    table, dispatcher = made()
    for number in range(3):
        dispatcher.dispatch([record(number * 100, number)])
    dispatcher.dispatch([record(900, 1)])
    queue = table.queue("t", 0)
    assert (queue.max_offset, queue.entry(1)) == (3, (100, 100, java_string_hash("a")))


def test_deleted_topic_is_not_remembered() -> None:
    table, dispatcher = made()
    dispatcher.dispatch([record(0, 0)])
    assert table.delete_topic("t")
    assert not table.delete_topic("t")
    dispatcher.dispatch([record(100, 0)])
    assert table.by_key["t", 0].entry(0) == (100, 100, java_string_hash("a"))


def dispatched(
    log: CommitLog, *, columns: bool, known: int, complete: bool
) -> tuple[object, dict[tuple[str, int], tuple[int, int, int, bytes]]]:
    """What dispatching a log again gives when the queues had its first `known` bytes."""
    table, dispatcher = made()
    dispatcher.dispatch(LogWalk(log, 0, stop_at_damage=True).records(known))
    if complete:
        dispatcher.complete_queues = frozenset(table.by_key)
    table.take_grown()
    walk = LogWalk(log, 0, stop_at_damage=True)
    result: object
    try:
        result = (
            dispatcher.dispatch_from(walk, 1 << 30)
            if columns
            else dispatcher.dispatch(walk.records(1 << 30))
        )
    except QueueGapError:
        return "a gap", {}
    return (result, walk.position, table.take_grown()), {
        queue.key: (
            queue.min_offset,
            queue.max_offset,
            queue.last_physical_end,
            queue.entries(queue.min_offset, 1 << 20),
        )
        for queue in table
    }


@pytest.mark.parametrize("few", [1, FEW_RECORDS])
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 32), st.booleans(), st.sampled_from([0, 1, 3000, 20_000]), st.booleans())
def test_columns_make_the_queues_that_single_records_make(
    few: int, seed: int, damaged: bool, known: int, complete: bool
) -> None:
    log = generated(seed, damaged=damaged)
    with pytest.MonkeyPatch.context() as patch:
        use_columns_from(patch, few)
        # A damaged number leaves a gap below it; one of a million is 50,000 files of this size, and half a minute.
        patch.setattr(consume_queue, "GAP_LIMIT", 10_000)
        results = [
            dispatched(log, columns=columns, known=known, complete=complete)
            for columns in (True, False)
        ]
    assert results[0] == results[1]


@pytest.mark.parametrize("messages", [1, 300], ids=["one by one", "as columns"])
async def test_no_topic_of_a_master_leads_out_of_the_folder(
    messages: int, tmp_path: Path, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    config = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
    evil = [("../../outside", 0), ("..", 0), ("a/b", 0), ("a\0b", 0), ("negative", -1)]
    assert not any(can_have_folder(*key) for key in [*evil, ("", 0), ("\ufffd" * 100, 0)])
    async with opened(MemoryDisk(), config) as master:
        with pytest.MonkeyPatch.context() as hostile:
            for module in (append, consume_queue_table):
                hostile.setattr(module, "can_have_folder", lambda *key: True)
            for topic, queue_id in [*evil, ("orders", 0)]:
                for _ in range(messages):
                    stored(master.append(put_of(topic=topic, queue_id=queue_id)))
        log = master.read_log(0, 1 << 20)
        assert log is not None
        root = tmp_path / "data" / "broker"
        async with opened(InlineDisk(), config, root=root) as slave:
            slave.begin_replication()
            slave.append_raw(0, log)
            await trio.sleep(70)
            assert slave.queues().keys() == {"orders"}
            assert slave.next_queue_offset("orders", 0) == messages
            assert slave.health.is_good
    names = InlineDisk().list_directory
    assert names(root / "consumequeue") == ["orders"]
    assert (names(tmp_path), names(tmp_path / "data")) == (["data"], ["broker"])
    assert "topic='../../outside'" in caplog.text


def test_records_that_a_queue_is_past_are_passed_over_in_columns_too() -> None:
    """Also where the queue's next offset is just that of the record."""
    writer = usual_log(300)
    table, dispatcher = made()
    log = log_of(writer.data, 1 << 20)
    first = next(LogWalk(log, 0).records(1))
    queue = table.queue(first[2].decode(), first[3])
    before = queue.max_offset = first[4]
    queue.last_physical_end = 1 << 40
    dispatcher.dispatch_from(LogWalk(log, 0), 1 << 30)
    assert queue.max_offset == before
