"""Warns of name servers that take requests without a signature, at each start of a broker with access control.

Such a name server lists any host that registers as a broker: operators' commands then go to that host too.

Invariant: nothing is signed for the question, and nothing is registered by it.
Answers to: nothing of Apache's, whose name servers have no access control.
"""

import logging
from collections.abc import Sequence
from typing import Final

import trio

from rocketrio_broker.ha.peers import CALL_TIMEOUT, PeerCaller
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader
from rocketrio_protocol.errors import Error

logger = logging.getLogger("rocketrio_broker.access")

ASK_AGAIN_PAUSE: Final = 10.0
"""Seconds until a name server that did not answer is asked again."""

_REMEDY: Final = "start it with --acl-file and --inner-credentials, see docs/security.md"


async def warn_of_open_name_servers(unsigned: PeerCaller, name_servers: Sequence[str]) -> None:
    """Ask each name server until it answers, and warn if it needs no account. `unsigned` sends without a signature."""
    async with trio.open_nursery() as nursery:
        for addr in name_servers:
            nursery.start_soon(_warn_if_open, unsigned, addr)


async def _warn_if_open(unsigned: PeerCaller, addr: str) -> None:
    while True:
        try:
            answer = await unsigned(addr, GetBrokerClusterInfoRequestHeader(), timeout=CALL_TIMEOUT)
            break
        except Error:
            await trio.sleep(ASK_AGAIN_PAUSE)
    if answer.code == ResponseCode.SUCCESS:
        logger.warning(
            "access control is on, and the name server takes registrations of anybody name_server=%s remedy=%s",
            addr, _REMEDY,
        )  # fmt: skip
