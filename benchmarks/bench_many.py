"""What a broker costs with thousands of queues, topics, groups and connections, against the same with a few.

`python benchmarks/bench_many.py [--topics N]`. The broker is a process of its own; the load is written to one socket.

    many.send.QUEUES       CPU µs of the broker for a send of 128 B, in turn to this number of queues, 64 KiB in flight
    many.send.ratio        that of the most queues against that of 8
    many.start, many.stop  seconds, with 1,000 queues written since the last checkpoint
    many.resident          MiB, with all queues, 2,000 groups and the connections
    many.topic.COUNT       CPU ms of the broker to create a topic and register it, with this number of topics
    many.group.COUNT       the same of a group
    many.topic.ratio, many.group.ratio      that with most against that with few

To hold, with 10,000 topics of 8 queues: a ratio of 1.3 for sends and of 2 for creations, 3 s to start and to stop,
300 MiB.
"""

import argparse
import json
import socket
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from load_generator import send_frame
from peers.figures import cpu_seconds, resident_mib
from processes import started

from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import (
    CreateTopicRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
)

QUEUES: Final = 8
WRITTEN: Final = 1_000
GROUPS: Final = 2_000
CONNECTIONS: Final = 5_000
SENDS: Final = 80_000
CHUNK: Final = 64 << 10
TOPICS: Final = 10_000
RATIO_LIMIT: Final = 1.3
CREATION_RATIO_LIMIT: Final = 2.0
SECONDS_LIMIT: Final = 3.0
MEMORY_LIMIT: Final = 300.0


def show(name: str, value: float, unit: str, **details: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 3), "unit": unit, **details}), flush=True)


def lay_out(data: Path, topics: int) -> None:
    """Write the tables that a broker finds at its start."""
    version = {"counter": 1, "timestamp": 1, "stateVersion": 0}
    table = {
        f"bench-{number}": {
            "topicName": f"bench-{number}", "readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6,
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": 0, "order": False,
        }
        for number in range(topics)
    }  # fmt: skip
    groups = {f"group-{number}": {"groupName": f"group-{number}"} for number in range(GROUPS)}
    config = data / "config"
    config.mkdir(parents=True)
    for name, member, content in (
        ("topics.json", "topicConfigTable", table),
        ("subscriptionGroup.json", "subscriptionGroupTable", groups),
    ):
        (config / name).write_text(json.dumps({"dataVersion": version, member: content}))


