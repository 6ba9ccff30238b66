"""A broker process under load from another: sends and pulls a second, and CPU µs of the broker for each.

The load is `load.c`, compiled here (gcc or cc must be there), so that only the broker's own cost is measured.

    send        1, 16 and 64 in flight on one connection; 64 connections with 1 in flight each; 128 B bodies
    send sync   the same with synchronous flush, 64 in flight
    batch       32 and 100 messages of 128 B a request; 100 of 1 KiB
    pull        32 and 1024 messages a request, 128 B and 1 KiB, one queue; 1024 of eight queues written in turn

Held against performance.md: 64 in flight at least 50 k/s and at most 15-20 µs; 64 x 1 at least 12 k/s; batches 60 to
120 k msg/s; pulls of 32 at least 150-200 k msg/s, of 1024 at least 0.4-2 M msg/s.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import attrs

from rocketrio_protocol.batch import encode_batch
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.commands.send import (
    SendBatchMessageRequestHeader,
    SendMessageRequestHeaderV2,
)

SCALE = float(os.environ.get("BENCH_SCALE", "1"))
"""Multiplies the number of requests: 0.05 for a quick look."""

PROPERTIES = "UNIQ_KEY\x017F000001000018B4AAC2000000000001\x02WAIT\x01true\x02TAGS\x01TagA"
OFFSET_PLACE = "@" * 20
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


@attrs.frozen
class Load:
    """One run of the load generator."""

    requests: int
    seconds: float
    bytes: int
    failed: int
    p50_us: float
    p99_us: float
    cpu_us: float
    """Of the broker, user and system, a request."""


@attrs.define
class RunningBroker:
    """A broker process, and the load generator pointed at it."""

    process: "subprocess.Popen[str]"
    host: str
    port: int
    loader: Path
    folder: Path

    def run(
        self,
        frame: bytes,
        *,
        count: int,
        mode: str = "repeat",
        connections: int = 1,
        in_flight: int = 1,
    ) -> Load:
        file = self.folder / "frame"
        file.write_bytes(frame)
        count = max(int(count * SCALE), connections * in_flight)
        before = self.cpu_seconds()
        arguments = (self.host, self.port, mode, connections, in_flight, count, file)
        done = subprocess.run(
            [self.loader, *map(str, arguments)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"the load generator failed: {done.stderr}")
        cpu = self.cpu_seconds() - before
        requests, seconds, size, failed, p50, p99 = done.stdout.split()
        return Load(
            int(requests),
            float(seconds),
            int(size),
            int(failed),
            float(p50),
            float(p99),
            cpu / int(requests) * 1e6,
        )

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS

    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        shared = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[2])
        return (pages - shared) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextmanager
def running_broker(loader: Path, *settings: str) -> Iterator[RunningBroker]:
    """A broker with its data in a temporary folder."""
    folder = Path(tempfile.mkdtemp(prefix="bench-broker-"))
    command = [
        *(sys.executable, "-m", "rocketrio_broker.cli", "run", "--listen", "127.0.0.1:0"),
        *("--data", str(folder / "data"), "--log-level", "error"),
        *(part for setting in settings for part in ("--set", setting)),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        if "address=" not in ready:
            raise SystemExit(f"the broker did not start: {ready!r}")
        host, port = ready.split(" address=")[1].split()[0].split(":")
        yield RunningBroker(process, host, int(port), loader, folder)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        shutil.rmtree(folder, ignore_errors=True)


def send_frame(body_size: int, *, topic: str = "bench", queue_id: int = 0) -> bytes:
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
    header = PullMessageRequestHeader(
        "readers", topic, queue_id, 0, max_messages, 4, 0, 0, 0, "*", max_msg_bytes=8 << 20
    )
    request = RemotingCommand.request(header)
    request.ext_fields["queueOffset"] = OFFSET_PLACE
    return request.encode()


def tell(name: str, load: Load, *, messages: int = 1) -> None:
    """One line; `messages` a request."""
    line = {
        "name": f"broker.{name}",
        "value": round(load.requests * messages / load.seconds),
        "unit": "messages/s",
        "cpu_us": round(load.cpu_us / messages, 3),
        "cpu_us_request": round(load.cpu_us, 2),
        "p50_us": load.p50_us,
        "p99_us": load.p99_us,
        "failed": load.failed,
    }
    print(json.dumps(line), flush=True)


def bench_sends(loader: Path) -> None:
    with running_broker(loader) as broker:
        idle = broker.resident_mib()
        frame = send_frame(128)
        broker.run(frame, count=20_000, in_flight=64)  # warm
        for in_flight, count in ((1, 20_000), (16, 80_000), (64, 200_000)):
            tell(
                f"send_128_in_flight_{in_flight}",
                broker.run(frame, count=count, in_flight=in_flight),
            )
        tell("send_128_connections_64", broker.run(frame, count=60_000, connections=64))
        tell("send_1024_in_flight_64", broker.run(send_frame(1024), count=60_000, in_flight=64))
        for count, size in ((32, 128), (100, 128), (100, 1024)):
            load = broker.run(batch_frame(count, size), count=4_000, in_flight=8)
            tell(f"batch_{count}_of_{size}", load, messages=count)
        after = broker.resident_mib()
    print(json.dumps({"name": "broker.resident_idle", "value": round(idle, 1), "unit": "MiB"}))
    print(json.dumps({"name": "broker.resident_loaded", "value": round(after, 1), "unit": "MiB"}))


def bench_sync_sends(loader: Path) -> None:
    with running_broker(loader, "store.flush_disk_type=sync") as broker:
        frame = send_frame(128)
        for in_flight, count in ((1, 2_000), (64, 40_000)):
            load = broker.run(frame, count=count, in_flight=in_flight)
            tell(f"send_sync_flush_in_flight_{in_flight}", load)


def bench_pulls(loader: Path) -> None:
    settings = (
        "store.max_transfer_count_on_message_in_memory=1024",
        "store.max_transfer_bytes_on_message_in_memory=8388608",
    )
    for size in (128, 1024):
        with running_broker(loader, *settings) as broker:
            broker.run(batch_frame(100, size), count=1_000, in_flight=8)
            for most, count in ((32, 20_000), (1024, 2_000)):
                load = broker.run(pull_frame(most), count=count, mode="pull", in_flight=2)
                tell(f"pull_{most}_of_{size}", load, messages=most)
            frames = b"".join(send_frame(size, topic="mixed", queue_id=queue) for queue in range(8))
            broker.run(frames, count=20_000, in_flight=8)
            load = broker.run(
                pull_frame(1024, topic="mixed"), count=2_000, mode="pull", in_flight=2
            )
            tell(f"pull_1024_of_{size}_8_queues", load, messages=1024)


def main() -> int:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        print(
            "bench_broker needs a C compiler for its load generator: install gcc", file=sys.stderr
        )
        return 1
    with tempfile.TemporaryDirectory() as folder:
        loader = Path(folder) / "load"
        source = Path(__file__).with_name("load.c")
        subprocess.run([compiler, "-O2", "-o", loader, source], check=True)
        bench_sends(loader)
        bench_sync_sends(loader)
        bench_pulls(loader)
    return 0


if __name__ == "__main__":
    sys.exit(main())
