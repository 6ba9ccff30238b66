"""How far each group has consumed each queue, and the files that keep it.

    config/consumerOffset.json     Apache's, to the byte; its brokers start from it
    config/rocketrioOffsets.json   the same offsets with their versions, and checksums of what we wrote into the first
    config/rocketrioOffsets.?.log  what was committed since (offset_journal.py)

If the first file is not as we wrote it, an Apache broker has run on this directory: what it lowered was lowered, and
what it raised is progress (`OffsetTable.observe`).

Invariant: a commit that was answered survives kill -9; a power cut takes back those of one flush interval at most.
Invariant: what makes one offset newer than another is decided in offset_version.py alone.
Answers to: ConsumerOffsetManager; RocketMQ reference, sections 2.4 and 5.7.
Unlike Java: offsets have versions, so that those of a master and of its slaves can be joined (docs/decisions/0014).
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import trio

from rocketrio_broker.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.offset_journal import OffsetJournal
from rocketrio_broker.offset_table import (
    OffsetTable,
    QueueEnd,
    TopicAndGroup,
    joined_checksum,
    offsets_by_key,
)
from rocketrio_broker.offset_version import FIRST, Commit, Generation, Version
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.turns import SharedWork, in_steps
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetSnapshot,
    ConsumerOffsetWrapper,
    VersionedConsumerOffsets,
)
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.steps import all_at_once

logger = logging.getLogger("rocketrio_broker.consumer_offsets")

FLUSH_CONSUMER_OFFSET_INTERVAL: Final = 5.0  # flushConsumerOffsetInterval
SNAPSHOT_NAME: Final = "rocketrioOffsets.json"
CHECKSUMS_KEPT: Final = 16
"""Of what consumerOffset.json may hold: what was surely written, and what was tried since."""
CUTS_SHOWN: Final = 20
"""Lines in the log for offsets beyond the end of their queue; the number of all is in each."""
OFFSETS_SIZE_LIMIT: Final = 15 << 20
"""Bytes of all offsets as JSON, to which clients may add: a slave copies them in one answer of 16 MiB at most."""
STEP_CLONED: Final = 256
"""Offsets that are cloned at a stretch: some 5 ms."""
CLAIMS_LIMIT: Final = 100_000
"""Queues of groups whose owner is known; the oldest claims are forgotten, and made again when they matter."""


class ConsumerOffsetManager:
    """The table of one broker, with its files."""

    def __init__(
        self,
        *,
        file: ConfigFile,
        disk: Disk,
        flush_interval: float = FLUSH_CONSUMER_OFFSET_INTERVAL,
        log_end: Callable[[], int] = lambda: 0,
    ) -> None:
        """`log_end` is the end of the commit log: offsets are looked at again when it has become shorter."""
        self._file = file
        self._snapshot_file = ConfigFile(file.path.with_name(SNAPSHOT_NAME), disk=disk)
        self._journal = OffsetJournal(file.path.parent, disk=disk)
        self._disk = disk
        self._flush_interval = flush_interval
        self._written = 0
        self._writes = 0
        self._turn = trio.Lock()
        """Held by who writes the files in steps."""
        self._answer = SharedWork(partial(self.body, with_versions=False))
        self._versioned_answer = SharedWork(partial(self.body, with_versions=True))
        self._checksums: list[int] = []
        self._claims: dict[tuple[str, str, int], str] = {}
        self._claim_count = 0
        self._log_end = log_end
        self._is_copy = False
        self._has_lost_messages = False
        self.offsets_cut = 0
        """Queues of groups whose offset lay beyond the end of its queue when this broker became master."""
        self.messages_cut = 0
        """Messages that those groups had read and that are not in the log."""
        self._is_foreign = False
        """The offsets are those of a broker without versions: slaves may know better which generation they are of."""
        self.table = OffsetTable()
        self.named_epochs: dict[tuple[TopicAndGroup, int], tuple[Version, str]] = {}
        """Commits to a slave that its master was not told of, with the epochs that members named; one a queue."""
        self.known_in: str | None = None
        """On a slave, the epoch of the log in which its master last knew, or had judged, all that is here."""

    @property
    def offset_table(self) -> dict[TopicAndGroup, dict[int, int]]:
        """(topic, group) to queue id to offset: to read, not to change."""
        return self.table.offsets

    def load(self) -> None:
        """Take over what the files hold."""
        snapshot = self._snapshot_file.load_table(ConsumerOffsetSnapshot)
        if snapshot is None:
            stored = self._file.load_table(ConsumerOffsetWrapper)
            self._is_foreign = stored is not None
            self.table.observe({}, {} if stored is None else offsets_by_key(stored))
        else:
            self.table = OffsetTable.from_body(snapshot)
            self._checksums = snapshot.checksums
            self._is_copy = snapshot.is_copy
            self._has_lost_messages = snapshot.log_end > self._log_end()
            self._follow_changes(snapshot)
        for key, queue_id, version in self._journal.load():
            self.table.join_version(key, queue_id, version)
            # Perhaps: it was killed, and nothing says how long the log was then.
            self._has_lost_messages = True

    def _follow_changes(self, snapshot: ConsumerOffsetSnapshot) -> None:
        """Follow another program that wrote consumerOffset.json after us; a torn or missing one tells nothing."""
        path = self._file.path
        if not self._disk.exists(path):
            return
        file = self._disk.open(path)
        try:
            data = file.pread(file.size, 0)
            stored = fastjson.loads(
                data, ConsumerOffsetWrapper, what="consumer offsets", lenient=False
            )
        except RemoteProtocolError as error:
            logger.warning("offsets taken from %s alone error=%s", SNAPSHOT_NAME, error)
            return
        finally:
            file.close()
        if joined_checksum(0, stored.offset_table) not in self._checksums:
            logger.warning("consumer offsets were changed by another program file=%s", path)
            self.table.observe(offsets_by_key(snapshot), offsets_by_key(stored))

    # ------------------------------------------------------------------------------------- commits

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store a plain commit: the last one wins. What can be no offset is left out; it may come with a pull."""
        if offset < 0:
            return
        key = topic, group
        before = self.table.commit(key, queue_id, offset)
        if before == offset:
            return
        self._journal.append(key, queue_id, self.table.version(key, queue_id))
        if offset < before:
            logger.warning(
                "consumer offset lowered group=%s topic=%s queue_id=%d offset=%d before=%d",
                group, topic, queue_id, offset, before,
            )  # fmt: skip

    def commit_version(
        self, group: str, topic: str, queue_id: int, commit: Commit, *, epoch: str | None = None
    ) -> tuple[CommitOutcome, Version]:
        """Store a commit by the rules of versions; what became of it, and what stands.

        `epoch` is the one that its position comes from, on a slave that has to tell its master.
        """
        key = topic, group
        before = self.table.version(key, queue_id)
        outcome = self.table.apply(key, queue_id, commit)
        after = self.table.version(key, queue_id)
        if after != before:
            self._journal.append(key, queue_id, after)
            if epoch is not None:
                self.named_epochs[key, queue_id] = after, epoch
            if after.offset < before.offset:
                logger.warning(
                    "consumer offset %s group=%s topic=%s queue_id=%d offset=%d before=%d",
                    "reset" if commit.is_reset else "lowered by a seek",
                    group, topic, queue_id, after.offset, before.offset,
                )  # fmt: skip
        return outcome, after

    @property
    def is_full(self) -> bool:
        """Whether clients may add nothing to the table."""
        return self.table.size > OFFSETS_SIZE_LIMIT

    def has_room_for(self, group: str, topic: str, queue_id: int, commit: Commit) -> bool:
        """Return whether a client's commit may be stored: in a full table only what goes on from where a group is."""
        if not self.is_full:
            return True
        is_jump = commit.is_seek or commit.is_reset
        return not is_jump and 0 <= self.query_offset(group, topic, queue_id) <= commit.offset

    def claim(self, group: str, topic: str, queue_id: int, client_id: str) -> str:
        """A client takes a queue over from whoever had it; returns what its commits are to carry."""
        where = group, topic, queue_id
        self._claim_count += 1
        # With the client's id: another run of this broker, which counts anew, knows none of the claims of this one.
        ownership = f"{self._claim_count}@{client_id}"
        self._claims.pop(where, None)
        self._claims[where] = ownership
        if len(self._claims) > CLAIMS_LIMIT:
            del self._claims[next(iter(self._claims))]
        return ownership

    def is_owner(self, group: str, topic: str, queue_id: int, ownership: str) -> bool:
        """Whether nobody else claimed the queue here since."""
        return self._claims.get((group, topic, queue_id)) == ownership

    # --------------------------------------------------------------------------------------- reads

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """The group's offset; -1 when it never committed."""
        return self.table.query((topic, group), queue_id)

    def query_version(self, group: str, topic: str, queue_id: int) -> Version:
        """The group's offset with its generation; -1 when it never committed."""
        return self.table.version((topic, group), queue_id)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """The group's offsets on all queues of a topic."""
        return dict(self.table.offsets.get((topic, group), {}))

    def topics_of_group(self, group: str) -> list[str]:
        """Topics on which the group has committed."""
        return [topic for topic, committer in self.table if committer == group]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Groups that have committed on the topic."""
        return [group for committed, group in self.table if committed == topic]

    # ------------------------------------------------------------------------------------ operators

    def clone_offset(
        self, source_group: str, destination_group: str, topic: str
    ) -> Generator[None, None, None]:
        """Give one group the offsets of another in steps, as an operator's reset of each queue."""
        offsets = self.query_offsets(source_group, topic)
        for number, (queue_id, offset) in enumerate(offsets.items(), 1):
            self.commit_version(destination_group, topic, queue_id, Commit(offset, is_reset=True))
            if number % STEP_CLONED == 0:
                yield

    async def remove_topic(self, topic: str) -> None:
        """Forget all offsets on a topic, at once in the file too: a topic made anew is read from its beginning.

        Nothing else runs between the last of it and what the caller does next. Raises ConfigFileError; they are as
        before then.
        """
        async with self._turn:
            await in_steps(self.removal(topic=topic))
            self.table.remove_rest(topic)

    async def remove_group(self, group: str) -> None:
        """Forget all offsets of a group, at once in the file too. Raises ConfigFileError; they are as before then."""
        async with self._turn:
            await in_steps(self.removal(group=group))

    def removal(
        self, *, topic: str | None = None, group: str | None = None
    ) -> Generator[None, None, None]:
        """Forget all offsets of a topic or a group in steps: first in the files, then here."""
        take_back = yield from self.table.remove(topic=topic, group=group)
        try:
            yield from self._persist_in_steps()
        except ConfigFileError:
            take_back()
            raise
        yield from self.table.forget_void(topic=topic, group=group)

    def topic_floor(self, topic: str) -> Generation:
        """Below which offsets on the topic are void, as it was deleted."""
        return self.table.topic_floor(topic)

    def void_topic(self, topic: str, floor: Generation) -> bool:
        """Forget the offsets that another broker removed with the topic; whether that is news."""
        return self.table.remove_below(topic, floor)

    # ---------------------------------------------------------------------------------- other brokers

    def join(self, other: OffsetTable) -> int:
        """Take what is newer at a master with versions, queue by queue; returns how many queues changed."""
        self._is_copy = True
        return self.table.join(other)

    def cut(self, queue_end: QueueEnd) -> int:
        """Lower to its end what lies beyond the end of a queue, for a broker that begins to take messages.

        Only where that can be: the log became shorter, or offsets were copied from a master faster than messages.
        """
        if not self._is_copy and not self._has_lost_messages:
            return 0
        self._is_copy = self._has_lost_messages = False
        beyond = self.table.cut(queue_end)
        for (topic, group), queue_id, version in beyond[:CUTS_SHOWN]:
            logger.warning(
                "consumer offset lay beyond the queue's end group=%s topic=%s queue_id=%d offset=%d now=%d of=%d",
                group, topic, queue_id, version.offset,
                self.query_offset(group, topic, queue_id), len(beyond),
            )  # fmt: skip
        if beyond:
            self._count_cut(beyond)
        self.table.change_count += 1  # It is no copy any more: that is to be written too.
        self._persist_or_later()
        return len(beyond)

    def _count_cut(self, beyond: Sequence[tuple[TopicAndGroup, int, Version]]) -> None:
        lost: dict[tuple[str, int], int] = {}
        for (topic, group), queue_id, version in beyond:
            missing = version.offset - self.query_offset(group, topic, queue_id)
            lost[topic, queue_id] = max(missing, lost.get((topic, queue_id), 0))
        messages = sum(lost.values())
        logger.error(
            "messages that groups had read are not in the log messages=%d queues=%d groups=%d",
            messages, len(lost), len({group for (_, group), _, _ in beyond}),
        )  # fmt: skip
        self.offsets_cut += len(beyond)
        self.messages_cut += messages

    def take_over(
        self, body: VersionedConsumerOffsets, *, queue_end: QueueEnd | None = None
    ) -> int:
        """Take what is newer at a slave, for a master that comes back; returns how many queues changed.

        From a body without versions, an Apache slave's, only what is higher and was never lowered here. With
        `queue_end` nothing beyond the end of its queue: messages that come there would be skipped.
        """
        if body.rocketrio_versions is None:
            changed = self.table.join_plain(offsets_by_key(body), queue_end=queue_end)
        else:
            other = OffsetTable.from_body(body)
            if self._is_foreign:
                self._adopt_generations(other)
            changed = self.table.join(other, queue_end=queue_end)
        self._persist_or_later()
        return changed

    def _adopt_generations(self, other: OffsetTable) -> None:
        """Ours are progress of an unknown generation: of the one that a broker with versions knows."""
        for key, queue_id, version in other.versions():
            here = self.table.query(key, queue_id)
            if here >= 0 and version.generation > FIRST:
                self.table.join_version(key, queue_id, Version(here, version.generation))

    def observe(
        self,
        before: Mapping[TopicAndGroup, Mapping[int, int]],
        now: Mapping[TopicAndGroup, Mapping[int, int]],
    ) -> None:
        """Follow an Apache master between two looks at its offsets."""
        self._is_copy = True
        self.table.observe(before, now)

    async def answer(self, *, with_versions: bool) -> bytes:
        """Return the answer to 43. Who comes while one is written shares the next one with all who do."""
        return await (self._versioned_answer if with_versions else self._answer).get()

    def body(self, *, with_versions: bool) -> Generator[None, None, bytes]:
        """Write all offsets as they stand now, in steps, with their versions for those who ask for them."""
        writing = yield from self.table.written(is_file=False)
        members: dict[str, Any] = {"offsetTable": writing.offsets}
        if with_versions:
            members["rocketrioVersions"] = writing.versions
        return fastjson.dumps(members)

    # --------------------------------------------------------------------------------------- files

    def persist(self) -> None:
        """Write the files if there is something new."""
        all_at_once(self._persist_in_steps())

    def _persist_in_steps(self) -> Generator[None, None, None]:
        """Do the same in steps, unless `persist` overtakes it."""
        if self._written == self.table.change_count:
            return
        written, writes = self.table.change_count, self._writes
        self._journal.rotate()
        writing = yield from self.table.written(is_file=True)
        if writes != self._writes:
            return
        # The snapshot first: whoever finds an older consumerOffset.json knows by its checksum that we wrote it.
        tried = self._checksums[1:][2 - CHECKSUMS_KEPT :]
        self._checksums = [*self._checksums[:1], *tried, writing.checksum]
        snapshot = {
            "checksums": self._checksums,
            "isCopy": self._is_copy,
            "logEnd": self._log_end(),
            "offsetTable": writing.offsets,
            "rocketrioVersions": writing.versions,
        }
        self._snapshot_file.write(snapshot)
        yield
        if writes != self._writes:
            return
        self._file.write({"offsetTable": writing.offsets})
        self._checksums = [writing.checksum]
        self._written = written
        self._writes += 1

    def _persist_or_later(self) -> None:
        try:
            self.persist()
        except ConfigFileError as error:
            # They stay in memory and are written with the next round: a full disk must not end a broker.
            logger.debug("consumer offsets not written, will retry error=%s", error)

    async def sync(self) -> None:
        """Return once what is in the files is safe from a power cut too. Raises ConfigFileError."""
        await self._disk.run(self._sync)

    def _sync(self) -> None:
        self._snapshot_file.sync()
        self._file.sync()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the files on a period; the last time, when nobody commits any more, is `close`."""
        self._journal.open()
        task_status.started()
        async for _ in every(self._flush_interval):
            try:
                self._snapshot_file.renew()
                self._file.renew()
                async with self._turn:
                    await in_steps(self._persist_in_steps())
                await self.sync()
                self._journal.clear_old()
            except (OSError, ConfigFileError) as error:
                # They stay in memory and are written with the next round: a full disk must not end a broker.
                logger.debug("consumer offsets not written, will retry error=%s", error)

    def close(self) -> None:
        """Write the files for the last time, when nobody commits any more. Raises ConfigFileError."""
        is_covered = False
        try:
            self.persist()
            self._sync()
            is_covered = True
        finally:
            self._journal.close(is_covered=is_covered)


def count_unread(
    table: OffsetTable, gone: Mapping[tuple[str, int], tuple[int, int]]
) -> tuple[int, int]:
    """How much of these parts of queues (from, to) groups had not read, counted for each, and how many groups."""
    messages, groups = 0, set()
    for (topic, group), queues in table.offsets.items():
        for queue_id, offset in queues.items():
            start, end = gone.get((topic, queue_id), (0, 0))
            if max(start, offset) < end:
                messages += end - max(start, offset)
                groups.add(group)
    return messages, len(groups)
