"""How far each group has consumed each queue, and `config/consumerOffset.json`.

`OffsetTable` is the table alone: what it stores per queue and how two tables become one are decided there.

Invariant: the last commit wins; only `merge` compares, and it never lowers an offset.
Answers to: ConsumerOffsetManager; RocketMQ reference, sections 2.4 and 5.7.
Unlike Java: a master that comes back takes the higher of its own and its slaves' offsets (`merge`).
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Final

import trio

from rocketrio_broker.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.store.disk import Disk
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.topic_config import ConsumerOffsetWrapper

logger = logging.getLogger("rocketrio_broker.consumer_offsets")

NO_OFFSET: Final = -1
FLUSH_CONSUMER_OFFSET_INTERVAL: Final = 5.0  # flushConsumerOffsetInterval

TopicAndGroup = tuple[str, str]


class OffsetTable:
    """(topic, group) to queue id to consumer offset."""

    def __init__(self) -> None:
        self.offsets: dict[TopicAndGroup, dict[int, int]] = {}
        self.change_count = 0
        """Grows with every change, so that a writer knows whether there is something to write."""

    def __len__(self) -> int:
        return len(self.offsets)

    def __iter__(self) -> Iterator[TopicAndGroup]:
        return iter(self.offsets)

    def commit(self, key: TopicAndGroup, queue_id: int, offset: int) -> int:
        """Store an offset, a lower one too; returns the one before, or -1."""
        queues = self.offsets.setdefault(key, {})
        before = queues.get(queue_id, NO_OFFSET)
        if before != offset:
            queues[queue_id] = offset
            self.change_count += 1
        return before

    def query(self, key: TopicAndGroup, queue_id: int) -> int:
        """The offset, or -1."""
        queues = self.offsets.get(key)
        return NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)

    def merge(self, other: Mapping[TopicAndGroup, Mapping[int, int]]) -> int:
        """Take every offset of `other` that is higher than here; returns how many there were."""
        raised = 0
        for key, queues in other.items():
            for queue_id, offset in queues.items():
                if offset > self.query(key, queue_id):
                    self.commit(key, queue_id, offset)
                    raised += 1
        return raised

    def put_all(self, other: Mapping[TopicAndGroup, Mapping[int, int]]) -> None:
        """Replace the queues of every key in `other`; other keys stay."""
        for key, queues in other.items():
            if self.offsets.get(key) != queues:
                self.offsets[key] = dict(queues)
                self.change_count += 1

    def remove(self, *, topic: str | None = None, group: str | None = None) -> int:
        """Forget all entries of a topic, of a group, or of a group on a topic; returns how many there were."""
        assert topic is not None or group is not None
        gone = [key for key in self.offsets if topic in (None, key[0]) and group in (None, key[1])]
        for key in gone:
            del self.offsets[key]
        self.change_count += len(gone)
        return len(gone)


class ConsumerOffsetManager:
    """The table of one broker, with its file."""

    def __init__(
        self,
        *,
        file: ConfigFile,
        disk: Disk,
        flush_interval: float = FLUSH_CONSUMER_OFFSET_INTERVAL,
    ) -> None:
        self._file = file
        self._disk = disk
        self._flush_interval = flush_interval
        self._written = 0
        self.table = OffsetTable()

    @property
    def offset_table(self) -> dict[TopicAndGroup, dict[int, int]]:
        """(topic, group) to queue id to offset: to read, not to change."""
        return self.table.offsets

    def load(self) -> None:
        """Take over what the file holds."""
        stored = self._file.load(ConsumerOffsetWrapper)
        if stored is not None:
            self.table.put_all(offsets_by_key(stored))

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store a group's offset; the last commit wins."""
        before = self.table.commit((topic, group), queue_id, offset)
        if offset < before:
            logger.warning(
                "consumer offset lowered group=%s topic=%s queue_id=%d offset=%d before=%d",
                group, topic, queue_id, offset, before,
            )  # fmt: skip

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The group's offset; -1 when it never committed."""
        return self.table.query((topic, group), queue_id)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The group's offsets on all queues of a topic."""
        return dict(self.table.offsets.get((topic, group), {}))

    def topics_of_group(self, group: str) -> list[str]:
        """Topics on which the group has committed."""
        return [topic for topic, committer in self.table if committer == group]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have committed on the topic."""
        return [group for committed, group in self.table if committed == topic]

    def clone_offset(self, source_group: str, destination_group: str, topic: str) -> None:
        """Give one group the offsets of another."""
        queues = self.table.offsets.get((topic, source_group))
        if queues is not None:
            self.table.put_all({(topic, destination_group): dict(queues)})

    def remove_topic(self, topic: str) -> None:
        """Forget all offsets on a topic, at once in the file too: a topic made anew is read from its beginning.

        Raises ConfigFileError; they are as before then.
        """
        kept = {key: dict(queues) for key, queues in self.table.offsets.items() if key[0] == topic}
        if not self.table.remove(topic=topic):
            return
        try:
            self.persist()
        except ConfigFileError:
            self.table.put_all(kept)
            raise

    def remove_group(self, group: str) -> None:
        """Forget all offsets of a group."""
        self.table.remove(group=group)

    def merge(
        self,
        wrapper: ConsumerOffsetWrapper,
        *,
        queue_end: Callable[[str, int], int] | None = None,
    ) -> int:
        """Take what is higher than here, queue by queue: for a master that comes back. Returns how many there were.

        What lies beyond `queue_end` of a queue belongs to an earlier topic of that name, and is left out.
        """
        offsets = offsets_by_key(wrapper)
        if queue_end is not None:
            offsets = {
                key: {id_: at for id_, at in queues.items() if at <= queue_end(key[0], id_)}
                for key, queues in offsets.items()
            }
        raised = self.table.merge(offsets)
        if raised:
            self._persist_or_later()
        return raised

    def replace(self, wrapper: ConsumerOffsetWrapper) -> None:
        """Take over a master's offsets, key by key: for a slave."""
        self.table.put_all(offsets_by_key(wrapper))

    def wrapper(self) -> ConsumerOffsetWrapper:
        """All offsets: the answer to 43, and the file's content."""
        return ConsumerOffsetWrapper(
            {f"{topic}@{group}": queues for (topic, group), queues in self.table.offsets.items()}
        )

    def persist(self) -> None:
        """Write the file if there is something new."""
        if self._written != self.table.change_count:
            written = self.table.change_count
            self._file.write(self.wrapper())
            self._written = written

    def close(self) -> None:
        """Write the file for the last time, when nobody commits any more. Raises ConfigFileError."""
        self.persist()
        self._file.sync()

    def _persist_or_later(self) -> bool:
        """Write the file; if that fails the offsets stay in memory for the next round, and a full disk ends nothing."""
        try:
            self.persist()
        except ConfigFileError as error:
            logger.debug("will try again at the next round: %s", error)
            return False
        return True

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the file on a period; the last time, when nobody commits any more, is the owner's."""
        task_status.started()
        async for _ in every(self._flush_interval):
            if self._persist_or_later():
                with suppress(ConfigFileError):  # Logged there, and tried again at the next round.
                    self._file.renew()
                    await self._disk.run(self._file.sync)


def offsets_by_key(wrapper: ConsumerOffsetWrapper) -> dict[TopicAndGroup, dict[int, int]]:
    """The body of 43 with its keys taken apart; keys of another form are left out."""
    parts = ((key.split("@"), queues) for key, queues in wrapper.offset_table.items())
    return {(names[0], names[1]): queues for names, queues in parts if len(names) == 2}
