import logging
import re
from contextlib import suppress
from pathlib import Path

import pytest
import trio
from tests.broker.builders import read, versioned
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS, unpack_store
from tests.support.failing_disk import FailingDisk

from rocketrio_broker.offsets.deleted_topics import DeletedTopics
from rocketrio_broker.offsets.journal import OffsetJournal
from rocketrio_broker.offsets.manager import LEDGER_KEYS, SNAPSHOT_NAME, ConsumerOffsetManager
from rocketrio_broker.offsets.table import OffsetTable, QueueEnd
from rocketrio_broker.offsets.version import FIRST, GENERATION_LIMIT, Commit, Generation, Version
from rocketrio_broker.store.consume_queue_table import ConsumeQueueTable
from rocketrio_broker.store.deletion import Deletion
from rocketrio_broker.store.disk import Disk, InlineDisk
from rocketrio_broker.store.dispatch import DelayLevels, QueueDispatcher
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.testing.kill_switch import KillSwitch
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetWrapper,
    OffsetVersions,
    VersionedConsumerOffsets,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.names import LEDGER_END_ID, TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC
from rocketrio_protocol.steps import all_at_once

FILE = Path("/data/config/consumerOffset.json")


def manager(disk: Disk | None = None) -> ConsumerOffsetManager:
    disk = MemoryDisk() if disk is None else disk
    return ConsumerOffsetManager(file=ConfigFile(FILE, disk=disk), disk=disk)


def loaded(disk: Disk) -> ConsumerOffsetManager:
    offsets = manager(disk)
    offsets.load()
    return offsets


def apache_writes(disk: MemoryDisk, table: dict[str, dict[int, int]]) -> None:
    """As an Apache broker that ran on the directory leaves it: its own file, and nothing that rocketrio writes."""
    ConfigFile(FILE, disk=disk).write(ConsumerOffsetWrapper(table))


def test_a_group_that_never_committed_has_no_offset() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 5)
    assert offsets.query_offset("G", "T", 0) == 5
    assert offsets.query_offset("G", "T", 1) == -1
    assert offsets.query_offset("H", "T", 0) == -1


@pytest.mark.parametrize(
    ("seconds", "offset", "level"),
    [
        (0.0, 99, "DEBUG"),
        (9.0, 68, "DEBUG"),  # The messages of one pull.
        (0.0, 67, "WARNING"),
        (11.0, 99, "WARNING"),  # Its group was quiet: an operator, or a member that lost its place.
    ],
)
def test_commit_that_a_higher_one_overtook_is_no_warning(
    seconds: float, offset: int, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    now = 1000.0
    disk = MemoryDisk()
    offsets = ConsumerOffsetManager(file=ConfigFile(FILE, disk=disk), disk=disk, now=lambda: now)
    caplog.set_level(logging.DEBUG, logger="rocketrio_broker.offsets")
    offsets.commit_offset("G", "T", 0, 100)
    offsets.commit_offset("G", "T", 1, 100)
    now += seconds
    offsets.commit_offset("H", "T", 0, 100)
    offsets.commit_offset("G", "T", 0, offset)
    assert offsets.query_offset("G", "T", 0) == offset
    assert [(record.levelname, record.args) for record in caplog.records] == [
        (level, ("G", "T", 0, offset, 100))
    ]


def test_the_last_commit_wins_a_lower_one_too() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 5)
    offsets.commit_offset("G", "T", 0, 3)
    assert offsets.query_offset("G", "T", 0) == 3


def test_offsets_of_a_topic_or_a_group_are_forgotten() -> None:
    offsets = manager()
    for group, topic in (("G", "T"), ("H", "T"), ("G", "U")):
        offsets.commit_offset(group, topic, 0, 1)
    assert offsets.topics_of_group("G") == ["T", "U"]
    assert offsets.groups_of_topic("T") == ["G", "H"]
    all_at_once(offsets.removal(topic="T"))
    assert list(offsets.offset_table) == [("U", "G")]
    all_at_once(offsets.removal(group="G"))
    assert not offsets.offset_table


