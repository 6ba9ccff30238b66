import attrs
import pytest
from tests.support.clocks import SettableClock
from tests.support.failing_disk import FailingDisk
from tests.support.stores import SMALL, opened, put_of, read_all, stored

from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.put_batch import mixed_entries
from rocketrio_broker.store.put_message import AppendResult, PutStatus
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.message import MessageExt, decode_messages
from rocketrio_protocol.record.java_hash import java_string_hash
from rocketrio_protocol.record.layout import pack_host


def message_at(store: MessageStore, offset: int) -> MessageExt:
    record = store.message_at(offset)
    assert record is not None
    (message,) = decode_messages(record)
    return message


async def test_message_is_stored_as_given_and_seen_at_once() -> None:
    clock = SettableClock(5000)
    async with opened(MemoryDisk(), clock=clock) as store:
        put = put_of(
            b"hello",
            "orders",
            3,
            flag=9,
            sys_flag=2,
            reconsume_times=2,
            properties=b"KEYS\1k\2TAGS\1red",
            born_time_ms=4000,
        )
        first = stored(store.append(put))
        second = stored(store.append(put))
        assert first == AppendResult(PutStatus.PUT_OK, 0, first.size, 0, 5000, 1, first.size, None)
        assert (second.physical_offset, second.queue_offset) == (first.end_offset, 1)
        assert store.next_queue_offset("orders", 3) == 2
        assert store.take_arrivals() == {("orders", 3)}
        result = store.get_message("orders", 3, 0, 32)
        assert result.message_count == 2
        message = message_at(store, second.physical_offset)
        assert message.body == b"hello"
        assert (message.topic, message.queue_id, message.queue_offset) == ("orders", 3, 1)
        assert (message.flag, message.sys_flag, message.reconsume_times) == (9, 2, 2)
        assert (message.born_time_ms, message.store_time_ms) == (4000, 5000)
        assert (message.tags, message.keys) == ("red", "k")
        assert (
            store.get_message(
                "orders", 3, 0, 32, tags_codes=frozenset({java_string_hash("red")})
            ).message_count
            == 2
        )
        assert store.dispatched.value == store.max_physical_offset == second.end_offset


async def test_tags_given_by_the_caller_are_not_searched() -> None:
    async with opened(MemoryDisk()) as store:
        stored(store.append(put_of(properties=b"TAGS\1red", tags="red")))
        stored(store.append(put_of(properties=b"", tags=None)))
        queue = store.queue_table.by_key["orders", 0]
        entries = [queue.entry(0), queue.entry(1)]
        assert [entry[2] for entry in entries if entry] == [java_string_hash("red"), 0]


async def test_ipv6_hosts_are_kept() -> None:
    host = pack_host("2001:db8::7", 77)
    async with opened(MemoryDisk()) as store:
        stored(store.append(put_of(born_host=host, store_host=host)))
        result = stored(store.append(put_of(born_host=host)))
        message = message_at(store, result.physical_offset)
        assert message.born_host == ("2001:db8::7", 77)
        assert store.store_time_at("orders", 0, 0) == store.store_time_at("orders", 0, 1)


async def test_transaction_halves_stay_out_of_the_queue() -> None:
    async with opened(MemoryDisk()) as store:
        half = stored(store.append(put_of(sys_flag=4)))
        assert store.get_message("orders", 0, 0, 32).message_count == 0
        commit = stored(store.append(put_of(sys_flag=8, prepared_transaction_offset=0)))
        stored(store.append(put_of(sys_flag=12)))
        assert (half.queue_offset, commit.queue_offset) == (0, 0)
        assert store.queue_bounds("orders", 0) == (0, 1)


async def test_store_times_never_fall() -> None:
    clock = SettableClock(5000)
    async with opened(MemoryDisk(), clock=clock) as store:
        times = []
        for clock.now in (5000, 4000, 6000):
            times.append(stored(store.append(put_of())).store_time_ms)
        assert times == [5000, 5000, 6000]


async def test_batch_lies_together_in_one_file() -> None:
    async with opened(MemoryDisk()) as store:
        stored(store.append(put_of(bytes(15_000))))
        entries = [(number, bytes(300), f"KEYS\1k{number}".encode()) for number in range(5)]
        result = stored(
            store.append_batch(put_of(properties=b"WAIT\1true"), mixed_entries(entries))
        )
        assert result.physical_offset == SMALL.mapped_file_size_commit_log
        assert (result.message_count, result.queue_offset) == (5, 1)
        assert result.end_offset - result.physical_offset == result.size
        assert result.physical_offsets is not None
        messages = [message_at(store, offset) for offset in result.physical_offsets]
        assert [message.queue_offset for message in messages] == [1, 2, 3, 4, 5]
        assert [message.flag for message in messages] == [0, 1, 2, 3, 4]
        assert {message.store_time_ms for message in messages} == {result.store_time_ms}
        assert [message.properties for message in messages] == [
            {"KEYS": f"k{number}", "WAIT": "true"} for number in range(5)
        ]
        assert len(read_all(store, "orders")) == 6


