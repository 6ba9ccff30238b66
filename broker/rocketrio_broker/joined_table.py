"""Joins two brokers' tables of topics, or of groups, for a broker that becomes master.

Invariant: nothing is taken from a table whose data version is older than ours: it may lack a deletion.
Invariant: entries that only this broker knows are kept: they may have been created while the two were disconnected.
Unlike Java: there a new master has only what it happened to copy last.
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
    """Return our table with the entries that theirs has in addition or in a newer version."""
    if their_version.counter < version.counter:
        return ours
    if newer_version(version, their_version) is their_version:
        return {**ours, **theirs}
    return {**theirs, **ours}


def newer_version(version: DataVersion, other: DataVersion) -> DataVersion:
    """Return the newer version: the one with more changes, or of two with as many the later one."""
    return max(version, other, key=lambda one: (one.counter, one.timestamp))
