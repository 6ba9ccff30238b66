"""Who may lower an offset: owners, late commits, operators; and what an Apache broker gets to know."""

from typing import Any

import attrs
import msgspec
import pytest
import trio
from tests.client.consuming.offset_stores import QUEUE, at, commit, read, seek

from rocketrio import NOT_FOUND, CommitRefusedError
from rocketrio.consuming.offset_store import RemoteBrokerOffsetStore, StandingOffset
from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.offset import (
    CommitOutcome,
    QueryConsumerOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketrio_protocol.headers import RequestHeader

pytestmark = pytest.mark.usefixtures("slave")


@attrs.define
class Listening:
    """Hears what the client asks; with `is_apache` brokers are shown only what Apache's understand."""

    pool: Any
    is_apache: bool = False
    heard: list[RequestHeader] = attrs.field(factory=list)

    async def call(self, addr: str, header: RequestHeader, *rest: Any, **options: Any) -> Any:
        self.heard.append(header)
        if self.is_apache and isinstance(header, QueryConsumerOffsetRequestHeader):
            header = msgspec.structs.replace(header, claim=None)
        elif self.is_apache and isinstance(header, UpdateConsumerOffsetRequestHeader):
            header = msgspec.structs.replace(header, generation=None, ownership=None, seek=None)
        answer: RemotingCommand = await self.pool.call(addr, header, *rest, **options)
        return answer


def listen(store: RemoteBrokerOffsetStore, *, is_apache: bool = False) -> list[RequestHeader]:
    listening = Listening(store.client.api.pool, is_apache)
    store.client.api.pool = listening
    return listening.heard


async def other_member(store: RemoteBrokerOffsetStore, offset: int) -> None:
    """Another member takes the queue over, and commits."""
    api, addr = store.client.api, store.client.routing.candidates("broker-a")[0].addr
    claimed = await api.claim_queue(addr, "g", QUEUE, "another member")
    await api.update_consumer_offset(
        addr, "g", QUEUE, offset, generation=claimed.generation, ownership=claimed.ownership
    )


async def test_commit_to_an_apache_broker_has_no_rocketrio_field(
    store: RemoteBrokerOffsetStore,
) -> None:
    heard = listen(store, is_apache=True)
    await read(store)
    await commit(store, 5)
    await seek(store, 2)
    commits = [header.to_ext_fields() for header in heard[1:]]
    told = {"consumerGroup": "g", "topic": "orders", "queueId": "0", "bname": "broker-a"}
    assert commits == [{**told, "commitOffset": offset} for offset in ("5", "2")]


@pytest.mark.parametrize("is_apache", [False, True])
async def test_commit_of_a_claimed_queue_sends_no_query(
    store: RemoteBrokerOffsetStore, is_apache: bool
) -> None:
    heard = listen(store, is_apache=is_apache)
    assert await read(store) is NOT_FOUND
    for offset in (5, 6):
        await commit(store, offset)
    assert [type(header) for header in heard] == [
        QueryConsumerOffsetRequestHeader,
        UpdateConsumerOffsetRequestHeader,
        UpdateConsumerOffsetRequestHeader,
    ]


async def test_commit_of_a_lost_queue_sends_an_apache_broker_nothing(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    listen(store, is_apache=True)
    await read(store)
    store.update_offset(QUEUE, 5)
    store.lose(QUEUE)
    await store.persist(QUEUE)
    assert await at(store, cluster.master.broker.address) is NOT_FOUND


async def test_late_commit_raises_and_never_lowers_the_next_owners_offset(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    master = cluster.master.broker.address
    await read(store)
    await other_member(store, 9)
    store.update_offset(QUEUE, 5)
    store.lose(QUEUE)
    await store.persist(QUEUE)
    assert await at(store, master) == 9
    await commit(store, 12)
    assert await at(store, master) == 12


async def test_late_seek_does_not_lower_the_next_owners_offset(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await read(store)
    store.reset_offset(QUEUE, 2)
    await other_member(store, 9)
    store.lose(QUEUE)
    await store.persist(QUEUE)
    assert await at(store, cluster.master.broker.address) == 9


async def test_seek_before_another_member_claims_the_queue_is_stored(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await read(store)
    await commit(store, 5)
    store.reset_offset(QUEUE, 2)
    store.lose(QUEUE)
    await store.persist(QUEUE)
    assert await at(store, cluster.master.broker.address) == 2


async def test_seek_of_the_owner_is_stored_after_the_broker_forgot_the_claim(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await read(store)
    await commit(store, 50)
    await cluster.kill_master()
    master = await cluster.restart_master()
    await trio.sleep(5)
    await seek(store, 2)
    assert await at(store, master.address) == 2


async def committed_at_both(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster, slave: Member
) -> str:
    """Commit to the slave too, during an outage; return the slave's address once it has the master's newer offset."""
    await read(store)
    await commit(store, 5)
    await cluster.kill_master()
    await commit(store, 6)
    await cluster.restart_master()
    await trio.sleep(10)
    await other_member(store, 9)
    await trio.sleep(5)
    addr = slave.broker.address
    assert await at(store, addr) == 9
    return addr


@pytest.mark.slow
async def test_seek_that_reaches_a_slave_late_lowers_nothing_the_next_owner_committed_elsewhere(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster, slave: Member
) -> None:
    addr = await committed_at_both(store, cluster, slave)
    claim = store._claims[QUEUE]
    late = await store.client.api.update_consumer_offset(
        addr,
        "g",
        QUEUE,
        2,
        generation=claim.generation,
        ownership=claim.ownerships[addr],
        seek=True,
    )
    assert late.outcome == CommitOutcome.UNCLAIMED
    assert await at(store, addr) == 9


async def test_seek_of_the_owner_is_stored_though_others_committed_since_its_claim(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster, slave: Member
) -> None:
    addr = await committed_at_both(store, cluster, slave)
    await cluster.kill_master()
    await seek(store, 2)
    assert await at(store, addr) == 2


async def test_seek_of_a_member_that_lost_the_queue_is_dropped(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    async def look() -> bool:
        await trio.lowlevel.checkpoint()
        store.lose(QUEUE)
        return True

    store.confirm = look
    await read(store)
    await other_member(store, 9)
    store.reset_offset(QUEUE, 2)
    with pytest.raises(CommitRefusedError, match="another member has claimed the queue"):
        await store.persist(QUEUE)
    assert await at(store, cluster.master.broker.address) == 9


async def test_reset_by_an_operator_holds_until_the_user_seeks(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    master = cluster.master.broker.address
    await read(store)
    await commit(store, 50)
    await store.client.api.update_consumer_offset(master, "g", QUEUE, 10, reset=True)
    store.update_offset(QUEUE, 60)
    with pytest.raises(CommitRefusedError, match=r"reset group g on .* to 10"):
        await store.persist(QUEUE)
    await commit(store, 70)
    assert store.overruled(QUEUE) is not None
    assert await at(store, master) == 10
    await seek(store, 65)
    assert await at(store, master) == 65
    await commit(store, 66)
    assert await at(store, master) == 66


@pytest.mark.parametrize(("generation", "is_news"), [("1.0", True), ("0.1", True), ("0.0", False)])
async def test_committed_offset_is_the_reset_that_a_member_heard_of_before_the_broker(
    store: RemoteBrokerOffsetStore, generation: str, is_news: bool
) -> None:
    """A slave had it, while there was no master; who seeks to what the next master says would undo it."""
    await read(store)
    await commit(store, 50)
    assert (await store.committed(QUEUE)).offset == 50
    store._claim(QUEUE).overruled = StandingOffset(generation, 10)
    assert (await store.committed(QUEUE)).offset == (10 if is_news else 50)


async def test_commit_of_a_released_queue_after_a_reset_is_refused(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    class GivingUp:
        async def call(self, *request: Any, **options: Any) -> Any:
            answer = await pool.call(*request, **options)
            store.remove_offset(QUEUE)
            return answer

    master = cluster.master.broker.address
    await read(store)
    await commit(store, 50)
    await store.client.api.update_consumer_offset(master, "g", QUEUE, 10, reset=True)
    store.update_offset(QUEUE, 60)
    pool = store.client.api.pool
    store.client.api.pool = GivingUp()  # type: ignore[assignment]
    with pytest.raises(CommitRefusedError, match=r"reset group g on .* to 10"):
        await store.persist(QUEUE)
    store.client.api.pool = pool
    assert await at(store, master) == 10


@pytest.mark.slow
async def test_reset_unknown_to_a_slave_wins_over_commits_there(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    await read(store)
    await commit(store, 50)
    await trio.sleep(12.5)  # Between two looks of the slave.
    api = store.client.api
    await api.update_consumer_offset(cluster.master.broker.address, "g", QUEUE, 10, reset=True)
    await cluster.kill_master()
    await commit(store, 60)
    master = await cluster.restart_master()
    assert await at(store, master.address) == 10
    await trio.sleep(15)
    store.update_offset(QUEUE, 61)
    with pytest.raises(CommitRefusedError):
        await store.persist(QUEUE)
    assert await at(store, cluster.slaves[0].broker.address) == 10


async def test_late_commit_of_a_java_member_is_overwritten_by_the_owner(
    store: RemoteBrokerOffsetStore, cluster: EmbeddedCluster
) -> None:
    master = cluster.master.broker.address
    await read(store)
    await commit(store, 50)
    await store.client.api.update_consumer_offset(master, "g", QUEUE, 40)
    assert await at(store, master) == 40
    await commit(store, 60)
    assert await at(store, master) == 60
