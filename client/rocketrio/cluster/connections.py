"""Calls by address that drop a connection whose peer no longer answers, and that raise what access control refused.

If the other end of a connection vanishes silently, behind a firewall that forgot it or in a host that lost power, the
connection accepts every request and answers none, for as long as the operating system keeps retransmitting.

Invariant: one late answer closes nothing; a second one in a row does, and the next call connects again.
Invariant: a refused request is sent a second time only if the provider of credentials returned other ones.
Answers to: clientCloseSocketIfTimeout of NettyRemotingClient.
Unlike Java: a single timeout does not close the connection, because closing it removes a group's member.
"""

import re
from typing import Final, Protocol

import attrs
import trio

from rocketrio.cluster.account import Account
from rocketrio.limits import ADMIN_TIMEOUT
from rocketrio_protocol.codes import RequestCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.connection import PreparedRequest
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import AccessRefusedError, RequestTimeoutError, refusal_class
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import ChannelPool

_TOPIC: Final = re.compile(r"[Tt]opic:([^\s,]+)")
"""The topic in a refusal, in Apache's words."""
_RESOURCE: Final = re.compile(r"has no permission to access (.+?) from ")
"""What the account lacks a right on, in the words of rocketrio's brokers and of RocketMQ 5."""

QUESTION_TIMEOUT_MAX: Final = ADMIN_TIMEOUT
"""The longest timeout of a request that a server can answer at once; what takes longer on purpose has a longer one."""
TIMEOUTS_IN_A_ROW: Final = 2
"""Consecutive requests without an answer after which a connection counts as dead."""


class Caller(Protocol):
    """A sender of requests to servers by address."""

    async def call(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> RemotingCommand:
        """Return the answer, whatever its code. Raises NotReachableError, RequestTimeoutError, AccessRefusedError."""
        ...


@attrs.define
class Connections:
    """The connections of one client."""

    pool: ChannelPool
    account: Account | None = None
    """The account that signs the requests, None without credentials."""
    request_timeout: float | None = None
    """Seconds for requests that a server can answer at once, in place of their own."""
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
        """Call as `ChannelPool.call`, and count timeouts. `now` is the current time if the caller has just read it.

        Raises AccessRefusedError if the server's access control refused it.
        """
        if (
            self.request_timeout is not None
            and timeout <= QUESTION_TIMEOUT_MAX
            and isinstance(request, RequestHeader)
        ):
            timeout = self.request_timeout
        account = self.account
        credentials = None if account is None else account.signer.credentials
        # An open connection is used directly: each await on the way has a cost.
        channel = self.pool.open_channel(addr)
        try:
            if channel is None:
                answer = await self.pool.call(addr, request, body, timeout=timeout)
            else:
                answer = await channel.call(request, body, timeout=timeout, now=now)
        except RequestTimeoutError:
            count = self._timeouts[addr] = self._timeouts.get(addr, 0) + 1
            # Not at the first: a busy server answers late, and closing the connection removes a group's member.
            if count >= TIMEOUTS_IN_A_ROW:
                del self._timeouts[addr]
                self.pool.drop(addr)
            raise
        # Any answer counts: only timeouts in a row mean that the other end has gone.
        if self._timeouts:
            self._timeouts.pop(addr, None)
        if answer.code and refusal_class(answer.code, answer.remark) is not None:
            return await self._after_refusal(addr, request, body, timeout, answer, credentials)
        return answer

    async def _after_refusal(
        self,
        addr: str,
        request: RequestHeader | PreparedRequest,
        body: Body,
        timeout: float,
        answer: RemotingCommand,
        credentials: Credentials | None,
    ) -> RemotingCommand:
        """Repeat a request if there are other credentials by now than those that were refused, otherwise raise."""
        account = self.account
        if account is not None and credentials is not None:
            until = trio.current_time() + timeout
            is_renewed = False
            with trio.move_on_at(until):
                is_renewed = await account.renewed(credentials)
            # Only with other credentials: the same ones would be refused again.
            if is_renewed:
                left = until - trio.current_time()
                answer = await self.pool.call(addr, request, body, timeout=left)
        error_class = refusal_class(answer.code, answer.remark)
        if error_class is None:
            return answer
        raise self._refused(error_class, addr, request, answer)

    def _refused(
        self,
        error_class: type[AccessRefusedError],
        addr: str,
        request: RequestHeader | PreparedRequest,
        answer: RemotingCommand,
    ) -> AccessRefusedError:
        account = self.account
        who = (
            "this client, which has no credentials"
            if account is None
            else f"account {account.credentials.access_key}"
        )
        named = _TOPIC.search(answer.remark or "")
        topic = getattr(request, "topic", None) or (named and named[1])
        lacking = _RESOURCE.search(answer.remark or "")
        without = f", without a right on {lacking[1]}" if lacking else ""
        return error_class(
            f"{code_name(request.code, RequestCode)} of {who} was refused at {addr}{without}",
            code=answer.code,
            remark=answer.remark,
            broker_addr=addr,
            topic=topic,
        )

    async def send_oneway(
        self, addr: str, request: RequestHeader, body: Body = b"", *, timeout: float
    ) -> None:
        """Send as `ChannelPool.send_oneway`."""
        await self.pool.send_oneway(addr, request, body, timeout=timeout)
