"""What operators see at 3 am, on real processes: lag, health, doctor, check and metrics name the trouble in a minute.

A reset that members undo is a story of Apache's members: tests/interop/test_resets.py.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import attrs
import pytest
import trio
from tests.support.commands import Done, rocketrio
from tests.support.http import get
from tests.support.ours import OurBroker, OurNameServer
from tests.support.processes import free_port
from tests.support.server import start_together
from tests.support.waiting import HANGS, eventually

from rocketrio import (
    Message,
    MessageQueue,
    Producer,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio.admin import Admin, Diagnosis, Verdict
from rocketrio_protocol.errors import BrokerError
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = pytest.mark.real

MINUTE = 60.0
BODY = os.urandom(32_768)
SCRAPE = 5.0
"""Seconds between two looks at the metrics: a page judges by the pages before it."""


@attrs.frozen
class Cluster:
    names: OurNameServer
    other_names: OurNameServer
    master: OurBroker
    slave: OurBroker
    metrics: str

    @property
    def both(self) -> list[str]:
        return [self.names.address, self.other_names.address]

    async def run(self, *arguments: str) -> Done:
        return await rocketrio(*arguments, env={"NAMESRV_ADDR": self.names.address})

    async def verdicts(self, group: str) -> set[str]:
        """The verdicts that the master's page of metrics has for a group, as the alerts read them."""
        page = (await get(dial_tcp, self.metrics)).text
        return {
            line.partition('verdict="')[2].partition('"')[0]
            for line in page.splitlines()
            if line.startswith("rocketrio_group_verdict{")
            and f'"{group}"' in line
            and float(line.rpartition(" ")[2]) == 1
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("stories")
    metrics = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        names = stack.enter_context(OurNameServer(folder / "names"))
        other = stack.enter_context(OurNameServer(folder / "other"))
        settings = (
            "auto_create_topic_enable=false",
            "store.clean_resource_interval=0.5",
            # A file is deleted once a checkpoint says that what was made from it is on the disk.
            "store.flush_consume_queue_thorough_interval=1",
        )
        master = OurBroker(
            folder / "master",
            names.address,
            role="sync-master",
            settings=(*settings, f"metrics_listen={metrics}"),
        )
        slave = OurBroker(
            folder / "slave", names.address, role="slave", broker_id=1, settings=settings
        )
        start_together(stack, master, slave)
        yield Cluster(names, other, master, slave, metrics)


def codes(found: Diagnosis) -> set[str]:
    return {one.code for one in found.findings} - {"S01"}  # The disk of this machine may be full.


async def verdict(admin: Admin, group: str, topic: str) -> Verdict:
    [row] = [one for one in (await admin.lag(group, seconds=15)).rows if one.topic == topic]
    return row.verdict


async def test_cluster_that_is_well(cluster: Cluster) -> None:
    with trio.fail_after(HANGS):
        async with open_admin(name_servers=[cluster.names.address]) as admin:
            await eventually(lambda: _is_well(admin), MINUTE)
            found = await admin.diagnose(slaves=1)
            assert (codes(found), found.unknown) == (set(), {}), found
        done = await cluster.run("doctor", "--slaves", "1", "--ignore", "S01")
        assert (done.code, "nothing is wrong" in done.out) == (0, True), done


async def _is_well(admin: Admin) -> bool:
    return not {one.code for one in (await admin.health()).findings} - {"S01"}


async def test_group_that_is_stuck_and_then_dies(cluster: Cluster) -> None:
    topic, group = "stuck-orders", "stuck-billing"
    with trio.fail_after(HANGS):
        async with (
            open_client(name_servers=[cluster.names.address]) as client,
            open_admin(client=client) as admin,
            open_producer(client=client) as producer,
        ):
            await admin.create_topic(topic, queues=1)
            async with open_consumer(
                topic, group=group, start_from="earliest", auto_commit=False, client=client
            ) as consumer:
                await producer.send(Message(topic, b"1"))
                await consumer.receive()
                await consumer.commit()
                await producer.send(Message(topic, b"2"))
                await consumer.receive()  # And its handler never ends.
                found = await _all_say(cluster, admin, group, topic, Verdict.STALLED)
                assert client.client_id in found.findings[0].what
            found = await _all_say(cluster, admin, group, topic, Verdict.STOPPED)
            assert "no member" in found.findings[0].what


async def _all_say(
    cluster: Cluster, admin: Admin, group: str, topic: str, expected: Verdict
) -> Diagnosis:
    """Ask everything that an operator asks at once; return what the doctor says."""
    diagnoses: list[Diagnosis] = []

    async def lag() -> None:
        assert await verdict(admin, group, topic) == expected

    async def doctor() -> None:
        diagnoses.append(await admin.diagnose(group, seconds=15))
        assert codes(diagnoses[0]) == {"G03"}

    async def check() -> None:
        done = await cluster.run("check", "lag", "--group", group, "--window", "15s")
        assert (done.code, f"is {expected}" in done.out) == (2, True), done

    async def alert() -> None:
        await eventually(lambda: _has(cluster, group, expected), MINUTE, interval=SCRAPE)

    with trio.fail_after(HANGS):
        async with trio.open_nursery() as nursery:
            # The check is a process of its own; one is enough here.
            for ask in (lag, doctor, alert, *([check] if expected is Verdict.STOPPED else [])):
                nursery.start_soon(ask)
    return diagnoses[0]


async def _has(cluster: Cluster, group: str, name: str) -> bool:
    return name in await cluster.verdicts(group)


@pytest.mark.long
async def test_group_that_is_behind_retention(cluster: Cluster) -> None:
    topic, group = "late-orders", "late-billing"
    queue = MessageQueue(topic, "broker-a", 0)
    with trio.fail_after(HANGS):
        async with (
            open_admin(name_servers=[cluster.names.address]) as admin,
            open_producer(client=admin.client) as producer,
        ):
            await admin.create_topic(topic, queues=1)
            await admin.create_group(group)
            for _ in range(100):  # Three files of the log.
                await producer.send(Message(topic, BODY), queue=queue)
            await admin.reset_offsets(group, {queue: 1})
            limits = {"diskMaxUsedSpaceRatio": "0.01", "diskSpaceCleanForciblyRatio": "0.02"}
            before = await admin.calls.broker_config(cluster.master.address)
            await admin.change_settings(cluster.master.address, limits)
            try:
                await eventually(lambda: _is_deleted(admin, queue), MINUTE)
            finally:
                kept = {name: before[name] for name in reversed(limits)}
                await admin.change_settings(cluster.master.address, kept)
            with trio.fail_after(MINUTE):
                assert await verdict(admin, group, topic) == Verdict.LOSING
                found = await admin.diagnose(group, seconds=0)
                assert "S02" in codes(found), found
            await eventually(lambda: _has(cluster, group, "losing"), MINUTE, interval=SCRAPE)
        done = await cluster.run("check", "lag", "--group", group, "--once")
        assert (done.code, "is losing" in done.out) == (2, True), done


async def _is_deleted(admin: Admin, queue: MessageQueue) -> bool:
    return await admin.client.min_offset(queue) > 1


async def test_broker_whose_disk_is_full(cluster: Cluster) -> None:
    topic = "full-orders"
    limits = {
        "diskMaxUsedSpaceRatio": "0.01",
        "diskSpaceCleanForciblyRatio": "0.02",
        "diskSpaceWarningLevelRatio": "0.03",
        "cleanFileForciblyEnable": "false",
    }
    with trio.fail_after(HANGS):
        async with (
            open_admin(name_servers=[cluster.names.address]) as admin,
            open_producer(client=admin.client, retries=0) as producer,
        ):
            await admin.create_topic(topic, queues=1)
            before = await admin.calls.broker_config(cluster.master.address)
            await admin.change_settings(cluster.master.address, limits)
            try:
                with trio.fail_after(MINUTE):
                    await eventually(lambda: _refuses(producer, topic))
                    found = await admin.diagnose(seconds=0)
                    assert "B02" in codes(found), found
                    [one] = [each for each in found.findings if each.code == "B02"]
                    assert "disk" in one.what
                    assert "B02" in {each.code for each in (await admin.health()).findings}
                done = await cluster.run("check", "broker", "broker-a")
                assert (done.code, "takes no writes" in done.out) == (2, True), done
            finally:
                kept = {name: before[name] for name in reversed(limits)}
                await admin.change_settings(cluster.master.address, kept)
            await eventually(lambda: _is_well(admin), MINUTE)


async def _refuses(producer: Producer, topic: str) -> bool:
    try:
        await producer.send(Message(topic, b"x"))
    except BrokerError:
        return True
    return False


async def test_name_server_that_lies_and_one_that_is_silent(
    cluster: Cluster, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        liar = OurBroker(tmp_path / "liar", cluster.other_names.address)
        stack.enter_context(liar)  # A second master, of which the first name server knows nothing.
        with trio.fail_after(HANGS):
            async with open_admin(name_servers=cluster.both) as admin:
                found = await admin.diagnose(seconds=0)
                assert codes(found) >= {"R01", "R03"}, found
                assert {one.code for one in (await admin.health()).findings} >= {"R01", "R03"}
            namesrv = ";".join(cluster.both)
            done = await cluster.run("check", "connection", "--namesrv", namesrv)
            assert (done.code, "does not know" in done.out) == (1, True), done
            os.kill(cluster.other_names.running.pid, signal.SIGSTOP)
            try:
                async with open_admin(name_servers=cluster.both) as admin:
                    with trio.fail_after(MINUTE):
                        found = await admin.diagnose(seconds=0)
                    assert "R05" in codes(found)
                    assert cluster.other_names.address in found.unknown
            finally:
                os.kill(cluster.other_names.running.pid, signal.SIGCONT)
