"""Calls by address that drop a connection whose peer no longer answers.

If the other end of a connection vanishes silently, behind a firewall that forgot it or in a host that lost power, the
connection accepts every request and answers none, for as long as the operating system keeps retransmitting.

Invariant: one late answer closes nothing; a second one in a row does, and the next call connects again.
Answers to: clientCloseSocketIfTimeout of NettyRemotingClient.
Unlike Java: a single timeout does not close the connection, because closing it removes a group's member.
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
"""Consecutive requests without an answer after which a connection counts as dead."""


class Caller(Protocol):
    """A sender of requests to servers by address."""

    async def call(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> RemotingCommand:
        """Return the answer, whatever its code. Raises NotReachable, RequestTimeout."""
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
        """Call as `ChannelPool.call`, and count timeouts. `now` is the current time if the caller has just read it."""
        # An open connection is used directly: each await on the way has a cost.
        channel = self.pool.open_channel(addr)
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
        """Send as `ChannelPool.send_oneway`."""
        await self.pool.send_oneway(addr, request, body, timeout=timeout)
