"""A master and its slaves in memory with one who asks them: what stories about two brokers share."""

import attrs
from tests.support.caller import Caller
from tests.support.replication import assert_same_logs, wait_same_ends
from tests.support.waiting import eventually

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import HandOverRequestHeader


@attrs.define
class Pair:
    """The first two brokers of a cluster, by the roles with which they began.

    `first` and `second` are what can be started and killed; `master` and `slave` are the brokers that run there.
    """

    cluster: EmbeddedCluster
    caller: Caller

    @property
    def first(self) -> Member:
        return self.cluster.master

    @property
    def second(self) -> Member:
        return self.cluster.slaves[0]

    @property
    def master(self) -> Broker:
        return self.first.broker

    @property
    def slave(self) -> Broker:
        return self.second.broker

    async def level(self, *members: Member) -> None:
        """Wait until these have the same log, read alike; without any, until all have it and follow."""
        if not members:
            await eventually(self.is_level, 90)
        stores = [member.broker.store for member in members or self.cluster.members]
        await wait_same_ends(*stores)
        assert_same_logs(*stores)

    def is_level(self) -> bool:
        ends = {member.broker.store.max_physical_offset for member in self.cluster.members}
        states = set()
        for member in self.cluster.slaves:
            assert member.broker.slave is not None
            states.add(member.broker.slave.client.state)
        return len(ends) == 1 and states <= {HAClientState.FOLLOWING}

    async def hand_over(
        self, to_id: int | None = None, *, at: Member | None = None, dry_run: bool = False
    ) -> RemotingCommand:
        header = HandOverRequestHeader(to_id, dry_run)
        address = (at or self.first).broker.address
        return await self.caller.pool.call(address, header, timeout=30)
