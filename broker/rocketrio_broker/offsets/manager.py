"""The offsets that each group has committed for each queue, and the files that keep them.

    config/consumerOffset.json     identical to Apache's; its brokers can start from it
    config/rocketrioOffsets.json   the same offsets with their versions, and checksums of what was written to the first
    config/rocketrioOffsets.?.log  what was committed since (journal.py)

If the first file is not as this broker wrote it, an Apache broker has run on this directory: decreases in it are
deliberate, and increases are progress (`OffsetTable.observe`).

Invariant: an acknowledged commit survives kill -9; a power cut undoes commits of one flush interval at most.
Invariant: only version.py decides what makes one offset newer than another.
Answers to: ConsumerOffsetManager; RocketMQ reference, sections 2.4 and 5.7.
Unlike Java: offsets have versions, so that those of a master and of its slaves can be joined (docs/decisions/0014).
"""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from functools import cache, partial
from math import inf
from time import perf_counter
from typing import Any, Final

import attrs
import trio

from rocketrio_broker.offsets.journal import OffsetJournal
from rocketrio_broker.offsets.table import (
    STEP_OFFSETS,
    OffsetTable,
    QueueEnd,
    TopicAndGroup,
    epochs_by_key,
    joined_checksum,
    offsets_by_key,
)
from rocketrio_broker.offsets.version import FIRST, Commit, Generation, Version
from rocketrio_broker.requests.steps import SharedWork, in_steps
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.tables.versioned_table import TABLE_SIZE_LIMIT
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetSnapshot,
    ConsumerOffsetWrapper,
    OffsetVersions,
    VersionedConsumerOffsets,
)
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.errors import RemoteProtocolError
from rocketrio_protocol.names import (
    LEDGER_END_ID,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
    TRANSACTION_GROUP,
)
from rocketrio_protocol.steps import all_at_once

logger = logging.getLogger("rocketrio_broker.offsets")

OVERTAKEN_MESSAGES: Final = 32
"""The most messages by which a commit that was overtaken lowers an offset: those of one pull."""
OVERTAKEN_WITHIN: Final = 10.0
"""Seconds after a higher commit in which such a commit still arrives: two periods of a client's commits."""
FLUSH_CONSUMER_OFFSET_INTERVAL: Final = 5.0  # flushConsumerOffsetInterval
SNAPSHOT_NAME: Final = "rocketrioOffsets.json"
CHECKSUMS_KEPT: Final = 16
"""Checksums of what consumerOffset.json may contain: the last write that succeeded, and the attempts since then."""
CUTS_SHOWN: Final = 20
"""The most log lines for offsets beyond the end of their queue; each line has the total."""
OFFSETS_SIZE_LIMIT: Final = TABLE_SIZE_LIMIT
"""Bytes of all offsets as JSON, to which clients may add: a slave copies them in one answer too."""
STEP_CLONED: Final = 256
"""Offsets that are cloned in one step: some 5 ms."""
RESETS_LIMIT: Final = 10_000
"""Groups whose resets, or dropped commits, are counted; the oldest are forgotten."""
LEDGER_KEYS: Final = (TRANS_HALF_TOPIC, TRANSACTION_GROUP), (TRANS_OP_HALF_TOPIC, TRANSACTION_GROUP)
"""The progress of transactions. It holds only together, and only for the log in which it was made: an operation that is
lost decided half messages before it."""
CLAIMS_LIMIT: Final = 100_000
"""Queues of groups whose owner is known; the oldest claims are dropped, and made again when they matter."""


class _LastCommits:
    """The queues whose offset a plain commit has raised within the last `OVERTAKEN_WITHIN` seconds.

    Clients of Apache commit with pulls and on a timer, over connections whose requests may overtake each other, and the
    last commit wins. Such a step back is made good by the next commit, and is no set-back of a group.
    """

    def __init__(self) -> None:
        self._times: dict[tuple[TopicAndGroup, int], float] = {}

    def note(self, where: tuple[TopicAndGroup, int], now: float) -> None:
        """Record that the offset was raised now; forget the queues where that was long ago."""
        times = self._times
        times.pop(where, None)
        times[where] = now
        while now - times[first := next(iter(times))] > OVERTAKEN_WITHIN:
            del times[first]

    def is_recent(self, where: tuple[TopicAndGroup, int], now: float) -> bool:
        """Return whether the queue's offset was raised a short time ago."""
        return now - self._times.get(where, -inf) <= OVERTAKEN_WITHIN


