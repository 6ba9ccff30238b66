"""Apache RocketMQ 5.3.3 with its Java client against our cluster with our client, both clusters up at once.

The sides take turns; each line is the median of the rounds after a warm-up. CPU is that of name server, master,
slave and client, for each message.
"""

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from statistics import median

import attrs
import trio
from tests.interop.jars import apache_jars
from tests.interop.java_sources import compiled

from peers import our_client
from peers.clusters import APACHE_VERSION, Cluster, Member, apache_cluster, our_cluster
from peers.figures import CpuMeter, Goal, Run, alternate, resident_mib, tell, tell_rates
from peers.java import SOURCES, JavaWorker
from rocketrio import open_client
from rocketrio.admin import open_admin

QUEUES = 4
SIZE = 128
BATCH = 100
IN_FLIGHT = 64


@attrs.frozen
class Scale:
    """How much is done."""

    rounds: int
    singles: int
    batched: int
    """Messages of a round in batches, and of a round of consuming."""
    stored: int
    """Messages that lie in the cluster when its memory is looked at."""


FULL = Scale(rounds=3, singles=30_000, batched=200_000, stored=1_000_000)
SMALL = Scale(rounds=1, singles=500, batched=5_000, stored=10_000)


@attrs.frozen
class Sides:
    """Both clusters and the Java client, running."""

    apache: Cluster
    ours: Cluster
    java: JavaWorker

    def theirs(self, count: int, *words: object) -> Callable[[], Run]:
        """A job of the Java client's."""

        def run() -> Run:
            meter = CpuMeter(self.apache.pids | {"client": [self.java.pid]})
            seconds = self.java.seconds(*words)
            return Run(count, seconds, meter.used())

        return run

    def mine(self, count: int, job: Callable[[str], Awaitable[float]]) -> Callable[[], Run]:
        """A job of our client's, in this process."""

        def run() -> Run:
            meter = CpuMeter(self.ours.pids | {"client": [os.getpid()]})
            seconds = trio.run(job, self.ours.name_server.address)
            return Run(count, seconds, meter.used())

        return run


@contextmanager
def both(folder: Path, *, synchronous: bool = False) -> Iterator[Sides]:
    """Everything started, with the topics made."""
    jars = f"{apache_jars(APACHE_VERSION)}/*"
    classes = compiled("peer-rocketmq", [SOURCES / "RocketMQPeer.java"], jars)
    with ExitStack() as stack:
        apache = stack.enter_context(apache_cluster(folder / "apache", synchronous=synchronous))
        ours = stack.enter_context(our_cluster(folder / "ours", synchronous=synchronous))
        for cluster in (apache, ours):
            trio.run(_create_topics, cluster.name_server.address)
        options = (
            "-Xmx512m",
            "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
            "-Drocketmq.client.logUseSlf4j=true",
        )
        java = JavaWorker(
            "RocketMQPeer",
            f"{classes}:{jars}",
            [apache.name_server.address],
            folder / "java",
            options,
        )
        yield Sides(apache, ours, stack.enter_context(java))


async def _create_topics(name_server: str) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
    ):
        for topic in ("singles", "auto", "batches"):
            await admin.create_topic(topic, queues=QUEUES)


def measure(scale: Scale) -> None:
    """All lines but those of synchronous replication."""
    with tempfile.TemporaryDirectory(prefix="bench-peers-") as folder, both(Path(folder)) as sides:
        idle = [resident_mib(member.pid) for member in (sides.ours.master, sides.apache.master)]
        _singles(sides, scale, "send_in_flight_64", Goal(1.3, 2))
        _automatic_batches(sides, scale)
        _batches(sides, scale)
        _consume(sides, scale)
        _fill(sides, scale)
        full = [resident_mib(member.pid) for member in (sides.ours.master, sides.apache.master)]
        goal = Goal(0.125, 0.083)  # Here less is better.
        tell("resident_idle", *idle, of="MiB of the master", goal=goal)
        tell("resident_full", *full, of="MiB of the master", goal=goal, messages=scale.stored)
        _restarts(sides, scale)


