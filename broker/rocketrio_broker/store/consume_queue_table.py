"""All consume queues of a store: finds them by topic and queue id, and writes, syncs and deletes them together.

    consumequeue/<topic>/<queue id>/<20 digits>

Invariant: the next queue offset of a (topic, queue id) is the queue's `max_offset`; it is counted nowhere else.
Answers to: ConsumeQueueStore, DefaultMessageStore.consumeQueueTable, CommitLog.topicQueueTable.
"""

from collections.abc import Generator, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from rocketrio_broker.store.consume_queue import ConsumeQueue
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.mapped_file import is_number
from rocketrio_broker.store.open_files import OpenFiles
from rocketrio_broker.store.queue_bounds import QueueBounds
from rocketrio_broker.store.read_gate import EVERYTHING

QUEUE_ID_LIMIT: Final = 2**31 - 1
"""The highest queue id that a record can hold."""
NAME_LIMIT: Final = 255
"""The most bytes of a folder's name on all usual file systems."""

ONE_BY_ONE_LIMIT: Final = 64
"""Up to this count files and folders are synced one by one, in some milliseconds each; more of them all at once."""


QUEUES_A_STEP: Final = 512
"""The queues of one step. A step takes at most 15 ms of CPU."""


def can_have_folder(topic: str, queue_id: int) -> bool:
    """Return whether such a queue is possible: names come from peers, and must not lead out of our folder."""
    return (
        0 <= queue_id <= QUEUE_ID_LIMIT
        and 0 < len(topic.encode()) <= NAME_LIMIT
        and topic not in (".", "..")
        and "/" not in topic
        and "\0" not in topic
    )