class Sender:
    """One connection that writes frames and counts answers."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._reader = self._socket.makefile("rb", buffering=1 << 20)

    def send(self, frames: list[bytes]) -> int:
        """Write all, and read an answer to each; how many said stored."""
        good = 0
        answered = threading.Semaphore(0)

        def write() -> None:
            start = size = 0
            for number, frame in enumerate(frames, 1):
                size += len(frame)
                if size >= CHUNK or number == len(frames):
                    self._socket.sendall(b"".join(frames[start:number]))
                    for _ in range(number - start):
                        answered.acquire()
                    start, size = number, 0

        writer = threading.Thread(target=write)
        writer.start()
        for _ in frames:
            size = int.from_bytes(self._reader.read(4), "big")
            good += b'"code":0' in self._reader.read(size)
            answered.release()
        writer.join()
        return good


def frames_for(queues: int, count: int, topics: int) -> list[bytes]:
    """Sends in turn to `queues` queues."""
    kept = [
        send_frame(128, topic=f"bench-{number // QUEUES % topics}", queue_id=number % QUEUES)
        for number in range(queues)
    ]
    return [kept[number % queues] for number in range(count)]


def bench_sends(pid: int, sender: Sender, topics: int) -> list[str]:
    """CPU of a send with ever more queues in use; each queue has its files already."""
    most = topics * QUEUES
    costs = {}
    sender.send(frames_for(most, most, topics))
    for queues in (8, 800, 8_000, 80_000):
        if queues > most:
            continue
        frames = frames_for(queues, SENDS, topics)
        before = cpu_seconds(pid)
        good = sender.send(frames)
        costs[queues] = (cpu_seconds(pid) - before) / SENDS * 1e6
        show(f"many.send.{queues}", costs[queues], "us", failed=SENDS - good)
    ratio = costs[max(costs)] / costs[8]
    show("many.send.ratio", ratio, "ratio", limit=RATIO_LIMIT)
    return [f"a send costs {ratio:.2f} times as much"] if ratio > RATIO_LIMIT else []


def creations(kind: str, numbers: range) -> list[bytes]:
    """Requests that make topics, or groups."""
    if kind == "topic":
        requests = [
            RemotingCommand.request(
                CreateTopicRequestHeader(
                    f"new-{number}", "TBW102", QUEUES, QUEUES, 6, "SINGLE_TAG", order=False
                )
            )
            for number in numbers
        ]
    else:
        header = UpdateAndCreateSubscriptionGroupRequestHeader()
        requests = [
            RemotingCommand.request(header, b'{"groupName":"new-%d"}' % number)
            for number in numbers
        ]
    return [request.encode() for request in requests]


def bench_creation(
    pid: int, sender: Sender, kind: str, count: int, part: int, *, times: int = 1
) -> list[str]:
    """CPU of each creation: of the first part, and of the last part of all.

    What is created again is written again; with `times` these parts are long enough to be measured.
    """
    costs = []
    for begin, end in ((0, part), (part, count - part), (count - part, count)):
        frames = creations(kind, range(begin, end)) * (1 if begin == part else times)
        before = cpu_seconds(pid)
        good = sender.send(frames)
        if begin != part:
            costs.append((cpu_seconds(pid) - before) / len(frames) * 1e3)
            show(f"many.{kind}.{end}", costs[-1], "ms", failed=len(frames) - good)
    ratio = costs[1] / costs[0] if costs[0] else 0.0
    show(f"many.{kind}.ratio", ratio, "ratio", limit=CREATION_RATIO_LIMIT)
    too_much = ratio > CREATION_RATIO_LIMIT
    return [f"the {count}th {kind} costs {ratio:.2f} times as much"] if too_much else []


def main(arguments: list[str]) -> int:
    """Measure, and say which limits do not hold."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--topics", type=int, default=TOPICS)
    parser.add_argument("--connections", type=int, default=CONNECTIONS)
    options = parser.parse_args(arguments)
    broken: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-many-") as folder:
        data = Path(folder) / "data"
        lay_out(data, options.topics)
        places = options.connections + 100
        words = ("run", "--listen", "127.0.0.1:0", "--data", str(data))
        limits = ("--set", f"connection_limit={places}", "--set", f"host_connection_limit={places}")
        with started(*words, *limits) as (process, ready), ExitStack() as stack:
            sender = Sender(ready["address"])
            broken += bench_sends(process.pid, sender, options.topics)
            host, _, port = ready["address"].rpartition(":")
            for _ in range(options.connections):
                stack.enter_context(socket.create_connection((host, int(port))))
            resident = resident_mib(process.pid)
            show("many.resident", resident, "MiB", limit=MEMORY_LIMIT)
            broken += [f"{resident:.0f} MiB are resident"] if resident > MEMORY_LIMIT else []
        # Everything is synced now. A second life that writes to some, and a third.
        with started(*words, *limits) as (process, ready):
            Sender(ready["address"]).send(frames_for(WRITTEN, 2 * WRITTEN, options.topics))
            begin = time.monotonic()
        broken += _timed("many.stop", time.monotonic() - begin)
        begin = time.monotonic()
        with started(*words, *limits):
            broken += _timed("many.start", time.monotonic() - begin)
    with (
        tempfile.TemporaryDirectory(prefix="bench-many-") as folder,
        started("namesrv", "--listen", "127.0.0.1:0") as (_, name_server),
        started(
            *("run", "--listen", "127.0.0.1:0", "--data", folder),
            *("--namesrv", name_server["address"]),
        ) as (process, ready),
    ):
        sender = Sender(ready["address"])
        broken += bench_creation(process.pid, sender, "topic", options.topics, options.topics // 10)
        broken += bench_creation(process.pid, sender, "group", GROUPS, 100, times=50)
    if options.topics < TOPICS:
        return 0  # The limits are meant for the whole, and for a machine with nothing else to do.
    for problem in broken:
        print(problem, file=sys.stderr)
    return 1 if broken else 0


def _timed(name: str, seconds: float) -> list[str]:
    show(name, seconds, "s", limit=SECONDS_LIMIT)
    return [f"{name} took {seconds:.1f} s"] if seconds > SECONDS_LIMIT else []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
