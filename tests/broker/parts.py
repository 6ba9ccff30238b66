"""Small parts that broker tests share: a settable clock, settings, files in memory, a connection that records."""

from pathlib import Path
from typing import Any

import attrs
from tests.golden.golden import RecordedFrame, remoting_frames
from tests.protocol.raw_frames import is_answer

from rocketrio_broker.config import BrokerConfig, LiveConfig
from rocketrio_broker.config_file import ConfigFile
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import VersionedConsumerOffsets
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import Frame, FrameDecoder
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.steps import all_at_once

START_MS = 1_700_000_000_000


class SettableClock:
    """A wall clock that stands still until told."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self.now = now_ms

    def now_ms(self) -> int:
        return self.now


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


@attrs.frozen
class RecordedExchange:
    """A request of a run, and the answer it got; None for a oneway request."""

    frame: RecordedFrame
    request: RemotingCommand
    answer: RemotingCommand | None


def recorded_exchanges(run: str, server: str) -> list[RecordedExchange]:
    """Requests that were sent to one kind of server, in time order."""
    frames = [frame for frame in remoting_frames(run) if frame.server == server]
    commands = [(frame, RemotingCommand.decode(_only(frame))) for frame in frames]
    answers = {
        (frame.connection, command.opaque): command
        for frame, command in commands
        if is_answer(command) and not frame.from_dialer
    }
    return [
        RecordedExchange(frame, command, answers.get((frame.connection, command.opaque)))
        for frame, command in commands
        if frame.from_dialer and not is_answer(command)
    ]


def exchanges_of(run: str, server: str, *codes: RequestCode) -> list[RecordedExchange]:
    return [each for each in recorded_exchanges(run, server) if each.request.code in codes]


def _only(frame: RecordedFrame) -> Frame:
    (only,) = FrameDecoder().feed(frame.data)
    return only
