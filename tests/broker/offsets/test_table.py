"""Tables of offsets: how they are joined, observed and cleared; against a dictionary of versions."""

from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rocketrio_broker.offsets import table as offset_table
from rocketrio_broker.offsets.table import OffsetTable, OffsetWriting
from rocketrio_broker.offsets.version import Commit, Generation, Version
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import OffsetVersions, VersionedConsumerOffsets
from rocketrio_protocol.steps import all_at_once

T, U = ("T", "G"), ("U", "H")
keys = st.tuples(st.sampled_from(["T", "U"]), st.sampled_from(["G", "H"]))
generations = st.builds(Generation, st.integers(0, 2), st.integers(0, 1))
entries = st.tuples(keys, st.integers(0, 1), st.builds(Version, st.integers(0, 5), generations))


@st.composite
def tables(draw: st.DrawFn) -> OffsetTable:
    table = OffsetTable()
    for key, queue_id, version in draw(st.lists(entries, max_size=6)):
        table.join_version(key, queue_id, version)
    for topic in draw(st.lists(st.sampled_from(["T", "U"]), max_size=2)):
        remove(table, topic=topic)
    for key, queue_id, version in draw(st.lists(entries, max_size=3)):
        table.join_version(key, queue_id, version)
    return table


def remove(table: OffsetTable, **what: str) -> None:
    all_at_once(table.remove(**what))
    all_at_once(table.forget_void(**what))


def read(writing: OffsetWriting) -> VersionedConsumerOffsets:
    text = fastjson.dumps({"offsetTable": writing.offsets, "rocketrioVersions": writing.versions})
    return fastjson.loads(text, VersionedConsumerOffsets, what="offsets")


def body_of(table: OffsetTable) -> VersionedConsumerOffsets:
    return read(all_at_once(table.written(is_file=False)))


def versions_of(table: OffsetTable) -> OffsetVersions:
    versions = body_of(table).rocketrio_versions
    assert versions is not None
    return versions


def copy(table: OffsetTable) -> OffsetTable:
    return OffsetTable.from_body(body_of(table))


def seen(table: OffsetTable) -> dict[object, object]:
    shown: dict[object, object] = {
        (key, queue_id): (version.offset, version.generation)
        for key, queue_id, version in table.versions()
    }
    versions = versions_of(table)
    return shown | {"topics": versions.removed_topics, "groups": versions.removed_groups}


def joined(*parts: OffsetTable) -> OffsetTable:
    result = OffsetTable()
    for part in parts:
        result.join(part)
    return result


def of(offsets: Mapping[tuple[str, str], Mapping[int, int]]) -> OffsetTable:
    table = OffsetTable()
    table.join_plain(offsets)
    return table


@pytest.mark.slow
@settings(max_examples=25)
@given(tables(), tables(), tables())
def test_tables_join_to_the_same_in_any_order(
    one: OffsetTable, two: OffsetTable, three: OffsetTable
) -> None:
    assert seen(joined(one, two, three)) == seen(joined(three, one, two))
    assert seen(joined(one, joined(two, three))) == seen(joined(joined(one, two), three))
    both = joined(one, two)
    changes = both.change_count
    assert both.join(two) == both.join(one) == 0
    assert both.change_count == changes


@settings(max_examples=25)
@given(tables())
def test_a_table_comes_through_a_body_as_it_was(table: OffsetTable) -> None:
    assert seen(copy(table)) == seen(table)


def test_a_reset_goes_down_where_it_is_joined_and_late_progress_does_not_undo_it() -> None:
    master, slave = of({T: {0: 100}}), of({T: {0: 100}})
    master.apply(T, 0, Commit(10, is_reset=True))
    slave.commit(T, 0, 90)
    slave.commit(T, 0, 130)
    slave.join(copy(master))
    master.join(copy(slave))
    assert master.query(T, 0) == slave.query(T, 0) == 10