class ConsumeQueueTable:
    """The consume queues by (topic, queue id)."""

    def __init__(self, root: Path, file_size: int, *, disk: Disk) -> None:
        self.root = root
        self.by_key: dict[tuple[str, int], ConsumeQueue] = {}
        self.grown: set[tuple[str, int]] = set()
        """Queues that got entries since this set was last taken."""
        self.unwritten: set[ConsumeQueue] = set()
        """Queues with entries in memory that their files lack."""
        self.generation = 0
        """Changes when queues are removed, so that code that keeps references to queues drops them."""
        self._trusted_begin = 0  # the log's begin when the trusted bounds were recorded
        self._by_topic: dict[str, dict[int, ConsumeQueue]] = {}
        self._shrunk: set[Path] = set()  # folders that lost an entry since the last sync
        self._file_size = file_size
        self._disk = disk
        self._files = OpenFiles(disk)

    def __repr__(self) -> str:
        return f"<ConsumeQueueTable of {len(self.by_key)} queues>"

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(self.by_key.values())

    def load(self, bounds: QueueBounds | None = None) -> None:
        """Find every queue that has a folder or recorded bounds; the files of one with bounds are not loaded."""
        self._trusted_begin = 0 if bounds is None else bounds.log_begin
        for topic in self._disk.list_directory(self.root):
            recorded = {} if bounds is None else bounds.topics.get(topic, {})
            for name in self._disk.list_directory(self.root / topic):
                if not is_number(name) or not can_have_folder(topic, int(name)):
                    continue
                queue = self.queue(topic, int(name))
                if int(name) not in recorded:
                    queue.load()
        for topic, queues in () if bounds is None else bounds.topics.items():
            for queue_id, known in queues.items():
                self.queue(topic, queue_id).trust(known)

    def queue(self, topic: str, queue_id: int) -> ConsumeQueue:
        """Return the queue; make it if there is none. Raises ValueError if it cannot have a folder of its own."""
        key = (topic, queue_id)
        queue = self.by_key.get(key)
        if queue is None:
            if not can_have_folder(topic, queue_id):
                raise ValueError(f"there can be no queue {queue_id} of {topic!r}")
            queue = ConsumeQueue(
                topic, queue_id, self.root, self._file_size, self._files, self.unwritten
            )
            self.by_key[key] = queue
            self._by_topic.setdefault(topic, {})[queue_id] = queue
        return queue

    def topics(self) -> Mapping[str, Mapping[int, ConsumeQueue]]:
        return self._by_topic

    def take_grown(self, *, seen_before: int = EVERYTHING) -> set[tuple[str, int]]:
        """Return the queues that grew since the last call; the next call repeats those with entries still unseen.

        A queue has unseen entries if its newest message ends after `seen_before`, the limit for readers.
        """
        grown, self.grown = self.grown, set()
        if seen_before != EVERYTHING:
            by_key = self.by_key
            self.grown.update(key for key in grown if by_key[key].last_physical_end > seen_before)
        return grown

    def last_physical_end(self) -> int:
        """Return the address after the newest message in any queue."""
        return max((queue.last_physical_end for queue in self), default=0)

    def delete_topic(self, topic: str) -> bool:
        """Remove a topic's queues and their files; return whether there were any."""
        queues = list(self._by_topic.get(topic, {}).values())
        for queue in queues:
            self.delete_queue(queue)
        return bool(queues)

    def delete_queue(self, queue: ConsumeQueue) -> None:
        """Remove one queue and its files, and its topic's folder with the topic's last queue."""
        topic, queue_id = queue.key
        # Code that kept the queue must ask for it again: it would add to files
        # that are gone, and count from the old end.
        self.generation += 1
        del self.by_key[queue.key]
        del self._by_topic[topic][queue_id]
        self.grown.discard(queue.key)
        queue.delete()
        self._shrunk.update((self.root / topic, self.root))
        if not self._by_topic[topic]:
            del self._by_topic[topic]
            self._disk.remove_directory(self.root / topic)

    def clear(self) -> None:
        """Remove all queues, because the log is empty."""
        for topic in list(self._by_topic):
            self.delete_topic(topic)

    def raise_min(self, physical_offset: int) -> Generator[None, None, list[ConsumeQueue]]:
        """Move the lower bounds of the queues to the log's new begin, in steps; return the queues whose bound moved."""
        moved = []
        for number, queue in enumerate(list(self), 1):
            is_asked = not queue.is_trusted or physical_offset > self._trusted_begin
            if is_asked and queue.raise_min(physical_offset):
                moved.append(queue)
            if number % QUEUES_A_STEP == 0:
                yield
        return moved

    def delete_before_min(self, queues: Iterable[ConsumeQueue]) -> Generator[None, None, int]:
        """Delete files of these queues without a reachable entry, in steps; return how many."""
        deleted = 0
        for number, queue in enumerate(queues, 1):
            deleted += queue.delete_before_min()
            if number % QUEUES_A_STEP == 0:
                yield
        return deleted

    @property
    def has_unsynced(self) -> bool:
        """Return whether anything was written or removed since the last sync."""
        return bool(self._shrunk) or any(queue.has_unsynced for queue in self)

    def bounds(self, log_begin: int) -> Generator[None, None, QueueBounds]:
        """Return the written bounds of all queues, in steps."""
        bounds = QueueBounds(self._file_size, log_begin, {})
        for number, queue in enumerate(list(self), 1):
            bounds.note(queue.key, queue.written_bounds)
            if number % QUEUES_A_STEP == 0:
                yield
        return bounds

    def unsynced_paths(self) -> Generator[None, None, list[Path]]:
        """Return the files and folders that a sync must cover, in steps.

        Only later writes count as unsynced from now on. With more than ONE_BY_ONE_LIMIT paths `sync_files` syncs
        everything, so the list need not be complete.
        """
        paths: dict[Path, None] = {}
        for number, queue in enumerate(list(self), 1):
            if queue.has_unsynced:
                if len(paths) > ONE_BY_ONE_LIMIT:
                    queue.note_synced()
                else:
                    paths.update(dict.fromkeys(queue.take_unsynced()))
            if number % QUEUES_A_STEP == 0:
                yield
        if paths:
            paths.update(dict.fromkeys((self.root, self.root.parent)))
        # Otherwise the queues of a deleted topic would exist again after a power cut.
        paths.update(dict.fromkeys(sorted(self._shrunk)))
        self._shrunk.clear()
        return list(paths)

    def sync_files(self, paths: list[Path]) -> None:
        """Block until these files and folders are on the disk."""
        if len(paths) > ONE_BY_ONE_LIMIT:
            self._disk.sync_tree(self.root)
            sync_paths(self._disk, [self.root.parent])
        else:
            sync_paths(self._disk, paths)

    def close(self) -> None:
        self._files.close()


def sync_paths(disk: Disk, paths: list[Path]) -> None:
    """Block until these files and folders are on the disk; skip those that were deleted meanwhile."""
    for path in paths:
        try:
            if disk.is_directory(path):
                disk.sync_directory(path)
                continue
            file = disk.open(path)
        except FileNotFoundError:
            continue
        try:
            file.fdatasync()
        finally:
            file.close()
