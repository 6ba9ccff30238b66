"""Is there another live master of this broker's name? Asked before a broker takes writes.

Each name server is asked (106) whom it lists under id 0, and whoever that is, whether it is the master of this name
(26). Only a broker that answers so counts: what a name server lists may have died a moment ago.

Invariant: a broker that cannot be asked is not another master; two masters that cannot see each other are beyond this.
Unlike Java: an Apache broker that starts as a second master overwrites the first in the name server's list.
"""

from collections.abc import Sequence
from typing import Final

import trio

from rocketrio_broker.ha.slave_synchronize import Caller
from rocketrio_protocol import fastjson
from rocketrio_protocol.codes import MASTER_ID, ResponseCode
from rocketrio_protocol.commands.admin import GetBrokerConfigRequestHeader
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader
from rocketrio_protocol.errors import Error
from rocketrio_protocol.java_properties import parse_properties
from rocketrio_protocol.route import ClusterInfo

ASK_LIMIT: Final = 3.0
"""Seconds for all name servers and the brokers they name together (a call's time limit, mqClientApiTimeout)."""


async def find_other_master(
    *, call: Caller, name_servers: Sequence[str], broker_name: str, own_addr: str
) -> str | None:
    """The address of another live master of `broker_name`; None when nobody knows of one. Never fails."""
    found: list[str] = []

    async def ask(name_server: str) -> None:
        addr = await _listed_master(call, name_server, broker_name)
        if addr not in (None, own_addr) and await _is_master(call, addr, broker_name):
            found.append(addr)

    with trio.move_on_after(ASK_LIMIT):
        async with trio.open_nursery() as nursery:
            for name_server in name_servers:
                nursery.start_soon(ask, name_server)
    return min(found, default=None)


async def _listed_master(call: Caller, name_server: str, broker_name: str) -> str | None:
    try:
        response = await call(name_server, GetBrokerClusterInfoRequestHeader(), timeout=ASK_LIMIT)
        if response.code != ResponseCode.SUCCESS:
            return None
        info = fastjson.loads(response.body, ClusterInfo, what="cluster info")
    except Error:
        return None
    broker = info.broker_addr_table.get(broker_name)
    return None if broker is None else broker.broker_addrs.get(MASTER_ID)


async def _is_master(call: Caller, addr: str, broker_name: str) -> bool:
    try:
        response = await call(addr, GetBrokerConfigRequestHeader(), timeout=ASK_LIMIT)
        settings = parse_properties(response.body)
    except Error:
        return False
    return settings.get("brokerName") == broker_name and settings.get("brokerId") == str(MASTER_ID)
