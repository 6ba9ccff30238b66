"""What brokers store of the offsets that the group commits, at the moment when they do."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.cluster.histories.events import OffsetStored, now
from tests.cluster.histories.world import GROUP, TOPIC, World

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.version import FIRST, Commit, Version
from rocketrio_protocol.commands.offset import CommitOutcome


@contextmanager
def note_commits(world: World) -> Iterator[None]:
    """In this block note each commit of the group that changes what a broker has."""
    commit_offset = ConsumerOffsetManager.commit_offset
    commit_version = ConsumerOffsetManager.commit_version
    folders = [member.config.config_directory for member in world.cluster.members]

    def note(
        offsets: ConsumerOffsetManager, queue_id: int, before: Version, commit: Commit
    ) -> None:
        after, folder = offsets.query_version(GROUP, TOPIC, queue_id), offsets._file.path.parent
        if after != before and folder in folders:
            known = max(before.generation, commit.generation or FIRST)
            member = world.cluster.members[folders.index(folder)]
            is_master = member.is_running and not member.broker.store.is_slave
            world.history.add(
                OffsetStored(
                    at=now(),
                    broker=folders.index(folder),
                    queue_id=queue_id,
                    offset=after.offset,
                    before=before.offset,
                    generation=tuple(after.generation),
                    is_ordered=after.generation > known,
                    is_reset=commit.is_reset,
                    queue_end=world.queue_ends(member)[queue_id] if is_master else None,
                )
            )

    def noted_offset(
        self: ConsumerOffsetManager, group: str, topic: str, queue_id: int, offset: int
    ) -> None:
        before = self.query_version(group, topic, queue_id)
        commit_offset(self, group, topic, queue_id, offset)
        if (group, topic) == (GROUP, TOPIC):
            note(self, queue_id, before, Commit(offset))

    def noted_version(
        self: ConsumerOffsetManager,
        group: str,
        topic: str,
        queue_id: int,
        commit: Commit,
        **more: Any,
    ) -> tuple[CommitOutcome, Version]:
        before = self.query_version(group, topic, queue_id)
        outcome = commit_version(self, group, topic, queue_id, commit, **more)
        if (group, topic) == (GROUP, TOPIC):
            note(self, queue_id, before, commit)
        return outcome

    ConsumerOffsetManager.commit_offset = noted_offset  # type: ignore[method-assign]
    ConsumerOffsetManager.commit_version = noted_version  # type: ignore[method-assign]
    try:
        yield
    finally:
        ConsumerOffsetManager.commit_offset = commit_offset  # type: ignore[method-assign]
        ConsumerOffsetManager.commit_version = commit_version  # type: ignore[method-assign]
