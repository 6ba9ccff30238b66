"""The exchange of epochs at the beginning of a connection between two rocketrio brokers, and asking for it alone.

A slave asks on the ordinary port first (26, `rocketrioReplication`): Apache's brokers hear nothing of all this.

Invariant: both ends are done within `EXCHANGE_LIMIT`, and read no more than `EXCHANGE_SIZE_LIMIT`.
Answers to: AutoSwitchHAClient's and AutoSwitchHAConnection's handshake.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketrio_broker.ha.errors import LinkRefusedError, SilentPeerError
from rocketrio_broker.ha.link_security import receive_exactly
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha_exchange import (
    EXCHANGE_HEAD_SIZE,
    Greeting,
    Welcome,
    decode_exchange,
    encode_exchange,
    exchange_size,
)
from rocketrio_protocol.remoting.ports import Transport

EXCHANGE_LIMIT: Final = 5.0
"""Seconds for question and answer."""

NUMBERS_AHEAD_LIMIT: Final = 1 << 20
"""How far a peer's epoch numbers may be ahead of ours: each that is heard is kept, and the next one has to be greater.
A broker that becomes master every minute gets as far in two years."""

REPLICATION_KEY: Final = "rocketrioReplication"
"""Among the settings that a rocketrio broker shows (26): the version of the exchange that it knows."""

KnowsEpochs = Callable[[], Awaitable[bool]]
"""Asks whether the master is a rocketrio broker. Raises Error when it cannot be asked."""


READER: Final = Greeting(member="", begin=0, end=0, highest=0, is_reader=True)
"""The greeting of a broker that compares a part of the log with its own."""


def greeting_of(
    store: MessageStore, *, broker_id: int = -1, opens: int = 0, asks_only: bool = False
) -> Greeting:
    """Describe this log, for the broker that is asked."""
    epochs = store.epochs
    return Greeting(
        member=epochs.member,
        broker_id=broker_id,
        begin=store.min_physical_offset,
        end=store.max_physical_offset,
        highest=epochs.highest,
        epochs=epochs.to_send(),
        opens=opens,
        asks_only=asks_only,
    )


async def welcome(store: MessageStore, greeting: Greeting, *, broker_id: int = -1) -> Welcome:
    """Return the answer to a greeting.

    Raises RemoteProtocolError for numbers that cannot be, OSError when the disk does not take the promise in it.
    """
    epochs = store.epochs
    highest = epochs.highest
    _check_numbers(greeting, highest)
    if greeting.opens:
        await epochs.promise(greeting.opens)
    return Welcome(
        member=epochs.member,
        broker_id=broker_id,
        begin=store.min_physical_offset,
        # An incomplete record at the end was never acknowledged, and a new master gives it up.
        end=store.whole_end() if greeting.opens else store.max_physical_offset,
        highest=highest,
        whole_above=epochs.whole_above,
        epochs=epochs.to_send(),
    )


async def ask_welcome(transport: Transport, greeting: Greeting) -> Welcome:
    """Send a greeting and return the answer. Raises an Error."""
    with trio.move_on_after(EXCHANGE_LIMIT):
        await transport.send_all(encode_exchange(greeting))
        head = await _receive_exactly(transport, EXCHANGE_HEAD_SIZE)
        body = await _receive_exactly(transport, exchange_size(head))
        answer = decode_exchange(body, Welcome)
        _check_numbers(answer, greeting.highest)
        if answer.refusal:
            raise LinkRefusedError(answer.refusal, broker_addr=transport.remote_addr)
        return answer
    raise SilentPeerError(
        f"The broker has not said within {EXCHANGE_LIMIT:g} s which epochs its log has",
        broker_addr=transport.remote_addr,
    )


def _check_numbers(heard: Greeting | Welcome, own_highest: int) -> None:
    numbers = [heard.highest, *(epoch.number for epoch in heard.epochs)]
    if isinstance(heard, Greeting):
        numbers.append(heard.opens)
    if max(numbers) > own_highest + NUMBERS_AHEAD_LIMIT:
        raise RemoteProtocolError(
            f"The other end speaks of an epoch {max(numbers)}, and this broker has heard of none after {own_highest}",
            remedy="It is no broker of this name, or its file rocketrioEpochs was made by no broker",
        )


async def receive_greeting(transport: Transport, received: bytes) -> tuple[Greeting, bytes]:
    """Receive the rest of a greeting that begins with `received`; return it, and the bytes that came after it."""
    with trio.move_on_after(EXCHANGE_LIMIT):
        if len(received) < EXCHANGE_HEAD_SIZE:
            received += await _receive_exactly(transport, EXCHANGE_HEAD_SIZE - len(received))
        end = EXCHANGE_HEAD_SIZE + exchange_size(received)
        if len(received) < end:
            received += await _receive_exactly(transport, end - len(received))
        return decode_exchange(received[EXCHANGE_HEAD_SIZE:end], Greeting), received[end:]
    raise SilentPeerError(
        f"The slave has not finished its greeting within {EXCHANGE_LIMIT:g} s",
        broker_addr=transport.remote_addr,
    )


async def _receive_exactly(transport: Transport, size: int) -> bytes:
    return await receive_exactly(transport, size, instead_of="naming its epochs")
