"""Small parts that broker tests share: settings, files in memory, a connection that records."""

from pathlib import Path
from typing import Any

import attrs
from tests.support.clocks import SettableClock

from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.settings.config import BrokerConfig, LiveConfig
from rocketrio_broker.store.put_message import PutMessage
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.steps import all_at_once


def live_config(**changes: Any) -> LiveConfig:
    return LiveConfig(BrokerConfig(cluster_name="lab", **changes), wall_clock=SettableClock())


def config_file(name: str, disk: MemoryDisk | None = None) -> ConfigFile:
    return ConfigFile(Path("/data/config") / name, disk=MemoryDisk() if disk is None else disk)


def versioned(offsets: ConsumerOffsetManager) -> VersionedConsumerOffsets:
    """The answer to 43 with versions."""
    body = all_at_once(offsets.body(with_versions=True))
    return fastjson.loads(body, VersionedConsumerOffsets)


def read(disk: MemoryDisk, path: Path) -> bytes:
    file = disk.open(path)
    return file.pread(file.size, 0)


@attrs.define(eq=False)
class RecordingChannel:
    """Stands for a connection: keeps what is sent."""

    remote_addr: str = "127.0.0.1:50000"
    closed: bool = False
    sent: list[RemotingCommand] = attrs.Factory(list)

    def send_oneway(self, command: RemotingCommand) -> None:
        self.sent.append(command)

    async def call(self, request: RemotingCommand, *, timeout: float) -> RemotingCommand:
        self.sent.append(request)
        return request.response()

    def close(self, reason: str = "") -> None:
        self.closed = True


def asked(header: RequestHeader, body: bytes = b"", **changes: Any) -> RemotingCommand:
    """A request as it arrives."""
    return attrs.evolve(RemotingCommand.request(header, body), opaque=7, **changes)


def as_put(put: PutMessage) -> tuple[object, ...]:
    return (
        put.topic,
        put.queue_id,
        put.flag,
        put.sys_flag,
        put.born_time_ms,
        put.born_host,
        put.store_host,
        put.reconsume_times,
        put.body,
        put.properties,
    )
