"""The committed offsets of all groups with their versions, in memory.

Offsets and generations are separate: nearly every queue is in its first generation, and a plain commit that goes
forward changes only one number.

Invariant: an entry changes only by a join with a newer version, or becomes void because its topic or group was removed.
Invariant: removed entries do not come back from a table that does not know of the removal (`floor`).
Invariant: an encoded table shows a single moment, even though the table changes while it is being encoded.
Answers to: ConsumerOffsetManager.offsetTable.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from zlib import crc32

import attrs

from rocketrio_broker.offsets.version import (
    FIRST,
    NO_OFFSET,
    Commit,
    Generation,
    Version,
    join_commit,
)
from rocketrio_protocol.bodies.fastjson import TextInParts
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetWrapper,
    OffsetVersions,
    VersionedConsumerOffsets,
)
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import RemoteProtocolError

logger = logging.getLogger("rocketrio_broker.offsets")

TopicAndGroup = tuple[str, str]
Name = TypeVar("Name", str, int)
_ENTRY_SIZE: Final = 40
"""The most bytes of `65535:9223372036854775807,`, and of a generation as brokers reach it."""
QueueEnd = Callable[[str, int], int]

STEP_OFFSETS: Final = 2048
"""Offsets that are encoded, or removed, in one step: some 2 ms."""
STEP_KEYS: Final = 20_000
"""Pairs of topic and group that are scanned in one step: some 2 ms."""

REMOVED_LIMIT: Final = 10_000
"""The most deleted topics, and deleted groups, that are remembered; the oldest are dropped first."""


class OffsetTable:
    """(topic, group) to queue id to consumer offset."""

    def __init__(self) -> None:
        self.offsets: dict[TopicAndGroup, dict[int, int]] = {}
        self.change_count = 0
        """Grows with every change, so that a writer knows whether there is something to write."""
        self._generations: dict[tuple[TopicAndGroup, int], Generation] = {}
        self._lowered_from: dict[tuple[TopicAndGroup, int], int] = {}
        self._removed_topics: dict[str, Generation] = {}
        self._removed_groups: dict[str, Generation] = {}
        self._size = 0
        self._writings: list[OffsetWriting] = []

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def size(self) -> int:
        """The size of the table with its versions as JSON in bytes: an upper estimate."""
        return self._size

    def __iter__(self) -> Iterator[TopicAndGroup]:
        return iter(self.offsets)

    def query(self, key: TopicAndGroup, queue_id: int) -> int:
        """Return the offset, or -1."""
        queues = self.offsets.get(key)
        return NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)

    def version(self, key: TopicAndGroup, queue_id: int) -> Version:
        """Return the current version; without a commit, offset -1 in the generation that a commit would get."""
        where = key, queue_id
        offset = self.query(key, queue_id)
        if offset < 0:
            return Version(NO_OFFSET, self.floor(key))
        return Version(
            offset,
            self._generations.get(where, FIRST),
            self._lowered_from.get(where, NO_OFFSET),
        )

    def versions(self) -> Iterator[tuple[TopicAndGroup, int, Version]]:
        """Yield every current entry."""
        for key, queues in self.offsets.items():
            for queue_id in queues:
                yield key, queue_id, self.version(key, queue_id)

    def newer_than(self, other: "OffsetTable") -> Iterator[tuple[TopicAndGroup, int, Version]]:
        """Yield the entries that are newer than in another table."""
        for key, queue_id, version in self._different_from(other):
            if version.is_newer_than(other.version(key, queue_id)):
                yield key, queue_id, version

    def _different_from(self, other: "OffsetTable") -> Iterator[tuple[TopicAndGroup, int, Version]]:
        """Yield the entries, except for topics and groups that are equal in another table."""
        are_generations_equal = (
            self._generations == other._generations and self._lowered_from == other._lowered_from
        )
        for key, queues in self.offsets.items():
            # Nearly all are equal each time: comparing two dictionaries finds that out cheaply.
            if not are_generations_equal or queues != other.offsets.get(key):
                for queue_id in queues:
                    yield key, queue_id, self.version(key, queue_id)

    def floor(self, key: TopicAndGroup) -> Generation:
        """Return the first valid generation since topic or group were last removed."""
        if not self._removed_topics and not self._removed_groups:
            return FIRST
        return max(self._removed_topics.get(key[0], FIRST), self._removed_groups.get(key[1], FIRST))

    # ------------------------------------------------------------------------------------- changes

    def commit(self, key: TopicAndGroup, queue_id: int, offset: int) -> int:
        """Store a plain commit, also a lower one; return the offset before, or -1."""
        queues = self.offsets.get(key)
        before = NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)
        if 0 <= before <= offset:  # Nearly always: the generation stays the same.
            assert queues is not None
            if before != offset:
                if self._writings:
                    self._write_first(key)
                queues[queue_id] = offset
                self.change_count += 1
        else:
            self.apply(key, queue_id, Commit(offset))
        return before

    def apply(self, key: TopicAndGroup, queue_id: int, commit: Commit) -> CommitOutcome:
        """Store a commit as far as the rules of versions allow."""
        version, outcome = join_commit(self.version(key, queue_id), commit)
        if outcome is CommitOutcome.STORED:
            self.join_version(key, queue_id, version)
        return outcome

    def join_version(self, key: TopicAndGroup, queue_id: int, version: Version) -> bool:
        """Take a version if it is newer than the current one; return True if anything changed."""
        # A peer that does not know of a deletion still has the entries of before:
        # joined, they would skip the new messages.
        if version.offset < 0 or version.generation < self.floor(key):
            return False
        before = self.version(key, queue_id)
        after = before.join(version)
        if after == before:
            return False
        # Before the change: a body that is being encoded shows the moment at which it was begun.
        self._write_first(key)
        where, key_size = (key, queue_id), _key_size(key)
        queues = self.offsets.get(key)
        if queues is None:
            queues = self.offsets[key] = {}
            self._size += key_size
        if queue_id not in queues:
            self._size += _ENTRY_SIZE
        queues[queue_id] = after.offset
        if after.generation != FIRST:
            self._size += 0 if where in self._generations else key_size + _ENTRY_SIZE
            self._generations[where] = after.generation
        if after.lowered_from >= 0:
            self._size += 0 if where in self._lowered_from else key_size + _ENTRY_SIZE
            self._lowered_from[where] = after.lowered_from
        self.change_count += 1
        return True

    def has_removed_less_than(self, other: "OffsetTable") -> bool:
        """Return True if another table knows of a removed topic or group that this one does not know of."""
        return any(
            floors.get(name, FIRST) < floor
            for floors, others in (
                (self._removed_topics, other._removed_topics),
                (self._removed_groups, other._removed_groups),
            )
            for name, floor in others.items()
        )

    def join(self, other: "OffsetTable", *, queue_end: QueueEnd | None = None) -> int:
        """Take everything that is newer in another table; return how many queues changed.

        With `queue_end` no offset is taken beyond the end of its queue here, because messages that come there would be
        skipped. An offset that is lowered for that reason opens a generation, so that the other table does not restore
        it later. That lowers no offset of this table's own.
        """
        for topic, floor in other._removed_topics.items():
            self._remove(floor, topic=topic)
        for group, floor in other._removed_groups.items():
            self._remove(floor, group=group)
        changed = 0
        for key, queue_id, version in list(other._different_from(self)):
            if queue_end is not None and version.offset:
                end = min(version.offset, queue_end(key[0], queue_id))
                if not end:
                    continue  # The queue does not exist or is empty: nothing was read.
                if end < version.offset:
                    here = self.version(key, queue_id)
                    if not version.is_newer_than(here):
                        continue
                    if here.generation == version.generation:
                        end = max(end, here.offset)
                    version = attrs.evolve(
                        version, offset=end, generation=version.generation.lowered()
                    )
            changed += self.join_version(key, queue_id, version)
        return changed

    def join_plain(
        self,
        offsets: Mapping[TopicAndGroup, Mapping[int, int]],
        *,
        queue_end: QueueEnd | None = None,
    ) -> int:
        """Take what is higher in a table without versions, as Apache's brokers have; return how many queues changed.

        That table may be an old copy of this one: an entry that was lowered or removed here since is not raised again,
        and offsets beyond the end of their queue belong to an earlier topic of that name.
        """
        changed = 0
        for key, queues in offsets.items():
            for queue_id, offset in queues.items():
                if queue_end is not None and offset > queue_end(key[0], queue_id):
                    continue
                now = self.version(key, queue_id)
                is_old_copy = now.offset < 0 and now.generation != FIRST
                if offset > max(now.offset, now.lowered_from) and not is_old_copy:
                    changed += self.join_version(key, queue_id, Version(offset, now.generation))
        return changed

    def cut(
        self, limit: Callable[[TopicAndGroup, int], int]
    ) -> list[tuple[TopicAndGroup, int, Version]]:
        """Lower offsets beyond their limit to it; return their former versions.

        Messages that the group had read were lost, or had not arrived yet when this broker became master. Their numbers
        go to other messages, which would be skipped.
        """
        beyond = [
            (key, queue_id, version)
            for key, queue_id, version in self.versions()
            if version.offset > limit(key, queue_id)
        ]
        for key, queue_id, version in beyond:
            lowered = Version(limit(key, queue_id), version.generation.lowered())
            self.join_version(key, queue_id, lowered)
        return beyond

    def observe(
        self,
        before: Mapping[TopicAndGroup, Mapping[int, int]],
        now: Mapping[TopicAndGroup, Mapping[int, int]],
    ) -> None:
        """Take over what a broker without versions changed between two copies of its table.

        Decreases there count as deliberate; increases only ever raise an offset, so that later commits here stay.
        Entries that were removed there are removed here, unless another offset was committed here meanwhile.
        """
        for key, queues in now.items():
            known = before.get(key, {})
            for queue_id, offset in queues.items():
                was = known.get(queue_id, NO_OFFSET)
                here = self.version(key, queue_id)
                if offset < was:
                    lowered = Version(offset, here.generation.lowered())
                    self.join_version(key, queue_id, lowered)
                elif offset > was and offset > here.offset:
                    self.join_version(key, queue_id, Version(offset, here.generation))
        for key, known in before.items():
            still = now.get(key, {})
            for queue_id, was in known.items():
                if queue_id not in still and self.query(key, queue_id) == was:
                    self._forget(key, queue_id)

    def remove(
        self, *, topic: str | None = None, group: str | None = None
    ) -> Generator[None, None, Callable[[], None]]:
        """Make all entries of a topic, or of a group, void in steps; return a function that undoes it.

        Tables that are encoded from then on omit them, and `forget_void` removes them.
        """
        floors, name = self._floors(topic, group)
        before = newest = floors.get(name, FIRST)
        for keys in self._keys_in_steps(topic, group):
            for key in keys:
                for queue_id in self.offsets.get(key, ()):
                    newest = max(newest, self._generations.get((key, queue_id), FIRST))
            yield
        # Above every generation here: an entry of before that comes back from a peer is older than this removal.
        self._set_floor(floors, name, newest.reset())

        def take_back() -> None:
            self._set_floor(floors, name, before)

        return take_back

    def forget_void(
        self, *, topic: str | None = None, group: str | None = None
    ) -> Generator[None, None, None]:
        """Remove the void entries of a topic, or of a group, in steps."""
        for keys in self._keys_in_steps(topic, group):
            for key in keys:
                self._forget_below(key, self.floor(key))
            yield

    def remove_rest(self, topic: str) -> None:
        """Remove at once the few commits on a topic that came while it was removed in steps."""
        keys = self._keys(topic, None)
        if not keys:
            return
        newest = self.topic_floor(topic)
        for key in keys:
            for queue_id in self.offsets[key]:
                newest = max(newest, self._generations.get((key, queue_id), FIRST))
        self._remove(newest.reset(), topic=topic)

    def topic_floor(self, topic: str) -> Generation:
        """Return the first valid generation since the topic was last removed."""
        return self._removed_topics.get(topic, FIRST)

    def remove_below(self, topic: str, floor: Generation) -> bool:
        """Remove a topic's entries of older generations; return True if anything changed."""
        before = self.change_count
        self._remove(floor, topic=topic)
        return self.change_count > before

    def undo_removal(self, topic: str, floor: Generation) -> bool:
        """Forget that a topic was removed, and what was committed since; return False if that was another removal."""
        if self._removed_topics.get(topic) != floor:
            return False
        self._set_floor(self._removed_topics, topic, FIRST)
        for key in self._keys(topic, None):
            for queue_id in list(self.offsets[key]):
                self._forget(key, queue_id)
        return True

    def _remove(
        self, floor: Generation, *, topic: str | None = None, group: str | None = None
    ) -> None:
        floors, name = self._floors(topic, group)
        if floors.get(name, FIRST) < floor:
            self._set_floor(floors, name, floor)
            for key in self._keys(topic, group):
                self._forget_below(key, floor)

    def _set_floor(self, floors: dict[str, Generation], name: str, floor: Generation) -> None:
        floors.pop(name, None)
        if floor != FIRST:
            floors[name] = floor
        while len(floors) > REMOVED_LIMIT:
            del floors[next(iter(floors))]
        self.change_count += 1

    def _forget_below(self, key: TopicAndGroup, floor: Generation) -> None:
        for queue_id in list(self.offsets.get(key, ())):
            if self._generations.get((key, queue_id), FIRST) < floor:
                self._forget(key, queue_id)

    def _keys(self, topic: str | None, group: str | None) -> list[TopicAndGroup]:
        return [key for key in self.offsets if topic in (None, key[0]) and group in (None, key[1])]

    def _keys_in_steps(self, topic: str | None, group: str | None) -> Iterator[list[TopicAndGroup]]:
        """Yield the keys of a topic or a group in lists that have about STEP_OFFSETS offsets each."""
        some, count = [], 0
        for number, key in enumerate(list(self.offsets), 1):
            if topic in (None, key[0]) and group in (None, key[1]):
                some.append(key)
                count += len(self.offsets.get(key, ()))
            if count >= STEP_OFFSETS or number % STEP_KEYS == 0:
                yield some
                some, count = [], 0
        yield some

    def _floors(self, topic: str | None, group: str | None) -> tuple[dict[str, Generation], str]:
        if topic is not None:
            assert group is None
            return self._removed_topics, topic
        assert group is not None
        return self._removed_groups, group

    def _forget(self, key: TopicAndGroup, queue_id: int) -> None:
        self._write_first(key)
        queues, key_size = self.offsets[key], _key_size(key)
        del queues[queue_id]
        self._size -= _ENTRY_SIZE
        if not queues:
            del self.offsets[key]
            self._size -= key_size
        for numbers in (self._generations, self._lowered_from):
            if numbers.pop((key, queue_id), None) is not None:
                self._size -= key_size + _ENTRY_SIZE
        self.change_count += 1

    # -------------------------------------------------------------------------------------- bodies

    def written(self, *, is_file: bool) -> "Generator[None, None, OffsetWriting]":
        """Encode the table of this moment in steps, between which it may change; see OffsetWriting."""
        writing = OffsetWriting(self, is_file=is_file)
        self._writings.append(writing)
        try:
            for keys in self._keys_in_steps(None, None):
                writing.write(keys)
                yield
        finally:
            self._writings.remove(writing)
        return writing

    def _write_first(self, key: TopicAndGroup) -> None:
        """Encode a key before it changes, for every encoding in progress that needs its old value."""
        for writing in self._writings:
            writing.write([key])

    def _entry(
        self, key: TopicAndGroup, floor: Generation
    ) -> tuple[dict[int, int], dict[int, str], dict[int, int]]:
        """Return the offsets, generations and lowered_from of a key that are not below the floor."""
        queues = self.offsets[key]
        if floor == FIRST and not self._generations and not self._lowered_from:
            return queues, {}, {}
        offsets, generations, lowered_from = {}, {}, {}
        for queue_id, offset in queues.items():
            where = key, queue_id
            generation = self._generations.get(where, FIRST)
            if generation < floor:
                continue
            offsets[queue_id] = offset
            if generation != FIRST:
                generations[queue_id] = str(generation)
            if where in self._lowered_from:
                lowered_from[queue_id] = self._lowered_from[where]
        return offsets, generations, lowered_from

    @classmethod
    def from_body(cls, body: VersionedConsumerOffsets) -> "OffsetTable":
        """Return the table of a body. An offset whose generation is damaged gets the first one."""
        versions = body.rocketrio_versions or OffsetVersions()
        table = cls()
        table._removed_topics = _generations(versions.removed_topics, "removed topics")
        table._removed_groups = _generations(versions.removed_groups, "removed groups")
        for (topic, group), queues in offsets_by_key(body).items():
            name = f"{topic}@{group}"
            generations = _generations(versions.generations.get(name, {}), name)
            lowered_from = versions.lowered_from.get(name, {})
            is_plain = not generations and not lowered_from and table.floor((topic, group)) == FIRST
            if is_plain and min(queues.values(), default=NO_OFFSET) >= 0:
                table.offsets[topic, group] = dict(queues)
                table._size += _key_size((topic, group)) + _ENTRY_SIZE * len(queues)
                continue
            for queue_id, offset in queues.items():
                version = Version(
                    offset,
                    generations.get(queue_id, FIRST),
                    lowered_from.get(queue_id, NO_OFFSET),
                )
                table.join_version((topic, group), queue_id, version)
        return table


