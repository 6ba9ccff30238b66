"""Sends dead letters again at a rate, and remembers in a file what was sent: an interrupted run is continued.

    {"resend": "billing", "to": "group"}
    {"sending": "broker-a/0/12 0A00…"}      written to the disk before the message is sent
    {"sent": "broker-a/0/12 0A00…"}         after the broker has confirmed it; `refused` if it certainly is not stored

A message that is `sending` and nothing else was under way when the run ended: whether the broker has it is unknown. It
is not sent again, and is reported as doubtful.

Invariant: with a state file no message is sent twice, however often a run is interrupted and continued.
"""

import json
import os
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Iterator
from contextlib import aclosing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

import attrs
import trio

from rocketrio.admin.dead_letters import DeadLetters, ResendTo
from rocketrio.producing.produce import open_producer
from rocketrio.producing.producer import Producer, send_copy
from rocketrio.producing.sender import SEND_RETRIES
from rocketrio_protocol.errors import BrokerError, ConfigError, Error, LocalProtocolError
from rocketrio_protocol.message import MessageExt

Chooses = Callable[[MessageExt], bool]


def chooses(where: str) -> Chooses:
    """Return a function that checks messages by an SQL92 expression over their properties. Raises ConfigError."""
    # The parser takes as long to import as all else that a command needs.
    from rocketrio_protocol.filter.sql92 import compile_sql92

    try:
        matches = compile_sql92(where)
    except Error as error:
        raise ConfigError(f"{where!r} is not an SQL92 expression: {error.what}") from error
    return lambda message: matches(message.stored_properties)


# ------------------------------------------------------------------------------------------- journal


@attrs.frozen
class JournalState:
    """What a journal says."""

    head: str | None
    """Its first line; None if there is none yet."""
    finished: Collection[str]
    """The messages that were sent."""
    doubtful: Collection[str]
    """Those that were under way when a run ended."""
    size: int
    """The bytes of its whole lines; a torn one follows."""


def journal_state(data: bytes) -> JournalState:
    """Return what the bytes of a journal say; a torn last line says nothing. Raises ConfigError for another file."""
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").splitlines()
    state: dict[str, str] = {}
    for line in lines[1:]:
        try:
            [(word, key)] = json.loads(line).items()
        except (ValueError, AttributeError) as error:
            raise ConfigError(f"{line[:60]!r} is not a line of a state of `resend`") from error
        state[key] = word
    return JournalState(
        lines[0] if lines else None,
        {key for key, word in state.items() if word == "sent"},
        {key for key, word in state.items() if word == "sending"},
        len(whole),
    )


@attrs.define
class Journal:
    """An open journal; `open_journal` makes it."""

    file: BinaryIO
    state: JournalState

    def write(self, word: str, key: str) -> None:
        """Append a line, and wait until the disk has it."""
        self._append(json.dumps({word: key}))

    def begin(self, head: str, *, dry_run: bool = False) -> None:
        """Write the first line, but not in a dry run. Raises ConfigError if the file is of another resend."""
        if self.state.head is None:
            if not dry_run:
                self._append(head)
        elif self.state.head != head:
            raise ConfigError(
                f"the state file belongs to {self.state.head}, and not to {head}",
                remedy="Name another file",
            )

    def _append(self, line: str) -> None:
        self.file.write(f"{line}\n".encode())
        self.file.flush()
        os.fsync(self.file.fileno())


@contextmanager
def open_journal(path: Path) -> Iterator[Journal]:
    """Open or create a journal for one process. Raises ConfigError if another one has it, or it is another file."""
    with path.open("ab+") as file:
        _lock(file, path)
        file.seek(0)
        state = journal_state(file.read())
        file.truncate(state.size)
        yield Journal(file, state)


def _lock(file: BinaryIO, path: Path) -> None:
    try:
        import fcntl
    except ImportError:
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(f"another process uses {path} now", remedy="Wait for it") from error


def key_of(message: MessageExt) -> str:
    """Return the text that identifies a dead letter in a journal."""
    return f"{message.broker_name}/{message.queue_id}/{message.queue_offset} {message.message_id}"


# -------------------------------------------------------------------------------------------- resend


@attrs.frozen
class Resent:
    """What became of one dead letter."""

    message: MessageExt
    outcome: str
    """`sent`; `would be sent` in a dry run; `sent before` or `doubtful` by the journal; `unreadable`, see `body_error`
    of the message: it is not sent."""


async def resend(
    letters: DeadLetters,
    messages: Iterable[MessageExt] | None = None,
    *,
    report: Callable[[Resent], None],
    to: ResendTo = "group",
    since: datetime | None = None,
    where: Chooses | None = None,
    rate: float | None = None,
    journal: Journal | None = None,
    dry_run: bool = False,
) -> None:
    """Send dead letters again, all of them or `messages`, one after the other; `report` gets what became of each.

    `since` and `where` choose among them, `rate` limits the messages a second. With a `journal` those that it names
    are omitted, and so are those whose body cannot be read. Raises the error of the first that could not be sent; it is
    doubtful then if no broker answered. After a cancel the message under way is finished first.
    """
    if rate is not None and not rate > 0:
        raise ConfigError(f"rate={rate} is not a number of messages a second")
    if journal is not None:
        journal.begin(json.dumps({"resend": letters.group, "to": to}), dry_run=dry_run)
    next_at = trio.current_time()
    # A second try after a timeout could store the message twice.
    retries = SEND_RETRIES if journal is None else 0
    async with (
        open_producer(client=letters.client, retries=retries) as producer,
        aclosing(_chosen(letters, messages, since, where)) as chosen,
    ):
        async for message in chosen:
            known = None if journal is None else _known(journal, key_of(message))
            if known is None and message.body_error is not None:
                known = "unreadable"
            if known is not None or dry_run:
                report(Resent(message, known or "would be sent"))
                continue
            if rate is not None:
                await trio.sleep_until(next_at)
                next_at = max(next_at, trio.current_time() - 1) + 1 / rate
            await trio.lowlevel.checkpoint()
            # A cancel in the middle would leave the message doubtful; a send ends within its timeout.
            with trio.CancelScope(shield=journal is not None):
                await _send(producer, letters, message, to, journal)
            report(Resent(message, "sent"))


async def _send(
    producer: Producer,
    letters: DeadLetters,
    message: MessageExt,
    to: ResendTo,
    journal: Journal | None,
) -> None:
    if journal is None:
        await send_copy(producer, letters.copy(message, to))
        return
    journal.write("sending", key_of(message))
    try:
        await send_copy(producer, letters.copy(message, to))
    except (BrokerError, LocalProtocolError):
        journal.write("refused", key_of(message))
        raise
    journal.write("sent", key_of(message))


async def _chosen(
    letters: DeadLetters,
    messages: Iterable[MessageExt] | None,
    since: datetime | None,
    where: Chooses | None,
) -> AsyncGenerator[MessageExt]:
    if messages is not None:
        for message in messages:
            if where is None or where(message):
                yield message
        return
    async with aclosing(letters.pages(since=since)) as pages:
        async for page in pages:
            for message in page:
                if where is None or where(message):
                    yield message


def _known(journal: Journal, key: str) -> str | None:
    if key in journal.state.finished:
        return "sent before"
    return "doubtful" if key in journal.state.doubtful else None
