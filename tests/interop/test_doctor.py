"""Our doctor on a pair of Apache's: silent while it is well, and right about what goes wrong."""

from collections.abc import Iterator
from contextlib import ExitStack

import attrs
import pytest
import trio

from rocketrio import Message, open_admin, open_client, open_consumer, open_producer
from rocketrio.admin import Admin, Diagnosis
from tests.interop.apache import ApacheBroker, ApacheCluster, ApacheNameServer, apache_cluster
from tests.support.processes import free_port
from tests.support.waiting import eventually

pytestmark = pytest.mark.interop

NOT_OF_THE_CLUSTER = {"S01"}
"""The disk of this machine may be full."""


@attrs.frozen
class TwoMasters:
    cluster: ApacheCluster
    other_name_server: ApacheNameServer
    second_master: ApacheBroker

    @property
    def names(self) -> list[str]:
        return [self.cluster.name_server.address]


@pytest.fixture(scope="module")
def pair(version: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoMasters]:
    folder = tmp_path_factory.mktemp(f"doctor-{version}")
    settings = {"autoCreateTopicEnable": "false"}
    with ExitStack() as stack:
        other = stack.enter_context(ApacheNameServer(version, folder / "other"))
        cluster = stack.enter_context(
            apache_cluster(version, folder, slave=True, settings=settings)
        )
        second = ApacheBroker(version, folder / "second", other.address, settings=settings)
        stack.callback(second.__exit__)
        yield TwoMasters(cluster, other, second)


def codes(found: Diagnosis) -> set[str]:
    return {one.code for one in found.findings} - NOT_OF_THE_CLUSTER


async def test_pair_that_is_well_has_no_finding(pair: TwoMasters) -> None:
    async with (
        open_admin(name_servers=pair.names) as admin,
        open_producer(client=admin.client) as producer,
    ):
        await admin.create_topic("doctor-orders", queues=2)
        async with open_consumer(
            "doctor-orders", group="doctor-billing", start_from="earliest", client=admin.client
        ) as consumer:
            with trio.fail_after(60):
                await producer.send(Message("doctor-orders", b"1"))
                await consumer.receive()
                await consumer.commit()
                await eventually(lambda: _follows(admin))
                found = await admin.diagnose("doctor-billing")
        assert codes(found) == set(), found
        assert found.unknown == {}
        # The queue that never had a message is read from its end, and an Apache broker reports no clock.
        assert all("clock" in what or "lag" in what for what in found.not_judged)
        whole = await admin.diagnose(seconds=0, slaves=1)
        assert codes(whole) <= {"G03", "G11"}, (
            whole
        )  # Groups of the test before have no members now.


async def test_members_that_subscribe_differently_are_found(pair: TwoMasters) -> None:
    async with (
        open_client(name_servers=pair.names) as first,
        open_client(name_servers=pair.names) as second,
        open_admin(client=first) as admin,
    ):
        await admin.create_topic("doctor-orders", queues=2)
        with trio.fail_after(90):
            async with (
                open_consumer("doctor-orders", group="doctor-mixed", tags="a", client=first),
                open_consumer("doctor-orders", group="doctor-mixed", tags="b", client=second),
            ):
                await eventually(lambda: _has(admin, "G01", "doctor-mixed"), 60)
                found = await admin.diagnose("doctor-mixed", seconds=0)
        [one] = [each for each in found.findings if each.code == "G01"]
        assert first.client_id in one.what
        assert second.client_id in one.what


async def _follows(admin: Admin) -> bool:
    return not {one.code for one in (await admin.health()).findings} & {"H01", "H02"}


async def _has(admin: Admin, code: str, group: str) -> bool:
    return code in codes(await admin.diagnose(group, seconds=0))


async def test_slave_that_was_stopped_and_second_master_are_found(pair: TwoMasters) -> None:
    slave = pair.cluster.slave
    assert slave is not None
    slave.kill()
    async with open_admin(name_servers=pair.names) as admin:
        with trio.fail_after(150):
            while slave.address in {one.address for one in await admin.brokers()}:
                found = await admin.diagnose(seconds=0, slaves=1)
                if codes(found) & {"R02", "H01"}:
                    break
                await trio.sleep(1)
        found = await admin.diagnose(seconds=0, slaves=1)
        assert codes(found) & {"R02", "H01"}, found

    pair.second_master.port = free_port(-2, 1)
    pair.second_master.start()
    await trio.to_thread.run_sync(pair.second_master.wait_ready)
    both = [*pair.names, pair.other_name_server.address]
    async with open_admin(name_servers=both) as admin:
        found = await admin.diagnose(seconds=0)
        assert codes(found) >= {"R01", "R03"}, found
        [one] = [each for each in found.findings if each.code == "R03"]
        assert pair.cluster.master.address in one.what
        assert pair.second_master.address in one.what
