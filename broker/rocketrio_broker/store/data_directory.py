"""What lies where under the root of a store, who holds it, and whether it was left in order.

    commitlog/  consumequeue/<topic>/<queue id>/  index/  config/  checkpoint  abort  lock  cut/

Invariant: `abort` exists from before the first change until everything is synced: present at start = crashed.
Invariant: one process holds `lock`.
Answers to: StorePathConfigHelper, DefaultMessageStore.start's lock and its abort file.
"""

from pathlib import Path

from rocketrio_broker.store.disk import Disk, Lock
from rocketrio_broker.store.errors import StoreLockedError


class DataDirectory:
    """The root folder of one broker's data."""

    def __init__(self, root: Path, *, disk: Disk) -> None:
        self.root = root
        self.commit_log = root / "commitlog"
        self.consume_queue = root / "consumequeue"
        self.index = root / "index"
        self.checkpoint = root / "checkpoint"
        self.cut = root / "cut"
        """Ends of the log that were cut off to follow a master."""
        self._abort = root / "abort"
        self._lock_path = root / "lock"
        self._disk = disk
        self._lock: Lock | None = None

    def __repr__(self) -> str:
        return f"<DataDirectory {self.root}>"

    def take(self) -> None:
        """Lock the directory, made if there is none. Raises `StoreLockedError`."""
        self._disk.make_directory(self.root)
        try:
            self._lock = self._disk.lock(self._lock_path)
        except BlockingIOError as error:
            raise StoreLockedError(
                f"the data directory {self.root} is in use by another broker"
            ) from error

    @property
    def crashed(self) -> bool:
        """Whether whoever used it last did not come to a clean end."""
        return self._disk.exists(self._abort)

    def mark_running(self) -> None:
        for folder in (self.commit_log, self.consume_queue, self.index):
            self._disk.make_directory(folder)
        self._disk.open(self._abort, create=True).close()
        self._disk.sync_directory(self.root)

    def mark_clean(self) -> None:
        self._disk.unlink(self._abort)
        self._disk.sync_directory(self.root)

    def release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None