class OffsetWriting:
    """The table of one moment as JSON, encoded in steps while the table keeps changing.

    A key that is about to change is encoded before, so that everything shows the moment of the beginning.
    """

    def __init__(self, table: OffsetTable, *, is_file: bool) -> None:
        """Begin with nothing; `is_file` selects the form of the files, with a checksum of the offsets."""
        self._table = table
        self._done: set[TopicAndGroup] = set()
        """Keys that are encoded, or were added after the beginning."""
        self._removed_topics = dict(table._removed_topics)
        self._removed_groups = dict(table._removed_groups)
        self._is_file = is_file
        self.checksum = 0
        self.offsets = TextInParts(is_pretty=is_file)
        self._generations = TextInParts(is_pretty=is_file, depth=2)
        self._lowered_from = TextInParts(is_pretty=is_file, depth=2)

    @property
    def versions(self) -> Mapping[str, Any]:
        """The versions of the offsets, except those of the first generation: an OffsetVersions."""
        return {
            "generations": self._generations,
            "loweredFrom": self._lowered_from,
            "removedGroups": {name: str(floor) for name, floor in self._removed_groups.items()},
            "removedTopics": {name: str(floor) for name, floor in self._removed_topics.items()},
        }

    def write(self, keys: Iterable[TopicAndGroup]) -> None:
        """Encode those of the keys that are not encoded yet; call this before a key's first change."""
        tables: tuple[dict[str, Any], ...] = ({}, {}, {})
        for key in keys:
            if key in self._done:
                continue
            # Also a key that is not there yet: added after the beginning, it is no part of that moment.
            self._done.add(key)
            if key not in self._table.offsets:
                continue
            topic, group = key
            floor = max(
                self._removed_topics.get(topic, FIRST), self._removed_groups.get(group, FIRST)
            )
            name = f"{topic}@{group}"
            for table, entry in zip(tables, self._table._entry(key, floor), strict=True):
                if entry:
                    table[name] = entry
        offsets, generations, lowered_from = tables
        if self._is_file:
            self.checksum = joined_checksum(self.checksum, offsets)
        self.offsets.add(offsets)
        self._generations.add(generations)
        self._lowered_from.add(lowered_from)


