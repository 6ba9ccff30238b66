"""Pairs whose messages have keys, and whose logs are damaged while their brokers are down."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import trio
from tests.support.caller import caller_of
from tests.support.pair import Pair

from rocketrio_broker.broker import Broker
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.codes import ResponseCode

FILE_SIZE = 64 << 10
STORE = StoreConfig(
    mapped_file_size_commit_log=FILE_SIZE,
    mapped_file_size_consume_queue=2000,
    max_hash_slot_num=20,
    max_index_num=100,
)
PROPERTIES = "KEYS\x01{}\x02TAGS\x01k"


@attrs.define
class KeyedPair(Pair):
    """A cluster whose members' logs can be damaged while they are down."""

    async def send(self, *names: str, properties: str = "") -> None:
        """Messages that were acknowledged."""
        for name in names:
            text = PROPERTIES.format(name) + properties
            addr = self.master.address
            answer = await self.caller.send(addr, name.encode(), properties=text)
            assert answer.code == ResponseCode.SUCCESS, answer.remark

    async def read(self, broker: Broker, topic: str = "orders") -> list[str]:
        return [body.decode() for body in await self.caller.read(broker.address, topic=topic)]


def damage(member: Member, address: int, data: bytes) -> None:
    """Overwrite bytes of a log that is not open, as far as it goes."""
    folder = member.config.data / "commitlog"
    for offset, byte in enumerate(data, address):
        path = folder / f"{offset // FILE_SIZE * FILE_SIZE:020d}"
        if member.disk.exists(path):
            member.disk.open(path).pwrite(bytes([byte]), offset % FILE_SIZE)


@asynccontextmanager
async def pair_of(slaves: int = 1, **settings: Any) -> AsyncGenerator[KeyedPair]:
    async with (
        EmbeddedCluster(slaves=slaves, store=STORE, slave_read_enable=True, **settings) as cluster,
        caller_of(cluster) as caller,
    ):
        await trio.sleep(2)
        yield KeyedPair(cluster, caller)


MONEY: dict[str, Any] = {"role": "sync-master", "ha_acknowledge": "disk"}
