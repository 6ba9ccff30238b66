"""A pair becomes two, then Apache's brokers join, and both pairs are drained and removed: docs/outgrowing.md.

One program sends and receives all the time, from the first broker to the last one. It names our name server and
Apache's from the beginning; ours is removed at the end, too.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from rocketrio import open_admin, open_client
from tests.interop.apache import ApacheBroker, ApacheNameServer
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.steady_traffic import SteadyTraffic
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

ROUTES_WITHIN = 60.0
"""Seconds in which all members know a change of routes, on a busy machine."""


class Site:
    """Two name servers, and the brokers of both products that come and go."""

    def __init__(self, version: str, folder: Path, stack: ExitStack) -> None:
        self.version = version
        self.folder = folder
        self._stack = stack
        self.our_names = stack.enter_context(OurNameServer(folder / "our-names"))
        self.apache_names = stack.enter_context(ApacheNameServer(version, folder / "names"))
        self.name_servers = [self.our_names.address, self.apache_names.address]

    async def start_pair(self, name: str) -> list[OurBroker]:
        """Start a synchronous pair of rocketrio brokers."""
        home, both = self.folder / name, ";".join(self.name_servers)
        listed_at = self.our_names.address
        pair = [
            OurBroker(home / "0", both, role="sync-master", name=name, listed_at=listed_at),
            OurBroker(home / "1", both, role="slave", broker_id=1, name=name, listed_at=listed_at),
        ]
        await self._start(*pair)
        return pair

    async def start_apache(self, name: str) -> None:
        """Start an Apache master and its slave."""
        home, both = self.folder / name, ";".join(self.name_servers)
        master, slave = (
            ApacheBroker(
                self.version,
                home / str(number),
                both,
                role="SLAVE" if number else "ASYNC_MASTER",
                broker_id=number,
                name=name,
                port=free_port(-2, 1),
                listed_at=self.our_names.address,
            )
            for number in (0, 1)
        )
        await self._start(master)
        await self._start(slave)

    async def _start(self, *brokers: OurBroker | ApacheBroker) -> None:
        for broker in brokers:
            self._stack.callback(broker.__exit__)
            broker.start()  # In this thread: the process would end with another one.
        for broker in brokers:
            await trio.to_thread.run_sync(broker.wait_ready)

    async def shell(self, line: str) -> str:
        """Run a line of the guide, with the installed command."""
        done = await trio.run_process(
            ["bash", "-o", "pipefail", "-c", line],
            env={
                "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
                "NAMESRV_ADDR": ";".join(self.name_servers),
                "HOME": str(self.folder),
            },
            cwd=self.folder,
            capture_stdout=True,
            stderr=subprocess.STDOUT,
            check=False,
        )
        said = done.stdout.decode()
        assert done.returncode == 0, f"{line}: {done.returncode}\n{said}"
        return said

    async def copy_tables(self, name: str) -> None:
        """Give a new broker the topics and groups of broker-a, as the guide does."""
        await self.shell(
            "rocketrio export --kind topics --kind groups"
            f""" | sed 's/^brokers = .*/brokers = ["{name}"]/' > {name}.toml"""
        )
        await self.shell(f"rocketrio apply {name}.toml")


@pytest.fixture
def site(version: str, tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(version, tmp_path, stack)


async def test_pairs_are_added_drained_and_replaced_by_apache_under_one_program(site: Site) -> None:
    traffic = SteadyTraffic("orders", "billing")
    changed_at: list[float] = []
    opener = partial(open_client, name_servers=site.name_servers)
    pairs = await site.start_pair("broker-a")
    await site.shell("rocketrio topic create orders --queues 4")
    await site.shell("rocketrio group create billing --max-retries 7")
    async with traffic.running(opener), open_admin(name_servers=site.name_servers) as admin:
        await traffic.uses("broker-a")

        pairs += await site.start_pair("broker-b")
        changed_at.append(trio.current_time())
        await site.copy_tables("broker-b")
        await traffic.uses("broker-a", "broker-b")

        await site.start_apache("apache-a")
        changed_at.append(trio.current_time())
        await site.copy_tables("apache-a")
        await traffic.uses("broker-a", "broker-b", "apache-a")
        assert (await admin.group("billing"))["apache-a"].retry_max_times == 7

        for name in ("broker-a", "broker-b"):
            said = await site.shell(f"rocketrio broker drain {name} --until-consumed --timeout 5m")
            assert f"every group has read everything that {name} stores" in said
        changed_at.append(trio.current_time())
        for broker in reversed(pairs):
            await trio.to_thread.run_sync(broker.stop)
        await trio.to_thread.run_sync(site.our_names.stop)
        await traffic.uses("apache-a", count=400)
        await traffic.end()

        for repeated_at in traffic.repeated_at:
            assert any(at <= repeated_at <= at + ROUTES_WITHIN for at in changed_at), changed_at

        async def all_is_committed() -> bool:
            report = await admin.lag("billing", seconds=0)
            return {row.lag for row in report.rows} == {0}

        await eventually(all_is_committed)