def joined_checksum(checksum: int, offsets: Mapping[str, Mapping[int, int]]) -> int:
    """Return the checksum of offsets together with a former one; it does not depend on the form of the file."""
    for name, queues in offsets.items():
        checksum += crc32(repr((name, sorted(queues.items()))).encode())
    return checksum & 0xFFFFFFFF


def _key_size(key: TopicAndGroup) -> int:
    return len(key[0]) + len(key[1]) + len('"@":{},')


def _generations(texts: Mapping[Name, str], what: str) -> dict[Name, Generation]:
    """Return the generations in a body, without damaged ones."""
    generations = {}
    for name, text in texts.items():
        try:
            generations[name] = Generation.parse(text)
        except RemoteProtocolError as error:
            logger.warning("offset generation skipped of=%s entry=%s error=%s", what, name, error)
    return generations


def offsets_by_key(wrapper: ConsumerOffsetWrapper) -> dict[TopicAndGroup, dict[int, int]]:
    """Return the body of 43 with its keys split; keys of another form are omitted."""
    parts = ((key.split("@"), queues) for key, queues in wrapper.offset_table.items())
    return {(names[0], names[1]): queues for names, queues in parts if len(names) == 2}


def epochs_by_key(versions: OffsetVersions) -> dict[tuple[TopicAndGroup, int], str]:
    """Return the epochs that a body names for single offsets; keys of another form are omitted."""
    return {
        ((names[0], names[1]), queue_id): epoch
        for key, queues in versions.epochs.items()
        if len(names := key.split("@")) == 2
        for queue_id, epoch in queues.items()
    }
