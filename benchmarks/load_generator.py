"""Load for a broker from outside its process and outside Python: `load.c`, compiled here by gcc or cc.

So only the broker's own cost is measured, and a broker of another kind can be given the same.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs
from peers.figures import cpu_seconds

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeaderV2,
)
from rocketrio_protocol.record.batch import encode_batch

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
"""Multiplies the number of requests: 0.05 for a quick look."""
PROPERTIES = "UNIQ_KEY\x017F000001000018B4AAC2000000000001\x02WAIT\x01true\x02TAGS\x01TagA"
OFFSET_PLACE = "@" * 20


class NoCompilerError(Exception):
    """There is no C compiler."""


@attrs.frozen
class Load:
    """One run."""

    requests: int
    seconds: float
    bytes: int
    failed: int
    p50_us: float
    p99_us: float


@attrs.frozen
class LoadGenerator:
    """The compiled program."""

    program: Path

    def run(
        self,
        address: str,
        frame: bytes,
        *,
        count: int,
        mode: str = "repeat",
        connections: int = 1,
        in_flight: int = 1,
    ) -> Load:
        """Send a frame `count` times, with `in_flight` unanswered on each connection."""
        host, _, port = address.rpartition(":")
        count = max(count, connections * in_flight)
        with tempfile.NamedTemporaryFile() as file:
            file.write(frame)
            file.flush()
            words = (host, port, mode, connections, in_flight, count, file.name)
            done = subprocess.run(
                [self.program, *map(str, words)], capture_output=True, text=True, check=False
            )
        if done.returncode:
            raise SystemExit(f"the load generator failed: {done.stderr}")
        requests, seconds, size, failed, p50, p99 = done.stdout.split()
        return Load(int(requests), float(seconds), int(size), int(failed), float(p50), float(p99))


@attrs.frozen
class Measured:
    """One run of the load generator."""

    load: Load
    cpu_us: float
    """Of the broker, user and system, a request."""


@attrs.frozen
class RunningBroker:
    """A broker process, and the load generator pointed at it."""

    process: "subprocess.Popen[str]"
    address: str
    generator: LoadGenerator

    def run(
        self,
        frame: bytes,
        *,
        count: int,
        mode: str = "repeat",
        connections: int = 1,
        in_flight: int = 1,
    ) -> Measured:
        before = cpu_seconds(self.process.pid)
        load = self.generator.run(
            self.address,
            frame,
            count=int(count * SCALE),
            mode=mode,
            connections=connections,
            in_flight=in_flight,
        )
        cpu = cpu_seconds(self.process.pid) - before
        return Measured(load, cpu / load.requests * 1e6)


@contextmanager
def load_generator() -> Iterator[LoadGenerator]:
    """It, for as long as the block lasts. Raises NoCompilerError."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("the load generator needs a C compiler: install gcc")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "load"
        source = Path(__file__).with_name("load.c")
        subprocess.run([compiler, "-O2", "-o", program, source], check=True)
        yield LoadGenerator(program)


def send_frame(body_size: int, *, topic: str = "bench", queue_id: int = 0) -> bytes:
    """One message."""
    header = SendMessageRequestHeaderV2(
        "producers",
        topic,
        "TBW102",
        8,
        queue_id,
        0,
        1_700_000_000_000,
        0,
        PROPERTIES,
        0,
        False,
        batch=False,
    )
    return RemotingCommand.request(header, bytes(body_size)).encode()


def batch_frame(count: int, body_size: int, *, topic: str = "bench", queue_id: int = 0) -> bytes:
    """Several in one request."""
    header = SendBatchMessageRequestHeader(
        "producers",
        topic,
        "TBW102",
        8,
        queue_id,
        0,
        1_700_000_000_000,
        0,
        "WAIT\x01true",
        0,
        False,
        batch=True,
    )
    properties = PROPERTIES.encode()
    body = encode_batch([(0, bytes(body_size), properties)] * count)
    return RemotingCommand.request(header, body).encode()


def pull_frame(max_messages: int, *, topic: str = "bench", queue_id: int = 0) -> bytes:
    """With a place for the offset, which the generator fills in."""
    header = PullMessageRequestHeader(
        "readers", topic, queue_id, 0, max_messages, 4, 0, 0, 0, "*", max_msg_bytes=8 << 20
    )
    request = RemotingCommand.request(header)
    request.ext_fields["queueOffset"] = OFFSET_PLACE
    return request.encode()