def test_a_clone_does_not_follow_its_source() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 4)
    all_at_once(offsets.clone_offset("G", "H", "T"))
    offsets.commit_offset("G", "T", 0, 7)
    assert offsets.query_offsets("H", "T") == {0: 4}


async def test_the_file_is_written_on_a_period_and_at_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.run)
        await trio.sleep(1)
        offsets.commit_offset("G", "T", 0, 4)
        assert not disk.exists(FILE)
        await trio.sleep(5)
        assert b"{0:4" in read(disk, FILE)
        offsets.commit_offset("G", "T", 0, 5)
        nursery.cancel_scope.cancel()
    offsets.close()
    assert b"{0:5" in read(disk, FILE)


def test_an_unchanged_table_is_not_written() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets.persist()
    assert not disk.exists(FILE)


@pytest.mark.parametrize("run", VERSIONS)
def test_apache_files_are_taken_over(run: str, tmp_path: Path) -> None:
    disk = InlineDisk()
    path = unpack_store(run, "master", tmp_path) / "config" / FILE.name
    offsets = ConsumerOffsetManager(file=ConfigFile(path, disk=disk), disk=disk)
    offsets.load()
    assert offsets.query_offset("pullers", "orders", 0) == 3


def test_the_4_9_7_file_is_written_again_to_the_same_bytes(tmp_path: Path) -> None:
    path = unpack_store("4.9.7", "master", tmp_path) / "config" / FILE.name
    before = path.read_bytes()
    assert fastjson.dumps_pretty(fastjson.loads(before, ConsumerOffsetWrapper)) == before


def test_the_answer_to_43_is_written_as_java_writes_it() -> None:
    for exchange in exchanges_of("4.9.7", "broker", RequestCode.GET_ALL_CONSUMER_OFFSET):
        assert exchange.answer is not None
        body = bytes(exchange.answer.body)
        assert fastjson.dumps(fastjson.loads(body, ConsumerOffsetWrapper)) == body


async def test_a_full_disk_delays_the_file_and_ends_nothing(autojump_clock: trio.abc.Clock) -> None:
    disk = FailingDisk("rename")
    offsets = manager(disk)
    async with trio.open_nursery() as nursery:
        offsets.commit_offset("G", "T", 0, 5)
        await nursery.start(offsets.run)
        await trio.sleep(12)
        disk.fails_at = ""
        await trio.sleep(5)
        again = manager(disk)
        again.load()
        assert again.query_offset("G", "T", 0) == 5
        nursery.cancel_scope.cancel()


def test_a_removed_topics_offsets_do_not_come_back_after_a_kill() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets.commit_offset("G", "T", 0, 5)
    offsets.persist()
    all_at_once(offsets.removal(topic="T"))
    again = manager(disk)
    again.load()
    assert again.query_offset("G", "T", 0) == -1


def generation(offsets: ConsumerOffsetManager, queue_id: int = 0) -> str:
    return str(offsets.query_version("G", "T", queue_id).generation)


def test_versions_are_kept_beside_apache_s_file() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets.commit_offset("G", "T", 0, 100)
    offsets.commit_version("G", "T", 0, Commit(10, is_reset=True))
    all_at_once(offsets.removal(group="H"))
    offsets.persist()
    assert b"ersion" not in read(disk, FILE)
    again = loaded(disk)
    assert again.query_version("G", "T", 0) == offsets.query_version("G", "T", 0)
    assert versioned(again) == versioned(offsets)
    assert generation(again) == "1.0"


async def test_commits_that_were_answered_survive_kill_9(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, switch = MemoryDisk(), KillSwitch()
    offsets = manager(switch.disk(disk))
    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.run)
        for period in range(4):
            for queue_id in range(3):
                offsets.commit_offset("G", "T", queue_id, 100 + period)
            await trio.sleep(5)
        offsets.commit_offset("G", "T", 0, 200)
        offsets.commit_offset("G", "T", 1, 7)
        offsets.commit_version("G", "T", 2, Commit(3, is_reset=True))
        switch.kill()
        offsets.commit_offset("G", "T", 0, 300)
        nursery.cancel_scope.cancel()
    again = loaded(disk)
    assert again.query_offsets("G", "T") == {0: 200, 1: 7, 2: 3}
    assert [generation(again, queue_id) for queue_id in range(3)] == ["0.0", "0.1", "1.0"]


