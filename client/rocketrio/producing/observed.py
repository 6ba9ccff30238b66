"""The calls of a producer whose client has hooks: each is entered, sends what the hook returns, and notes the answer.

Invariant: the user's message objects are not changed.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import attrs

from rocketrio.hooks import SendCall, Sending
from rocketrio.producing.outgoing import Outgoing
from rocketrio.producing.send_result import SendResult
from rocketrio.producing.sender import MessageSender
from rocketrio_protocol.message import Message, MessageQueue


@attrs.frozen
class Unobserved:
    """What a call without hooks gets in place of a hook's `Sending`."""

    messages: Sequence[Message]

    def encoded(self, message_ids: Sequence[str]) -> None:
        """Do nothing."""

    def stored(self, result: SendResult) -> None:
        """Do nothing."""


@contextmanager
def observing(sender: MessageSender, call: SendCall) -> Iterator[Sending]:
    """Enter a call, with or without hooks; for calls in which this costs little."""
    if sender.hooks is None:
        yield Unobserved(call.messages)
    else:
        with sender.hooks.sending(call) as sending:
            yield sending


async def observed_send(
    sender: MessageSender,
    message: Message,
    sharding_key: str | None,
    queue: MessageQueue | None,
    timeout: float | None,
    *,
    is_copy: bool = False,
) -> SendResult:
    """Send one message as `Producer.send`."""
    assert sender.hooks is not None
    call = SendCall(
        client=sender.client, messages=[message], sharding_key=sharding_key, is_copy=is_copy
    )
    with sender.hooks.sending(call) as sending:
        outgoing = sender.encode(sending.messages[0])
        sending.encoded(outgoing.message_ids)
        result = await sender.send(outgoing, sharding_key, queue, timeout)
        sending.stored(result)
    return result


async def observed_batch(
    sender: MessageSender,
    messages: Sequence[Message],
    sharding_key: str | None,
    queue: MessageQueue | None,
    timeout: float | None,
) -> SendResult:
    """Send messages together as `Producer.send_batch`."""
    assert sender.hooks is not None
    call = SendCall(
        client=sender.client, messages=messages, kind="batch", sharding_key=sharding_key
    )
    with sender.hooks.sending(call) as sending:
        outgoing = sender.encode_batch(sending.messages)
        sending.encoded(outgoing.message_ids)
        result = await sender.send(outgoing, sharding_key, queue, timeout)
        sending.stored(result)
    return result


async def observed_oneway(
    sender: MessageSender, message: Message, sharding_key: str | None, queue: MessageQueue | None
) -> None:
    """Send one message as `Producer.send_oneway`."""
    assert sender.hooks is not None
    call = SendCall(client=sender.client, messages=[message], sharding_key=sharding_key)
    with sender.hooks.sending(call) as sending:
        outgoing = sender.encode(sending.messages[0])
        sending.encoded(outgoing.message_ids)
        await sender.send_oneway(outgoing, sharding_key, queue)


async def observed_attempt(
    sender: MessageSender, queue: MessageQueue, messages: Sequence[Message], outgoing: Outgoing
) -> SendResult:
    """Send a request of a pipeline to its queue, once."""
    assert sender.hooks is not None
    call = SendCall(client=sender.client, messages=messages, kind="pipeline")
    with sender.hooks.sending(call) as sending:
        sending.encoded(outgoing.message_ids)
        result = await sender.send_to(queue, outgoing, sender.timeout)
        sending.stored(result)
    return result
