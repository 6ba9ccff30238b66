"""Broker processes change places under load: by a stop of the master's process, and when one dies in the middle."""

import pytest
import trio
from tests.support.further import first_of
from tests.support.load import Load, numbers_in, ready
from tests.support.ours import OurPair, our_pair_fixture
from tests.support.waiting import HANGS, eventually

from rocketrio import Error, open_admin, open_client
from rocketrio.admin import Admin

pytestmark = [pytest.mark.real, pytest.mark.slow]

KILLED = [
    ("master", 0.0), ("follower", 0.01), ("master", 0.02), ("follower", 0.04), ("master", 0.08),
    ("follower", 0.0), ("master", 0.01), ("follower", 0.02), ("master", 0.04), ("follower", 0.08),
]  # fmt: skip
"""Which broker is killed, and how many seconds after the order to hand over."""
SETTINGS = ("ha_hand_over_on_stop=true", "slave_timeout=1")


async def roles(admin: Admin) -> dict[str, str]:
    """Address to role, of those that can be asked."""
    return {one.address: one.role for one in await admin.status() if one.state}


pair = our_pair_fixture(scope="function", role="sync-master", settings=SETTINGS)


async def test_stopped_master_hands_over_and_comes_back_as_slave(pair: OurPair) -> None:
    first, second = pair.master, pair.slave
    load = Load(first.address)
    async with (
        open_client(name_servers=[pair.name_server.address]) as client,
        open_admin(client=client) as admin,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(load.run)
        await load.continues(100)
        assert await trio.to_thread.run_sync(first.stop) == 0
        load.addr = second.address
        # Its settings say sync-master; what it holds is the slave's role.
        await ready(first)
        wanted = {first.address: "slave", second.address: "sync-master"}

        async def are_changed() -> bool:
            return await roles(admin) == wanted

        await eventually(are_changed, HANGS)
        await load.continues(100)
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(pair.assert_same_logs)
    assert numbers_in(first.store) >= load.acknowledged


@pytest.mark.parametrize(
    "killed", first_of(2, KILLED), ids=lambda killed: f"{killed[0]} {killed[1]}"
)
async def test_process_that_is_killed_in_the_middle_leaves_one_master(
    pair: OurPair, killed: tuple[str, float]
) -> None:
    who, after = killed
    first, second = pair.master, pair.slave
    victim = first if who == "master" else second
    load = Load(first.address)
    async with (
        open_client(name_servers=[pair.name_server.address]) as client,
        open_admin(client=client) as admin,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(load.run)
        await load.continues(50)

        async def hand_over() -> None:
            try:
                await admin.hand_over("broker-a")
            except Error as error:
                print(f"{who} killed after {after}: {error}")

        async with trio.open_nursery() as orders:
            orders.start_soon(hand_over)
            await trio.sleep(after)
            victim.kill()
        await ready(victim)
        found: dict[str, str] = {}
        with trio.fail_after(HANGS):
            while sorted(found.values()) != ["slave", "sync-master"]:
                await trio.sleep(0.2)
                found = await roles(admin)
        master = first if found[first.address] == "sync-master" else second
        slave = second if master is first else first
        load.addr = master.address
        await load.continues(50)
        nursery.cancel_scope.cancel()
    await trio.to_thread.run_sync(pair.assert_same_logs)
    assert numbers_in(slave.store) >= load.acknowledged
