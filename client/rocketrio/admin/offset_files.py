"""The committed offsets of a group, to keep them in a file, and their deletion.

Invariant: an export has the offsets of every master, or there is none.
Invariant: a deletion leaves the settings of the group as they were.
Answers to: CloneGroupOffsetCommand in spirit; DeleteSubscriptionGroupCommand with `-r true`.
Unlike Java: offsets can be deleted without the group.
"""

from collections.abc import Mapping
from typing import Any

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio.counts import counted
from rocketrio_protocol.errors import ConfigError, ConsumerNotOnlineError, GroupNotExistError


@attrs.frozen(order=True)
class CommittedOffset:
    """A group's progress in one queue."""

    topic: str
    broker_name: str
    queue_id: int
    offset: int


async def committed_offsets(admin: Admin, group: str) -> list[CommittedOffset]:
    """Return all committed offsets of a group, also those in its retry topic, in the order of queues.

    Raises GroupNotExistError if no master knows the group, and the error of the first master that does not answer.
    """
    space = admin.client.namespace
    found: list[CommittedOffset] = []
    is_known = False
    for name, addr in (await admin.masters()).items():
        table = await admin.calls.all_offsets(addr)
        is_known = is_known or space.wrapped(group) in await admin.calls.groups(addr)
        found += offsets_in(table, space.wrapped(group), name)
    if not found and not is_known:
        raise GroupNotExistError(
            f"no master knows the group {group!r}",
            remedy="`rocketrio group list` shows the groups",
        )
    return sorted(attrs.evolve(one, topic=space.unwrapped(one.topic)) for one in found)


def offsets_in(
    table: Mapping[tuple[str, str], Mapping[int, int]], group: str, broker_name: str
) -> list[CommittedOffset]:
    """Return a group's offsets from a broker's table by group and topic, then by queue."""
    return [
        CommittedOffset(topic, broker_name, queue_id, offset)
        for (owner, topic), offsets in table.items()
        if owner == group
        for queue_id, offset in offsets.items()
    ]


async def delete_offsets(
    admin: Admin, group: str, *, dry_run: bool = False
) -> list[CommittedOffset]:
    """Delete all committed offsets of a group without members; return what was committed. With `dry_run` keep them.

    Members that start later begin where new groups do. Each master deletes the group with its offsets, and gets its
    settings back at once: a cancel waits for that. Raises ConfigError if the group has members, GroupNotExistError,
    and the error of the first master that refuses.
    """
    found = await committed_offsets(admin, group)
    try:
        members = (await admin.consumer_connections(group)).connection_set
    except ConsumerNotOnlineError:
        members = []
    if members:
        raise ConfigError(
            f"{group} has {counted(len(members), 'member')}, which would commit again",
            remedy="Stop them first; `rocketrio group members` lists them",
        )
    if dry_run:
        return found
    long_name = admin.client.namespace.wrapped(group)
    for addr in (await admin.masters()).values():
        settings = (await admin.calls.groups(addr)).get(long_name)
        if settings is None:
            continue
        with trio.CancelScope(shield=True):
            await admin.calls.delete_group(addr, group, with_offsets=True)
            await admin.calls.update_group(addr, _new_again(settings, group))
    return found


def _new_again(settings: Mapping[str, Any], group: str) -> dict[str, Any]:
    """Return settings as a broker takes them for a new group: attributes are sent as changes."""
    attributes = {f"+{name}": value for name, value in (settings.get("attributes") or {}).items()}
    return {**settings, "groupName": group, "attributes": attributes}
