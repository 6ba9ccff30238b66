"""Keeps the tables of a broker in their files: written periodically, and once more at shutdown.

Invariant: changes that were answered before the end of the body are in the files, and on the disk, after `keep_tables`.
Answers to: the scheduled persists of BrokerController, and those of its shutdown.
"""

import logging
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final

import trio

from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_broker.tables.versioned_table import VersionedTable
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio_broker.config_file")

SYNC_INTERVAL: Final = 5.0
"""Seconds of changes that a power cut may undo, as for consumerOffset.json, and that its journal alone may have."""


@asynccontextmanager
async def keep_tables(
    consumer_offsets: ConsumerOffsetManager,
    queue_locks: QueueLocks,
    tables: Sequence[VersionedTable[Any]],
    *,
    disk: Disk,
) -> AsyncGenerator[None]:
    """Keep the tables while the body runs, which changes them.

    Raises ConfigFileError at the end if a table could not be written; the others are written even so.
    """
    try:
        async with background_nursery() as nursery:
            await nursery.start(consumer_offsets.run)
            await nursery.start(TableSyncService(tables, disk=disk).run)
            yield
    finally:
        # Not at the end of the services: a cancel ends them while requests are still being processed.
        close_locks = partial(queue_locks.close, now=trio.current_time())
        _do_all([consumer_offsets.close, close_locks, *(table.close for table in tables)])


def _do_all(steps: Sequence[Callable[[], None]]) -> None:
    first: ConfigFileError | None = None
    # Each, even if one fails: the others must not lose what was answered because of it.
    for step in steps:
        try:
            step()
        except ConfigFileError as error:
            first = first or error
    if first is not None:
        raise first


class TableSyncService:
    """Syncs changed tables to the disk: periodically, and soon after a request for it."""

    def __init__(
        self,
        tables: Sequence[VersionedTable[Any]],
        *,
        disk: Disk,
        interval: float = SYNC_INTERVAL,
    ) -> None:
        self._tables = tables
        self._disk = disk
        self._interval = interval

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Sync until cancelled."""
        async with trio.open_nursery() as nursery:
            for table in self._tables:
                nursery.start_soon(self._keep, table, table.sync_wanted.value)
            task_status.started()

    async def _keep(self, table: VersionedTable[Any], wanted: int) -> None:
        next_fold = trio.current_time() + self._interval
        while True:
            with trio.move_on_after(self._interval):
                await table.sync_wanted.wait_past(wanted)
            # Requests that come while this sync runs share the next one.
            wanted = table.sync_wanted.value
            try:
                table.renew()
                await self._disk.run(table.sync)
                if trio.current_time() >= next_fold:
                    await table.fold()
                    next_fold = trio.current_time() + self._interval
            except ConfigFileError as error:
                logger.debug("table not written, will retry error=%s", error)