async def test_the_journal_holds_only_what_no_snapshot_on_the_disk_has(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    journals = [FILE.with_name(f"rocketrioOffsets.{number}.log") for number in range(2)]

    def size() -> int:
        return sum(len(read(disk, path)) for path in journals)

    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.run)
        await trio.sleep(1)
        for offset in range(50):
            offsets.commit_offset("G", "T", 0, offset)
        assert 1000 < size() < 3000
        await trio.sleep(5)
        assert size() == 0
        offsets.commit_offset("G", "T", 0, 60)
        assert 0 < size() < 100
        nursery.cancel_scope.cancel()
    offsets.close()
    assert size() == 0


async def test_a_torn_journal_is_read_up_to_where_it_is_whole(
    autojump_clock: trio.testing.MockClock,
) -> None:
    disk, switch = MemoryDisk(), KillSwitch()
    offsets = manager(switch.disk(disk))
    async with trio.open_nursery() as nursery:
        await nursery.start(offsets.run)
        await trio.sleep(1)
        offsets.commit_offset("G", "T", 0, 5)
        offsets.commit_offset("G", "T", 0, 6)
        switch.kill()
        nursery.cancel_scope.cancel()
    path = FILE.with_name("rocketrioOffsets.0.log")
    file = disk.open(path)
    file.truncate(file.size - 3)
    file.close()
    assert loaded(disk).query_offset("G", "T", 0) == 5


def test_an_apache_broker_s_changes_are_followed_and_versions_stay() -> None:
    disk = MemoryDisk()
    offsets = manager(disk)
    for queue_id in range(4):
        offsets.commit_offset("G", "T", queue_id, 100)
    offsets.commit_offset("G", "T", 0, 90)
    offsets.commit_offset("G", "U", 0, 1)
    offsets.persist()
    apache_writes(disk, {"T@G": {0: 95, 1: 10, 2: 100, 4: 3}})
    again = loaded(disk)
    assert again.offset_table == {("T", "G"): {0: 95, 1: 10, 2: 100, 4: 3}}
    assert [generation(again, queue_id) for queue_id in (0, 1, 2, 4)] == [
        "0.1",
        "0.1",
        "0.0",
        "0.0",
    ]