def measure_synchronous(scale: Scale) -> None:
    """Single sends that a slave has acknowledged, in clusters of their own."""
    with (
        tempfile.TemporaryDirectory(prefix="bench-peers-") as folder,
        both(Path(folder), synchronous=True) as sides,
    ):
        _singles(sides, scale, "send_synchronous_in_flight_64", Goal(1.2, 1.8))


def _singles(sides: Sides, scale: Scale, name: str, goal: Goal) -> None:
    count = scale.singles
    job = partial(our_client.send_singles, count=count, in_flight=IN_FLIGHT, size=SIZE)
    # The JIT compiler needs some 100,000 sends until its code is good.
    runs = alternate(
        scale.rounds,
        {
            "ours": sides.mine(count, job),
            "theirs": sides.theirs(count, "singles", "singles", count, IN_FLIGHT, SIZE),
        },
        warm_up=3 if scale is FULL else 1,
    )
    tell_rates(name, runs["ours"], runs["theirs"], goal=goal, body=SIZE, slave=True)


def _automatic_batches(sides: Sides, scale: Scale) -> None:
    count = scale.batched
    job = partial(our_client.send_pipelined, count=count, size=SIZE)
    runs = alternate(
        scale.rounds,
        {
            "ours": sides.mine(count, job),
            "theirs": sides.theirs(count, "auto", "auto", count, SIZE),
        },
    )
    tell_rates("send_batched_by_the_client", runs["ours"], runs["theirs"], body=SIZE, slave=True)


def _batches(sides: Sides, scale: Scale) -> None:
    count = scale.batched
    job = partial(our_client.send_batches, count=count, batch=BATCH, size=SIZE)
    runs = alternate(
        scale.rounds,
        {
            "ours": sides.mine(count, job),
            "theirs": sides.theirs(count, "batches", "batches", count, BATCH, SIZE),
        },
    )
    goal = Goal(1.5, 2.5)
    tell_rates("send_batches_of_100", runs["ours"], runs["theirs"], goal=goal, slave=True)


def _consume(sides: Sides, scale: Scale) -> None:
    """All of ours against their only way, which is one by one."""
    count = scale.batched
    jobs = {
        "one_by_one": (our_client.consume_one_by_one, Goal(1, 1.6)),
        "batches": (our_client.consume_batches, None),
        "columns": (our_client.consume_columns, Goal(5, 10)),
    }
    work = {name: sides.mine(count, partial(job, count=count)) for name, (job, _) in jobs.items()}
    theirs = sides.theirs(count, "lite", "batches", count)
    runs = alternate(scale.rounds, {**work, "theirs": theirs})
    for name, (_, goal) in jobs.items():
        tell_rates(f"consume_{name}", runs[name], runs["theirs"], goal=goal, body=SIZE)


def _fill(sides: Sides, scale: Scale) -> None:
    """Up to the wanted number of messages; what the lines above stored counts."""
    rounds = scale.rounds
    before = (rounds + 3) * scale.singles + 2 * (rounds + 1) * scale.batched
    count = -(-max(scale.stored - before, BATCH) // BATCH) * BATCH
    sides.theirs(count, "batches", "batches", count, BATCH, SIZE)()
    sides.mine(count, partial(our_client.send_batches, count=count, batch=BATCH, size=SIZE))()


def _restarts(sides: Sides, scale: Scale) -> None:
    """From the start of the process to its first answer, after a clean stop."""
    taken: dict[str, list[float]] = {"ours": [], "theirs": []}
    masters: dict[str, Member] = {"ours": sides.ours.master, "theirs": sides.apache.master}
    for _ in range(scale.rounds):
        for name, member in masters.items():
            taken[name].append(member.restart())
    ours, theirs = median(taken["ours"]), median(taken["theirs"])
    tell("start_to_serving", ours, theirs, of="s", messages=scale.stored)
