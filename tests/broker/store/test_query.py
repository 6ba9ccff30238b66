import attrs
import pytest
from tests.support.clocks import SettableClock
from tests.support.records import plain_record
from tests.support.stores import SMALL, body_of, opened, put_of, stored

from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.store.query import _STEP, SEARCH_LIMIT, Boundary, store_timestamp_from
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.record.encode import encode_padding
from rocketrio_protocol.record.layout import MAGIC_V1, SysFlag, pack_host

BIG = attrs.evolve(SMALL, mapped_file_size_commit_log=1 << 20)
FAR = (1 << 63) - 1
UNIQUE = "7F000001000018B4AAC2000000000001"
V4, V6 = pack_host("127.0.0.1", 10911), pack_host("2001:db8::1", 10911)


def put_at(store: MessageStore, clock: SettableClock, *times: int) -> None:
    for clock.now in times:
        stored(store.append(put_of()))


@pytest.mark.parametrize(
    ("timestamp", "nearest", "lower", "upper"),
    [
        (500, 0, 0, 0),
        (1000, 0, 0, 0),
        (1400, 0, 1, 0),
        (1500, 0, 1, 0),
        (1501, 1, 1, 0),
        (2000, 1, 1, 2),
        (2600, 3, 3, 2),
        (3000, 3, 3, 3),
        (3001, 3, 4, 3),
        (FAR, 3, 4, 3),
    ],
)
async def test_time_means_the_nearest_the_next_or_the_last_before(
    timestamp: int, nearest: int, lower: int, upper: int
) -> None:
    clock = SettableClock(0)
    async with opened(MemoryDisk(), BIG, clock=clock) as store:
        put_at(store, clock, 1000, 2000, 2000, 3000)
        boundaries: dict[Boundary, int] = {"4.x": nearest, "LOWER": lower, "UPPER": upper}
        for boundary, expected in boundaries.items():
            assert store.offset_by_time("orders", 0, timestamp, boundary) == expected


async def test_unknown_and_empty_queues_answer_zero() -> None:
    async with opened(MemoryDisk()) as store:
        assert store.offset_by_time("orders", 0, 1) == 0
        assert store.store_time_at("orders", 0, 0) is None
        assert store.earliest_store_time("orders", 0) is None
        assert store.earliest_message_time() is None
        store.queue_table.queue("orders", 0)
        assert store.offset_by_time("orders", 0, 1) == 0


async def test_store_time_of_each_offset_is_found() -> None:
    clock = SettableClock(0)
    async with opened(MemoryDisk(), BIG, clock=clock) as store:
        put_at(store, clock, 1000, 2000, 3000)
        assert [store.store_time_at("orders", 0, offset) for offset in (0, 2, 3)] == [
            1000,
            3000,
            None,
        ]
        assert store.earliest_store_time("orders", 0) == 1000
        assert store.earliest_message_time() == 1000


async def test_message_is_found_by_each_key_and_its_unique_id_at_once() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        stored(store.append(put_of(b"a", properties=f"KEYS\1k1 k2\2UNIQ_KEY\1{UNIQUE}".encode())))
        stored(store.append(put_of(b"b", properties=b"KEYS\1k2")))
        stored(store.append(put_of(b"c", "payments", properties=b"KEYS\1k2")))

        def found(topic: str, key: str, count: int = 32) -> list[bytes]:
            result = store.query_message(topic, key, count, 0, FAR)
            return [body_of(bytes(record)) for record in result.buffers]

        assert found("orders", "k1") == [b"a"]
        assert found("orders", UNIQUE) == [b"a"]
        assert found("orders", "k2") == [b"b", b"a"]
        assert found("orders", "k2", 1) == [b"b"]
        assert found("payments", "k2") == [b"c"]
        assert found("orders", "k") == []


async def test_times_limit_a_query_to_the_millisecond() -> None:
    clock = SettableClock(0)
    async with opened(MemoryDisk(), BIG, clock=clock) as store:
        for clock.now in (1000, 1500, 1999, 61_000):
            stored(store.append(put_of(b"%d" % clock.now, properties=b"KEYS\1k")))
        for begin, end, bodies in (
            (1500, 1999, [b"1999", b"1500"]),
            (1501, 1998, []),
            (2000, FAR, [b"61000"]),
            (0, 60_999, [b"1999", b"1500", b"1000"]),
        ):
            result = store.query_message("orders", "k", 32, begin, end)
            assert [body_of(bytes(record)) for record in result.buffers] == bodies
            assert result.index_last_update_timestamp == 61_000