async def test_commits_apache_never_saw_are_not_lost_to_its_file(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Killed before it wrote them; then an Apache broker ran on the directory for a while."""
    disk, switch = MemoryDisk(), KillSwitch()
    offsets = manager(switch.disk(disk))
    async with trio.open_nursery() as nursery:
        offsets.commit_offset("G", "T", 0, 50)
        offsets.commit_offset("G", "T", 1, 50)
        await nursery.start(offsets.run)
        await trio.sleep(1)
        offsets.commit_offset("G", "T", 0, 100)
        offsets.commit_offset("G", "T", 1, 100)
        switch.kill()
        nursery.cancel_scope.cancel()
    apache_writes(disk, {"T@G": {0: 70, 1: 20}})
    assert loaded(disk).query_offsets("G", "T") == {0: 100, 1: 20}


def test_older_rocketrio_file_is_not_taken_for_apaches() -> None:
    """The newest consumerOffset.json is torn by a power cut; its backup is older than the snapshot."""
    disk = MemoryDisk()
    offsets = manager(disk)
    for offset in (10, 20, 30):
        offsets.commit_offset("G", "T", 0, offset)
        offsets.persist()
    file = disk.open(FILE)
    file.truncate(5)
    file.close()
    again = loaded(disk)
    assert again.query_offset("G", "T", 0) == 30
    assert generation(again) == "0.0"


def test_file_with_the_offsets_of_the_snapshot_was_not_changed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Another version of rocketrio wrote both files, and computed other checksums."""
    log = OfLog()
    before = log.started()
    before.commit_offset("G", "T", 0, 7)
    before.close()
    snapshot = FILE.with_name(SNAPSHOT_NAME)
    text = re.sub(rb'("checksums":\s*\[)[^]]*', rb"\g<1>1, 2", read(log.disk, snapshot))
    file = log.disk.open(snapshot)
    file.truncate(0)
    file.pwrite(text, 0)
    file.close()
    epoch, log.epoch = log.epoch, "2.9.b.a"
    again = log.started()
    assert again.query_offset("G", "T", 0) == 7
    assert epoch in str(named_by(again))
    assert "another program" not in caplog.text


def test_rocketrio_file_that_could_not_be_written_for_long_is_recognized() -> None:
    disk = FailingDisk(where=str(FILE))
    offsets = manager(disk)
    for offset in range(40):
        offsets.commit_offset("G", "T", 0, offset)
        with suppress(ConfigFileError):
            offsets.persist()
        disk.fails_at = "rename" if offset >= 9 else ""
    assert b"{0:9" in read(disk, FILE)
    again = loaded(disk)
    assert again.query_offset("G", "T", 0) == 39
    assert generation(again) == "0.0"


def test_offsets_are_checked_again_when_the_log_became_shorter() -> None:
    disk, log_end = MemoryDisk(), [1000]

    def opened() -> ConsumerOffsetManager:
        file = ConfigFile(FILE, disk=disk)
        offsets = ConsumerOffsetManager(file=file, disk=disk, log_end=lambda: log_end[0])
        offsets.load()
        return offsets

    offsets = opened()
    offsets.commit_offset("G", "T", 0, 120)
    offsets.persist()
    assert (
        opened().cut(lambda topic, queue_id: 100) == 0
    )  # It was committed: no group lost anything.
    log_end[0] = 900
    again = opened()
    assert again.cut(lambda topic, queue_id: 100) == 1
    assert (again.query_offset("G", "T", 0), generation(again)) == (100, "0.1")
    assert opened().query_offset("G", "T", 0) == 100


@pytest.mark.parametrize("is_edited", [False, True])
def test_offsets_of_a_file_of_another_program_are_lowered_once_and_are_no_alarm(
    is_edited: bool,
) -> None:
    """Its file does not say for which log they count: `config/` may be that of a broker whose log was removed."""
    disk = MemoryDisk()
    file = ConfigFile(FILE, disk=disk)
    if is_edited:
        offsets = ConsumerOffsetManager(file=file, disk=disk)
        offsets.commit_offset("G", "T", 0, 3)
        offsets.persist()
    file.write(ConsumerOffsetWrapper({"T@G": {0: 120, 1: 4}}))
    again = loaded(disk)
    assert again.cut(lambda topic, queue_id: 100) == 1
    assert again.query_offsets("G", "T") == {0: 100, 1: 4}
    assert again.messages_cut == 0
    again.commit_offset("G", "T", 0, 130)
    assert again.cut(lambda topic, queue_id: 100) == 0
    assert loaded(disk).cut(lambda topic, queue_id: 100) == 0


def test_offsets_of_a_former_slave_are_checked_although_it_reached_no_master() -> None:
    """Members that read at another broker commit here too, beyond what is in this log."""
    disk = MemoryDisk()
    offsets = ConsumerOffsetManager(file=ConfigFile(FILE, disk=disk), disk=disk)
    offsets.begin_copy(None)
    offsets.commit_offset("G", "T", 0, 120)
    assert offsets.cut(lambda topic, queue_id: 100) == 1
    assert offsets.query_offset("G", "T", 0) == 100


def test_slave_names_the_epoch_in_which_its_master_knew_its_offsets() -> None:
    """Its log may have lost that epoch since; a master's offsets are of its log."""
    disk, log_epoch = MemoryDisk(), "1.0.a."
    offsets = ConsumerOffsetManager(
        file=ConfigFile(FILE, disk=disk), disk=disk, log_epoch=lambda: log_epoch
    )

    def named() -> tuple[str, dict[str, dict[int, str]]]:
        versions = versioned(offsets).rocketrio_versions
        assert versions is not None
        return versions.epoch, versions.epochs

    assert named() == ("1.0.a.", {})
    offsets.begin_copy(log_epoch)
    log_epoch = "1.0.b."
    offsets.commit_version("G", "T", 0, Commit(7, FIRST), epoch="1.0.b.")
    offsets.commit_version("G", "T", 1, Commit(7, FIRST), epoch="1.0.b.")
    offsets.commit_offset("G", "T", 1, 8)
    assert named() == ("1.0.a.", {"T@G": {0: "1.0.b."}})
    offsets.cut(lambda topic, queue_id: 100)
    assert named() == ("1.0.b.", {})


def test_slave_keeps_the_epoch_of_an_offset_that_is_set_back_without_one() -> None:
    """An operator names none; this slave's log does not reach as far as the offset."""
    disk = MemoryDisk()
    offsets = ConsumerOffsetManager(
        file=ConfigFile(FILE, disk=disk), disk=disk, log_epoch=lambda: "1.0.a."
    )
    offsets.begin_copy("1.0.a.")
    for queue_id in range(4):
        offsets.commit_version("G", "T", queue_id, Commit(7, FIRST), epoch="1.0.b.")
    offsets.commit_version("G", "T", 0, Commit(5, is_reset=True))
    offsets.commit_offset("G", "T", 1, 5)
    # It is not known in which log an offset lies that is set forward.
    offsets.commit_version("G", "T", 2, Commit(8, is_reset=True))
    offsets.commit_offset("G", "T", 3, 8)
    assert named_by(offsets) == ("1.0.a.", {"T@G": {0: "1.0.b.", 1: "1.0.b."}})


class OfLog:
    """A broker's offsets over restarts; what its log has of other epochs can be set."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.epoch: str | None = "1.0.a."
        self.ends: dict[str, QueueEnd] = {}

    def started(self) -> ConsumerOffsetManager:
        offsets = ConsumerOffsetManager(
            file=ConfigFile(FILE, disk=self.disk),
            disk=self.disk,
            log_epoch=lambda: self.epoch,
            ends_of_epoch=lambda epoch: self.ends.get(epoch),
        )
        offsets.load()
        offsets._journal.open()
        return offsets


def named_by(offsets: ConsumerOffsetManager) -> tuple[str, dict[str, dict[int, str]]]:
    """The epoch of most offsets, and those of single ones, as other brokers are answered."""
    versions = versioned(offsets).rocketrio_versions
    assert versions is not None
    return versions.epoch, versions.epochs


@pytest.mark.parametrize("is_written", [True, False])
def test_slave_that_restarts_names_the_epochs_that_it_named_before(is_written: bool) -> None:
    """Its log has another epoch by then, and its master may come back without knowing what members read there."""
    log = OfLog()
    before = log.started()
    before.commit_offset("G", "T", 0, 7)
    before.persist()
    before.begin_copy("1.0.a.")
    before.commit_version("G", "T", 1, Commit(9, FIRST), epoch="2.9.b.a")
    log.epoch = "3.9.c.a"
    if is_written:
        before.persist()
    again = log.started()
    again.begin_copy("3.9.c.a")
    assert named_by(again) == ("1.0.a.", {"T@G": {1: "2.9.b.a"}})
    assert named_by(log.started())[1] == {"T@G": {1: "2.9.b.a"}}


def test_commits_of_an_epoch_that_no_snapshot_names_yet_are_of_it_after_a_kill() -> None:
    log = OfLog()
    before = log.started()
    before.commit_offset("G", "T", 0, 7)
    before.persist()
    log.epoch = "2.9.b.a"
    before.commit_offset("G", "T", 0, 8)
    assert named_by(log.started()) == ("1.0.a.", {"T@G": {0: "2.9.b.a"}})
    before.persist()
    before.commit_offset("G", "T", 0, 9)
    assert named_by(log.started()) == ("2.9.b.a", {})
    log.epoch = "3.9.c.b"
    before.persist()  # Nothing was committed since.
    assert named_by(log.started()) == ("3.9.c.b", {})


async def test_commit_keeps_its_epoch_if_a_power_cut_undoes_only_the_snapshot_before_it() -> None:
    """What was committed in a new epoch would count as read in the last one, and be lowered at all brokers."""
    log = OfLog()
    before = log.started()
    before.commit_offset("G", "T", 0, 7)
    before.persist()
    await before.sync()
    paths = [FILE, FILE.with_name("rocketrioOffsets.json")]
    synced = [bytes(log.disk.files[path].data) for path in paths]
    log.epoch = "2.9.b.a"
    before.persist()
    before.commit_offset("G", "T", 0, 8)
    for path, data in zip(paths, synced, strict=True):
        log.disk.files[path].truncate(0)
        log.disk.files[path].pwrite(data, 0)
    assert named_by(log.started()) == ("1.0.a.", {"T@G": {0: "2.9.b.a"}})


async def test_commit_between_the_two_files_of_a_snapshot_keeps_its_epoch() -> None:
    log = OfLog()
    slave = log.started()
    slave.begin_copy("1.0.a.")
    slave.commit_offset("G", "T", 0, 7)
    slave.persist()
    await slave.sync()
    slave.note_copy("2.9.b.a")
    path = FILE.with_name("rocketrioOffsets.json")
    snapshot, steps = log.disk.files[path], slave._persist_in_steps()
    while log.disk.files[path] is snapshot:
        next(steps)
    slave.commit_version("G", "T", 0, Commit(8, FIRST), epoch="1.0.a.")
    assert named_by(log.started()) == ("2.9.b.a", {"T@G": {0: "1.0.a."}})


async def test_journal_names_no_epoch_once_the_snapshot_that_names_it_is_synced() -> None:
    log = OfLog()
    offsets = log.started()
    journal = [FILE.with_name(f"rocketrioOffsets.{number}.log") for number in range(2)]
    offsets.commit_offset("G", "T", 0, 7)
    offsets.persist()
    await offsets.sync()
    before = [log.disk.files[path].size for path in journal]
    offsets.commit_offset("G", "T", 0, 8)
    lines = [
        bytes(log.disk.files[path].data[size:]) for path, size in zip(journal, before, strict=True)
    ]
    assert b"".join(lines) == b'["T","G",0,"0.0",8,-1]\n'


def test_epoch_of_offsets_that_another_program_wrote_is_not_known() -> None:
    log = OfLog()
    before = log.started()
    before.commit_offset("G", "T", 0, 7)
    before.close()
    log.epoch = "2.9.b.a"
    apache_writes(log.disk, {"T@G": {0: 9}})
    assert named_by(log.started()) == ("2.9.b.a", {})


def test_new_master_lowers_offsets_that_count_another_history() -> None:
    """Messages of this one at their places would be skipped; what its own members named is kept."""
    log = OfLog()
    offsets = log.started()
    for queue_id in range(3):
        offsets.commit_offset("G", "T", queue_id, 15)
    offsets.begin_copy("1.0.a.")
    log.epoch, log.ends = "2.0.b.", {"1.0.a.": lambda *_: 4, "2.0.b.": lambda *_: 100}
    offsets.commit_version("G", "T", 1, Commit(17, FIRST), epoch="2.0.b.")
    offsets.commit_version("G", "T", 2, Commit(3, Generation(0, 1)))
    assert offsets.cut(lambda *_: 18) == 1
    assert offsets.query_offsets("G", "T") == {0: 4, 1: 17, 2: 3}
    assert offsets.query_version("G", "T", 0).generation == Generation(0, 1)
    assert offsets.cut(lambda *_: 18) == 0


def test_commits_of_the_last_seconds_before_a_kill_are_checked_again() -> None:
    """The log grew and lost its end since the snapshot, which was written when it was shorter still."""
    disk = MemoryDisk()

    def at_length(log_end: int) -> ConsumerOffsetManager:
        file = ConfigFile(FILE, disk=disk)
        offsets = ConsumerOffsetManager(file=file, disk=disk, log_end=lambda: log_end)
        offsets.load()
        return offsets

    offsets = at_length(900)
    offsets.commit_offset("G", "T", 0, 90)
    offsets.persist()
    journal = OffsetJournal(FILE.parent, disk=disk)
    journal.open()
    for key, queue_id, offset in (("T", "G"), 0, 120), (("T", "G"), 1, 107), (("T", "H"), 0, 118):
        journal.append(key, queue_id, Version(offset))
    again = at_length(950)
    assert again.cut(lambda topic, queue_id: 100) == 3
    assert again.query_offsets("G", "T") == {0: 100, 1: 100}
    assert again.query_offsets("H", "T") == {0: 100}
    assert (again.offsets_cut, again.messages_cut) == (3, 27)


def test_rocketrio_slave_knows_the_generation_of_an_apache_brokers_offsets() -> None:
    """The first start on Apache's directory: its progress counts in the generation that the slave followed it into."""
    disk = MemoryDisk()
    apache_writes(disk, {"T@G": {0: 100, 1: 5}})
    slave = manager()
    slave.commit_offset("G", "T", 0, 120)
    slave.commit_offset("G", "T", 0, 90)
    slave.commit_offset("G", "T", 1, 7)
    offsets = loaded(disk)
    assert offsets.take_over(versioned(slave), queue_end=lambda topic, queue_id: 200) == 2
    assert offsets.query_offsets("G", "T") == {0: 100, 1: 7}
    assert generation(offsets) == "0.1"
    assert loaded(disk).query_offsets("G", "T") == {0: 100, 1: 7}


def test_only_the_last_claim_counts_and_none_of_another_run() -> None:
    offsets = manager()
    first = offsets.claim("G", "T", 0, "me")
    assert offsets.is_owner("G", "T", 0, first)
    assert not offsets.is_owner("G", "T", 1, first)
    second = offsets.claim("G", "T", 0, "you")
    assert offsets.is_owner("G", "T", 0, second)
    assert not offsets.is_owner("G", "T", 0, first)
    assert not manager().is_owner("G", "T", 0, second)


def test_the_owner_may_seek_until_others_change_the_offset() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 100)
    first = offsets.claim("G", "T", 0, "me")
    offsets.commit_version("G", "T", 0, Commit(110, Generation(), is_owner=True))
    assert offsets.may_seek("G", "T", 0, first)
    offsets.commit_version("G", "T", 0, Commit(120, Generation()))  # The master's.
    offsets.commit_version("G", "T", 0, Commit(130, Generation(), is_owner=True))
    assert offsets.is_owner("G", "T", 0, first)
    assert not offsets.may_seek("G", "T", 0, first)
    again = offsets.claim("G", "T", 0, "me")
    assert offsets.may_seek("G", "T", 0, again)
    assert not offsets.may_seek("G", "T", 0, first)


