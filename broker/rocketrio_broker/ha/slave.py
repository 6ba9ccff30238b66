"""Everything that a slave runs to follow its master: HAClient copies the log, SlaveSynchronize the tables.

CopyWatch measures how far a long copy is. All follow the addresses that registration gets from the name servers, unless
an address was configured.

Answers to: BrokerController's slave side (handleSlaveSynchronize, updateMasterHAServerAddrPeriodically).
"""

import attrs
import trio

from rocketrio_broker.ha.client import HAClient, HAClientState, HAClientStatistics
from rocketrio_broker.ha.copy_progress import CopyProgress, CopyWatch
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.slave_synchronize import SlaveSynchronize, SlaveSynchronizeStatistics
from rocketrio_broker.registration import BrokerRegistration


@attrs.frozen
class SlaveStatistics:
    """A slave's view of its replication."""

    log: HAClientStatistics
    tables: SlaveSynchronizeStatistics
    copy: CopyProgress | None
    """The long copy that is under way; None if there is none."""


class SlaveReplication:
    """The slave side of one broker."""

    def __init__(
        self,
        client: HAClient,
        synchronize: SlaveSynchronize,
        copy_watch: CopyWatch,
        *,
        registration: BrokerRegistration,
        master: MasterAddress,
        ha_master: MasterAddress,
        ha_master_is_fixed: bool = False,
    ) -> None:
        """`master` and `ha_master` are the addresses that the parts were made with.

        `ha_master_is_fixed`: `ha_master` was configured (haMasterAddress), and name servers do not change it.
        """
        self.client = client
        self.synchronize = synchronize
        self.copy_watch = copy_watch
        self._registration = registration
        self._master = master
        self._ha_master = ha_master
        self._ha_master_is_fixed = ha_master_is_fixed

    def __repr__(self) -> str:
        return f"<SlaveReplication {self.client!r}>"

    @property
    def followed(self) -> str | None:
        """Where a rocketrio master answers requests while its log is followed; otherwise None, as with Apache's."""
        is_following = self.client.statistics().state is HAClientState.FOLLOWING
        return self._master.value if is_following and self.synchronize.is_master_rocketrio else None

    @property
    def master_end(self) -> int:
        """Where the present master's log ended, as far as this slave knows."""
        return max(self.client.statistics().master_offset, self.copy_watch.master_end)

    def statistics(self) -> SlaveStatistics:
        return SlaveStatistics(
            self.client.statistics(), self.synchronize.statistics(), self.copy_watch.progress
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow the master until cancelled."""
        async with trio.open_nursery() as nursery:
            await nursery.start(self.client.run)
            await nursery.start(self.synchronize.run)
            await nursery.start(self.copy_watch.run)
            task_status.started()
            await self._learn()

    async def _learn(self) -> None:
        registration = self._registration
        while True:
            change = registration.master_changes.value
            self._master.update(registration.master.addr)
            if not self._ha_master_is_fixed:
                self._ha_master.update(registration.master.ha_addr)
            await registration.master_changes.wait_past(change)
