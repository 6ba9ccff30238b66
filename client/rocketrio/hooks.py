"""What a client calls at each step of a message, so that a library can observe it: `rocketrio.otel` makes spans there.

    send, batch, pipeline     sending          the calls that store messages, and the copies that they send
    receive                   receiving        from the call until messages are given
    run, check_transaction    handler          around the user's function
    retry, failed handlers    settling         a message goes back to its group
    end of a transaction      ending           the decision goes to the broker

Invariant: without hooks each step costs one comparison with None.
Invariant: a client keeps the hooks that were installed when it was opened.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from typing import Literal, Protocol, TypeAlias, TypeVar

import attrs

from rocketrio.cluster.namespace import Namespace
from rocketrio.producing.send_result import SendResult
from rocketrio.routing import Router
from rocketrio_protocol.message import Message, MessageExt, MessageQueue

SendKind: TypeAlias = Literal["single", "batch", "pipeline"]
Model: TypeAlias = Literal["clustering", "broadcasting"]
Given = TypeVar("Given", MessageExt, list[MessageExt])


class Client(Protocol):
    """A client, as far as observers need it."""

    client_id: str
    namespace: Namespace
    routing: Router


@attrs.frozen(kw_only=True)
class SendCall:
    """One call that stores messages."""

    client: Client
    messages: Sequence[Message]
    """The user's messages; those of a pipeline went through `Hooks.pipelined` already."""
    kind: SendKind = "single"
    sharding_key: str | None = None
    is_transaction: bool = False
    conversation_id: str | None = None
    """Of a request or a reply."""
    is_copy: bool = False
    """Whether the message is a copy of a stored one, which is sent again: its context is that of the first send."""


class Sending(Protocol):
    """A call that is under way."""

    @property
    def messages(self) -> Sequence[Message]:
        """The messages to send: copies where properties were added."""
        ...

    def encoded(self, message_ids: Sequence[str]) -> None:
        """Note the ids that the messages got."""
        ...

    def stored(self, result: SendResult) -> None:
        """Note where they are stored."""
        ...


@attrs.frozen
class Reader:
    """A consumer, as far as observers need it."""

    client: Client
    group: str
    model: Model | None = None
    """None for what reads without being a consumer."""
    pulled_from: Callable[[MessageQueue], tuple[str, int] | None] = lambda queue: None
    """Return the address and the id of the broker that a queue was pulled from last."""


Received: TypeAlias = Callable[[Sequence[MessageExt]], None]
"""Called with the messages that a receive gives."""


class Hooks(Protocol):
    """The calls; none of them may wait, and none may raise."""

    def sending(self, call: SendCall) -> AbstractContextManager[Sending]:
        """Enter a call that stores messages, until it is answered."""
        ...

    def pipelined(self, client: Client, message: Message) -> Message:
        """Return the message that a pipeline sends for the user's."""
        ...

    def receiving(self, reader: Reader) -> Received:
        """Begin to receive."""
        ...

    def handler(
        self, reader: Reader, handler: Callable[[Given], Awaitable[object]]
    ) -> Callable[[Given], Awaitable[object]]:
        """Return the handler to call in place of a user's."""
        ...

    def checking(self, reader: Reader, message: MessageExt) -> AbstractContextManager[None]:
        """Enter a call of `check_transaction`."""
        ...

    def settling(
        self, reader: Reader, message: MessageExt, *, is_dead: bool
    ) -> AbstractContextManager[None]:
        """Enter a call that hands a message back to its group, or makes it a dead letter."""
        ...

    def committing(
        self, reader: Reader, queues: Sequence[MessageQueue]
    ) -> AbstractContextManager[None]:
        """Enter a commit of offsets that the user has called."""
        ...

    def ending(
        self, client: Client, message: Message, message_id: str, state: str
    ) -> AbstractContextManager[None]:
        """Enter a call that sends the decision of a transaction; `message` is the half message as it was sent."""
        ...


_installed: list[Hooks] = []
"""At most one. Of the process, because `opentelemetry-instrument` knows no client."""


def install(hooks: Hooks | None) -> None:
    """Let clients that are opened from now on use these hooks, or none."""
    _installed[:] = [] if hooks is None else [hooks]


def installed() -> Hooks | None:
    """Return the hooks for a new client."""
    return _installed[0] if _installed else None
