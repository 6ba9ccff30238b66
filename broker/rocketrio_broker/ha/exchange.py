"""The exchange of epochs between two rocketrio brokers: at the beginning of a connection, or as a query of its own.

A slave asks on the ordinary port first whether the master knows the exchange (26, `rocketrioReplication`), so Apache's
brokers never receive one.

Invariant: both ends finish within `EXCHANGE_LIMIT`, and read no more than `EXCHANGE_SIZE_LIMIT`.
Answers to: AutoSwitchHAClient's and AutoSwitchHAConnection's handshake.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rocketrio_broker.ha.errors import NotFollowedError, SilentPeerError
from rocketrio_broker.ha.link_security import receive_exactly
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.ha.exchange import (
    EXCHANGE_HEAD_SIZE,
    Greeting,
    Welcome,
    decode_exchange,
    encode_exchange,
    exchange_size,
)
from rocketrio_protocol.remoting.ports import Transport

EXCHANGE_LIMIT: Final = 5.0
"""Seconds for the greeting and the answer."""

ANNOUNCED_AHEAD_LIMIT: Final = 1 << 20
"""How far the number of an announced epoch may be above all numbers that this broker knows: the number is stored, and
the next one has to be greater. A broker whose announcement is refused opens its epoch without this broker's consent."""

ANSWERED_AHEAD_LIMIT: Final = 1 << 40
"""The same limit for the numbers in an answer: many epochs may have been announced meanwhile, and a new member knows
none."""

REPLICATION_KEY: Final = "rocketrioReplication"
"""One of the settings that a rocketrio broker returns (26): the version of the exchange that it supports."""

KnowsEpochs = Callable[[], Awaitable[bool]]
"""Asks whether the master is a rocketrio broker. Raises Error if the master cannot be asked."""


READER: Final = Greeting(member="", begin=0, end=0, highest=0, is_reader=True)
"""The greeting of a broker that compares a part of the log with its own."""


def greeting_of(
    store: MessageStore,
    *,
    broker_id: int = -1,
    address: str = "",
    opens: int = 0,
    asks_only: bool = False,
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
        address=address,
        opens=opens,
        asks_only=asks_only,
    )


async def welcome(store: MessageStore, greeting: Greeting, *, broker_id: int = -1) -> Welcome:
    """Return the answer to a greeting.

    Raises RemoteProtocolError for an epoch that cannot be the next, OSError if the promise cannot be written to the
    disk.
    """
    epochs = store.epochs
    highest = epochs.highest
    if greeting.opens:
        # First, because the promise is stored: one huge number would leave none for the epochs after it.
        _check_ahead(greeting.opens, highest, ANNOUNCED_AHEAD_LIMIT)
        # On the disk before the answer, on which the opener relies even if this broker dies a moment later.
        await epochs.promise(greeting.opens)
    return Welcome(
        member=epochs.member,
        broker_id=broker_id,
        begin=store.min_physical_offset,
        # An incomplete record at the end was never acknowledged, and a new master discards it.
        end=store.whole_end() if greeting.opens else store.max_physical_offset,
        highest=highest,
        whole_above=epochs.whole_above,
        epochs=epochs.to_send(),
    )


async def ask_welcome(transport: Transport, greeting: Greeting) -> Welcome:
    """Send a greeting and return the answer. Raises Error."""
    with trio.move_on_after(EXCHANGE_LIMIT):
        await transport.send_all(encode_exchange(greeting))
        head = await _receive_exactly(transport, EXCHANGE_HEAD_SIZE)
        body = await _receive_exactly(transport, exchange_size(head))
        answer = decode_exchange(body, Welcome)
        highest = max([answer.highest, *(epoch.number for epoch in answer.epochs)])
        _check_ahead(highest, greeting.highest, ANSWERED_AHEAD_LIMIT)
        if answer.refusal:
            raise NotFollowedError(answer.refusal, broker_addr=transport.remote_addr)
        return answer
    raise SilentPeerError(
        f"The broker has not said within {EXCHANGE_LIMIT:g} s which epochs its log has",
        broker_addr=transport.remote_addr,
    )


def _check_ahead(number: int, own_highest: int, limit: int) -> None:
    if number > own_highest + limit:
        raise RemoteProtocolError(
            f"The other end names epoch {number}, and this broker knows none after {own_highest}",
            remedy="Check that it is a broker of this name, and that a broker wrote its file rocketrioEpochs",
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
