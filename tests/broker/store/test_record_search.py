"""The record that begins at or after an address, wherever in another one that lies."""

from rocketrio_broker.store.record_search import _STEP, SEARCH_LIMIT, store_timestamp_from
from rocketrio_protocol.record.encode import encode_padding, encode_record
from rocketrio_protocol.record.layout import MAGIC_V1, SysFlag, pack_host

V4, V6 = pack_host("127.0.0.1", 10911), pack_host("2001:db8::1", 10911)


def record_of(address: int, stored_ms: int, body: bytes = b"body", *, host: bytes = V4) -> bytes:
    return encode_record(
        queue_id=3,
        flag=0,
        queue_offset=7,
        physical_offset=address,
        sys_flag=int(SysFlag.BORN_HOST_IPV6) if host is V6 else 0,
        born_time_ms=1,
        born_host=host,
        store_time_ms=stored_ms,
        store_host=V4,
        reconsume_times=0,
        prepared_transaction_offset=0,
        body=body,
        topic=b"orders",
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


def test_a_magic_number_in_a_body_is_no_record() -> None:
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


def test_the_search_ends() -> None:
    log = Log()
    log.data = bytes(SEARCH_LIMIT + 2 * _STEP)
    log.put(20)
    assert store_timestamp_from(log.read, 0) is None
