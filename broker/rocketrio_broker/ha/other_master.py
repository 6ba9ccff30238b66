"""Is there another live master of this broker's name? Asked before a broker takes writes.

Each name server is asked (106) whom it lists under id 0, and whoever that is, whether it is the master of this name
(26). Only a broker that answers so counts: what a name server lists may have died a moment ago. A master that was found
before, or followed, is asked directly, and so are those that were slaves when this broker was last there: a name server
that was started anew lists nobody for a moment.

Invariant: a broker that cannot be asked is not another master; two masters that cannot see each other are beyond this.
Invariant: of two masters that see each other one goes on, the one that a name server lists.
Unlike Java: an Apache broker that starts as a second master overwrites the first in the name server's list.
"""

from contextlib import suppress
from typing import Final

import trio

from rocketrio_broker.ha.peers import CALL_TIMEOUT, Peers, ask_settings
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error

ASK_LIMIT: Final = CALL_TIMEOUT
"""Seconds for all name servers and the brokers they name together."""


async def find_other_master(peers: Peers, known: str | None = None) -> str | None:
    """The address of another live master of this name; None when nobody knows of one. Never fails.

    `known` is where one was last.
    """
    asked = {addr for addr in (known, *peers.remembered()) if addr is not None}
    listed: set[str] = set()
    live: set[str] = set()

    async def ask_broker(addr: str) -> None:
        with suppress(Error):
            if await _is_master(peers, addr):
                live.add(addr)

    async def ask_name_server(name_server: str) -> None:
        with suppress(Error):
            addr = (await peers.listed(name_server)).get(MASTER_ID)
            if addr is None:
                return
            listed.add(addr)
            if addr != peers.own_addr and addr not in asked:
                await ask_broker(addr)

    with trio.move_on_after(ASK_LIMIT):
        async with trio.open_nursery() as nursery:
            for addr in sorted(asked):
                nursery.start_soon(ask_broker, addr)
            for name_server in peers.name_servers:
                nursery.start_soon(ask_name_server, name_server)
    if peers.own_addr in listed:
        live &= listed
    return min(live, default=None)


async def _is_master(peers: Peers, addr: str) -> bool:
    settings = await ask_settings(peers.call, addr)
    is_of_name = settings.get("brokerName") == peers.broker_name
    return is_of_name and settings.get("brokerId") == str(MASTER_ID)
