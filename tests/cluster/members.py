"""The brokers of a cluster one by one: their roles, their disks, and what is done to them while they are down."""

from pathlib import Path
from typing import Any

import attrs
from tests.support.faulty_disk import FaultyDisk
from tests.support.pair import Pair

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.role.file import FILE_NAME
from rocketrio_broker.settings.config import BrokerConfig, Role
from rocketrio_protocol.remoting.ports import join_addr

RIVAL = "10.0.0.66"
SECOND_NAME_SERVER = "10.0.0.8"


def another_member(cluster: EmbeddedCluster, host: str, **settings: Any) -> Member:
    """A broker that no other has met, on a host of its own; else like the first master."""
    config: BrokerConfig = attrs.evolve(
        cluster.master.config,
        listen=join_addr(host, 10911),
        ha_listen=None,
        data=Path(f"/{host}"),
        **settings,
    )
    return Member(cluster, config, host)


def rival_of(cluster: EmbeddedCluster, **settings: Any) -> Member:
    """A second master of the same name."""
    return another_member(cluster, RIVAL, **{"ha_return_role": "stand-aside", **settings})


async def second_name_server(cluster: EmbeddedCluster) -> NameServer:
    """Start another name server, with which no broker registers."""
    listener = await cluster.listen_on(SECOND_NAME_SERVER)(f"{SECOND_NAME_SERVER}:9876")
    started = NameServer([listener])
    await cluster.nursery.start(started.run)
    return started


async def restart_with(member: Member, **settings: Any) -> None:
    """Stop a broker, if it runs, and start it with other settings."""
    if member.is_running:
        await member.stop()
    member.config = attrs.evolve(member.config, **settings)
    await member.start()


def role_of(member: Member) -> tuple[str, int]:
    return member.broker.role, member.broker.config.broker_id


def state(member: Member) -> HAClientState:
    """Return how a slave follows."""
    assert member.broker.slave is not None
    return member.broker.slave.client.state


def problem(member: Member) -> str:
    """Return why a slave does not follow."""
    assert member.broker.slave is not None
    return member.broker.slave.statistics().log.last_problem or ""


def configure_as(member: Member, role: Role, broker_id: int = 0) -> None:
    """Change the settings with which a broker that is down starts."""
    member.config = attrs.evolve(member.config, role=role, broker_id=broker_id)


def cut_files(member: Member) -> list[str]:
    return member.disk.list_directory(member.config.data / "cut")


def forget_role(member: Member) -> None:
    """Have a broker that is down start with its settings, as a machine that was built again."""
    _lose_file(member, FILE_NAME)


def forget_peers(member: Member) -> None:
    """Have a broker that is down know neither its slaves nor its master, as if a power cut had taken the file."""
    _lose_file(member, "slaves.json")


def _lose_file(member: Member, name: str) -> None:
    for each in (name, f"{name}.bak"):
        path = member.config.config_directory / each
        if member.disk.exists(path):
            member.disk.unlink(path)


def damage(member: Member, address: int, data: bytes) -> None:
    """Overwrite bytes of a log that is not open, as far as it goes."""
    folder, size = member.config.data / "commitlog", member.config.store.mapped_file_size_commit_log
    for offset, byte in enumerate(data, address):
        path = folder / f"{offset // size * size:020d}"
        if member.disk.exists(path):
            member.disk.open(path).pwrite(bytes([byte]), offset % size)


async def cut_power(member: Member, *, kept: float = 0.0) -> None:
    """Kill a broker, and lose what was not synced but for this share of it."""
    await member.kill()
    assert isinstance(member.disk, FaultyDisk)
    member.disk = member.disk.after_cut(seed=7, kept=kept)


def copy_of(member: Member) -> FaultyDisk:
    """What a backup of a broker's directory holds."""
    assert isinstance(member.disk, FaultyDisk)
    return member.disk.copy()


async def set_back(member: Member, copy: FaultyDisk) -> None:
    """The broker runs again, with the copy in place of its directory."""
    if member.is_running:
        await member.kill()
    member.disk = copy
    await member.start()


async def failed_over(pair: Pair) -> tuple[Member, Member]:
    """The dead master and its successor, which has one message more."""
    await pair.send("one")
    await pair.level(pair.first, pair.second)
    await pair.fail_over()
    await pair.send("two", at=pair.second)
    return pair.first, pair.second
