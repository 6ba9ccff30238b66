"""Brokers that do nothing for a while, as a process does after SIGSTOP: connections, files and memory stay as they are.

What wakes one of its tasks meanwhile (bytes, a deadline) is kept, and wakes it when the pause is over: as the kernel
keeps what arrives for a stopped process, and accepts connections for it.
"""

import math

import trio
import trio._core._run
from tests.cluster.histories.disk import ScheduledDisk

from rocketrio_broker.embedded import EmbeddedCluster, Member


class PausableMember(Member):
    """A broker whose tasks can be kept from running."""

    _root: trio.lowlevel.Task
    _paused: "_PausedTasks | None" = None

    @property
    def is_paused(self) -> bool:
        return self._paused is not None

    def pause(self) -> None:
        """From now on none of its tasks runs; one that is about to run takes this one step."""
        assert not self.is_paused
        self._paused = _PausedTasks(self._root)
        self._note_trouble(math.inf)
        trio.lowlevel.add_instrument(self._paused)

    def resume(self) -> None:
        """Go on; nothing where it is not paused."""
        paused, self._paused = self._paused, None
        if paused is not None:
            trio.lowlevel.remove_instrument(paused)
            paused.wake()
            self._note_trouble(trio.current_time())

    def _note_trouble(self, at: float) -> None:
        """Nothing is written while its tasks stand still."""
        assert isinstance(self.disk, ScheduledDisk)
        self.disk.trouble_at = at

    async def kill(self) -> None:
        """This signal reaches a stopped process too: what wakes its tasks now gets nothing out."""
        self._switch.kill()
        self.resume()
        await super().kill()

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        self._root = trio.lowlevel.current_task()
        await super()._run(task_status=task_status)


class PausableCluster(EmbeddedCluster):
    """A cluster of such brokers."""

    def _member(self, broker_id: int) -> Member:
        member = super()._member(broker_id)
        return PausableMember(self, member.config, member.host)


class _PausedTasks(trio.abc.Instrument):
    """Takes the tasks below one off the list of those that run next."""

    def __init__(self, root: trio.lowlevel.Task) -> None:
        self._root = root
        self._runnable = trio._core._run.GLOBAL_RUN_CONTEXT.runner.runq
        self._kept: list[trio.lowlevel.Task] = []

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        if self._is_below(task):
            self._kept.append(self._runnable.pop())

    def wake(self) -> None:
        self._runnable.extend(self._kept)

    def _is_below(self, task: trio.lowlevel.Task) -> bool:
        at: trio.lowlevel.Task | None = task
        while at is not None and at is not self._root:
            at = None if at.parent_nursery is None else at.parent_nursery.parent_task
        return at is self._root
