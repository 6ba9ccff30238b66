"""Clusters of numbered messages whose disks lose at a power cut what was not synced."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.caller import accepted, caller_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.admin import UpdateBrokerConfigRequestHeader

STORE = StoreConfig(
    flush_interval_commit_log=3600,
    mapped_file_size_commit_log=16_384,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
"""Nothing is flushed but when files end and on a clean stop: a power cut loses much."""


@attrs.define
class NumberedPair(Pair):
    """A cluster whose disks lose what was not synced."""

    async def send(
        self, count: int, *, broker: Broker | None = None, first: int = 0
    ) -> list[bytes]:
        """Messages that were acknowledged."""
        addr = (broker or self.cluster.master.broker).address
        sent = [b"%06d" % number for number in range(first, first + count)]
        for body in sent:
            assert (await self.caller.send(addr, body)).code == ResponseCode.SUCCESS
        return sent

    async def cut_power(self, member: Member, *, kept: float = 0.0, seed: int = 7) -> None:
        await member.kill()
        disk = member.disk
        assert isinstance(disk, FaultyDisk)
        member.disk = disk.after_cut(seed=seed, kept=kept)

    async def change(self, broker: Broker, role: str, broker_id: int) -> None:
        accepted(await self.caller.change_role(broker.address, role, broker_id))

    async def configure(self, broker: Broker, text: bytes) -> None:
        header = UpdateBrokerConfigRequestHeader()
        answer = await self.caller.pool.call(broker.address, header, text)
        assert answer.code == ResponseCode.SUCCESS, answer.remark


@asynccontextmanager
async def cluster_of(slaves: int, **settings: Any) -> AsyncGenerator[NumberedPair]:
    settings = {"make_disk": FaultyDisk, **settings}
    async with (
        EmbeddedCluster(slaves=slaves, store=STORE, slave_read_enable=True, **settings) as cluster,
        caller_of(cluster) as caller,
    ):
        yield NumberedPair(cluster, caller)


OK = ResponseCode.SUCCESS


def state(broker: Broker) -> HAClientState:
    assert broker.slave is not None
    return broker.slave.client.state


def problem(broker: Broker) -> str:
    assert broker.slave is not None
    return broker.slave.statistics().log.last_problem or ""


async def unheard(pair: NumberedPair, broker: Broker, count: int = 5, **fields: object) -> None:
    """Messages that no slave gets: stored, and not answered PUT_OK."""
    for number in range(count):
        answer = await pair.caller.send(broker.address, b"unheard %d" % number, **fields)
        assert answer.code != OK or fields


async def settle(pair: NumberedPair, *members: Member) -> list[bytes]:
    """Messages that everybody there has."""
    await trio.sleep(2)
    sent = await pair.send(50)
    await pair.level(*members)
    return sent
