"""Is there another live master of this broker's name? Asked before a broker takes writes.

Each name server is asked (106) whom it lists under id 0, and whoever that is, whether it is the master of this name
(26). Only a broker that answers so counts: what a name server lists may have died a moment ago.

Invariant: a broker that cannot be asked is not another master; two masters that cannot see each other are beyond this.
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


async def find_other_master(peers: Peers) -> str | None:
    """The address of another live master of this name; None when nobody knows of one. Never fails."""
    found: list[str] = []

    async def ask_name_server(name_server: str) -> None:
        with suppress(Error):
            addr = (await peers.listed(name_server)).get(MASTER_ID)
            if addr not in (None, peers.own_addr) and await _is_master(peers, addr):
                found.append(addr)

    with trio.move_on_after(ASK_LIMIT):
        async with trio.open_nursery() as nursery:
            for name_server in peers.name_servers:
                nursery.start_soon(ask_name_server, name_server)
    return min(found, default=None)


async def _is_master(peers: Peers, addr: str) -> bool:
    settings = await ask_settings(peers.call, addr)
    is_of_name = settings.get("brokerName") == peers.broker_name
    return is_of_name and settings.get("brokerId") == str(MASTER_ID)
