"""The committed offsets of all groups with their versions, without file and clock.

Offsets and generations are kept apart: nearly every queue is in its first generation, and a plain commit that goes
forward touches one number.

Invariant: an entry changes only by a join with a newer version, or is void because its topic or group was removed.
Invariant: what was removed does not come back from a table that has not heard of it (`floor`).
Invariant: a text of the table is of one moment, though the table changes while it is written.
Answers to: ConsumerOffsetManager.offsetTable.
"""

import logging
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Final, TypeVar
from zlib import crc32

import attrs

from rocketrio_broker.offset_version import (
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

logger = logging.getLogger("rocketrio_broker.consumer_offsets")

TopicAndGroup = tuple[str, str]
Name = TypeVar("Name", str, int)
_ENTRY_SIZE: Final = 40
"""Bytes at most of `65535:9223372036854775807,`, and of a generation as brokers reach it."""
QueueEnd = Callable[[str, int], int]

STEP_OFFSETS: Final = 2048
"""Offsets that are written, or removed, at a stretch: some 2 ms."""
STEP_KEYS: Final = 20_000
"""Pairs of topic and group that are looked through at a stretch: some 2 ms."""

REMOVED_LIMIT: Final = 10_000
"""Deleted topics, and deleted groups, that are remembered: ours; the oldest are forgotten first."""


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
        """Bytes of the table as JSON, with its versions: an estimate from above."""
        return self._size

    def __iter__(self) -> Iterator[TopicAndGroup]:
        return iter(self.offsets)

    def query(self, key: TopicAndGroup, queue_id: int) -> int:
        """The offset, or -1."""
        queues = self.offsets.get(key)
        return NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)

    def version(self, key: TopicAndGroup, queue_id: int) -> Version:
        """What stands; where nothing was committed, an offset of -1 in the generation that a commit would have."""
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
        """All that stands."""
        for key, queues in self.offsets.items():
            for queue_id in queues:
                yield key, queue_id, self.version(key, queue_id)

    def newer_than(self, other: "OffsetTable") -> Iterator[tuple[TopicAndGroup, int, Version]]:
        """What stands here and is newer than in another table."""
        for key, queue_id, version in self._different_from(other):
            if version.is_newer_than(other.version(key, queue_id)):
                yield key, queue_id, version

    def _different_from(self, other: "OffsetTable") -> Iterator[tuple[TopicAndGroup, int, Version]]:
        """What stands here, but for topics and groups that are the same in another table."""
        are_generations_equal = (
            self._generations == other._generations and self._lowered_from == other._lowered_from
        )
        for key, queues in self.offsets.items():
            # Nearly all are equal in nearly every round: told at the price of comparing two dictionaries.
            if not are_generations_equal or queues != other.offsets.get(key):
                for queue_id in queues:
                    yield key, queue_id, self.version(key, queue_id)

    def floor(self, key: TopicAndGroup) -> Generation:
        """The first generation that counts since topic or group were last removed."""
        if not self._removed_topics and not self._removed_groups:
            return FIRST
        return max(self._removed_topics.get(key[0], FIRST), self._removed_groups.get(key[1], FIRST))

    # ------------------------------------------------------------------------------------- changes

    def commit(self, key: TopicAndGroup, queue_id: int, offset: int) -> int:
        """Store a plain commit, a lower one too; returns the offset before, or -1."""
        queues = self.offsets.get(key)
        before = NO_OFFSET if queues is None else queues.get(queue_id, NO_OFFSET)
        if 0 <= before <= offset:  # Nearly always: the queue goes on in its generation.
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
        """Store a commit as far as the rules of versions let it."""
        version, outcome = join_commit(self.version(key, queue_id), commit)
        if outcome is CommitOutcome.STORED:
            self.join_version(key, queue_id, version)
        return outcome

    def join_version(self, key: TopicAndGroup, queue_id: int, version: Version) -> bool:
        """Take a version if it is newer than what stands; whether anything changed."""
        if version.offset < 0 or version.generation < self.floor(key):
            return False
        before = self.version(key, queue_id)
        after = before.join(version)
        if after == before:
            return False
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

    def join(self, other: "OffsetTable", *, queue_end: QueueEnd | None = None) -> int:
        """Take all that is newer in another table; returns how many queues changed.

        With `queue_end` no offset is taken beyond the end of its queue here: messages that come would be skipped. What
        is cut so opens a generation, so that the other table, which is told, does not bring it back later.
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
                    continue  # No such queue, or none yet: nobody can have read from it.
                if end < version.offset:
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
        """Take what is higher in a table without versions, as Apache's brokers have; returns how many queues changed.

        It may be a copy of ours from some time ago: what was lowered or removed here since is not raised again, and
        what lies beyond the end of its queue belongs to an earlier topic of that name.
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

    def cut(self, queue_end: QueueEnd) -> list[tuple[TopicAndGroup, int, Version]]:
        """Lower to its end what lies beyond the end of a queue; returns what did.

        Messages were lost that the group had read, or had not come yet when this broker was made the master. Those that
        get their numbers now are others, and would be skipped.
        """
        beyond = [
            (key, queue_id, version)
            for key, queue_id, version in self.versions()
            if version.offset > queue_end(key[0], queue_id)
        ]
        for key, queue_id, version in beyond:
            end = queue_end(key[0], queue_id)
            self.join_version(key, queue_id, Version(end, version.generation.lowered()))
        return beyond

    def observe(
        self,
        before: Mapping[TopicAndGroup, Mapping[int, int]],
        now: Mapping[TopicAndGroup, Mapping[int, int]],
    ) -> None:
        """Follow what somebody without versions did between two looks at its table.

        What fell there was lowered by somebody entitled; what did not only raises, so that what was committed here
        meanwhile stays. What is gone there goes here, unless something else was committed here meanwhile.
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
        """Make all entries of a topic, or of a group, void for good, in steps; returns what takes that back.

        They are in no text that is written from then on, and go with `forget_void`.
        """
        floors, name = self._floors(topic, group)
        before = newest = floors.get(name, FIRST)
        for keys in self._keys_in_steps(topic, group):
            for key in keys:
                for queue_id in self.offsets.get(key, ()):
                    newest = max(newest, self._generations.get((key, queue_id), FIRST))
            yield
        self._set_floor(floors, name, newest.reset())

        def take_back() -> None:
            self._set_floor(floors, name, before)

        return take_back

    def forget_void(
        self, *, topic: str | None = None, group: str | None = None
    ) -> Generator[None, None, None]:
        """Forget the void entries of a topic, or of a group, in steps."""
        for keys in self._keys_in_steps(topic, group):
            for key in keys:
                self._forget_below(key, self.floor(key))
            yield

    def remove_rest(self, topic: str) -> None:
        """Forget at a stretch what was committed on a topic while it was removed in steps, which is little."""
        keys = self._keys(topic, None)
        if not keys:
            return
        newest = self.topic_floor(topic)
        for key in keys:
            for queue_id in self.offsets[key]:
                newest = max(newest, self._generations.get((key, queue_id), FIRST))
        self._remove(newest.reset(), topic=topic)

    def topic_floor(self, topic: str) -> Generation:
        """The first generation that counts since the topic was last removed."""
        return self._removed_topics.get(topic, FIRST)

    def remove_below(self, topic: str, floor: Generation) -> bool:
        """Forget what of a topic's entries is older than this; whether that was not known."""
        before = self.change_count
        self._remove(floor, topic=topic)
        return self.change_count > before

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
        """Return the keys of a topic or a group, as many at a time as have STEP_OFFSETS offsets."""
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
        """Write the table as it stands, in steps between which it may change; see OffsetWriting."""
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
        """Have a key written that is about to change, by whoever is writing the table as it was."""
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
        """Return the table of a body. An offset whose generation is damaged counts for the first one."""
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
    """The table of one moment as JSON, written a little at a time while it goes on changing.

    A key that is about to change is written before, so that all there is belongs to the moment of the beginning.
    """

    def __init__(self, table: OffsetTable, *, is_file: bool) -> None:
        """`is_file` for the form of the files, with a checksum of the offsets."""
        self._table = table
        self._done: set[TopicAndGroup] = set()
        """Keys that are written, or came after the beginning."""
        self._removed_topics = dict(table._removed_topics)
        self._removed_groups = dict(table._removed_groups)
        self._is_file = is_file
        self.checksum = 0
        self.offsets = TextInParts(is_pretty=is_file)
        self._generations = TextInParts(is_pretty=is_file, depth=2)
        self._lowered_from = TextInParts(is_pretty=is_file, depth=2)

    @property
    def versions(self) -> Mapping[str, Any]:
        """What belongs to the offsets, all that is not of the first generation: an OffsetVersions."""
        return {
            "generations": self._generations,
            "loweredFrom": self._lowered_from,
            "removedGroups": {name: str(floor) for name, floor in self._removed_groups.items()},
            "removedTopics": {name: str(floor) for name, floor in self._removed_topics.items()},
        }

    def write(self, keys: Iterable[TopicAndGroup]) -> None:
        """Write those of the keys that are not written yet; each is named before it first changes."""
        tables: tuple[dict[str, Any], ...] = ({}, {}, {})
        for key in keys:
            if key in self._done:
                continue
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
    """Return the checksum of offsets, however a file writes them down, with that of others."""
    for name, queues in offsets.items():
        checksum += crc32(repr((name, sorted(queues.items()))).encode())
    return checksum & 0xFFFFFFFF


def _key_size(key: TopicAndGroup) -> int:
    return len(key[0]) + len(key[1]) + len('"@":{},')


def _generations(texts: Mapping[Name, str], what: str) -> dict[Name, Generation]:
    """Read the generations of a body, but for damaged ones."""
    generations = {}
    for name, text in texts.items():
        try:
            generations[name] = Generation.parse(text)
        except RemoteProtocolError as error:
            logger.warning("offset generation skipped of=%s entry=%s error=%s", what, name, error)
    return generations


def offsets_by_key(wrapper: ConsumerOffsetWrapper) -> dict[TopicAndGroup, dict[int, int]]:
    """The body of 43 with its keys taken apart; keys of another form are left out."""
    parts = ((key.split("@"), queues) for key, queues in wrapper.offset_table.items())
    return {(names[0], names[1]): queues for names, queues in parts if len(names) == 2}
