"""A slave's offsets against those of a rocketrio master and of Apache's, one look after the other."""

from tests.broker.builders import config_file, versioned

from rocketrio_broker.ha.offset_copy import SEND_LIMIT, OffsetCopy
from rocketrio_broker.offsets.manager import LEDGER_KEYS, ConsumerOffsetManager
from rocketrio_broker.offsets.version import FIRST, Commit
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.steps import all_at_once


def manager(offset: int | None = None) -> ConsumerOffsetManager:
    disk = MemoryDisk()
    offsets = ConsumerOffsetManager(file=config_file("consumerOffset.json", disk), disk=disk)
    if offset is not None:
        offsets.commit_offset("G", "T", 0, offset)
    return offsets


def apache(offset: int) -> VersionedConsumerOffsets:
    return VersionedConsumerOffsets({"T@G": {0: offset}})


def offset_of(offsets: ConsumerOffsetManager) -> int:
    return offsets.query_offset("G", "T", 0)


def test_offset_that_is_newer_here_is_sent_to_the_master_and_kept() -> None:
    master, slave = manager(32), manager(120)
    told = OffsetCopy(slave).take(versioned(master), contact=1)
    assert offset_of(slave) == 120
    assert told == [UpdateConsumerOffsetRequestHeader("G", "T", 0, 120, "0.0")]


def test_offset_is_sent_with_the_epoch_that_a_member_named() -> None:
    """Also before the first look, when this slave may not have the master's epochs yet."""
    master, slave = manager(32), manager(40)
    copy = OffsetCopy(slave, epoch=lambda: "1.0.a.")
    assert [told.epoch for told in copy.take(versioned(master), contact=1)] == ["1.0.a."]
    slave.commit_version("G", "T", 0, Commit(50, FIRST), epoch="2.9.b.a")
    for _ in range(2):  # What did not arrive is sent again as it was.
        assert [told.epoch for told in copy.take(versioned(master), contact=1)] == ["2.9.b.a"]
    slave.commit_offset("G", "T", 0, 60)
    assert [told.epoch for told in copy.take(versioned(master), contact=1)] == ["1.0.a."]
    master.commit_offset("G", "T", 0, 60)
    assert copy.take(versioned(master), contact=1) == []
    assert not slave.named_epochs


def test_offset_stays_of_the_epoch_that_a_former_master_names_for_it() -> None:
    """Two slaves copy from each other while their master is away; neither log has the epoch of what members read."""
    former, slave = manager(32), manager(32)
    for one in (former, slave):
        one.begin_copy("1.0.a.")
        one.commit_version("G", "T", 0, Commit(50, FIRST), epoch="2.9.b.a")
    former.commit_offset("G", "T", 1, 7)
    copy = OffsetCopy(slave, epoch=lambda: "1.0.a.")
    for _ in range(2):
        assert copy.take(versioned(former), contact=1) == []
        (named,) = slave.named_epochs.items()
        assert named == ((("T", "G"), 0), (slave.query_version("G", "T", 0), "2.9.b.a"))
    former.cut(lambda *_: 100)  # It leads now, with a log of its own.
    copy.take(versioned(former), contact=1)
    assert not slave.named_epochs


def test_offset_is_of_the_master_s_epoch_that_has_not_arrived_here() -> None:
    """Requests arrive, and the log does not: what members commit here counts messages of this log all the same."""
    master, slave, epoch = manager(32), manager(), "1.0.a."
    master.known_in = "2.9.b.a"
    copy = OffsetCopy(slave, epoch=lambda: epoch)
    assert copy.take(versioned(master), contact=1) == []
    assert slave.epoch_of(("T", "G"), 0) == "2.9.b.a"
    slave.commit_offset("G", "T", 0, 40)
    assert slave.epoch_of(("T", "G"), 0) == "1.0.a."
    assert [told.epoch for told in copy.take(versioned(master), contact=1)] == ["1.0.a."]
    epoch = "2.9.b.a"
    master.commit_offset("G", "T", 0, 40)
    assert copy.take(versioned(master), contact=1) == []
    assert not slave.named_epochs


