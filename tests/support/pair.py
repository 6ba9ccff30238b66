"""A master and its slaves in memory with one who asks them: what stories about several brokers share."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.caller import Caller, accepted, caller_of
from tests.support.replication import assert_same_logs, wait_same_ends
from tests.support.waiting import eventually

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    HandOverRequestHeader,
    UpdateBrokerConfigRequestHeader,
)
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader

FOLLOWS_WITHIN = 2.0
"""Seconds after its start in which a slave follows."""


@attrs.define
class Pair:
    """The first two brokers of a cluster, by the roles with which they began.

    `first` and `second` are what can be started and killed; `master` and `slave` are the brokers that run there.
    """

    cluster: EmbeddedCluster
    caller: Caller
    role: str = "async-master"
    """What a promoted slave becomes."""
    properties: str = ""
    """Those of each message; `{}` is its text."""

    @property
    def first(self) -> Member:
        return self.cluster.master

    @property
    def second(self) -> Member:
        return self.cluster.slaves[0]

    @property
    def members(self) -> list[Member]:
        return self.cluster.members

    @property
    def master(self) -> Broker:
        return self.first.broker

    @property
    def slave(self) -> Broker:
        return self.second.broker

    @property
    def network(self) -> MemoryNetwork:
        return self.cluster.memory_network

    def part(self, member: Member, *hosts: str) -> None:
        """Let nothing pass between a broker and these hosts from now on."""
        for host in hosts:
            self.network.partition(member.host, host)

    # --- messages --------------------------------------------------------------------------------

    async def send(
        self, *texts: str, at: Member | None = None, properties: str = "", topic: str = "orders"
    ) -> None:
        """Store messages at a broker, by default the first, which must acknowledge each."""
        addr = (at or self.first).broker.address
        for text in texts:
            own = self.properties.format(text) + properties
            accepted(await self.caller.send(addr, text.encode(), properties=own, topic=topic))

    async def send_many(self, count: int, *, first: int = 0, at: Member | None = None) -> list[str]:
        """Store numbered messages, and return their texts."""
        texts = [f"{number:06d}" for number in range(first, first + count)]
        await self.send(*texts, at=at)
        return texts

    async def send_unheard(self, count: int = 5, *, at: Member | None = None) -> None:
        """Send messages that are stored and not answered PUT_OK, as no slave gets them."""
        for number in range(count):
            assert await self.code_of_send(f"unheard {number}", at=at) != ResponseCode.SUCCESS

    async def code_of_send(self, text: str = "x", *, at: Member | None = None) -> int:
        return (await self.caller.send((at or self.first).broker.address, text.encode())).code

    async def refused(self, *, at: Member | None = None) -> str:
        """Return why a broker, by default the first, takes no writes now."""
        answer = await self.caller.send((at or self.first).broker.address, b"refused")
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer
        return answer.remark or ""

    async def read(self, member: Member, topic: str = "orders") -> list[str]:
        """Return the text of every message in the topic's first queue."""
        return [
            body.decode() for body in await self.caller.read(member.broker.address, topic=topic)
        ]

    async def settle(self) -> list[str]:
        """Store messages that all members have, and return their texts."""
        sent = await self.send_many(50)
        await self.level()
        return sent

    async def level(self, *members: Member) -> None:
        """Wait until these have the same log, read alike; without any, until all have it and follow."""
        if not members:
            await eventually(self.is_level, 90)
        stores = [member.broker.store for member in members or self.members]
        await wait_same_ends(*stores)
        assert_same_logs(*stores)

    async def reported(self) -> None:
        """Wait until the slaves that follow the first broker have all, and have reported that."""

        def is_reported() -> bool:
            links = self.master.statistics().ha.connections
            return bool(links) and not any(link.bytes_behind for link in links)

        await eventually(is_reported, 60, interval=0.01)

    def is_level(self) -> bool:
        ends = {member.broker.store.max_physical_offset for member in self.members}
        slaves = [member.broker.slave for member in self.members]
        states = {slave.client.state for slave in slaves if slave is not None}
        return len(ends) == 1 and states <= {HAClientState.FOLLOWING}

    # --- roles -----------------------------------------------------------------------------------

    async def promote(self, member: Member, role: str = "") -> None:
        """Have a broker become master, which it must."""
        await self.change(member, role or self.role, 0)

    async def change(self, member: Member, role: str, broker_id: int) -> None:
        accepted(await self.caller.change_role(member.broker.address, role, broker_id))

    async def refused_promotion(self, member: Member) -> str:
        """Return why a broker does not become master."""
        answer = await self.caller.change_role(member.broker.address, self.role, 0)
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE, answer
        return answer.remark or ""

    async def fail_over(self) -> None:
        """Kill the first broker and promote the second."""
        await self.first.kill()
        await self.promote(self.second)

    async def hand_over(
        self, to_id: int | None = None, *, at: Member | None = None, dry_run: bool = False
    ) -> RemotingCommand:
        header = HandOverRequestHeader(to_id, dry_run)
        address = (at or self.first).broker.address
        return await self.caller.pool.call(address, header, timeout=30)

    # --- what a broker or the name server says ------------------------------------------------------

    async def listed(self) -> dict[int, str]:
        """Return what the name server has of the brokers' name."""
        header = GetBrokerClusterInfoRequestHeader()
        answer = await self.caller.pool.call(self.cluster.name_server.addr, header)
        info = fastjson.loads(answer.body, ClusterInfo, what="cluster info")
        found = info.broker_addr_table.get("broker-a")
        return {} if found is None else found.broker_addrs

    async def problems(self, member: Member) -> list[str]:
        return await self.caller.problems(member.broker.address)

    async def configure(self, member: Member, text: bytes) -> None:
        """Change settings, in RocketMQ's names, while the broker runs."""
        header = UpdateBrokerConfigRequestHeader()
        accepted(await self.caller.pool.call(member.broker.address, header, text))


@asynccontextmanager
async def pair_of(
    slaves: int = 1, *, properties: str = "", role: str = "async-master", **settings: Any
) -> AsyncGenerator[Pair]:
    """Open a master with slaves that follow."""
    async with (
        EmbeddedCluster(slaves=slaves, role=role, **settings) as cluster,  # type: ignore[arg-type]
        caller_of(cluster) as caller,
    ):
        await trio.sleep(FOLLOWS_WITHIN)
        yield Pair(cluster, caller, role, properties)
