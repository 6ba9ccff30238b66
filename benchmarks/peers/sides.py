"""Both clusters with a Java client beside each, and a job that the pairs do in turn.

Ours is our client on our cluster, theirs is the Java client on Apache's. Crossed they are our client on Apache's
cluster, which held against theirs tells about the client alone (its CPU is the client's only), and the Java client on
our cluster, which tells about the servers (its CPU is that of master and slave).
"""

import os
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
import trio
from tests.interop.jars import apache_jars
from tests.interop.java_sources import compiled

from peers.clusters import APACHE_VERSION, Cluster, apache_cluster, our_cluster
from peers.figures import CpuMeter, Goal, Run, alternate, tell_rates
from peers.java import ROCKETMQ_SOURCES, JavaWorker
from peers.our_client import QUEUES
from rocketrio import open_client
from rocketrio.admin.admin import open_admin

Job = Callable[[str], Awaitable[float]]
"""Takes the name server's address, returns the seconds it took."""


@attrs.frozen
class Scale:
    """How much is done."""

    rounds: int
    warm_up: int
    """Rounds that do not count."""
    singles: int
    batched: dict[int, int]
    """By size of the body: messages of a round in batches, and of a round of consuming."""
    stored: int
    """Messages that lie in the cluster when its memory is looked at."""


FULL = Scale(
    rounds=3, warm_up=1, singles=30_000, batched={128: 200_000, 1024: 100_000}, stored=1_000_000
)
# Consuming reads as much of each queue: the batches of a round must fill all alike.
SMALL = Scale(rounds=1, warm_up=0, singles=500, batched={128: 4_000, 1024: 2_000}, stored=10_000)


@attrs.frozen
class Sides:
    """Both clusters and their Java clients, running."""

    apache: Cluster
    ours: Cluster
    java: JavaWorker
    java_on_ours: JavaWorker

    def theirs(self, count: int, *words: object) -> Callable[[], Run]:
        """A job of the Java client's on Apache's cluster."""
        return _job_of(self.java, self.apache, count, words)

    def crossed(self, count: int, *words: object) -> Callable[[], Run]:
        """The same job of the Java client's on our cluster."""
        return _job_of(self.java_on_ours, self.ours, count, words)

    def mine(self, count: int, job: Job, *, on: Cluster | None = None) -> Callable[[], Run]:
        """A job of our client's, in this process; on our cluster if none is named."""
        cluster = on or self.ours

        def run() -> Run:
            meter = CpuMeter(cluster.pids | {"client": [os.getpid()]})
            seconds = trio.run(job, cluster.name_server.address)
            return Run(count, seconds, meter.used())

        return run

    def compare(
        self,
        scale: Scale,
        name: str,
        count: int,
        job: Job,
        words: Sequence[object],
        *,
        size: int,
        goal: Goal | None = None,
        warm_ups: int = 1,
    ) -> None:
        """Both lines of one job; `warm_ups` times as many rounds as usual do not count."""
        work = {
            "ours": self.mine(count, job),
            "on_apache": self.mine(count, job, on=self.apache),
            "java_on_ours": self.crossed(count, *words),
            "theirs": self.theirs(count, *words),
        }
        runs = alternate(scale.rounds, work, warm_up=warm_ups * scale.warm_up)
        tell_rates(name, runs["ours"], runs["theirs"], goal=goal, body=size)
        on_apache, java = of_client(runs["on_apache"]), of_client(runs["theirs"])
        tell_rates(f"{name}_on_apache", on_apache, java, body=size)
        tell_java_on_ours(name, runs["java_on_ours"], runs["theirs"], body=size)


def tell_java_on_ours(
    name: str, crossed: Sequence[Run], theirs: Sequence[Run], *, body: int
) -> None:
    """The line of the Java client on both clusters, with the CPU of the servers."""
    ours, apaches = ([run.without("client") for run in runs] for runs in (crossed, theirs))
    tell_rates(f"{name}_java_on_ours", ours, apaches, body=body)


def _job_of(
    java: JavaWorker, cluster: Cluster, count: int, words: Sequence[object]
) -> Callable[[], Run]:
    def run() -> Run:
        meter = CpuMeter(cluster.pids | {"client": [java.pid]})
        seconds = java.seconds(*words)
        return Run(count, seconds, meter.used())

    return run


def of_client(runs: Sequence[Run]) -> list[Run]:
    """The same with the CPU of the client alone."""
    return [run.only("client") for run in runs]


def topic(kind: str, size: int) -> str:
    """One for each kind of sending and size of the body."""
    return f"{kind}-{size}"


@contextmanager
def both(sizes: Sequence[int], *, synchronous: bool = False) -> Iterator[Sides]:
    """Everything started, with the topics made."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-peers-")))
        apache = stack.enter_context(apache_cluster(folder / "apache", synchronous=synchronous))
        ours = stack.enter_context(our_cluster(folder / "ours", synchronous=synchronous))
        for cluster in (apache, ours):
            trio.run(_create_topics, cluster.name_server.address, sizes)
        on_apache, on_ours = (
            stack.enter_context(java_client(cluster.name_server.address, folder / f"java-{name}"))
            for name, cluster in (("apache", apache), ("ours", ours))
        )
        yield Sides(apache, ours, on_apache, on_ours)


def java_client(name_server: str, home: Path, options: Sequence[str] = ()) -> JavaWorker:
    """Return Apache's client, which `with` starts."""
    jars = f"{apache_jars(APACHE_VERSION)}/*"
    classes = compiled("peer-rocketmq", ROCKETMQ_SOURCES, jars)
    own = (
        "-Xmx512m",
        "-Dcom.rocketmq.sendMessageWithVIPChannel=false",
        "-Drocketmq.client.logUseSlf4j=true",
    )
    arguments = [name_server]
    return JavaWorker("RocketMQPeer", f"{classes}:{jars}", arguments, home, (*own, *options))


async def _create_topics(name_server: str, sizes: Sequence[int]) -> None:
    async with (
        open_client(name_servers=[name_server]) as client,
        open_admin(client=client) as admin,
    ):
        for size in sizes:
            for kind in ("singles", "auto", "batches"):
                await admin.create_topic(topic(kind, size), queues=QUEUES)
