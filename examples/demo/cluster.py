"""What the demo's steps share: the pair of brokers, and how it stands.

Number chosen for the demo: a memory bound of 16 MiB makes the broker call anything older cold, as 40 % of a real
machine's memory would.
"""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import trio
from processes import Processes, Server
from report import Report

from rocketrio import open_admin
from rocketrio.admin import Admin, BrokerStatus
from rocketrio.cli.cluster_table import status_table

ANY_PORT = "127.0.0.1:0"
IN_MEMORY_MAX_BYTES = 16 * 1024 * 1024
LEVEL_LIMIT = 60.0
"""Seconds the slave may take to have every byte."""
LOOK_INTERVAL = 0.05
MASTER_ID, SLAVE_ID = 0, 1


@attrs.define
class Demo:
    """What the steps share."""

    report: Report
    processes: Processes
    data: Path
    name_server: Server | None = None
    master: Server | None = None
    slave: Server | None = None

    @property
    def name_servers(self) -> list[str]:
        """Where clients begin."""
        assert self.name_server is not None
        return [self.name_server.address]

    async def start_broker(
        self, name: str, *, broker_id: int, listen: str = ANY_PORT, ha_listen: str = ANY_PORT
    ) -> Server:
        """A broker of the pair; `listen` and `ha_listen` where it was before, to come back."""
        settings = (
            "slave_read_enable=true",
            f"store.access_message_in_memory_max_bytes={IN_MEMORY_MAX_BYTES}",
            "store.mapped_file_size_commit_log=67108864",
        )
        return await self.processes.start(
            name,
            *("run", "--namesrv", self.name_servers[0]),
            *("--listen", listen, "--ha-listen", ha_listen),
            *("--cluster", "demo", "--name", "broker-a", "--id", str(broker_id)),
            *("--role", "slave" if broker_id else "async-master"),
            *("--data", str(self.data / name)),
            *(word for setting in settings for word in ("--set", setting)),
        )

    async def statuses(self, admin: Admin) -> dict[int, BrokerStatus]:
        """What `rocketrio cluster status` knows, by broker id."""
        return {one.broker_id: one for one in await admin.status()}

    async def wait_level(self, what: str) -> bool:
        """Until the slave has acknowledged every byte of the master's, with a bar of its progress."""
        async with open_admin(name_servers=self.name_servers) as admin:
            with self.report.bytes_progress(what) as bar, trio.move_on_after(LEVEL_LIMIT):
                while True:
                    now = await self.statuses(admin)
                    master, slave = now.get(MASTER_ID), now.get(SLAVE_ID)
                    if master and slave and master.max_physical_offset:
                        bar.reached(slave.max_physical_offset or 0, of=master.max_physical_offset)
                        if slave.bytes_behind == 0:
                            return True
                    await trio.sleep(LOOK_INTERVAL)
        return False

    async def show_status(self) -> None:
        """The table of `rocketrio cluster status`."""
        async with open_admin(name_servers=self.name_servers) as admin:
            self.report.say("[bold]rocketrio cluster status[/]")
            self.report.show(status_table(await admin.status()))

    async def check_same_log(self, claim: str) -> None:
        """Whether both commit logs hold the same bytes."""
        async with open_admin(name_servers=self.name_servers) as admin:
            now = await self.statuses(admin)
        ends = [now[id_].max_physical_offset or 0 for id_ in (MASTER_ID, SLAVE_ID)]
        sums = [
            await trio.to_thread.run_sync(_checksum, self.data / name / "commitlog", ends[0])
            for name in ("master", "slave")
        ]
        self.report.check(
            claim,
            holds=ends[0] == ends[1] > 0 and sums[0] == sums[1],
            detail=f"{ends[0]:,} and {ends[1]:,} bytes, sha256 {sums[0][:16]}… and {sums[1][:16]}…",
        )


@asynccontextmanager
async def stopped(server: Server) -> AsyncIterator[None]:
    """The process does nothing for the length of the block, as a machine that hangs."""
    server.pause()
    try:
        yield
    finally:
        server.resume()


def _checksum(folder: Path, size: int) -> str:
    """sha256 of the first `size` bytes of a commit log."""
    digest, left = hashlib.sha256(), size
    for path in sorted(folder.iterdir()):
        with path.open("rb") as file:
            while left and (chunk := file.read(min(left, 1 << 20))):
                digest.update(chunk)
                left -= len(chunk)
    return digest.hexdigest()
