"""The brokers of a cluster by their roles: who leads, whose logs are level, who comes back with what on its disk."""

from pathlib import Path
from typing import Literal

import attrs
import trio
from tests.support.caller import Caller, caller_of
from tests.support.faulty_disk import FaultyDisk
from tests.support.replication import wait_same_ends

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.commands.cluster import GetBrokerClusterInfoRequestHeader
from rocketrio_protocol.remoting.ports import join_addr

RIVAL = "10.0.0.66"


def rival_of(cluster: EmbeddedCluster) -> Member:
    """A second master of the same name, on a host of its own."""
    config: BrokerConfig = attrs.evolve(
        cluster.master.config,
        listen=join_addr(RIVAL, 10911),
        ha_listen=None,
        data=Path("/rival"),
        ha_return_role="stand-aside",
    )
    return Member(cluster, config, RIVAL)


async def listed(cluster: EmbeddedCluster) -> dict[int, str]:
    """What the name server says of the brokers' name."""
    async with caller_of(cluster) as call:
        answer = await call.pool.call(cluster.name_server.addr, GetBrokerClusterInfoRequestHeader())
    info = fastjson.loads(answer.body, ClusterInfo, what="cluster info")
    found = info.broker_addr_table.get("broker-a")
    return {} if found is None else found.broker_addrs


def role_of(member: Member) -> tuple[str, int]:
    return member.broker.role, member.broker.config.broker_id


async def level(*members: Member) -> None:
    """Wait until these have the same log, and show all of it."""
    await wait_same_ends(*(member.broker.store for member in members))


async def store(call: Caller, member: Member, *texts: bytes) -> None:
    for text in texts:
        answer = await call.send(member.broker.address, text)
        assert answer.code == ResponseCode.SUCCESS, answer


async def failed_over(cluster: EmbeddedCluster, call: Caller) -> tuple[Member, Member]:
    """The dead master and its successor, which has one message more."""
    first, second = cluster.master, cluster.slaves[0]
    await trio.sleep(2)
    await store(call, first, b"one")
    await level(first, second)
    await first.kill()
    assert (
        await call.change_role(second.broker.address, "async-master", 0)
    ).code == ResponseCode.SUCCESS
    await store(call, second, b"two")
    return first, second


def lose(cluster: EmbeddedCluster, member: Member, what: Literal["disk", "role file"]) -> None:
    """Take something from a broker that is down."""
    if what == "disk":
        member.disk = cluster.make_disk()
        return
    for name in (FILE_NAME, f"{FILE_NAME}.bak"):
        path = member.config.data / "config" / name
        if member.disk.exists(path):
            member.disk.unlink(path)


def copy_of(member: Member) -> FaultyDisk:
    """What a backup of a broker's directory holds."""
    disk = member.disk
    assert isinstance(disk, FaultyDisk)
    return disk.copy()


async def set_back(member: Member, copy: FaultyDisk) -> None:
    """The broker runs again, with the copy in place of its directory."""
    if member.is_running:
        await member.kill()
    member.disk = copy
    await member.start()


def cut_files(member: Member) -> list[str]:
    return member.disk.list_directory(member.config.data / "cut")
