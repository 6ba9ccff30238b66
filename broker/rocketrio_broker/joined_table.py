"""Two brokers' tables of topics, or of groups, made into one, for a broker that becomes master.

Invariant: nothing is taken from a table that is older than ours, as its data version says: it may lack a deletion.
Invariant: nothing that is known here alone goes: it may have been made while the two did not see each other.
Unlike Java: there a new master has what it happened to copy last.
"""

from typing import TypeVar

from rocketrio_protocol.bodies.topics import DataVersion

Settings = TypeVar("Settings")


def joined_table(
    ours: dict[str, Settings],
    version: DataVersion,
    theirs: dict[str, Settings],
    their_version: DataVersion,
) -> dict[str, Settings]:
    """Our table with what theirs has more or newer."""
    if their_version.counter < version.counter:
        return ours
    if newer_version(version, their_version) is their_version:
        return {**ours, **theirs}
    return {**theirs, **ours}


def newer_version(version: DataVersion, other: DataVersion) -> DataVersion:
    """Versions count the changes of a table; of two that were changed as often the later one is newer."""
    return max(version, other, key=lambda one: (one.counter, one.timestamp))