@pytest.mark.parametrize(
    ("own", "common", "together"),
    [
        (b"A\1b", b"C\1d", b"A\1b\2C\1d"),
        (b"A\1b\2", b"C\1d", b"A\1b\2C\1d"),
        (b"", b"C\1d", b"C\1d"),
        (b"A\1b", b"", b"A\1b"),
    ],
)
async def test_properties_of_the_batch_are_added(
    own: bytes, common: bytes, together: bytes
) -> None:
    async with opened(MemoryDisk()) as store:
        result = stored(
            store.append_batch(put_of(properties=common), mixed_entries([(0, b"", own)]))
        )
        record = store.message_at(result.physical_offset)
        assert record is not None
        assert bytes(record).endswith(len(together).to_bytes(2) + together)


async def test_refused_append_changes_nothing() -> None:
    config = attrs.evolve(SMALL, max_message_size=1000)
    async with opened(MemoryDisk(), config) as store:
        illegal, too_long = PutStatus.MESSAGE_ILLEGAL, PutStatus.PROPERTIES_SIZE_EXCEEDED
        cases = [
            (store.append(put_of(topic="")), illegal, "1 to 127 bytes, not 0"),
            (store.append(put_of(topic="t" * 128)), illegal, "1 to 127 bytes, not 128"),
            (store.append(put_of(bytes(1001))), illegal, "1000 is the limit"),
            (store.append(put_of(properties=bytes(16_300))), illegal, ""),
            (store.append_batch(put_of(), mixed_entries([])), illegal, "empty"),
            (
                store.append_batch(put_of(sys_flag=4), mixed_entries([(0, b"", b"")])),
                illegal,
                "transaction",
            ),
            (
                store.append_batch(put_of(), mixed_entries([(0, b"", b"DELAY\x013")])),
                illegal,
                "delayed",
            ),
            (
                store.append_batch(put_of(), mixed_entries([(0, bytes(600), b"")] * 2)),
                illegal,
                "1000",
            ),
        ]
        for result, status, why in cases:
            assert result.status is status
            assert why in result.remark
        assert store.max_physical_offset == 0
        assert store.statistics().put_message_failed_times == len(cases)
    async with opened(
        MemoryDisk(), attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
    ) as store:
        assert store.append(put_of(properties=bytes(32_768))).status is too_long
        stored(store.append(put_of(properties=bytes(32_767))))


async def test_slave_and_full_disk_refuse() -> None:
    disk = MemoryDisk()
    async with opened(disk) as store:
        store.begin_replication()
        refused = store.append(put_of())
        assert refused.status is PutStatus.SERVICE_NOT_AVAILABLE
        assert "slave" in refused.remark
        assert not store.writable
        store.end_replication()
        assert store.writable
        stored(store.append(put_of()))


async def test_no_space_for_the_next_file_refuses_and_recovers() -> None:
    disk = FailingDisk()
    async with opened(disk) as store:
        stored(store.append(put_of(bytes(15_000))))
        disk.fails_at = "rename"
        refused = store.append(put_of(bytes(15_000)))
        assert refused.status is PutStatus.CREATE_MAPPED_FILE_FAILED
        assert "No space" in refused.remark
        stored(store.append(put_of(bytes(100))))
        disk.fails_at = ""
        stored(store.append(put_of(bytes(15_000))))
        assert len(read_all(store, "orders")) == 3


async def test_full_disk_is_logged_at_intervals_and_shown_while_it_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def lines(event: str) -> int:
        return caplog.text.count(f" {event} refused=")

    disk, clock = FailingDisk(), SettableClock()
    async with opened(disk, clock=clock) as store:
        stored(store.append(put_of(bytes(15_000))))
        assert store.problems() == []
        disk.fails_at = "rename"
        for _ in range(1000):
            store.append(put_of(bytes(15_000)))
        assert lines("no room") == 1
        [problem] = store.problems()
        assert "1,000 sends found no room" in problem
        assert "No space left" in problem
        for _ in range(3):  # Small messages find room in between.
            stored(store.append(put_of(bytes(100))))
            store.append(put_of(bytes(15_000)))
        assert (lines("no room"), lines("room again")) == (1, 1)
        clock.now += 61_000
        for _ in range(1000):
            store.append(put_of(bytes(15_000)))
        assert lines("no room") == 2
        disk.fails_at = ""
        stored(store.append(put_of(bytes(15_000))))
        assert lines("room again") == 2
        assert store.problems() == []
