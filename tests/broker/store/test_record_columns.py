"""Columns against `LogWalk`, which has the last word."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.broker.store.generated_logs import (
    LogWriter,
    generated,
    log_of,
    use_columns_from,
    usual_log,
)

from rocketrio_broker.store import record_columns
from rocketrio_broker.store.commit_log import CommitLog
from rocketrio_broker.store.errors import StoreDamagedError
from rocketrio_broker.store.log_walk import LogRecord, LogWalk
from rocketrio_broker.store.record_columns import FEW_RECORDS, RecordColumns, stretches

SEEDS = st.integers(0, 1 << 32)


def in_columns(walk: LogWalk, max_bytes: int) -> Iterator[LogRecord]:
    for stretch in stretches(walk, max_bytes):
        if isinstance(stretch, RecordColumns):
            yield from stretch.records(range(len(stretch)))
        else:
            yield from stretch


def one_by_one(walk: LogWalk, max_bytes: int) -> Iterator[LogRecord]:
    yield from walk.records(max_bytes)


def outcome(
    log: CommitLog, *, columns: bool, check_crc: bool, stop_at_damage: bool, step: int
) -> tuple[list[LogRecord], int, str]:
    """The records found, where the walk ended, and why."""
    walk = LogWalk(log, 0, check_crc=check_crc, stop_at_damage=stop_at_damage)
    found: list[LogRecord] = []
    before = -1
    try:
        while walk.position > before and not walk.problem:
            before = walk.position
            found.extend((in_columns if columns else one_by_one)(walk, step))
    except StoreDamagedError as damage:
        return [], walk.position, str(damage)
    return found, walk.position, walk.problem


@pytest.mark.parametrize("few", [1, FEW_RECORDS])
@settings(max_examples=30, deadline=None)
@given(
    seed=SEEDS,
    damaged=st.booleans(),
    check_crc=st.booleans(),
    stop_at_damage=st.booleans(),
    step=st.sampled_from([700, 5000, 1 << 20]),
)
def test_columns_hold_what_the_walk_finds(
    few: int, seed: int, damaged: bool, check_crc: bool, stop_at_damage: bool, step: int
) -> None:
    log = generated(seed, damaged=damaged)
    with pytest.MonkeyPatch.context() as patch:
        use_columns_from(patch, few)
        results = [
            outcome(
                log, columns=columns, check_crc=check_crc, stop_at_damage=stop_at_damage, step=step
            )
            for columns in (True, False)
        ]
    assert results[0] == results[1]


@pytest.mark.parametrize("at", [0, 4, 8, 28, 39, 84, 88, "topic size", "properties size"])
@pytest.mark.parametrize("check_crc", [False, True])
@pytest.mark.parametrize("number", [0, 150, 249])
def test_each_wrong_field_ends_the_columns_where_it_ends_the_walk(
    at: int | str, check_crc: bool, number: int
) -> None:
    writer = usual_log(250)
    start = writer.starts[number]
    topic_size_at = start + 88 + int.from_bytes(writer.data[start + 84 : start + 88])
    if at == "topic size":
        place = topic_size_at
    elif at == "properties size":
        place = topic_size_at + 1 + writer.data[topic_size_at]
    else:
        place = start + int(at)
    writer.data[place] ^= 0x30
    writer.data[place + 1] ^= 0x11
    log = log_of(writer.data, 1 << 20)
    found = [
        outcome(log, columns=columns, check_crc=check_crc, stop_at_damage=True, step=1 << 20)
        for columns in (True, False)
    ]
    assert found[0] == found[1]
    is_unnoticed = at in (8, 88) and not check_crc
    assert len(found[0][0]) == (250 if is_unnoticed else number)


def test_many_usual_records_come_as_columns_and_few_one_by_one() -> None:
    def kinds(count: int) -> list[bool]:
        walk = LogWalk(log_of(usual_log(count).data, 1 << 20), 0)
        return [
            isinstance(stretch, RecordColumns) or not list(stretch)
            for stretch in stretches(walk, 1 << 20)
        ]

    assert kinds(FEW_RECORDS) == [True]
    assert kinds(FEW_RECORDS - 1) == [False]


def test_log_of_unusual_records_is_read_twice_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    writer = LogWriter(1)
    writer._oddness = 0.0
    writer.write(FEW_RECORDS)
    writer._oddness = 1.0  # all with an IPv6 host
    writer.write(600)
    log = log_of(writer.data)
    looked_at = 0
    chain = record_columns._chain

    def counted(data: object, at: int, *rest: int) -> object:
        nonlocal looked_at
        found = chain(data, at, *rest)  # type: ignore[arg-type]
        looked_at += found[-1] - at
        return found

    monkeypatch.setattr(record_columns, "_chain", counted)
    list(in_columns(LogWalk(log, 0), 1 << 30))
    assert 0 < looked_at <= len(writer.data)


def test_no_view_of_a_file_stays_behind() -> None:
    """A deleted file would stay mapped by it, and closing a mapping would be refused."""
    log = log_of(usual_log(500).data, 1 << 20)
    kept = list(stretches(LogWalk(log, 0, check_crc=True, stop_at_damage=True), 1 << 20))
    assert kept
    file = log.files.files[0]
    file.view.release()
    file.mapping.close()