def test_commits_during_an_outage_are_newer_than_what_the_master_had() -> None:
    master, slave = of({T: {0: 32}}), of({T: {0: 32}})
    slave.commit(T, 0, 120)
    assert master.join(copy(slave)) == 1
    assert slave.join(copy(master)) == 0
    assert master.query(T, 0) == slave.query(T, 0) == 120


def test_no_offset_is_taken_beyond_the_end_of_its_queue() -> None:
    table = of({T: {0: 32}})
    table.join(of({T: {0: 120, 1: 7}}), queue_end=lambda topic, queue_id: 100)
    assert table.offsets == {T: {0: 100, 1: 7}}
    table.join_plain({T: {0: 120, 1: 9}}, queue_end=lambda topic, queue_id: 100)
    assert table.offsets == {T: {0: 100, 1: 9}}


def test_removed_topics_and_groups_do_not_come_back_from_an_older_table() -> None:
    for what in ({"topic": "T"}, {"group": "G"}):
        master, slave = of({T: {0: 5, 1: 6}, U: {0: 7}}), of({T: {0: 5, 2: 8}, U: {0: 7}})
        slave.commit(T, 0, 3)  # A lowering there is no operator's.
        remove(master, **what)
        master.join(slave)
        assert master.offsets == {U: {0: 7}}
        # Nor from an Apache slave, which may have a copy.
        assert master.join_plain({T: {0: 9}}) == 0
        slave.join(copy(master))
        assert slave.offsets == {U: {0: 7}}
        master.commit(T, 0, 1)
        slave.join(copy(master))
        assert slave.query(T, 0) == 1


def test_few_removed_topics_are_remembered() -> None:
    table = OffsetTable()
    limit = offset_table.REMOVED_LIMIT
    for number in range(limit + 2):
        remove(table, topic=f"t{number}")
    names = list(versions_of(table).removed_topics)
    assert (len(names), names[0]) == (limit, "t2")


def test_old_copy_does_not_raise_an_offset_that_was_lowered_here() -> None:
    """An Apache slave has the offset from before the reset; later, commits of an outage beyond it."""
    table = of({T: {0: 100}})
    table.apply(T, 0, Commit(10, is_reset=True))
    assert table.join_plain({T: {0: 100}}) == 0
    assert copy(table).join_plain({T: {0: 90}}) == 0
    assert table.join_plain({T: {0: 120}}) == 1
    assert table.query(T, 0) == 120


def test_what_an_apache_master_lowers_is_lowered_here_and_what_it_forgot_is_not() -> None:
    table = of({T: {0: 100, 1: 50, 2: 7}, U: {0: 1}})
    table.commit(T, 1, 60)  # Committed here, as during an outage.
    seen_first: dict[tuple[str, str], dict[int, int]] = {T: {0: 100, 1: 50, 2: 7}, U: {0: 1}}
    table.observe(seen_first, {T: {0: 10, 1: 50, 3: 2}})
    assert table.offsets == {T: {0: 10, 1: 60, 3: 2}}
    assert str(table.version(T, 0).generation) == "0.1"
    table.observe({T: {0: 10}}, {T: {0: 30, 1: 55}})
    assert table.offsets == {T: {0: 30, 1: 60, 3: 2}}


def test_first_observation_lowers_no_offset() -> None:
    table = of({T: {0: 120}})
    table.observe({}, {T: {0: 32, 1: 8}})
    assert table.offsets == {T: {0: 120, 1: 8}}


def test_plain_progress_touches_no_version() -> None:
    table = OffsetTable()
    assert table.commit(T, 0, 5) == -1
    assert table.commit(T, 0, 9) == 5
    assert table.change_count == 2
    assert table.commit(T, 0, 9) == 9
    assert table.change_count == 2
    assert versions_of(table).generations == {}
    assert table.commit(T, 0, 3) == 9
    assert table.version(T, 0) == Version(3, Generation(0, 1), 9)


