"""The progress of a broadcasting consumer: every member keeps its own, in a local file, in Java's location and format.

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json    and offsets.json.bak, its former content

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}

After Java's table comes a rocketrio table with the log epochs of the offsets (`rocketrioEpochs`), if brokers reported
them: a member that starts again also goes back if the log became shorter meanwhile.

Invariant: a stored offset never goes back unless it is reset, or the log became shorter.
Invariant: the file, and folders made for it, are readable by this user only; no client id leads out of the first
folder.
Invariant: a reader always finds one whole table: a new one is written beside it and then renamed.
Answers to: LocalFileOffsetStore, OffsetSerializeWrapper.
Unlike Java: offsets of queues that disappear for a while are kept, and the file is never half written. As in Java it
is not synced: after a power cut messages may come again.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import msgspec

from rocketrio.cluster.api import NOT_FOUND
from rocketrio.consuming.offsets import CommitRefusedError, PullCommit, StoredOffset
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import by_queue
from rocketrio_protocol.errors import ConfigError, Error, ProtocolError
from rocketrio_protocol.message import MessageQueue

OFFSETS_FOLDER: Final = ".rocketmq_offsets"
JAVA_INSTANCE: Final = "DEFAULT"
"""The instance name of a Java client that broadcasts."""

logger = logging.getLogger("rocketrio.offsets")


@attrs.define(eq=False)
class LocalFileOffsetStore:
    """One group's offsets on this machine."""

    file: "OffsetFile"
    _table: dict[MessageQueue, int] = attrs.Factory(dict)
    _stored: dict[MessageQueue, int] = attrs.Factory(dict)
    _epochs: dict[MessageQueue, str] = attrs.Factory(dict)
    _stored_epochs: dict[MessageQueue, str] = attrs.Factory(dict)

    @classmethod
    def load(cls, file: "OffsetFile", *, ignore_unreadable: bool = False) -> "LocalFileOffsetStore":
        """Load the store from the file. Raises ConfigError if it cannot be read, unless that is to be ignored."""
        try:
            stored, epochs = file.read_all()
        except ConfigError:
            if not ignore_unreadable:
                raise
            stored, epochs = {}, {}
        return cls(file, dict(stored), stored, epochs, dict(epochs))

    @property
    def offset_table(self) -> dict[MessageQueue, int]:
        """The noted offsets by queue."""
        return dict(self._table)

    async def read_offset(self, queue: MessageQueue, *, zero_if_young: bool) -> StoredOffset:
        """Return the noted offset, or NOT_FOUND also for a young queue: no broker decides where it begins."""
        return StoredOffset(self._table.get(queue, NOT_FOUND), epoch=self._epochs.get(queue))

    async def committed(self, queue: MessageQueue) -> StoredOffset:
        """Return the offset that the file holds."""
        return StoredOffset(self._stored.get(queue, NOT_FOUND))

    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Note progress; a lower offset than before is ignored."""
        self._table[queue] = max(offset, self._table.get(queue, offset))

    def reset_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set an offset deliberately, even a lower one."""
        self._table[queue] = offset
        self._epochs.pop(queue, None)

    def with_pull(self, queue: MessageQueue, addr: str) -> PullCommit | None:
        """Return None: pulls carry no progress to brokers."""
        return None

    def epoch(self, queue: MessageQueue) -> str | None:
        """Return the log epoch that the position belongs to; None if no broker reported one."""
        return self._epochs.get(queue)

    def set_epoch(self, queue: MessageQueue, epoch: str | None) -> None:
        """Note the log epoch that the position belongs to, if the broker reported one."""
        if epoch is not None:
            self._epochs[queue] = epoch

    def cut(self, queue: MessageQueue, offset: int) -> None:
        """Lower the noted offset to `offset`, because the log became shorter."""
        if queue in self._table:
            self._table[queue] = min(offset, self._table[queue])

    def lose(self, queue: MessageQueue) -> None:
        """Do nothing: the file has no other member's progress."""

    def remove_offset(self, queue: MessageQueue) -> None:
        """Do nothing: a queue that comes back continues where it was."""

    def overruled(self, queue: MessageQueue) -> CommitRefusedError | None:
        """Return None: operators do not reset files."""
        return None

    def is_void(self, queue: MessageQueue) -> bool:
        """Return False: brokers do not delete files."""
        return False

    def dropped_commits(self, queue: MessageQueue) -> int:
        """Return 0: no broker drops what is written to a file."""
        return 0

    async def standing(self, queue: MessageQueue) -> StoredOffset:
        """Return NOT_FOUND: what the file has is of the earlier topic."""
        return StoredOffset(NOT_FOUND)

    def claim_again(self, queue: MessageQueue) -> None:
        """Do nothing: a file is not claimed."""

    def begin_again(self, queue: MessageQueue, offset: int) -> None:
        """Note the offset in a queue that was created again."""
        self.reset_offset(queue, offset)

    def doubt_all(self) -> None:
        """Do nothing: no other process writes the file."""

    async def persist(self, queue: MessageQueue) -> None:
        """Write the file if it has changed. Raises Error."""
        # The same offset may count messages of another log, or of a topic that was created again.
        if self._table != self._stored or self._epochs != self._stored_epochs:
            table, epochs = dict(self._table), dict(self._epochs)
            # The copies are taken before, and noted after: a write that fails is tried again with the next commit.
            self.file.write(table, epochs)
            self._stored, self._stored_epochs = table, epochs

    async def persist_all(self, queues: list[MessageQueue]) -> list[Error]:
        """Write the file once for all queues; return its error, if any."""
        try:
            for queue in queues[:1]:
                await self.persist(queue)
        except Error as error:
            return [error]
        return []

    async def persist_committed(self) -> list[Error]:
        """Do nothing: a file does not lose offsets."""
        return []

    async def commit_to_masters(self) -> list[Error]:
        """Do nothing: no broker is involved."""
        return []