@attrs.define
class _Claim:
    """A queue's owner, as this broker knows it."""

    ownership: str
    known: Version
    """The stored offset as its claim was answered, and as its own commits have changed it since."""


class ConsumerOffsetManager:
    """The table of one broker, with its files."""

    def __init__(
        self,
        *,
        file: ConfigFile,
        disk: Disk,
        flush_interval: float = FLUSH_CONSUMER_OFFSET_INTERVAL,
        log_end: Callable[[], int] = lambda: 0,
        log_epoch: Callable[[], str | None] = lambda: None,
        ends_of_epoch: Callable[[str], QueueEnd | None] = lambda _: None,
        now: Callable[[], float] = perf_counter,
    ) -> None:
        """Create an empty table.

        `log_end` is the end of the log; offsets are checked if it became shorter. `log_epoch` is the log's last epoch;
        other brokers learn by it which messages the offsets count. `ends_of_epoch` returns where the queues end in the
        part of this log that a log with that last epoch has too.
        """
        self._file = file
        self._snapshot_file = ConfigFile(file.path.with_name(SNAPSHOT_NAME), disk=disk)
        self._journal = OffsetJournal(file.path.parent, disk=disk)
        self._disk = disk
        self._flush_interval = flush_interval
        self._written = 0
        self._writes = 0
        self._synced_writes = -1
        """The number of writes that a power cut cannot undo any more; less than `_writes` until a sync."""
        self._turn = trio.Lock()
        """Held while the files are written in steps."""
        self._answer = SharedWork(partial(self.body, with_versions=False))
        self._versioned_answer = SharedWork(partial(self.body, with_versions=True))
        self._checksums: list[int] = []
        self._claims: dict[tuple[str, str, int], _Claim] = {}
        self._being_removed: dict[str, int] = {}
        """The incarnations of topics whose offsets are being removed: their queues still have the old messages."""
        self._claim_count = 0
        self._now = now
        self._raised = _LastCommits()
        self._log_end = log_end
        self._log_epoch = log_epoch
        self._ends_of_epoch = ends_of_epoch
        self._written_epoch: str | None = None
        """The epoch that the snapshot names; None if it names none, or if it does not hold for these offsets."""
        self._is_copy = False
        self._has_lost_messages = False
        self._is_of_unknown_log = False
        """Whether offsets come from a file that does not say for which log they count."""
        self.resets: dict[str, int] = {}
        """How many offsets of each group an operator has reset since the start."""
        self.refused: dict[str, int] = {}
        """How many commits of each group were dropped since the start."""
        self.offsets_cut = 0
        """Queues of groups whose offset was beyond the end of the queue when this broker became master."""
        self.messages_cut = 0
        """Messages that those groups had read and that are not in the log."""
        self._is_foreign = False
        """True if the offsets come from a broker without versions; slaves may know their generation better."""
        self.sync_wanted = Watermark()
        """Counts the changes of other brokers that should be on the disk soon: a power cut would undo a deletion."""
        self.table = OffsetTable()
        self.unreadable = ""
        """Why the files could not be read, until the offsets are known from another broker. They stay as they are."""
        self.named_epochs: dict[tuple[TopicAndGroup, int], tuple[Version, str | None]] = {}
        """On a slave, offsets that its master may not know yet and the epochs whose messages they count."""
        self.known_in: str | None = None
        """On a slave, the epoch whose messages all other offsets count: the log's last when it last copied them.

        It is kept in the files: after a restart the log may have other epochs than the offsets count.
        """

    @property
    def offset_table(self) -> dict[TopicAndGroup, dict[int, int]]:
        """(topic, group) to queue id to offset; for reading only."""
        return self.table.offsets

    def load(self) -> None:
        """Load the offsets from the files."""
        snapshot = self._snapshot_file.load_table(ConsumerOffsetSnapshot)
        if snapshot is None:
            stored = self._file.load_table(ConsumerOffsetWrapper)
            self._is_foreign = self._is_of_unknown_log = stored is not None
            if stored is None:
                self.unreadable = self._snapshot_file.unreadable or self._file.unreadable
            self.table.observe({}, {} if stored is None else offsets_by_key(stored))
        else:
            self.table = OffsetTable.from_body(snapshot)
            self._checksums = snapshot.checksums
            self._is_copy = snapshot.is_copy
            self._has_lost_messages = snapshot.log_end > self._log_end()
            if (versions := snapshot.rocketrio_versions) is not None:
                self.known_in = self._written_epoch = versions.epoch or None
                self.named_epochs = self.named_by(versions, self.table, known_in=versions.epoch)
            self._follow_changes(snapshot)
        for key, queue_id, version, epoch in self._journal.load():
            is_newer = self.table.join_version(key, queue_id, version)
            # What the snapshot has too it was written after: its word on the epoch is the later one.
            if is_newer and epoch not in ("", self.known_in):
                self.named_epochs[key, queue_id] = self.table.version(key, queue_id), epoch
            # Possibly: the broker was killed, and the length of the log at that time is not known.
            self._has_lost_messages = True

    def drop_unreadable(self) -> None:
        """Go on without what unreadable files held, and write them again."""
        if self.unreadable:
            self.unreadable = ""
            self.table.change_count += 1
            self._persist_or_later()

    def _follow_changes(self, snapshot: ConsumerOffsetSnapshot) -> None:
        """Take over changes of another program to consumerOffset.json; a torn or missing file is ignored."""
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
            logger.warning(
                "offsets taken from one file alone file=%s error=%s", SNAPSHOT_NAME, error
            )
            return
        finally:
            file.close()
        # Other versions had other checksums.
        is_same = stored.offset_table == snapshot.offset_table
        if not is_same and joined_checksum(0, stored.offset_table) not in self._checksums:
            logger.warning("consumer offsets were changed by another program file=%s", path)
            self._is_of_unknown_log = True
            self.table.observe(offsets_by_key(snapshot), offsets_by_key(stored))
            self.known_in = self._written_epoch = None

    def named_by(
        self, versions: OffsetVersions, table: OffsetTable, *, known_in: str | None
    ) -> dict[tuple[TopicAndGroup, int], tuple[Version, str | None]]:
        """Return the epochs of offsets that a body's table and this one have, as far as they are not `known_in`.

        A body names some of them; all others are of its own epoch.
        """
        epochs = epochs_by_key(versions)
        if versions.epoch not in ("", known_in):
            queues_by_key = table.offsets.items()
            own = {
                (key, queue_id): versions.epoch for key, ids in queues_by_key for queue_id in ids
            }
            epochs = own | epochs
        return {
            (key, queue_id): (version, epoch)
            for (key, queue_id), epoch in epochs.items()
            if (version := table.version(key, queue_id)) == self.table.version(key, queue_id)
        }

    def epoch_of(self, key: TopicAndGroup, queue_id: int) -> str | None:
        """Return the epoch whose messages a slave's offset counts; None if it is not known, and on a master."""
        named = self.named_epochs.get((key, queue_id))
        if named is not None and named[0] == self.table.version(key, queue_id):
            return named[1]
        return self.known_in

    def _epoch_below(self, key: TopicAndGroup, queue_id: int, offset: int) -> str | None:
        """Return the epoch of an offset that is set without one, if it is not the one of most offsets here.

        An operator names none. What he sets back lies in the log whose messages the present offset counts, although
        this slave's log may not reach that far.
        """
        named = self.named_epochs.get((key, queue_id))
        if named is None:
            return None
        version, epoch = named
        is_below = version == self.table.version(key, queue_id) and offset <= version.offset
        return epoch if is_below else None

    # ------------------------------------------------------------------------------------- commits

    def commit_offset(self, group: str, topic: str, queue_id: int, offset: int) -> None:
        """Store a plain commit: the last one wins. An invalid offset, which may come with a pull, is ignored."""
        if offset < 0:
            return
        key = topic, group
        epoch = self._epoch_below(key, queue_id, offset)
        before = self.table.commit(key, queue_id, offset)
        if before == offset:
            return
        after = self.table.version(key, queue_id)
        self._record(key, queue_id, after, epoch)
        if epoch is not None:
            self.named_epochs[key, queue_id] = after, epoch
        now, where = self._now(), (key, queue_id)
        if offset > before:
            self._raised.note(where, now)
        elif before - offset <= OVERTAKEN_MESSAGES and self._raised.is_recent(where, now):
            logger.debug(
                "commit was overtaken group=%s topic=%s queue_id=%d offset=%d before=%d",
                group, topic, queue_id, offset, before,
            )  # fmt: skip
        else:
            logger.warning(
                "consumer offset lowered group=%s topic=%s queue_id=%d offset=%d before=%d",
                group, topic, queue_id, offset, before,
            )  # fmt: skip

    def commit_version(
        self, group: str, topic: str, queue_id: int, commit: Commit, *, epoch: str | None = None
    ) -> tuple[CommitOutcome, Version]:
        """Store a commit by the rules of versions; return its outcome and the stored version.

        `epoch` is the epoch from which the position comes: a slave reports it to its master, and a broker that becomes
        master needs it for what is committed before `cut`. A master's offsets are all of its own log.
        """
        if not self._is_copy and self.known_in is None:
            epoch = None
        key = topic, group
        epoch = epoch or self._epoch_below(key, queue_id, commit.offset)
        before = self.table.version(key, queue_id)
        outcome = self.table.apply(key, queue_id, commit)
        after = self.table.version(key, queue_id)
        if after != before:
            if commit.is_reset:
                _count(self.resets, group)
            self._record(key, queue_id, after, epoch)
            if epoch is not None:
                self.named_epochs[key, queue_id] = after, epoch
            if after.offset < before.offset:
                logger.warning(
                    "consumer offset set back by=%s group=%s topic=%s queue_id=%d offset=%d before=%d",
                    "a reset" if commit.is_reset else "a seek",
                    group, topic, queue_id, after.offset, before.offset,
                )  # fmt: skip
        if outcome is not CommitOutcome.STORED:
            self.count_refused(group)
        elif commit.is_owner:
            claim = self._claims.get((group, topic, queue_id))
            if claim is not None and claim.known == before:
                claim.known = after
        return outcome, after

    def count_refused(self, group: str) -> None:
        """Count a commit that is dropped."""
        _count(self.refused, group)

    def _record(
        self, key: TopicAndGroup, queue_id: int, version: Version, epoch: str | None = None
    ) -> None:
        """Write a commit to the journal, with its epoch unless that is the snapshot's.

        A power cut may keep this line and undo the snapshot, if that is not synced: then the line names its epoch too.
        """
        counted = epoch or self._counted_in
        is_of_snapshot = counted == self._written_epoch and self._synced_writes == self._writes
        named = "" if is_of_snapshot else counted or ""
        self._journal.append(key, queue_id, version, named)

    @property
    def _counted_in(self) -> str | None:
        """The epoch whose messages the offsets count that name none."""
        # A slave's offsets may count messages that it has just cut off, of an epoch that its log no longer has.
        return self.known_in or self._log_epoch()

    @property
    def is_full(self) -> bool:
        """Whether clients must not add to the table."""
        return self.table.size > OFFSETS_SIZE_LIMIT

    def has_room_for(self, group: str, topic: str, queue_id: int, commit: Commit) -> bool:
        """Return True if a commit may be stored: into a full table only one that continues from a group's offset."""
        if not self.is_full:
            return True
        is_jump = commit.is_seek or commit.is_reset
        return not is_jump and 0 <= self.query_offset(group, topic, queue_id) <= commit.offset

    def claim(self, group: str, topic: str, queue_id: int, client_id: str) -> str:
        """Let a client take a queue over from its former owner; return the text that its commits must carry."""
        where = group, topic, queue_id
        self._claim_count += 1
        # With the client's id: after a restart the count begins again, and the earlier claims are unknown.
        ownership = f"{self._claim_count}@{client_id}"
        self._claims.pop(where, None)
        self._claims[where] = _Claim(ownership, self.query_version(group, topic, queue_id))
        if len(self._claims) > CLAIMS_LIMIT:
            del self._claims[next(iter(self._claims))]
        return ownership

    def is_owner(self, group: str, topic: str, queue_id: int, ownership: str) -> bool:
        """Return True if no other client has claimed the queue here since."""
        claim = self._claims.get((group, topic, queue_id))
        return claim is not None and claim.ownership == ownership

    def may_seek(self, group: str, topic: str, queue_id: int, ownership: str) -> bool:
        """Return True for the owner, unless others have changed the offset since its claim.

        The next owner may have claimed the queue at another broker while this seek was on its way.
        """
        stands = self.query_version(group, topic, queue_id)
        return self._claims.get((group, topic, queue_id)) == _Claim(ownership, stands)

    # --------------------------------------------------------------------------------------- reads

    def query_offset(self, group: str, topic: str, queue_id: int) -> int:
        """Return the group's offset, or -1 if it never committed."""
        return self.table.query((topic, group), queue_id)

    def query_version(self, group: str, topic: str, queue_id: int) -> Version:
        """Return the group's offset with its generation; the offset is -1 if it never committed."""
        return self.table.version((topic, group), queue_id)

    def query_offsets(self, group: str, topic: str) -> dict[int, int]:
        """Return the group's offsets on all queues of a topic."""
        return dict(self.table.offsets.get((topic, group), {}))

    def topics_of_group(self, group: str) -> list[str]:
        """Return the topics on which the group has committed."""
        return [topic for topic, committer in self.table if committer == group]

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that have committed on the topic."""
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
        """Remove all offsets on a topic, also from the files: a topic that is created again is read from its beginning.

        No other task runs between the end of this and the caller's next action. Raises ConfigFileError, after which the
        offsets are as before.
        """
        async with self._turn:
            self._being_removed[topic] = self.incarnation(topic)
            try:
                await in_steps(self.removal(topic=topic))
                self.table.remove_rest(topic)
            finally:
                del self._being_removed[topic]

    async def remove_group(self, group: str) -> None:
        """Remove all offsets of a group, also from the files. Raises ConfigFileError; then nothing is removed."""
        async with self._turn:
            await in_steps(self.removal(group=group))

    def removal(
        self, *, topic: str | None = None, group: str | None = None
    ) -> Generator[None, None, None]:
        """Remove all offsets of a topic or a group in steps: first from the files, then from memory."""
        # Void, but kept until the files are written: if that fails, they are taken back as if nothing had happened.
        take_back = yield from self.table.remove(topic=topic, group=group)
        try:
            yield from self._persist_in_steps()
        except ConfigFileError:
            take_back()
            raise
        yield from self.table.forget_void(topic=topic, group=group)

    def topic_floor(self, topic: str) -> Generation:
        """Return the generation below which offsets on the topic are void because the topic was deleted."""
        return self.table.topic_floor(topic)

    def incarnation(self, topic: str) -> int:
        """Return a number that grows when the topic is deleted; 0 before the first deletion."""
        known = self._being_removed.get(topic)
        return self.table.topic_floor(topic).resets if known is None else known

    def void_topic(self, topic: str, floor: Generation) -> bool:
        """Remove the offsets that another broker removed with the topic; return True if that changed anything."""
        if not self.table.remove_below(topic, floor):
            return False
        self._want_sync()
        return True

    def undo_removal(self, topic: str, floor: Generation) -> None:
        """Take offsets of a topic again that a deletion had made void, which is not in the log any more."""
        if self.table.undo_removal(topic, floor):
            self._want_sync()

    def _want_sync(self) -> None:
        self.sync_wanted.advance(self.sync_wanted.value + 1)

    # ---------------------------------------------------------------------------------- other brokers

    def begin_copy(self, epoch: str | None) -> None:
        """Note that this broker is a slave now: members may commit what its log does not have yet.

        `epoch` is the last epoch of its log. Offsets that were copied before, perhaps before a restart, count those of
        the epoch that was the last one then.
        """
        self._is_copy = True
        if self.known_in is None:
            self.known_in = epoch

    def join(self, other: OffsetTable) -> int:
        """Take offsets that are newer at a master with versions; return how many queues changed."""
        self._is_copy, self.unreadable = True, ""
        if self.table.has_removed_less_than(other):
            self._want_sync()
        return self.table.join(other)

    def note_copy(self, epoch: str | None) -> None:
        """Note that the offsets count messages of this epoch now, except for those that name another one."""
        if epoch != self.known_in:
            self.known_in = epoch
            self._want_sync()

    def cut(self, queue_end: QueueEnd) -> int:
        """Lower offsets beyond the end of their queue to that end, once; called when this broker becomes master.

        Only needed if the log became shorter, if offsets were copied from a master faster than messages, or if their
        file may belong to another log: messages that get these numbers now would be skipped. An offset that counts
        messages of another history is lowered to where the two part. If decisions about transactions are lost so, all
        that are left are read again.
        """
        was_longer = self._is_copy or self._has_lost_messages
        must_compare = was_longer or self._is_of_unknown_log
        beyond = self.table.cut(self._limit(queue_end)) if must_compare else []
        self.known_in, self.named_epochs = None, {}
        self._is_copy = self._has_lost_messages = self._is_of_unknown_log = False
        for (topic, group), queue_id, version in beyond[:CUTS_SHOWN]:
            logger.warning(
                "consumer offset lay beyond the queue's end group=%s topic=%s queue_id=%d offset=%d now=%d of=%d",
                group, topic, queue_id, version.offset,
                self.query_offset(group, topic, queue_id), len(beyond),
            )  # fmt: skip
        if was_longer and (of_readers := [one for one in beyond if one[0] not in LEDGER_KEYS]):
            self._count_cut(of_readers)
        if must_compare:
            self.table.change_count += 1  # The file must also say that it is not a copy now.
            self._persist_or_later()
        return len(beyond)

    def _limit(self, queue_end: QueueEnd) -> Callable[[TopicAndGroup, int], int]:
        """Return a function that returns how far an offset counts messages that are in this log."""
        ends_of_epoch = cache(self._ends_of_epoch)

        def limit(key: TopicAndGroup, queue_id: int) -> int:
            epoch = self.epoch_of(key, queue_id)
            queue_id = 0 if key in LEDGER_KEYS else queue_id
            end = queue_end(key[0], queue_id)
            ends = None if epoch is None else ends_of_epoch(epoch)
            return end if ends is None else min(end, ends(key[0], queue_id))

        def limit_without_ledger(key: TopicAndGroup, queue_id: int) -> int:
            return 0 if key in LEDGER_KEYS else limit(key, queue_id)

        is_ledger_beyond = any(
            self.table.query(key, queue_id) > limit(key, queue_id)
            for key in LEDGER_KEYS
            for queue_id in (0, LEDGER_END_ID)
        )
        return limit_without_ledger if is_ledger_beyond else limit

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
        """Take offsets that are newer at a slave, for a master that comes back; return how many queues changed.

        From a body without versions (an Apache slave's) take only offsets that are higher and were never lowered here.
        With `queue_end` take nothing beyond the end of its queue, because messages that come there would be skipped.
        """
        if body.rocketrio_versions is None:
            changed = self.table.join_plain(offsets_by_key(body), queue_end=queue_end)
        else:
            other = OffsetTable.from_body(body)
            if self._is_foreign:
                self._adopt_generations(other)
            changed = self.table.join(other, queue_end=queue_end)
        if body.offset_table:
            self.unreadable = ""
        self._persist_or_later()
        return changed

    def _adopt_generations(self, other: OffsetTable) -> None:
        """Give our offsets, of unknown generation, the generation that a broker with versions knows."""
        for key, queue_id, version in other.versions():
            here = self.table.query(key, queue_id)
            if here >= 0 and version.generation > FIRST:
                self.table.join_version(key, queue_id, Version(here, version.generation))

    def observe(
        self,
        before: Mapping[TopicAndGroup, Mapping[int, int]],
        now: Mapping[TopicAndGroup, Mapping[int, int]],
    ) -> None:
        """Take over the changes of an Apache master's offsets between two copies."""
        self._is_copy, self.unreadable = True, ""
        self.table.observe(before, now)

    async def answer(self, *, with_versions: bool) -> bytes:
        """Return the answer to 43. Requests that come while one is written share the next one."""
        return await (self._versioned_answer if with_versions else self._answer).get()

    def body(self, *, with_versions: bool) -> Generator[None, None, bytes]:
        """Encode all current offsets in steps, with their versions if requested."""
        epochs = self._epochs()
        writing = yield from self.table.written(is_file=False)
        members: dict[str, Any] = {"offsetTable": writing.offsets}
        if with_versions:
            members["rocketrioVersions"] = {**writing.versions, **epochs}
        return fastjson.dumps(members)

    def _epochs(self) -> dict[str, Any]:
        """Return the epochs whose messages the offsets count, as members of an OffsetVersions."""
        epochs: dict[str, dict[int, str]] = {}
        for ((topic, group), queue_id), (version, named) in self.named_epochs.items():
            if named is not None and version == self.table.version((topic, group), queue_id):
                epochs.setdefault(f"{topic}@{group}", {})[queue_id] = named
        return {"epoch": self._counted_in or "", "epochs": epochs}

    # --------------------------------------------------------------------------------------- files

    def persist(self) -> None:
        """Write the files if something has changed."""
        all_at_once(self._persist_in_steps())

    def _persist_in_steps(self) -> Generator[None, None, None]:
        """Write the files in steps, unless `persist` overtakes it."""
        if self.unreadable:
            return
        epoch = self._counted_in
        is_known = epoch == self._written_epoch or not len(self.table)
        if self._written == self.table.change_count and is_known:
            return
        # Before the snapshot is taken: what is committed while it is encoded is
        # in the other file, which is not cleared with it.
        written, writes, epochs = self.table.change_count, self._writes, self._epochs()
        self._journal.rotate()
        writing = yield from self.table.written(is_file=True)
        if writes != self._writes:
            return
        # The snapshot first: its checksums show that an older consumerOffset.json was written by this broker.
        tried = self._checksums[1:][2 - CHECKSUMS_KEPT :]
        self._checksums = [*self._checksums[:1], *tried, writing.checksum]
        snapshot = {
            "checksums": self._checksums,
            "isCopy": self._is_copy,
            "logEnd": self._log_end(),
            "offsetTable": writing.offsets,
            "rocketrioVersions": {**writing.versions, **epochs},
        }
        self._written_epoch = None  # What is committed before the next step names its epoch.
        self._snapshot_file.write(snapshot)
        yield
        if writes != self._writes:
            return
        # After it only this checksum: an older file that appears here later was put there by another program.
        self._file.write({"offsetTable": writing.offsets})
        self._checksums = [writing.checksum]
        self._written, self._written_epoch = written, epoch
        self._writes += 1

    def _persist_or_later(self) -> None:
        try:
            self.persist()
        except ConfigFileError as error:
            # They stay in memory and are written in the next round: a full disk must not end a broker.
            logger.debug("consumer offsets not written, will retry error=%s", error)

    async def sync(self) -> None:
        """Return once the content of the files is safe from a power cut too. Raises ConfigFileError."""
        writes = self._writes
        await self._disk.run(self._sync)
        self._synced_writes = writes

    def _sync(self) -> None:
        self._snapshot_file.sync()
        self._file.sync()

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Write the files on a period, and soon when that is wanted; `close` writes them the last time."""
        self._journal.open()
        task_status.started()
        while True:
            wanted = self.sync_wanted.value
            try:
                self._snapshot_file.renew()
                self._file.renew()
                async with self._turn:
                    await in_steps(self._persist_in_steps())
                await self.sync()
                # After the sync: until then a power cut may undo the snapshot, and these lines are all that is left.
                if not self.unreadable:
                    self._journal.clear_old()
            except (OSError, ConfigFileError) as error:
                # They stay in memory and are written in the next round: a full disk must not end a broker.
                logger.debug("consumer offsets not written, will retry error=%s", error)
            with trio.move_on_after(self._flush_interval):
                await self.sync_wanted.wait_past(wanted)

    def close(self) -> None:
        """Write the files for the last time, when no commits come any more. Raises ConfigFileError."""
        is_covered = False
        try:
            self.persist()
            self._sync()
            is_covered = not self.unreadable
        finally:
            self._journal.close(is_covered=is_covered)


def _count(counts: dict[str, int], group: str) -> None:
    counts[group] = counts.pop(group, 0) + 1
    if len(counts) > RESETS_LIMIT:
        del counts[next(iter(counts))]


def count_unread(
    table: OffsetTable, gone: Mapping[tuple[str, int], tuple[int, int]]
) -> Generator[None, None, tuple[int, int]]:
    """Count the messages of these parts of queues (from, to) that groups had not read, for each group; and groups.

    It is done in steps.
    """
    messages, groups, seen = 0, set(), 0
    for (topic, group), queues in list(table.offsets.items()):
        for queue_id, offset in queues.items():
            start, end = gone.get((topic, queue_id), (0, 0))
            if max(start, offset) < end:
                messages += end - max(start, offset)
                groups.add(group)
        seen += len(queues)
        if seen >= STEP_OFFSETS:
            seen = 0
            yield
    return messages, len(groups)
