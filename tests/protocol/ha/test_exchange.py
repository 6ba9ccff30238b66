"""What two brokers say of their epochs, and what is refused of it (`ha/exchange.py`)."""

from typing import Any

import pytest

from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.exchange import (
    EPOCH_NUMBER_LIMIT,
    EPOCHS_LIMIT,
    EXCHANGE_HEAD_SIZE,
    EXCHANGE_MAGIC,
    EXCHANGE_SIZE_LIMIT,
    NAME_SIZE_LIMIT,
    Epoch,
    Greeting,
    Welcome,
    decode_exchange,
    encode_exchange,
    exchange_size,
)
from rocketrio_protocol.ha.stream import LARGEST_OFFSET

EPOCH = Epoch(number=2, id="c4", start=10, member="m", covers={"m": 1}, joined={"s": 2})
GREETING = Greeting(member="m", broker_id=1, begin=0, end=LARGEST_OFFSET, highest=2, epochs=[EPOCH])


@pytest.mark.parametrize(
    "message",
    [
        GREETING,
        Greeting(member="", begin=0, end=0, highest=0, opens=EPOCH_NUMBER_LIMIT, asks_only=True),
        Welcome(member="m" * NAME_SIZE_LIMIT, begin=5, end=7, highest=EPOCH_NUMBER_LIMIT),
    ],
)
def test_message_survives_the_wire(message: Greeting | Welcome) -> None:
    data = encode_exchange(message)
    head, body = data[:EXCHANGE_HEAD_SIZE], data[EXCHANGE_HEAD_SIZE:]
    assert exchange_size(head) == len(body)
    assert decode_exchange(body, type(message)) == message
    assert decode_exchange(body[:-1] + b',"later":[1]}', type(message)) == message


@pytest.mark.parametrize(
    "head",
    [b"\x8arktrio\x01" + bytes(4), EXCHANGE_MAGIC + (EXCHANGE_SIZE_LIMIT + 1).to_bytes(4)],
)
def test_head_of_something_else_is_refused(head: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        exchange_size(head)


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"member":"\xf5","begin":0,"end":0,"highest":0}', id="no UTF-8"),
        pytest.param(b'{"later":' + b"[" * 500_000, id="deep"),
        pytest.param(b'{"member":"m"', id="cut"),
        pytest.param(b"[]", id="list"),
        pytest.param(b"", id="empty"),
    ],
)
def test_text_that_cannot_be_read_is_refused(body: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="cannot be decoded"):
        decode_exchange(body, Greeting)


@pytest.mark.parametrize(
    "changes",
    [
        {"member": "m" * (NAME_SIZE_LIMIT + 1)},
        {"broker_id": -2},
        {"begin": -1},
        {"end": LARGEST_OFFSET + 1},
        {"highest": EPOCH_NUMBER_LIMIT + 1},
        {"highest": 10**300},
        {"opens": -1},
        {"epochs": [{"number": -1, "id": "a", "start": 0}]},
        {"epochs": [{"number": 1, "id": "a" * (NAME_SIZE_LIMIT + 1), "start": 0}]},
        {"epochs": [{"number": 1, "id": "a", "start": -1}]},
        {"epochs": [{"number": 1, "id": "a", "start": 0}] * (EPOCHS_LIMIT + 1)},
    ],
)
def test_value_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    fields = {"member": "m", "begin": 0, "end": 0, "highest": 0} | changes
    body = encode_exchange(Greeting(**fields))[EXCHANGE_HEAD_SIZE:]
    with pytest.raises(RemoteProtocolError):
        decode_exchange(body, Greeting)
