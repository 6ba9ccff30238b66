from rocketrio_broker.joined_table import joined_table, newer_version
from rocketrio_protocol.bodies.topics import DataVersion

OURS = {"only ours": 1, "both": 2}
THEIRS = {"only theirs": 3, "both": 4}
VERSION = DataVersion(counter=5, timestamp=1000)


def joined(counter: int, timestamp: int) -> dict[str, int]:
    return joined_table(OURS, VERSION, THEIRS, DataVersion(counter=counter, timestamp=timestamp))


def test_older_table_adds_nothing_as_what_it_has_more_was_deleted() -> None:
    assert joined(4, 2000) == OURS


def test_newer_table_wins_and_loses_us_nothing() -> None:
    assert joined(6, 500) == {"only ours": 1, "both": 4, "only theirs": 3}


def test_of_tables_changed_as_often_the_later_change_wins_and_both_are_kept() -> None:
    assert joined(5, 2000) == {"only ours": 1, "both": 4, "only theirs": 3}
    assert joined(5, 500) == {"only ours": 1, "both": 2, "only theirs": 3}


def test_newer_version_counts_more_changes() -> None:
    other = DataVersion(counter=6, timestamp=500)
    assert newer_version(VERSION, other) is other
    assert newer_version(other, VERSION) is other