def test_commit_after_a_copy_belongs_to_the_epoch_of_that_time() -> None:
    master, slave, epoch = manager(32), manager(40), "1.0.a."
    copy = OffsetCopy(slave, epoch=lambda: epoch)
    epoch = "2.9.b.a"
    assert [told.epoch for told in copy.take(versioned(master), contact=1)] == ["1.0.a."]
    assert slave.known_in == "2.9.b.a"
    slave.commit_offset("G", "T", 1, 7)
    # What the master did not take is no newer than it was.
    told = copy.take(versioned(master), contact=1)
    assert {one.queue_id: one.epoch for one in told} == {0: "1.0.a.", 1: "2.9.b.a"}


def test_progress_of_transactions_is_not_sent_and_keeps_its_epoch() -> None:
    """It was made with a log that this slave, a former master, has cut since."""
    slave, epoch = manager(), "1.0.a."
    copy = OffsetCopy(slave, epoch=lambda: epoch)
    for topic, group in LEDGER_KEYS:
        slave.commit_offset(group, topic, 0, 9)
    copy.take(versioned(manager()), contact=1)
    epoch = "2.9.b.a"
    assert copy.take(versioned(manager()), contact=1) == []
    assert {slave.epoch_of(key, 0) for key in LEDGER_KEYS} == {"1.0.a."}


def test_reset_at_the_master_is_copied_and_nothing_is_sent() -> None:
    master, slave = manager(100), manager(90)
    master.commit_version("G", "T", 0, Commit(10, is_reset=True))
    assert OffsetCopy(slave).take(versioned(master), contact=1) == []
    assert offset_of(slave) == 10


def test_topic_deleted_at_the_master_is_removed_and_not_sent_again() -> None:
    master, slave = manager(100), manager(120)
    all_at_once(master.removal(topic="T"))
    copy = OffsetCopy(slave)
    assert copy.take(versioned(master), contact=1) == []
    assert offset_of(slave) == -1
    slave.commit_offset("G", "T", 0, 3)  # The topic was created again, and the master went away.
    (told,) = copy.take(versioned(master), contact=1)
    assert (told.commit_offset, told.generation) == (3, "1.0")


def test_offsets_sent_in_one_round_are_limited() -> None:
    slave = manager()
    for queue_id in range(SEND_LIMIT + 1):
        slave.commit_offset("G", "T", queue_id, 1)
    assert len(OffsetCopy(slave).take(versioned(manager()), contact=1)) == SEND_LIMIT


def test_offsets_that_were_not_copied_yet_keep_their_epoch() -> None:
    slave, epoch = manager(), "1.0.a."
    for queue_id in range(SEND_LIMIT + 1):
        slave.commit_offset("G", "T", queue_id, 1)
    copy = OffsetCopy(slave, epoch=lambda: epoch)
    epoch = "2.9.b.a"
    copy.take(versioned(manager()), contact=1)
    assert slave.known_in == "1.0.a."


def test_an_apache_master_s_reset_is_followed_while_it_is_watched() -> None:
    slave = manager()
    copy = OffsetCopy(slave)
    for offset in (100, 110, 10, 20):
        assert copy.take(apache(offset), contact=1) == []
        assert offset_of(slave) == offset


def test_an_apache_master_that_comes_back_with_less_lowers_nothing() -> None:
    for loses_contact in (True, False):
        slave = manager()
        copy = OffsetCopy(slave)
        copy.take(apache(32), contact=1)
        slave.commit_offset("G", "T", 0, 120)
        if loses_contact:
            copy.lost_contact()
        copy.take(apache(30), contact=1 if loses_contact else 2)
        assert offset_of(slave) == 120
        copy.take(apache(31), contact=1 if loses_contact else 2)
        assert offset_of(slave) == 120


def test_a_queue_that_an_apache_master_forgets_is_forgotten() -> None:
    slave = manager()
    copy = OffsetCopy(slave)
    copy.take(VersionedConsumerOffsets({"T@G": {0: 5}, "U@G": {0: 6}}), contact=1)
    slave.commit_offset("G", "U", 0, 9)  # Committed here: not the master's to forget.
    copy.take(VersionedConsumerOffsets(), contact=1)
    assert slave.offset_table == {("U", "G"): {0: 9}}
