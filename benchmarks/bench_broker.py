"""A broker process under load from another: sends and pulls a second, and CPU µs of the broker for each.

The load is `load.c`, compiled here (gcc or cc must be there), so that only the broker's own cost is measured.

    send        1, 16 and 64 in flight on one connection; 64 connections with 1 in flight each; 128 B bodies
    send sync   the same with synchronous flush, 64 in flight
    batch       32 and 100 messages of 128 B a request; 100 of 1 KiB
    pull        32 and 1024 messages a request, 128 B and 1 KiB, one queue; 1024 of eight queues written in turn

To hold: 64 in flight at least 50 k/s and at most 15-20 µs; 64 x 1 at least 12 k/s; batches 60 to
120 k msg/s; pulls of 32 at least 150-200 k msg/s, of 1024 at least 0.4-2 M msg/s.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from load_generator import (
    LoadGenerator,
    Measured,
    NoCompilerError,
    RunningBroker,
    batch_frame,
    load_generator,
    pull_frame,
    send_frame,
)
from peers.figures import anonymous_mib
from processes import started

MOST = 1024
"""Messages of one pull, at the most."""


@contextmanager
def running_broker(generator: LoadGenerator, *settings: str) -> Iterator[RunningBroker]:
    """A broker with its data in a temporary folder."""
    options = [part for setting in settings for part in ("--set", setting)]
    with (
        tempfile.TemporaryDirectory(prefix="bench-broker-") as folder,
        started("run", "--listen", "127.0.0.1:0", "--data", f"{folder}/data", *options) as (
            process,
            ready,
        ),
    ):
        yield RunningBroker(process, ready["address"], generator)


def tell(name: str, measured: Measured, *, messages: int = 1) -> None:
    """One line; `messages` a request."""
    load = measured.load
    line = {
        "name": f"broker.{name}",
        "value": round(load.requests * messages / load.seconds),
        "unit": "messages/s",
        "cpu_us": round(measured.cpu_us / messages, 3),
        "cpu_us_request": round(measured.cpu_us, 2),
        "p50_us": load.p50_us,
        "p99_us": load.p99_us,
        "failed": load.failed,
    }
    print(json.dumps(line), flush=True)


def bench_sends(generator: LoadGenerator) -> None:
    with running_broker(generator) as broker:
        idle = anonymous_mib(broker.process.pid)
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
            measured = broker.run(batch_frame(count, size), count=4_000, in_flight=8)
            tell(f"batch_{count}_of_{size}", measured, messages=count)
        after = anonymous_mib(broker.process.pid)
    print(json.dumps({"name": "broker.resident_idle", "value": round(idle, 1), "unit": "MiB"}))
    print(json.dumps({"name": "broker.resident_loaded", "value": round(after, 1), "unit": "MiB"}))


def bench_sync_sends(generator: LoadGenerator) -> None:
    with running_broker(generator, "store.flush_disk_type=sync") as broker:
        frame = send_frame(128)
        for in_flight, count in ((1, 2_000), (64, 40_000)):
            measured = broker.run(frame, count=count, in_flight=in_flight)
            tell(f"send_sync_flush_in_flight_{in_flight}", measured)


def bench_pulls(generator: LoadGenerator) -> None:
    settings = (
        "store.max_transfer_count_on_message_in_memory=1024",
        "store.max_transfer_bytes_on_message_in_memory=8388608",
    )
    for size in (128, 1024):
        with running_broker(generator, *settings) as broker:
            # Queues of whole answers: the figures count each as full.
            broker.run(batch_frame(100, size), count=MOST, in_flight=8)
            for most, count in ((32, 20_000), (MOST, 2_000)):
                measured = broker.run(pull_frame(most), count=count, mode="pull", in_flight=2)
                tell(f"pull_{most}_of_{size}", measured, messages=most)
            frames = b"".join(send_frame(size, topic="mixed", queue_id=queue) for queue in range(8))
            broker.run(frames, count=8 * 2 * MOST, in_flight=8)
            pull = pull_frame(MOST, topic="mixed")
            measured = broker.run(pull, count=2_000, mode="pull", in_flight=2)
            tell(f"pull_{MOST}_of_{size}_8_queues", measured, messages=MOST)


def main() -> int:
    try:
        with load_generator() as generator:
            bench_sends(generator)
            bench_sync_sends(generator)
            bench_pulls(generator)
    except NoCompilerError as error:
        print(f"bench_broker: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
