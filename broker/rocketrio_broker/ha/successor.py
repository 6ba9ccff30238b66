"""Finds out whether another broker has replaced a master: one in service, or one that has become a slave.

A master in service asks when a name server lists another one instead. Any host that reaches a name server can be
listed there. So a listing alone does not stop a master that was listed and leads. What counts is an epoch that is not
in this log, whose number is not lower, and which broker shows it:

    the link authenticates brokers       the broker that is listed, and slaves that this master knew: a slave has the
    (secret or certificate)              epoch of the master that it follows in its log
    it does not                          slaves that this master knew, at the addresses where it knew them, if they are
                                         master now and opened the epoch themselves: a slave follows any master that
                                         name servers list, even a foreign one. Apache's brokers have no epochs: they
                                         count if they are master

Invariant: asking changes nothing at the brokers that are asked.
Invariant: only the listed broker and known slaves are asked, for `ASK_LIMIT` seconds together.
Answers to: nothing in 4.x, where each name server lists the broker that registered last; 5.x's controller elects.
"""

import logging
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Final

import trio

from rocketrio_broker.ha.exchange import ask_welcome, greeting_of
from rocketrio_broker.ha.peers import Peers, ask_identity
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.ha.exchange import Welcome
from rocketrio_protocol.remoting.ports import Dial

logger = logging.getLogger("rocketrio_broker.ha")

ASK_LIMIT: Final = 5.0
"""Seconds for all brokers that are asked together."""


async def find_successor(
    listed: str,
    *,
    store: MessageStore,
    peers: Peers,
    known: Callable[[], Collection[str]],
    dial: Dial,
    is_proved: bool,
) -> str | None:
    """Return the address of a broker that shows that another one has taken over, None if no broker shows it.

    `listed` is the broker that a name server lists, `known` returns the slaves that this master had; `dial` reaches
    replication ports, and authenticates the broker there if `is_proved`. Never fails.
    """
    addrs = {*known(), listed} if is_proved else set(known())
    return await _first_that(
        partial(_shows_successor, store=store, peers=peers, dial=dial, is_proved=is_proved),
        addrs - {peers.own_addr},
    )


async def knows_later_epoch(
    addrs: Collection[str], *, store: MessageStore, peers: Peers, dial: Dial
) -> bool:
    """Return whether the log of a broker at these addresses has an epoch that began after all of this log's.

    Never fails; `dial` reaches replication ports.
    """
    own = store.epochs.lines

    async def has_later_epoch(addr: str) -> bool:
        identity = await ask_identity(peers.question, addr)
        if not (own and identity.is_rocketrio):
            return False  # Apache's brokers have no epochs.
        answer = await _ask_epochs(identity.required_ha_addr(addr), store, dial)
        return bool(answer.epochs) and answer.epochs[-1].number > own[-1].number

    return await _first_that(has_later_epoch, addrs) is not None


async def _first_that(
    shows: Callable[[str], Awaitable[bool]], addrs: Collection[str]
) -> str | None:
    """Ask all brokers at once; return the address of one that shows it, None if none does in `ASK_LIMIT` seconds."""
    found: list[str] = []

    async def ask(addr: str) -> None:
        try:
            if await shows(addr):
                found.append(addr)
                nursery.cancel_scope.cancel()
        except (Error, OSError) as error:
            logger.info(
                "could not check whether another broker took over peer=%s reason=%s", addr, error
            )

    with trio.move_on_after(ASK_LIMIT):
        async with trio.open_nursery() as nursery:
            for addr in sorted(addrs):
                nursery.start_soon(ask, addr)
    return min(found, default=None)


async def _ask_epochs(ha_addr: str, store: MessageStore, dial: Dial) -> Welcome:
    transport = await dial(ha_addr)
    try:
        return await ask_welcome(transport, greeting_of(store, asks_only=True))
    finally:
        await transport.aclose()


async def _shows_successor(
    addr: str, *, store: MessageStore, peers: Peers, dial: Dial, is_proved: bool
) -> bool:
    identity = await ask_identity(peers.question, addr)
    if identity.broker_name != peers.broker_name:
        return False
    if not identity.is_rocketrio:
        return not is_proved and identity.broker_id == MASTER_ID
    answer = await _ask_epochs(identity.required_ha_addr(addr), store, dial)
    return _is_later(answer, store) and (is_proved or _is_opener(answer))


def _is_later(answer: Welcome, store: MessageStore) -> bool:
    """Return whether the last epoch of the answering log began after all of this log's, or beside its last one."""
    own = store.epochs.lines
    if not (own and answer.epochs):
        return False
    last = answer.epochs[-1]
    return last.number >= own[-1].number and last.key not in {line.key for line in own}


def _is_opener(answer: Welcome) -> bool:
    """Return whether the broker that answers is master, and opened the last epoch of its log."""
    return answer.broker_id == MASTER_ID and answer.epochs[-1].member == answer.member
