"""Message ids: golden ones from a real broker's answers stand in test_message_codec; here are the rules."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.clocks import SettableClock

from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.record.message_id import (
    UniqueIdGenerator,
    offset_message_id,
    parse_offset_message_id,
    split_message_ids,
)


def test_offset_id_of_an_apache_broker_is_read_and_made() -> None:
    # The store host and offset of the first answer to a send in the recorded 4.9.7 traffic.
    text = "7F000001000097FF00000000000017A1"
    assert parse_offset_message_id(text) == ("127.0.0.1", 38911, 6049)
    assert offset_message_id(pack_host("127.0.0.1", 38911), 6049) == text


@given(st.ip_addresses().map(str), st.integers(0, 65535), st.integers(0, 2**63 - 1))
def test_offset_ids_round_trip(ip: str, port: int, offset: int) -> None:
    text = offset_message_id(pack_host(ip, port), offset)
    assert len(text) == (56 if ":" in ip else 32)
    assert parse_offset_message_id(text) == (ip, port, offset)


@pytest.mark.parametrize(
    "text", ["", "zz", "7F", "0" * 31, "0" * 33, "0" * 34, "0 " * 16, "\u0661" * 32]
)
def test_text_that_is_not_an_id_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="not a message id"):
        parse_offset_message_id(text)


def test_split_message_ids_splits_at_commas() -> None:
    assert split_message_ids("A,B") == ["A", "B"]
    assert split_message_ids("") == []


def _generator(clock: SettableClock, ip: str = "10.1.2.3") -> UniqueIdGenerator:
    return UniqueIdGenerator(
        ip=ip, process_id=0x12345, wall_clock_ms=clock.now_ms, instance_hash=0x89ABCDEF
    )


def test_unique_id_is_laid_out_as_java_does() -> None:
    month_start = 1_764_547_200_000  # 2025-12-01T00:00:00Z
    clock = SettableClock(month_start + 0x1234)
    generator = _generator(clock)
    assert generator.next() == "0A010203" + "2345" + "89ABCDEF" + "00001234" + "0000"
    clock.now += 1
    assert generator.next() == "0A010203" + "2345" + "89ABCDEF" + "00001235" + "0001"


def test_unique_id_of_an_ipv6_producer_has_56_digits() -> None:
    assert len(_generator(SettableClock(0), "2001:db8::1").next()) == 56


# December; leap February
@pytest.mark.parametrize("before_month_end", [1_767_225_599_999, 1_709_251_199_999])
def test_time_starts_again_with_each_month(before_month_end: int) -> None:
    clock = SettableClock(before_month_end)
    generator = _generator(clock)
    assert generator.next()[20:28] > "8F000000"
    clock.now += 1
    assert generator.next()[20:28] == "00000000"
    clock.now -= 1
    assert generator.next()[20:28] > "8F000000"


def test_counter_makes_ids_of_one_millisecond_unique_and_wraps() -> None:
    generator = _generator(SettableClock(5))
    ids = [generator.next() for _ in range(65536)]
    assert len(set(ids)) == 65536
    assert generator.next() == ids[0]


def test_ids_taken_together_are_those_that_come_one_by_one() -> None:
    together, one_by_one = _generator(SettableClock(5)), _generator(SettableClock(5))
    for count in (3, 0, 65_500, 100):  # The counter wraps inside the last ones.
        assert together.take(count) == [one_by_one.next() for _ in range(count)]
    assert len(together.take(65_537)) == 65_537
