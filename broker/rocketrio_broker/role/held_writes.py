"""Holds requests that write while a hand-over decides which broker answers them.

Once it is decided, they are answered here in the order in which they came: stored if this broker remains the master,
otherwise refused with SERVICE_NOT_AVAILABLE (14); then the client asks for the route and finds the new master.

Invariant: a held request has not been executed yet.
Answers to: nothing of Java's.
"""

from collections.abc import Coroutine, Mapping
from functools import partial
from typing import Any, Final

import trio

from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import Answer, Processor, answer_of

HELD_LIMIT: Final = 10_000
"""The most requests held at once, as many as answers may wait (WAITING_ANSWERS_LIMIT); further ones are refused as
busy."""

WRITE_CODES: Final = (
    RequestCode.SEND_MESSAGE,
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.CONSUMER_SEND_MSG_BACK,
    RequestCode.END_TRANSACTION,
    RequestCode.UPDATE_AND_CREATE_TOPIC,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
    RequestCode.DELETE_TOPIC_IN_BROKER,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST,
    RequestCode.DELETE_SUBSCRIPTIONGROUP,
    RequestCode.LOCK_BATCH_MQ,
)


class HeldWrites:
    """The held requests of one broker."""

    def __init__(self) -> None:
        self._tables: list[tuple[dict[int, Processor], Mapping[int, Processor]]] = []
        self._held: list[tuple[Channel, RemotingCommand, Processor]] = []
        self._nursery: trio.Nursery

    def __repr__(self) -> str:
        return f"<HeldWrites {len(self)}>"

    def __len__(self) -> int:
        return len(self._held)

    async def run(self, *, task_status: trio.TaskStatus[None]) -> None:
        """Run the processors that await, until cancelled; what is still held then gets no answer."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            try:
                await trio.sleep_forever()
            finally:
                self._held.clear()

    def over(self, table: Mapping[int, Processor]) -> dict[int, Processor]:
        """Return a copy of the table, in which `hold` replaces the processors of requests that write."""
        own = dict(table)
        self._tables.append((own, table))
        return own

    def hold(self) -> None:
        """Hold requests that write from now on."""
        for own, table in self._tables:
            own |= {code: partial(self._hold, table[code]) for code in WRITE_CODES if code in table}

    def release(self) -> None:
        """Execute the held requests, and later ones immediately."""
        for own, table in self._tables:
            own |= table
        held, self._held = self._held, []
        for channel, request, processor in held:
            answer = answer_of(channel, request, partial(processor, channel, request))  # type: ignore[arg-type]
            if isinstance(answer, Coroutine):
                self._nursery.start_soon(self._finish, channel, request, answer)
            elif answer is not None and not request.is_oneway:
                channel.reply(answer)

    async def _finish(
        self, channel: Channel, request: RemotingCommand, work: Coroutine[Any, Any, Answer]
    ) -> None:
        try:
            answer = await work
        except Exception as fault:
            answer = answer_of(channel, request, partial(_raise, fault))
        if answer is not None and not request.is_oneway:
            channel.reply(answer)

    def _hold(self, processor: Processor, channel: Channel, request: RemotingCommand) -> Answer:
        if len(self._held) >= HELD_LIMIT:
            return request.response(
                code=ResponseCode.SYSTEM_BUSY,
                remark=f"[OVERLOAD]{HELD_LIMIT} requests wait for a hand-over already, try later",
            )
        self._held.append((channel, request, processor))
        return None


def _raise(fault: Exception) -> Answer:
    raise fault
