"""Comparing logs: where a comparison begins, which byte differs, and where a record before it begins."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from tests.support.replication import FILE_SIZE, fill, log_bytes, starts_of
from tests.support.stores import opened, put_of, stored

from rocketrio_broker.ha.errors import AskAgainError
from rocketrio_broker.ha.history import (
    FIRST_ADDRESS,
    HistoryCheck,
    common_size,
    last_boundary,
    window_start,
)
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk

MESSAGES = 300


@asynccontextmanager
async def a_store(messages: int = MESSAGES) -> AsyncGenerator[MessageStore]:
    async with opened(MemoryDisk()) as store:
        fill(store, messages)
        yield store


@pytest.mark.parametrize("at", [*range(12), None])
def test_first_byte_that_differs_is_found(at: int | None) -> None:
    one = bytearray(b"abcdefghijkl")
    other = bytearray(one)
    if at is not None:
        other[at] ^= 1
    assert common_size(memoryview(one), memoryview(other)) == (len(one) if at is None else at)


async def test_window_ends_where_the_log_does_and_is_never_zero() -> None:
    async with a_store() as store:
        log, end = store.commit_log, store.max_physical_offset
        assert window_start(log, end, 1000) == end - 1000
        assert window_start(log, end, 1 << 30) == FIRST_ADDRESS
        assert window_start(log, end, None) == FIRST_ADDRESS
        log.files.remove_first()
        assert window_start(log, end, 1 << 30) == FILE_SIZE


@pytest.mark.parametrize("chunk", [1, 97, 5000, 1 << 20])
async def test_equal_bytes_complete_a_comparison(chunk: int) -> None:
    async with a_store() as store:
        data = memoryview(log_bytes(store))
        check = HistoryCheck(store.commit_log, 1)
        more = bytes(data[1:]) + b"what follows"
        for start in range(0, len(more), chunk):
            body = memoryview(more)[start : start + chunk]
            taken = check.compare(body)
            if taken < len(body):
                break
        assert check.is_complete
        assert check.difference is None
        assert check.position == len(data)
        # The bytes behind the end are not compared: they are new.
        assert bytes(more)[check.position - 1 :] == b"what follows"


@pytest.mark.parametrize("at", [1, 2, 5000, FILE_SIZE - 1, FILE_SIZE, FILE_SIZE + 1])
async def test_comparison_stops_at_the_first_difference(at: int) -> None:
    async with a_store() as store:
        data = bytearray(log_bytes(store))
        data[at] ^= 1
        check = HistoryCheck(store.commit_log, 1)
        assert check.compare(memoryview(data)[1:]) == at - 1
        assert check.difference == check.position == at


async def test_bytes_deleted_during_a_comparison_begin_another() -> None:
    async with a_store() as store:
        data = log_bytes(store)
        check = HistoryCheck(store.commit_log, 1)
        check.compare(memoryview(data)[1:1000])
        store.commit_log.files.remove_first()
        with pytest.raises(AskAgainError):
            check.compare(memoryview(data)[1000:])


async def test_boundary_is_the_beginning_of_the_record_that_differs() -> None:
    async with a_store() as store:
        places = starts_of(store)
        for number in (0, 1, 40, 41, 82, 83, MESSAGES - 1):
            place = places[number]
            for at in (place, place + 1, place + 100):
                for low in (1, max(1, at - 150), max(1, at - 3000)):
                    assert last_boundary(store.commit_log, low, at) == place


async def test_boundary_in_padding_is_where_the_padding_begins() -> None:
    async with a_store() as store:
        places = starts_of(store)
        last = max(place for place in places if place < FILE_SIZE)
        size = int.from_bytes(log_bytes(store)[last : last + 4])
        padding = last + size
        assert padding < FILE_SIZE
        for at in (padding, padding + 5, FILE_SIZE - 1):
            assert last_boundary(store.commit_log, 1, at) == padding
        assert last_boundary(store.commit_log, 1, FILE_SIZE) == FILE_SIZE


async def test_boundary_in_a_record_that_is_not_whole_yet() -> None:
    async with a_store() as store:
        data, place = log_bytes(store), starts_of(store)[100]
    async with opened(MemoryDisk()) as store:
        store.begin_replication()
        store.append_raw(0, data[: place + 50])
        assert last_boundary(store.commit_log, 1, place + 40) == place


async def test_bytes_in_a_body_that_look_like_a_record_are_no_boundary() -> None:
    async with opened(MemoryDisk()) as store:
        fill(store, 3)
        record = log_bytes(store)[: store.max_physical_offset // 3]
        place = store.max_physical_offset
        stored(store.append(put_of(record * 3)))
        fill(store, 3)
        for at in (place, place + 100, place + len(record) * 3):
            assert last_boundary(store.commit_log, 1, at) == place
