"""Calls the processor of each request by its code, and sends the answer.

A processor is a plain function, because it is on the hot path: it returns the answer, or None when it will call
`channel.reply` later. A processor that must wait returns a coroutine, which runs in a task of its own.

Invariant: every request that expects an answer gets one, even if its processor has a bug.
Invariant: the waiting requests of one connection never take all places.
Invariant: an exception of a processor never reaches the connection.
Invariant: a remark names no folder of this machine, except to a user whom access control knows.
Answers to: NettyRemotingAbstract.processRequestCommand; RocketMQ reference, section 1.6.
"""

import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias
from zlib import crc32

import trio

from rocketrio_protocol.codes import RequestCode, ResponseCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.channel import Channel

Answer: TypeAlias = RemotingCommand | None
Processor: TypeAlias = Callable[[Channel, RemotingCommand], Answer | Coroutine[Any, Any, Answer]]
"""Processes one request; see the head of this file."""

WAITING_REQUESTS_LIMIT: Final = 1024
"""Requests that may wait inside coroutines at once (a tenth of Java's queue of 10,000 per thread pool).

One connection may use as many places as remain free: one alone half of them, two a third each."""

_FOLDERS: Final = re.compile(r"""(?<![\w:/.-])/(?:[^/\s'":,;]+/)+""")
"""The folders of an absolute path in a remark, which strangers need not know; the name of the file is left."""

log = logging.getLogger("rocketrio_protocol")


class Dispatcher:
    """Calls the processors of requests, and limits how many requests wait."""

    def __init__(
        self,
        processors: Mapping[int, Processor],
        *,
        nursery: trio.Nursery,
        default: Processor | None = None,
    ) -> None:
        """`default` processes codes that `processors` does not contain; waiting requests run in `nursery`."""
        self.waiting_count = 0
        self._waiting_of: dict[Channel, int] = {}
        self._processors = processors
        self._default = default or not_supported
        self._nursery = nursery

    def dispatch(self, channel: Channel, request: RemotingCommand) -> None:
        """Process one request; its answer is queued on the channel now or later."""
        processor = self._processors.get(request.code, self._default)
        try:
            answer = processor(channel, request)
            if not (answer is None or isinstance(answer, RemotingCommand | Coroutine)):
                raise TypeError(f"{processor!r} returned {answer!r}, which is not an answer")
        except Exception as fault:
            # The one place where code of others is surrounded: without an answer the caller would wait for its timeout.
            answer = _failure(channel, request, fault)
        if answer is None:
            return
        if isinstance(answer, RemotingCommand):
            if answer.remark is not None:
                _cut_folders(request, answer)
            if not request.is_oneway:
                channel.reply(answer)
        else:
            self._wait_for(channel, request, answer)

    def _wait_for(
        self, channel: Channel, request: RemotingCommand, work: Coroutine[Any, Any, Answer]
    ) -> None:
        waiting = self._waiting_of.get(channel, 0)
        # As many as remain free: one connection alone gets half of all, and leaves room for the next.
        if waiting >= WAITING_REQUESTS_LIMIT - self.waiting_count:
            work.close()
            refusal = request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"[OVERLOAD]{self.waiting_count} requests wait already, {waiting} of this connection, try later",
            )
            if not request.is_oneway:
                channel.reply(refusal)
            return
        self.waiting_count += 1
        self._waiting_of[channel] = waiting + 1
        self._nursery.start_soon(self._finish, channel, request, work)

    async def _finish(
        self, channel: Channel, request: RemotingCommand, work: Coroutine[Any, Any, Answer]
    ) -> None:
        try:
            await self._answer(channel, request, work)
        except Exception as fault:
            channel.end_by_fault(fault)

    async def _answer(
        self, channel: Channel, request: RemotingCommand, work: Coroutine[Any, Any, Answer]
    ) -> None:
        try:
            answer = await work
        except Exception as fault:
            answer = _failure(channel, request, fault)
        finally:
            # Also after a cancel: a place that is not given back is lost until the server ends.
            self.waiting_count -= 1
            self._waiting_of[channel] -= 1
            if not self._waiting_of[channel]:
                del self._waiting_of[channel]
        if answer is not None:
            _cut_folders(request, answer)
            if not request.is_oneway:
                channel.reply(answer)


def _cut_folders(request: RemotingCommand, answer: RemotingCommand) -> None:
    if request.user is None and answer.remark is not None and "/" in answer.remark:
        answer.remark = _FOLDERS.sub("", answer.remark)


def answer_of(channel: Channel, request: RemotingCommand, work: Callable[[], Answer]) -> Answer:
    """Return the answer of `work` to a request that has waited; an exception becomes an error answer."""
    try:
        return work()
    except Exception as fault:
        return _failure(channel, request, fault)


def not_supported(channel: Channel, request: RemotingCommand) -> RemotingCommand:
    """Answer a code that no processor answers."""
    return request.response(
        code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED,
        remark=f" request type {request.code} not supported",
    )


def _failure(channel: Channel, request: RemotingCommand, fault: Exception) -> RemotingCommand:
    """Return the answer for an exception: an Error says what to answer, any other exception is a bug and is logged."""
    if isinstance(fault, Error):
        code = ResponseCode.SYSTEM_ERROR if fault.code is None else fault.code
        return request.response(code=code, remark=fault.remark or fault.what)
    # The text of a bug may hold what the sender must not see: only the log has it, under the same number.
    number = crc32(repr(fault).encode(errors="replace"))
    log.error(
        "a processor failed request=%s peer=%s fault=%08x",
        code_name(request.code, RequestCode),
        channel.remote_addr,
        number,
        exc_info=fault,
    )
    remark = f"{type(fault).__name__}, which the log has as fault={number:08x}"
    return request.response(code=ResponseCode.SYSTEM_ERROR, remark=remark)