def test_outcome_of_a_commit_is_returned() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 100)
    late = Commit(10, Generation(), is_owner=False, is_seek=True)
    outcome, stands = offsets.commit_version("G", "T", 0, late)
    assert (outcome, stands.offset) == (CommitOutcome.UNCLAIMED, 100)
    offsets.commit_version("G", "T", 0, Commit(10, is_reset=True))
    outcome, stands = offsets.commit_version("G", "T", 0, Commit(101, Generation(), is_owner=True))
    assert (outcome, stands.offset, str(stands.generation)) == (CommitOutcome.RESET, 10, "1.0")


def test_a_clone_wins_over_what_running_members_had() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 4)
    offsets.commit_offset("H", "T", 0, 9)
    all_at_once(offsets.clone_offset("G", "H", "T"))
    outcome, stands = offsets.commit_version("H", "T", 0, Commit(10, Generation(), is_owner=True))
    assert (outcome, stands.offset) == (CommitOutcome.RESET, 4)


def test_answer_to_43_has_versions_only_if_requested() -> None:
    offsets = manager()
    offsets.commit_offset("G", "T", 0, 4)
    body = all_at_once(offsets.body(with_versions=True))
    assert body.startswith(b'{"offsetTable":{"T@G":{0:4}},"rocketrioVersions":{')
    assert all_at_once(offsets.body(with_versions=False)) == b'{"offsetTable":{"T@G":{0:4}}}'


