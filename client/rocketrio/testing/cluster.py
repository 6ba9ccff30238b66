"""Runs a cluster for a block: in this trio run, or in a thread with a trio run of its own.

The only file of the client that imports the broker (decision 0052).

Invariant: leaving the block stops every member; the thread has ended by then.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeVar

import attrs
import trio

from rocketrio.ports import Ports, using_ports
from rocketrio_broker.embedded import EmbeddedCluster

T = TypeVar("T")


@asynccontextmanager
async def open_cluster(*, slaves: int = 0, **settings: Any) -> AsyncGenerator[EmbeddedCluster]:
    """Run a cluster for the length of the block; clients that are opened in it reach the cluster.

        async with open_cluster(slaves=1) as cluster:
            async with open_producer(name_servers=cluster.name_servers) as producer:
                ...
                await cluster.kill_master()

    The cluster exists in memory: no ports, no files. On a virtual clock (`trio.testing.MockClock`) waiting takes no
    time. `network="loopback"` puts it on free ports of 127.0.0.1 for other processes, and `root=` keeps its data in
    files as well. Other `settings` are those of `EmbeddedCluster` and of every broker (`rocketrio-broker settings`
    lists them).
    """
    async with EmbeddedCluster(slaves=slaves, **settings) as cluster:
        with using_ports(Ports(dial=cluster.dial, wall_clock=cluster.wall_clock)):
            yield cluster


@attrs.frozen(eq=False)
class ClusterInThread:
    """A cluster in a thread of its own, on ports of 127.0.0.1. Its methods may be called in any other thread."""

    _cluster: EmbeddedCluster
    _token: trio.lowlevel.TrioToken
    name_servers: list[str]
    """The name server addresses for clients of this cluster."""

    def call(self, function: Callable[[EmbeddedCluster], Awaitable[T]]) -> T:
        """Await a function of the cluster in its thread: `cluster.call(lambda running: running.slaves[0].kill())`."""
        return trio.from_thread.run(function, self._cluster, trio_token=self._token)

    def kill_master(self) -> None:
        """End the master as kill -9 does."""
        self.call(EmbeddedCluster.kill_master)

    def restart_master(self) -> None:
        """Start the master again with the data that it left. Returns once it takes writes."""
        self.call(EmbeddedCluster.restart_master)


@contextmanager
def open_cluster_in_thread(*, slaves: int = 0, **settings: Any) -> Iterator[ClusterInThread]:
    """Run a cluster on free ports of 127.0.0.1, in a thread of its own, for the length of the block.

    Everything in the block may use it: asyncio, threads, other processes. `settings` are those of `open_cluster`. If
    the cluster fails, leaving the block raises why.
    """
    started: Future[ClusterInThread] = Future()
    stop = trio.Event()
    settings = {"network": "loopback", **settings}

    async def serve() -> None:
        async with EmbeddedCluster(slaves=slaves, **settings) as cluster:
            token = trio.lowlevel.current_trio_token()
            started.set_result(ClusterInThread(cluster, token, cluster.name_servers))
            await stop.wait()

    with ThreadPoolExecutor(1, thread_name_prefix="rocketmq-cluster") as thread:
        ended = thread.submit(trio.run, serve)
        outcomes: list[Future[Any]] = [started, ended]
        try:
            wait(outcomes, return_when=FIRST_COMPLETED)
            if not started.done():
                ended.result()  # Starting failed, and this raises why.
            yield started.result()
        finally:
            wait(outcomes, return_when=FIRST_COMPLETED)
            if started.done():
                with suppress(trio.RunFinishedError):
                    started.result()._token.run_sync_soon(stop.set)
            ended.result()