def test_what_lies_beyond_a_queue_s_end_is_lowered_to_it_everywhere() -> None:
    """The master lost its tail; messages with those numbers are others now."""
    master, slave = of({T: {0: 120, 1: 100}}), of({T: {0: 120}})
    assert [entry[:2] for entry in master.cut(lambda key, queue_id: 100)] == [(T, 0)]
    master.join(slave, queue_end=lambda topic, queue_id: 130)
    slave.join(copy(master))
    assert master.offsets == slave.offsets == {T: {0: 100, 1: 100}}


def test_end_of_what_a_slave_may_know_lowers_nothing_of_the_master_s_own() -> None:
    """A slave cannot always say of which part of the log its offsets are."""
    master, slave = of({T: {0: 120, 1: 110, 2: 90}}), of({T: {0: 120, 1: 120, 2: 120}})
    master.join(slave, queue_end=lambda topic, queue_id: 100)
    assert master.offsets == {T: {0: 120, 1: 110, 2: 100}}
    slave.join(copy(master))
    assert slave.offsets == master.offsets


def test_what_a_slave_was_cut_to_does_not_come_back_from_it() -> None:
    """It had heard of progress on messages that the master has lost; meanwhile there are others of those numbers."""
    master, slave = of({T: {0: 60}}), of({T: {0: 120}})
    assert master.join(slave, queue_end=lambda topic, queue_id: 100) == 1
    assert master.version(T, 0) == Version(100, Generation(0, 1), 60)
    master.join(slave)
    assert master.query(T, 0) == 100
    slave.join(copy(master))
    assert slave.query(T, 0) == 100


def test_size_bounds_the_body_and_follows_every_change() -> None:
    table = OffsetTable()
    for number in range(100):
        key = f"T{number % 7}", f"G{number % 11}"
        table.apply(key, number % 5, Commit(2**63 - 1 - number, is_reset=number % 3 == 0))
        table.apply(key, number % 5, Commit(number))
        body = body_of(table)
        assert len(fastjson.dumps(body)) <= table.size + 300
        assert OffsetTable.from_body(body).size == table.size
    table.observe({("T1", "G1"): dict(table.offsets["T1", "G1"])}, {})
    for number in range(7):
        remove(table, topic=f"T{number}")
    assert table.size == 0


@given(tables(), st.lists(entries, max_size=4), st.sampled_from(["T", "U", None]))
def test_a_text_is_of_the_moment_at_which_it_was_begun(
    table: OffsetTable, later: list[tuple[tuple[str, str], int, Version]], removed: str | None
) -> None:
    expected = body_of(table)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(offset_table, "STEP_OFFSETS", 1)
        steps = table.written(is_file=False)
        writing = None
        while writing is None:
            try:
                next(steps)
            except StopIteration as end:
                writing = end.value
            else:
                for key, queue_id, version in later[:1]:
                    table.join_version(key, queue_id, version)
                    table.commit(key, queue_id, version.offset + 1)
                if removed and not later:
                    remove(table, topic=removed)
                del later[:1]
    assert read(writing) == expected


def test_void_entries_are_in_no_text_before_they_are_forgotten() -> None:
    table = of({T: {0: 5}, U: {0: 7}})
    take_back = all_at_once(table.remove(topic=T[0]))
    assert body_of(table).offset_table == {f"{U[0]}@{U[1]}": {0: 7}}
    assert table.query(T, 0) == 5
    take_back()
    assert len(body_of(table).offset_table) == 2


def test_what_is_committed_on_a_topic_that_is_being_removed_goes_with_it() -> None:
    table = of({T: {0: 5}})
    all_at_once(table.remove(topic=T[0]))
    steps = table.forget_void(topic=T[0])
    next(steps)
    table.apply(T, 1, Commit(9))
    table.remove_rest(T[0])
    assert not table.offsets
    assert table.topic_floor(T[0]) == Generation(2, 0)
