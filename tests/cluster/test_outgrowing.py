"""A second pair joins a cluster under load, and the first one is drained and removed: docs/outgrowing.md, in memory."""

from functools import partial

import attrs
import pytest
import trio
from tests.support.clients import client_of
from tests.support.further import every_other
from tests.support.steady_traffic import SteadyTraffic

from rocketrio import open_admin
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_protocol.bodies.topics import Permission

pytestmark = pytest.mark.slow

ROUTES_WITHIN = 31.0
"""Seconds in which all members know a change of routes, which they read every 30 seconds."""


async def start_pair(cluster: EmbeddedCluster, name: str, network: str) -> None:
    """Start a master and a slave of another name under the same name server."""
    for first, host in zip(cluster.members, (f"{network}.1", f"{network}.2"), strict=True):
        config = attrs.evolve(
            first.config,
            broker_name=name,
            listen=f"{host}:10911",
            ha_listen=f"{host}:10912",
            data=first.config.data / name,
        )
        await Member(cluster, config, host).start()


@pytest.mark.parametrize("orderly", every_other([False, True]))
async def test_second_pair_takes_over_from_the_first_and_nothing_is_lost(orderly: bool) -> None:
    traffic = SteadyTraffic("orders", "billing", orderly)
    changed_at: list[float] = []
    async with (
        EmbeddedCluster(slaves=1, role="sync-master") as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
    ):
        await admin.create_topic("orders", queues=4)
        async with traffic.running(partial(client_of, cluster)):
            await traffic.uses("broker-a")
            await start_pair(cluster, "broker-b", "10.0.1")
            changed_at.append(trio.current_time())
            await admin.create_topic("orders", queues=4)
            await traffic.uses("broker-a", "broker-b")

            await admin.set_topic_permission("orders", Permission.READ, broker_name="broker-a")
            await trio.sleep(ROUTES_WITHIN)
            at_a = traffic.stored_by("broker-a")
            await traffic.uses("broker-b", count=100)
            assert traffic.stored_by("broker-a") == at_a
            await admin.set_topic_permission(
                "orders", Permission.READ | Permission.WRITE, broker_name="broker-a"
            )
            await traffic.uses("broker-a", "broker-b")

            await admin.wait_drained("broker-a")
            changed_at.append(trio.current_time())
            for member in reversed(cluster.members):
                await member.stop()
            await traffic.uses("broker-b", count=800)
            await traffic.end()

        assert not traffic.repeated_at or not orderly  # A queue that is locked has one member.
        for repeated_at in traffic.repeated_at:  # Members read routes within this time.
            assert any(at <= repeated_at <= at + ROUTES_WITHIN for at in changed_at)
        group = await admin.lag("billing", seconds=0)
        assert {(row.topic, row.lag) for row in group.rows} == {
            ("orders", 0),
            ("%RETRY%billing", 0),
        }