@pytest.mark.parametrize("is_killed", [True, False])
def test_offsets_of_the_last_generation_are_loaded_again(is_killed: bool) -> None:
    """One commit of the highest generation, and a lower one: together they once ended every start."""
    disk = MemoryDisk()
    offsets = manager(disk)
    offsets._journal.open()
    last = Generation(GENERATION_LIMIT, GENERATION_LIMIT)
    offsets.commit_version("G", "T", 0, Commit(5, last, is_owner=True))
    offsets.commit_offset("G", "T", 0, 3)
    offsets.commit_offset("H", "T", 0, 7)
    all_at_once(offsets.removal(topic="U"))
    if not is_killed:
        offsets.close()
    again = loaded(disk)
    assert again.query_version("G", "T", 0) == Version(5, last)
    assert again.query_offset("H", "T", 0) == 7


def test_snapshot_with_a_damaged_generation_keeps_all_offsets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = MemoryDisk()
    body = VersionedConsumerOffsets(
        {"T@G": {0: 5, 1: 6}, "T@H": {0: 7}},
        OffsetVersions(
            generations={"T@G": {0: "999999999999999999.1000000000000000000", 1: "0.1"}},
            removed_topics={"U": "x.1", "V": "1.0"},
            removed_groups={"W": "1"},
        ),
    )
    ConfigFile(FILE.with_name("rocketrioOffsets.json"), disk=disk).write(body)
    offsets = loaded(disk)
    assert offsets.query_version("G", "T", 0) == Version(5)
    assert offsets.query_version("G", "T", 1) == Version(6, Generation(0, 1))
    assert offsets.query_offset("H", "T", 0) == 7
    assert offsets.topic_floor("V") == Generation(1, 0)
    assert "offset generation skipped" in caplog.text


