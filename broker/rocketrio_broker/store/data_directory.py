"""The data directory of a store: its layout, its lock, and whether it was closed cleanly.

    commitlog/  consumequeue/<topic>/<queue id>/  index/  config/  checkpoint  abort  lock
    rocketrioQueues  rocketrioEpochs  rocketrioAcknowledged  cut/

Invariant: `abort` exists from before the first change until everything is synced: if it is there at a start, the last
process crashed.
Invariant: only one process has locked `lock`.
Invariant: it contains no symbolic links: the files in it are files, and the folders are folders.
Answers to: StorePathConfigHelper, DefaultMessageStore.start's lock and its abort file.
"""

import logging
from pathlib import Path
from typing import Final

from rocketrio_broker.store.disk import Disk, Lock
from rocketrio_broker.store.errors import StoreLinkedError, StoreLockedError

_LOG: Final = logging.getLogger("rocketrio_broker.store")


class DataDirectory:
    """The root folder of one broker's data."""

    def __init__(self, root: Path, *, disk: Disk) -> None:
        self.root = root
        self.commit_log = root / "commitlog"
        self.consume_queue = root / "consumequeue"
        self.index = root / "index"
        self.checkpoint = root / "checkpoint"
        self.cut = root / "cut"
        """The folder of log ends that were cut off to follow a master."""
        self._abort = root / "abort"
        self._lock_path = root / "lock"
        self._disk = disk
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<DataDirectory {self.root}>"

    def take(self) -> None:
        """Lock the directory; make it if there is none. Raises `StoreLockedError` or `StoreLinkedError`."""
        self._disk.make_directory(self.root)
        # Before the lock file is opened: a link could lead to any file of this machine.
        self._refuse_links(self.root)
        try:
            self._lock = self._disk.lock(self._lock_path)
        except BlockingIOError as error:
            raise StoreLockedError(
                f"the data directory {self.root} is in use by another broker"
            ) from error

    def check(self) -> None:
        """Raise `StoreLinkedError` if a folder contains a link; warn if other users can read the directory. Blocks."""
        disk = self._disk
        for name in disk.list_directory(self.root):
            self._refuse_links(self.root / name)
        for topic in disk.list_directory(self.consume_queue):
            self._refuse_links(self.consume_queue / topic)
        if disk.is_open_to_others(self.root):
            _LOG.warning(
                "other users of this machine can read the data directory path=%s remedy=%s",
                self.root, f"chmod 700 {self.root}",
            )  # fmt: skip

    def _refuse_links(self, folder: Path) -> None:
        for name in self._disk.links_in(folder):
            raise StoreLinkedError(f"{folder / name} is a symbolic link")

    @property
    def crashed(self) -> bool:
        """Whether the process that last used the directory did not close it cleanly."""
        return self._disk.exists(self._abort)

    def mark_running(self) -> None:
        for folder in (self.commit_log, self.consume_queue, self.index):
            self._disk.make_directory(folder)
        # Synced before anything is changed: after a power cut a torn log without
        # this mark would be taken for a clean one.
        self._disk.open(self._abort, create=True).close()
        self._disk.sync_directory(self.root)

    def mark_clean(self) -> None:
        self._disk.unlink(self._abort)
        self._disk.sync_directory(self.root)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
