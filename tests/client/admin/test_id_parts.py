"""What is inside the id of a message."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rocketrio.admin.messages import id_parts
from rocketrio_protocol.errors import LocalProtocolError
from rocketrio_protocol.record.message_id import UniqueIdGenerator, offset_message_id

TIMES = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))


@given(TIMES, st.timedeltas(timedelta(0), timedelta(days=26)), st.ip_addresses())
def test_id_of_a_producer_says_who_made_it_and_when(
    made: datetime, age: timedelta, ip: object
) -> None:
    made = made.replace(microsecond=made.microsecond // 1000 * 1000)
    ids = UniqueIdGenerator(
        ip=str(ip),
        process_id=70_000,
        wall_clock_ms=lambda: round(made.timestamp() * 1000),
        instance_hash=7,
    )
    parts = id_parts(ids.next(), made + age)
    assert (parts.producer_host, parts.process_id) == (str(ip), 70_000 & 0xFFFF)
    assert parts.created == made


@given(st.binary(min_size=4, max_size=4), st.integers(1, 65_535), st.integers(0, 2**63 - 1))
def test_offset_id_says_where_the_message_is(ip: bytes, port: int, offset: int) -> None:
    text = offset_message_id(ip + port.to_bytes(4), offset)
    parts = id_parts(text, datetime(2026, 11, 25, tzinfo=UTC))
    assert parts.broker_address == f"{'.'.join(map(str, ip))}:{port}"
    assert parts.physical_offset == offset


def test_text_that_is_no_id_is_refused() -> None:
    for text in ("", "x" * 32, "7F000001"):
        with pytest.raises(LocalProtocolError, match="is not a message id"):
            id_parts(text, datetime(2026, 11, 25, tzinfo=UTC))