def default_offsets_path(client_id: str, group: str) -> Path:
    """Return Java's path for the file. A random client id is replaced by the one that Java would use.

    Raises ConfigError for a client id that would lead out of the folder.
    """
    if "#" in client_id:
        client_id = f"{client_id.partition('@')[0]}@{JAVA_INSTANCE}"
    if client_id in ("", ".", "..") or "/" in client_id or "\0" in client_id:
        raise ConfigError(
            f"offsets cannot be kept under {client_id=}, which can be no folder's name",
            remedy="Give another client_id=, or the file's place as offsets_path=",
        )
    return Path.home() / OFFSETS_FOLDER / client_id / group / "offsets.json"


def _make_folder(path: Path) -> None:
    """Make a folder and its parents, accessible to this user only; an existing folder is not changed."""
    if not path.is_dir():
        _make_folder(path.parent)
        path.mkdir(0o700, exist_ok=True)


def _open_for_us(path: str, flags: int) -> int:
    # Through a link that another user has put there this would write to any file of this user.
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


class _Written(msgspec.Struct, rename="camel"):
    offset_table: dict[MessageQueue, int]
    rocketrio_epochs: dict[MessageQueue, str] | msgspec.UnsetType = msgspec.UNSET


class _Read(msgspec.Struct, rename="camel"):
    offset_table: dict[str, int] = {}
    rocketrio_epochs: dict[str, str] = {}


@attrs.frozen
class OffsetFile:
    """One offset file and its backup."""

    path: Path

    def read(self) -> dict[MessageQueue, int]:
        """Return the offsets without their epochs."""
        offsets, _ = self.read_all()
        return offsets

    def read_all(self) -> tuple[dict[MessageQueue, int], dict[MessageQueue, str]]:
        """Return offsets and their epochs, none without a file. Raises ConfigError if neither file can be read.

        An empty file is a missing one: a power cut leaves it of the first write, before which there were no offsets.
        """
        problem: Exception | None = None
        for path in (self.path, self._backup):
            try:
                text = path.read_bytes()
                if not text:
                    continue
                kept = fastjson.loads(text, _Read, what="offsets")
                return by_queue(kept.offset_table), by_queue(kept.rocketrio_epochs)
            except FileNotFoundError:
                continue
            except (OSError, ProtocolError) as error:
                problem = error
                logger.warning("offsets cannot be read path=%s error=%s", path, error)
        if problem is None:
            return {}, {}
        raise ConfigError(
            f"the offsets in {self.path} cannot be read: {problem}",
            remedy="Repair the file; or give ignore_unreadable_offsets=True to begin where start_from says",
        ) from problem

    def write(
        self, offsets: Mapping[MessageQueue, int], epochs: Mapping[MessageQueue, str]
    ) -> None:
        """Replace both tables. Raises Error if the file cannot be written."""
        kept = _Written(dict(offsets), dict(epochs) or msgspec.UNSET)
        fresh = self.path.with_name(f"{self.path.name}.tmp")
        try:
            _make_folder(self.path.parent)
            with open(fresh, "wb", opener=_open_for_us) as file:
                file.write(fastjson.dumps(kept))
            # The former table becomes the backup first: between the two renames a reader finds that one.
            if self.path.exists():
                os.replace(self.path, self._backup)
            os.replace(fresh, self.path)
        except OSError as error:
            raise Error(
                f"offsets not written to {self.path}: {error}",
                remedy="Give a place that can be written as offsets_path=",
            ) from error

    @property
    def _backup(self) -> Path:
        return self.path.with_name(f"{self.path.name}.bak")
