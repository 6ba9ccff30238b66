"""The command `rocketrio produce --transaction-check`: half messages, and one answer to the broker's checks of them.

    each line ------- half message ------> broker      consumers do not see it
    its decision ---- never sent
    the broker ------ 39 check ----------> here        after its transaction timeout, 6 s by default
    the answer ------ 37 commit ... -----> broker      delivered, dropped, or asked for again

With it an operator sees that a broker asks, and what consumers get then. The producer group belongs to this run alone,
because a broker asks any producer of a group.
"""

from __future__ import annotations

import sys
import uuid
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import attrs
import click
import trio

from rocketrio.cli.json_values import json_text
from rocketrio.cli.outages import reporting_outages
from rocketrio.cli.progress import showing_progress
from rocketrio.cli.shell import fail
from rocketrio.counts import counted
from rocketrio.producing.transaction_checks import TransactionState
from rocketrio_protocol.errors import Error

if TYPE_CHECKING:
    from rocketrio.connect import ClientOptions
    from rocketrio_protocol.message import Message, MessageExt


@attrs.define
class _HalfMessages:
    """The half messages that were sent, and those among them that the broker has asked for."""

    answer: TransactionState
    stored: int = 0
    asked: int = 0
    """The number of half messages that the broker has asked for."""
    _open: set[str] = attrs.Factory(set)
    """The ids of those that the broker has not asked for yet."""
    _changed: trio.Event = attrs.Factory(trio.Event)

    def sent(self, message_id: str) -> None:
        self.stored += 1
        self._open.add(message_id)

    async def check(self, message: MessageExt) -> TransactionState:
        if message.message_id in self._open:
            self._open.remove(message.message_id)
            self.asked += 1
            self._changed.set()
        return self.answer

    async def all_asked(self) -> None:
        while self._open:
            self._changed = trio.Event()
            await self._changed.wait()


async def produce_half_messages(
    topic: str,
    messages: AsyncIterator[Message],
    answer: TransactionState,
    client: ClientOptions,
    *,
    auto_create_topic: bool,
    sharding_key: str | None,
    as_json: bool,
) -> None:
    """Send each message as a half message, and wait until the broker has asked for all of them.

    A message that cannot be stored ends the sending, and the exit code is 1 then; those before it are waited for. The
    summary is printed after an interrupt too.
    """
    from rocketrio.producing.produce import open_producer

    halves, failure = _HalfMessages(answer), None
    started = trio.current_time()
    group = f"rocketrio-produce-{uuid.uuid4().hex}"
    async with (
        open_producer(
            **client,
            group=group,
            auto_create_topic=auto_create_topic,
            check_transaction=halves.check,
        ) as producer,
        reporting_outages(producer.client, topic, writes=True),
        showing_progress(
            f"half messages of {topic}: asked for",
            lambda: halves.asked,
            when=not (sys.stdin and sys.stdin.isatty()),
        ),
    ):
        try:
            try:
                async for message in messages:
                    async with producer.transaction(message, sharding_key=sharding_key) as half:
                        halves.sent(half.message_id)
                        half.leave_open()
            except Error as error:
                failure = error
            if halves.stored:
                click.echo(
                    f"stored {counted(halves.stored, 'half message')}; waiting until the broker asks for them: "
                    "by default a minute at most",
                    err=True,
                )
            await halves.all_asked()
            # The answers were written before the farewell that closing waits for.
        finally:
            _summarise(topic, halves, trio.current_time() - started, as_json=as_json)
    if failure is not None:
        fail(f"message {halves.stored + 1} was not stored, and none was sent after it: {failure}")


def _summarise(topic: str, halves: _HalfMessages, seconds: float, *, as_json: bool) -> None:
    answer = halves.answer.name.lower()
    if as_json:
        click.echo(
            json_text(
                {
                    "topic": topic,
                    "stored": halves.stored,
                    "asked": halves.asked,
                    "answer": answer,
                    "seconds": round(seconds, 3),
                }
            )
        )
        return
    click.echo(
        f"stored {counted(halves.stored, 'half message')} in {topic}; the broker asked for {halves.asked} of them, "
        f"and was answered {answer}"
    )
