"""Messages that are made when they are asked for: the same as those that are made at once."""

import pytest
from tests.client.consuming.pulled import pulled, stored

from rocketrio.consuming.pulled_messages import PulledMessages
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.message import MessageExt, decode_messages

CHUNK = stored(3) + stored(2, size=50) + stored(2)


def said(messages: list[MessageExt]) -> list[tuple[int, int, bytes, str]]:
    return [(m.start, m.size, m.body, m.broker_name) for m in messages]


def test_each_is_what_decoding_all_would_give() -> None:
    lazy, eager = PulledMessages.of(CHUNK, "broker-a"), decode_messages(CHUNK, "broker-a")
    assert len(lazy) == len(eager)
    assert said(list(lazy)) == said(eager)
    for index in range(-7, 7):
        assert said([lazy[index]]) == said([eager[index]])
    with pytest.raises(IndexError):
        lazy[7]


def test_slices_are_lazy_too() -> None:
    lazy, eager = PulledMessages.of(CHUNK, "broker-a"), decode_messages(CHUNK, "broker-a")
    for first in range(8):
        for following in range(first, 9):
            part = lazy[first:following]
            assert isinstance(part, PulledMessages)
            assert said(list(part)) == said(eager[first:following])
            if part:
                assert said([part[0], part[-1]]) == said([eager[first:][0], eager[:following][-1]])
                assert bytes(part.piece) == b"".join(m.record for m in eager[first:following])


@pytest.mark.parametrize("at", [4, 60], ids=["magic", "no end"])
def test_damage_is_refused_when_it_is_pulled(at: int) -> None:
    result = pulled(0, 1, next_offset=2)
    damaged = bytearray(result.body)
    damaged[at] ^= 0x55
    result.body = bytes(damaged if at == 4 else damaged[:-at])
    with pytest.raises(RemoteProtocolError, match="no stored message at byte"):
        result.undecoded()
