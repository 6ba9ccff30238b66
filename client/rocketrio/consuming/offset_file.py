"""The file in which a broadcasting consumer keeps its offsets, in Java's location and format.

    ~/.rocketmq_offsets/<client id>/<group>/offsets.json    and offsets.json.bak, its former content

    {"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:12}}

After Java's table comes a rocketrio table with the log epochs of the offsets (`rocketrioEpochs`), if brokers reported
them: a member that starts again also goes back if the log became shorter meanwhile.

Invariant: the file, and folders made for it, are readable by this user only; no client id leads out of the first
folder.
Invariant: a reader always finds one whole table: a new one is written beside it and then renamed.
Answers to: LocalFileOffsetStore, OffsetSerializeWrapper.
Unlike Java: the file is never half written. As in Java it is not synced: after a power cut messages may come again.
"""

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import msgspec

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import by_queue
from rocketrio_protocol.errors import ConfigError, Error, ProtocolError
from rocketrio_protocol.message import MessageQueue

OFFSETS_FOLDER: Final = ".rocketmq_offsets"
JAVA_INSTANCE: Final = "DEFAULT"
"""The instance name of a Java client that broadcasts."""

logger = logging.getLogger("rocketrio.offsets")


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
        """Return offsets and their epochs; empty without a file. Raises ConfigError if neither file can be read."""
        problem: Exception | None = None
        for path in (self.path, self._backup):
            try:
                text = path.read_bytes()
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
            remedy="Repair the file, or remove it and its .bak to begin where start_from says",
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
