"""Calls by address that give up a connection on which nobody answers any more.

A connection whose other end vanished without a word, behind a firewall that forgot it or in a host that lost power,
takes every request and answers none, for as long as the operating system goes on sending again.

Invariant: one late answer closes nothing; a second one in a row does, and the next call dials anew.
Answers to: clientCloseSocketIfTimeout of NettyRemotingClient.
Unlike Java: a single timeout leaves the connection alone, because closing it takes a group's member away.
"""

from typing import Final, Protocol

import attrs

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import PreparedRequest
from rocketrio_protocol.errors import RequestTimeout
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import ChannelPool

TIMEOUTS_IN_A_ROW: Final = 2
"""Requests without an answer after which a connection counts as dead."""


class Caller(Protocol):
    """Asks a server by its address."""

    async def call(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> RemotingCommand:
        """The answer, whatever its code. Raises NotReachable, RequestTimeout."""
        ...


@attrs.define
class Connections:
    """The connections of one client."""

    pool: ChannelPool
    _timeouts: dict[str, int] = attrs.Factory(dict)

    async def call(
        self,
        addr: str,
        request: RequestHeader | PreparedRequest,
        body: Body = b"",
        *,
        timeout: float,
        now: float | None = None,
    ) -> RemotingCommand:
        """As `ChannelPool.call`; counts what is not answered. `now` is the time where the caller has just looked."""
        # Asked at once where there is one: each await on the way costs.
        channel = self.pool.standing(addr)
        try:
            if channel is None:
                answer = await self.pool.call(addr, request, body, timeout=timeout)
            else:
                answer = await channel.call(request, body, timeout=timeout, now=now)
        except RequestTimeout:
            count = self._timeouts[addr] = self._timeouts.get(addr, 0) + 1
            if count >= TIMEOUTS_IN_A_ROW:
                del self._timeouts[addr]
                self.pool.drop(addr)
            raise
        if self._timeouts:
            self._timeouts.pop(addr, None)
        return answer

    async def send_oneway(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> None:
        """As `ChannelPool.send_oneway`."""
        await self.pool.send_oneway(addr, request, body, timeout=timeout)
