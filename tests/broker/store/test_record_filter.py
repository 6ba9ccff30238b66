"""Reads that choose by properties: what they take, where they go on, and how properties are found in a record."""

import random

import attrs
import pytest
from tests.support.records import plain_record
from tests.support.stores import SMALL, opened, put_of, stored

from rocketrio_broker.store import record_filter
from rocketrio_broker.store.read import GetStatus
from rocketrio_broker.store.record_filter import stored_properties_of
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.message import decode_messages
from rocketrio_protocol.record.layout import pack_host


def record_of(properties: bytes, *, born: str = "10.0.0.1", topic: str = "orders") -> bytes:
    return plain_record(topic=topic.encode(), born_host=pack_host(born, 1), properties=properties)


@pytest.mark.parametrize("born", ["10.0.0.1", "::1"])
@pytest.mark.parametrize("topic", ["orders", "t" * 200])
@pytest.mark.parametrize("properties", [b"", b"a\x011\x02b\x012"])
def test_properties_are_found_in_every_form_of_record(
    born: str, topic: str, properties: bytes
) -> None:
    record = record_of(properties, born=born, topic=topic)
    assert stored_properties_of(memoryview(record)) == properties


def test_a_record_that_contradicts_itself_has_none() -> None:
    record = bytearray(record_of(b"a\x011"))
    record[84:88] = (1 << 30).to_bytes(4)
    assert stored_properties_of(memoryview(record)) == b""


async def test_a_read_takes_what_is_chosen_and_moves_on() -> None:
    def is_even(properties: bytes) -> bool:
        return properties[-1] % 2 == 0

    async with opened(
        MemoryDisk(), attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
    ) as store:
        for number in range(30):
            stored(store.append(put_of(properties=f"n\1{number}".encode())))
        result = store.get_message("orders", 0, 0, 32, matches=is_even)
        assert (result.status, result.message_count) == (GetStatus.FOUND, 15)
        assert result.next_begin_offset == 30
        offsets = [
            message.queue_offset for buffer in result.buffers for message in decode_messages(buffer)
        ]
        assert offsets == list(range(0, 30, 2))
        some = store.get_message("orders", 0, 0, 5, matches=is_even)
        assert (some.message_count, some.next_begin_offset) == (5, 9)
        none = store.get_message("orders", 0, 0, 32, matches=lambda properties: False)
        assert (none.status, none.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 30)


async def test_read_that_reaches_its_time_limit_ends_and_the_next_one_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(record_filter, "FILTER_TIME", -1.0)
    async with opened(
        MemoryDisk(), attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
    ) as store:
        for number in range(50):
            stored(store.append(put_of(properties=f"n\1{number}".encode())))
        first = store.get_message("orders", 0, 0, 50, matches=lambda properties: False)
        assert (first.status, first.next_begin_offset) == (
            GetStatus.NO_MATCHED_MESSAGE,
            record_filter.FILTERED_AT_LEAST,
        )
        offset, found = 0, 0
        while offset < 50:
            result = store.get_message("orders", 0, offset, 50, matches=lambda properties: True)
            offset, found = result.next_begin_offset, found + result.message_count
        assert found == 50


@pytest.mark.parametrize("seed", range(5))
async def test_reads_one_after_the_other_give_each_chosen_message_once(seed: int) -> None:
    rng = random.Random(seed)
    config = attrs.evolve(
        SMALL,
        mapped_file_size_commit_log=1 << 16,
        mapped_file_size_consume_queue=20 * 700,
        max_transfer_bytes_on_message_in_memory=2000,
    )
    share = rng.choice((0.01, 0.3, 0.9))
    async with opened(MemoryDisk(), config) as store:
        wanted = []
        for number in range(2500):
            is_wanted = rng.random() < share
            text = f"n\1{number}\2is\1{'yes' if is_wanted else 'no'}"
            body = bytes(rng.randrange(60))
            stored(store.append(put_of(body, properties=text.encode())))
            if is_wanted:
                wanted.append(number)
        found, offset = [], 0
        while True:
            result = store.get_message(
                "orders", 0, offset, rng.randint(1, 40), matches=lambda text: b"is\1yes" in text
            )
            for buffer in result.buffers:
                found += [message.queue_offset for message in decode_messages(buffer)]
            if result.status is GetStatus.OFFSET_OVERFLOW_ONE:
                break
            assert result.next_begin_offset > offset
            offset = result.next_begin_offset
        assert found == wanted
