"""Committed offsets while the master is there, away, and back with less than it had."""

import pytest
import trio
import trio.testing
from tests.client.consuming.offset_stores import QUEUE, at, commit, read, seek

from rocketrio import NOT_FOUND, MessageQueue, NotReachableError
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import RouteNotFoundError

pytestmark = pytest.mark.usefixtures("slave")


async def test_value_not_found_and_unreachable_are_three_answers(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    assert await read(store) is NOT_FOUND
    await commit(store, 5)
    assert await read(store) == 5
    await cluster.slaves[0].kill()
    await cluster.kill_master()
    with pytest.raises((NotReachableError, RouteNotFoundError)):
        await read(store)


async def test_commit_is_confirmed_when_persist_returns(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await commit(store, 5)
    assert await at(store, cluster.master.broker.address) == 5


async def test_lower_offset_is_not_committed_unless_reset(
    store: RemoteBrokerOffsetStore,
) -> None:
    store.update_offset(QUEUE, 5)
    await commit(store, 3)
    assert await read(store) == 5
    await seek(store, 2)
    assert await read(store) == 2


async def test_reset_that_is_not_committed_yet_is_what_is_read(
    store: RemoteBrokerOffsetStore,
) -> None:
    await commit(store, 5)
    store.reset_offset(QUEUE, 2)
    assert await read(store) == 2
    await store.persist(QUEUE)
    assert (await store.committed(QUEUE)).offset == 2


async def test_commit_goes_to_the_slave_while_the_master_is_away(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await cluster.kill_master()
    await commit(store, 5)
    assert await at(store, cluster.slaves[0].broker.address) == 5
    assert await read(store) == 5


async def test_master_gets_the_commit_when_it_is_back(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await cluster.kill_master()
    await commit(store, 5)
    master = await cluster.restart_master()
    # As an Apache master, which does not ask its slaves: it has forgotten.
    await store.client.api.update_consumer_offset(master.address, "g", QUEUE, 1)
    await trio.sleep(2)
    assert await store.persist_all([QUEUE]) == []
    assert await at(store, master.address) == 5


async def test_master_that_is_still_avoided_gets_the_commit_at_the_end(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await cluster.kill_master()
    await commit(store, 5)
    master = await cluster.restart_master()
    await trio.sleep(5)  # By then it has asked its slave; an Apache master would not.
    await store.client.api.update_consumer_offset(master.address, "g", QUEUE, 1)
    store.client.routing.is_avoided = lambda addr: addr == master.address
    await store.persist(QUEUE)
    assert await at(store, master.address) == 1
    assert await store.commit_to_masters() == []
    assert await at(store, master.address) == 5


async def test_master_that_knows_more_is_not_lowered(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await cluster.kill_master()
    await commit(store, 5)
    master = await cluster.restart_master()
    await store.client.api.update_consumer_offset(master.address, "g", QUEUE, 9)
    await trio.sleep(2)
    await store.persist(QUEUE)
    await commit(store, 7)
    assert await at(store, master.address) == 9
    await commit(store, 10)
    assert await at(store, master.address) == 10


async def test_failed_connection_makes_the_store_ask_again(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await commit(store, 5)
    master = cluster.master.broker.address
    await store.client.api.update_consumer_offset(master, "g", QUEUE, 2)  # It lost the rest.
    assert await store.persist_all([QUEUE]) == []
    assert await at(store, master) == 2
    store.client.mark_unreachable(master, spent=0)
    await trio.sleep(1.1)
    assert await store.persist_all([QUEUE]) == []
    assert await at(store, master) == 5


@pytest.mark.slow
async def test_offset_read_from_a_slave_does_not_lower_the_master(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    slave = cluster.slaves[0].broker.address
    await store.client.api.update_consumer_offset(slave, "g", QUEUE, 3)
    await cluster.kill_master()
    stored = await store.read_offset(QUEUE, zero_if_young=False)
    assert (stored.offset, stored.is_from_slave) == (3, True)
    master = await cluster.restart_master()
    await store.client.api.update_consumer_offset(master.address, "g", QUEUE, 8)
    await trio.sleep(2)
    await commit(store, 4)
    assert await at(store, master.address) == 8


async def test_errors_of_many_queues_are_collected_and_the_rest_is_done(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    strange = MessageQueue("orders", "broker-z", 0)
    store.update_offset(QUEUE, 5)
    store.update_offset(strange, 1)
    errors = await store.persist_all([strange, QUEUE])
    assert [type(error) for error in errors] == [RouteNotFoundError]
    assert await at(store, cluster.master.broker.address) == 5


async def test_removed_queue_is_not_committed(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    store.update_offset(QUEUE, 5)
    store.remove_offset(QUEUE)
    await store.persist(QUEUE)
    assert store.offset_table == {}
    assert await at(store, cluster.master.broker.address) is NOT_FOUND


@pytest.mark.parametrize("is_lost", [True, False])
async def test_queue_that_is_given_up_while_its_commit_waits_is_not_claimed_again(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster, is_lost: bool
) -> None:
    """A claim would be a new one, which knows neither the epoch of the position nor that the queue is lost."""
    store.update_offset(QUEUE, 5)
    async with trio.open_nursery() as nursery, store._lock(QUEUE):
        nursery.start_soon(store.persist, QUEUE)
        await trio.testing.wait_all_tasks_blocked()
        if is_lost:
            store.lose(QUEUE)
        store.remove_offset(QUEUE)
    assert await at(store, cluster.master.broker.address) is NOT_FOUND
    assert QUEUE not in store._claims


async def test_reset_while_the_offset_is_read_counts_more(store: RemoteBrokerOffsetStore) -> None:
    await commit(store, 5)
    store.remove_offset(QUEUE)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(read, store)
        await trio.testing.wait_all_tasks_blocked()
        store.reset_offset(QUEUE, 2)
    assert store.offset_table == {QUEUE: 2}
    await store.persist(QUEUE)
    assert await read(store) == 2