async def test_other_keys_of_the_same_hash_are_not_answered() -> None:
    # "Aa" and "BB" have one Java hash.
    async with opened(MemoryDisk(), BIG) as store:
        stored(store.append(put_of(properties=b"KEYS\1Aa")))
        assert not store.query_message("orders", "BB", 32, 0, FAR).buffers
        assert len(store.query_message("orders", "Aa", 32, 0, FAR).buffers) == 1


async def test_query_goes_back_over_index_files() -> None:
    config = attrs.evolve(BIG, max_index_num=10)
    async with opened(MemoryDisk(), config) as store:
        for number in range(50):
            stored(store.append(put_of(b"%d" % number, properties=b"KEYS\1k%d same" % number)))
        assert len(store.query_message("orders", "same", 64, 0, FAR).buffers) == 50
        assert len(store.query_message("orders", "same", 1000, 0, FAR).buffers) == 50
        (record,) = store.query_message("orders", "k3", 32, 0, FAR).buffers
        assert body_of(bytes(record)) == b"3"
        result = store.query_message("orders", "same", 1000, 0, FAR)
        assert result.index_last_update_physical_offset < store.max_physical_offset


async def test_rolled_back_records_are_not_indexed() -> None:
    async with opened(MemoryDisk(), BIG) as store:
        for sys_flag in (4, 8, 12):
            stored(store.append(put_of(sys_flag=sys_flag, properties=b"KEYS\1k")))
        assert len(store.query_message("orders", "k", 32, 0, FAR).buffers) == 2


async def test_index_can_be_switched_off() -> None:
    disk = MemoryDisk()
    async with opened(disk, attrs.evolve(BIG, message_index_enable=False)) as store:
        stored(store.append(put_of(properties=b"KEYS\1k")))
        assert not store.query_message("orders", "k", 32, 0, FAR).buffers
    assert not [path for path in disk.files if path.parent.name == "index"]


def record_of(address: int, stored_ms: int, body: bytes = b"body", *, host: bytes = V4) -> bytes:
    return plain_record(
        physical_offset=address,
        sys_flag=int(SysFlag.BORN_HOST_IPV6) if host is V6 else 0,
        born_host=host,
        store_time_ms=stored_ms,
        body=body,
        properties=b"",
    )


class Log:
    """Bytes of a log from an address on, cut into files."""

    def __init__(self, start: int = 0, file_size: int = SEARCH_LIMIT * 4) -> None:
        self.data = b""
        self.start = start
        self.file_size = file_size

    @property
    def end(self) -> int:
        return self.start + len(self.data)

    def put(self, stored_ms: int, body: bytes = b"body", *, host: bytes = V4) -> int:
        address = self.end
        self.data += record_of(address, stored_ms, body, host=host)
        return address

    def read(self, address: int, max_bytes: int) -> memoryview | None:
        if not self.start <= address < self.end:
            return None
        size = min(max_bytes, self.file_size - address % self.file_size)
        return memoryview(self.data)[address - self.start :][:size]


def test_every_address_of_a_record_but_its_first_leads_to_the_next_one() -> None:
    log = Log(start=5000)
    first, second = log.put(10), log.put(20, host=V6)
    log.put(30)
    assert store_timestamp_from(log.read, first) == 10
    for address in range(first + 1, second + 1):
        assert store_timestamp_from(log.read, address) == 20
    assert store_timestamp_from(log.read, second + 1) == 30
    assert store_timestamp_from(log.read, log.end) is None


def test_a_magic_number_in_a_body_is_not_taken_for_a_record() -> None:
    log = Log()
    looks_so = MAGIC_V1.to_bytes(4, "big", signed=True) * 30
    log.put(10, b"....." + looks_so)
    log.put(20)
    assert store_timestamp_from(log.read, 1) == 20


def test_a_long_body_is_searched_through_wherever_blocks_cut_the_next_head() -> None:
    for size in range(_STEP - 220, _STEP + 5, 3):
        log = Log()
        log.put(10, bytes(size))
        log.put(20)
        assert store_timestamp_from(log.read, 1) == 20, size


def test_the_end_of_a_file_leads_to_the_next_file() -> None:
    log = Log(file_size=400)
    log.put(10)
    padded_from = log.end
    log.data = (log.data + encode_padding(400 - len(log.data))).ljust(400, b"\0")
    log.put(20)
    for address in range(padded_from, 401):
        assert store_timestamp_from(log.read, address) == 20


def test_search_for_a_store_time_ends_at_its_limit() -> None:
    log = Log()
    log.data = bytes(SEARCH_LIMIT + 2 * _STEP)
    log.put(20)
    assert store_timestamp_from(log.read, 0) is None