@pytest.mark.parametrize(
    ("operations_end", "are_all_here"),
    [
        pytest.param(4, False, id="before the progress"),
        pytest.param(6, False, id="after the progress"),
        pytest.param(7, True, id="none"),
    ],
)
def test_progress_of_transactions_starts_again_where_decisions_are_lost(
    operations_end: int, are_all_here: bool
) -> None:
    """Half messages before it may be open now; other groups go back no further than to what is lost."""
    offsets = manager()
    offsets.begin_copy("1.0.a.")
    for topic, group in LEDGER_KEYS:
        offsets.commit_offset(group, topic, 0, 5)
        offsets.commit_offset(group, topic, LEDGER_END_ID, 7)
    offsets.commit_offset("G", "T", 0, 5)
    ends = {TRANS_HALF_TOPIC: 9, TRANS_OP_HALF_TOPIC: operations_end, "T": 4}
    offsets.cut(lambda topic, queue_id: ends[topic])
    progress = {offsets.query_offset(group, topic, 0) for topic, group in LEDGER_KEYS}
    assert progress == ({5} if are_all_here else {0})
    assert offsets.query_offset("G", "T", 0) == 4
    assert offsets.messages_cut == 1


async def test_deletion_that_is_cut_off_the_log_voids_no_offset_any_more() -> None:
    """A slave cut it off to follow a master that does not have it, and whose offsets are valid."""
    disk = MemoryDisk()
    offsets, dispatcher = (
        manager(disk),
        QueueDispatcher(ConsumeQueueTable(Path("/q"), 400, disk=disk), DelayLevels("1s")),
    )
    deletions = DeletedTopics(dispatcher, offsets)
    offsets.commit_offset("G", "T", 0, 5)
    offsets.void_topic("T", Generation(1))
    offsets.commit_offset("G", "T", 0, 2)
    masters = OffsetTable()
    masters.commit(("T", "G"), 0, 9)
    offsets.join(masters)
    assert offsets.query_offset("G", "T", 0) == 2
    dispatcher.undo([Deletion("T", "7.0"), Deletion("T", "1.0")])
    deletions.follow()
    assert offsets.query_offset("G", "T", 0) == -1
    offsets.join(masters)
    assert offsets.query_offset("G", "T", 0) == 9
    offsets.persist()
    assert loaded(disk).query_offset("G", "T", 0) == 9
