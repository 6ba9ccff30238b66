"""Records in a file what a run of `DeadLetters.resend_all` has sent, so that an interrupted run can continue.

    {"resend": "billing", "to": "group"}
    {"sending": "broker-a/0/12 0A00…"}      written to the disk before the message is sent
    {"sent": "broker-a/0/12 0A00…"}         after the broker has confirmed it; `refused` if it certainly is not stored

A message that is `sending` and nothing else was under way when the run ended: whether the broker has it is unknown. It
is not sent again, and is reported as doubtful.

Invariant: with a state file no message is sent twice, however often a run is interrupted and continued.
"""

import json
import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import attrs

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.message import MessageExt


@attrs.frozen
class JournalState:
    """The content of a journal."""

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
