"""A master that comes back asks its slaves what was committed there."""

import attrs
import pytest
import trio
from tests.broker.builders import config_file, live_config, versioned
from tests.support.clocks import SettableClock
from trio.testing import MockClock

from rocketrio_broker.ha.gather_offsets import GatheredOffsets, SlaveTables, gather_slave_offsets
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.offsets.table import OffsetTable, QueueEnd
from rocketrio_broker.offsets.version import Commit
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import ConsumerOffsetWrapper
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.steps import all_at_once

NAME_SERVER, OTHER_NAME_SERVER = "10.0.0.9:9876", "10.0.0.8:9876"
OWN, SLAVE, OTHER_SLAVE = "10.0.0.1:10911", "10.0.0.2:10911", "10.0.0.3:10911"
SILENT = -1.0


def cluster_body(addrs: dict[int, str], name: str = "broker-a") -> bytes:
    return fastjson.dumps(ClusterInfo({name: BrokerData("lab", name, addrs)}, {"lab": [name]}))


def offsets(table: dict[str, dict[int, int]]) -> bytes:
    return fastjson.dumps(ConsumerOffsetWrapper(table))


@attrs.define
class FakePeers:
    """Name servers and slaves by address: a body, or one a request, and the time from which on the address answers."""

    bodies: dict[str, bytes | dict[RequestCode, bytes]]
    up_at: dict[str, float] = attrs.field(factory=dict)
    asked: list[tuple[float, str, RequestCode]] = attrs.field(factory=list)

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        self.asked.append((trio.current_time(), addr, request.code))
        up_at = self.up_at.get(addr, 0.0)
        if up_at == SILENT:
            await trio.sleep(timeout)
        if up_at == SILENT or trio.current_time() < up_at:
            raise NotReachableError("No connection", broker_addr=addr)
        found = self.bodies[addr]
        found = found[request.code] if isinstance(found, dict) else found
        return RemotingCommand.request(request).response(body=found)


def manager() -> ConsumerOffsetManager:
    disk = MemoryDisk()
    kept = ConsumerOffsetManager(file=config_file("consumerOffset.json", disk), disk=disk)
    kept.commit_offset("billing", "orders", 0, 32)
    kept.commit_offset("billing", "orders", 1, 90)
    return kept


def tables() -> SlaveTables:
    config, clock, disk = live_config(), SettableClock(), MemoryDisk()
    return SlaveTables(
        TopicConfigManager(config=config, file=config_file("topics.json", disk), wall_clock=clock),
        SubscriptionGroupManager(
            config=config, file=config_file("subscriptionGroup.json", disk), wall_clock=clock
        ),
    )


async def gather(peers: FakePeers, kept: ConsumerOffsetManager, *servers: str) -> GatheredOffsets:
    return await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, servers or (NAME_SERVER,), "broker-a", OWN),
        consumer_offsets=kept,
    )


async def test_higher_of_both_counts_per_queue(autojump_clock: MockClock) -> None:
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE}),
            SLAVE: offsets({"orders@billing": {0: 120, 1: 80, 2: 5}}),
        }
    )
    kept = manager()
    result = await gather(peers, kept)
    assert kept.query_offsets("billing", "orders") == {0: 120, 1: 90, 2: 5}
    assert result == GatheredOffsets([SLAVE], 2, {})
    assert trio.current_time() == 0.0


async def test_slave_listed_twice_is_asked_once(autojump_clock: MockClock) -> None:
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE, 0: "10.0.0.7:1"}),
            OTHER_NAME_SERVER: cluster_body({1: SLAVE, 2: OTHER_SLAVE, 3: OWN}),
            SLAVE: offsets({"orders@billing": {0: 40}}),
            OTHER_SLAVE: offsets({"orders@billing": {0: 60}}),
        }
    )
    kept = manager()
    result = await gather(peers, kept, NAME_SERVER, OTHER_NAME_SERVER)
    assert sorted(result.slaves_asked) == [SLAVE, OTHER_SLAVE]
    assert sorted(addr for _, addr, _ in peers.asked) == sorted(
        [NAME_SERVER, OTHER_NAME_SERVER, SLAVE, OTHER_SLAVE]
    )
    assert kept.query_offset("billing", "orders", 0) == 60


async def test_slaves_of_other_names_are_not_asked(autojump_clock: MockClock) -> None:
    peers = FakePeers({NAME_SERVER: cluster_body({1: SLAVE}, name="broker-b")})
    assert await gather(peers, manager()) == GatheredOffsets()


async def test_slave_that_was_silent_for_long_is_asked_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    peers = FakePeers(
        {OTHER_NAME_SERVER: cluster_body({1: SLAVE, 2: OTHER_SLAVE}), SLAVE: offsets({})},
        up_at={NAME_SERVER: 60.0, OTHER_SLAVE: 60.0},
    )
    result = await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, (NAME_SERVER, OTHER_NAME_SERVER), "broker-a", OWN),
        consumer_offsets=manager(),
        silent=(NAME_SERVER, OTHER_SLAVE),
    )
    assert result.slaves_asked == [SLAVE]
    assert result.unreachable.keys() == {NAME_SERVER, OTHER_SLAVE}
    assert caplog.text.count("could not be asked") == 2
    assert trio.current_time() == 0.0


async def test_slave_that_was_silent_for_long_is_asked_for_its_offsets_alone(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """Without an answer: a later one for its tables would hide that its offsets are missing."""
    peers = FakePeers({}, up_at={SLAVE: SILENT})
    result = await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, (), "broker-a", OWN, remembered=lambda: [SLAVE]),
        consumer_offsets=manager(),
        tables=tables(),
        silent=(SLAVE,),
    )
    assert [code for _, _, code in peers.asked] == [RequestCode.GET_ALL_CONSUMER_OFFSET]
    assert result.slaves_missing == {SLAVE}
    assert caplog.text.count("could not be asked") == 1
    assert trio.current_time() == 3.0


async def test_gathering_without_slaves_takes_no_time(autojump_clock: MockClock) -> None:
    kept = manager()
    await gather_slave_offsets(
        peers=Peers(FakePeers({}).call, FakePeers({}).call, (), "broker-a", OWN),
        consumer_offsets=kept,
    )
    assert trio.current_time() == 0.0


async def test_slave_that_comes_up_in_time_is_asked(autojump_clock: MockClock) -> None:
    peers = FakePeers(
        {NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: offsets({"orders@billing": {0: 120}})},
        up_at={SLAVE: 1.9},
    )
    kept = manager()
    result = await gather(peers, kept)
    assert trio.current_time() == 2.0
    assert result.unreachable == {}
    assert kept.query_offset("billing", "orders", 0) == 120


@pytest.mark.parametrize("up_at", [SILENT, 100.0], ids=["silent", "refusing"])
async def test_slave_that_cannot_be_asked_delays_the_master_for_a_limited_time(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, up_at: float
) -> None:
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE, 2: OTHER_SLAVE}),
            SLAVE: offsets({"orders@billing": {0: 120}}),
            OTHER_SLAVE: b"",
        },
        up_at={OTHER_SLAVE: up_at},
    )
    kept = manager()
    result = await gather(peers, kept)
    assert trio.current_time() == 5.0
    assert list(result.unreachable) == [OTHER_SLAVE]
    assert kept.query_offset("billing", "orders", 0) == 120
    assert f"peer={OTHER_SLAVE} waited=5" in caplog.text


async def test_name_server_that_is_down_is_named(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    peers = FakePeers(
        {NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: offsets({})},
        up_at={OTHER_NAME_SERVER: 100.0},
    )
    result = await gather(peers, manager(), NAME_SERVER, OTHER_NAME_SERVER)
    assert result.slaves_asked == [SLAVE]
    assert f"peer={OTHER_NAME_SERVER}" in caplog.text


async def test_slave_with_an_unreadable_answer_counts_as_not_asked(
    autojump_clock: MockClock,
) -> None:
    peers = FakePeers({NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: b"[]"})
    result = await gather(peers, manager())
    assert list(result.unreachable) == [SLAVE]


async def test_an_offset_beyond_the_queues_end_is_of_an_earlier_topic(
    autojump_clock: MockClock,
) -> None:
    peers = FakePeers(
        {NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: offsets({"orders@billing": {0: 120, 1: 99}})}
    )
    kept = manager()
    await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, [NAME_SERVER], "broker-a", OWN),
        consumer_offsets=kept,
        queue_end=lambda topic, queue_id: 100,
    )
    assert kept.query_offsets("billing", "orders") == {0: 32, 1: 99}


async def test_progress_of_transactions_is_not_taken_from_a_slave(
    autojump_clock: MockClock,
) -> None:
    """Its log may have had decisions that this one lacks: what they decided would never be checked again."""
    progress = {
        "RMQ_SYS_TRANS_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 9},
        "RMQ_SYS_TRANS_OP_HALF_TOPIC@CID_RMQ_SYS_TRANS": {0: 9},
    }
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE}),
            SLAVE: offsets({"orders@audit": {0: 5}, **progress}),
        }
    )
    kept = manager()
    await gather(peers, kept)
    assert kept.query_offsets("audit", "orders") == {0: 5}
    assert not kept.query_offsets("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_HALF_TOPIC")


async def test_a_reset_or_seek_that_a_slave_took_is_taken_over_and_an_old_copy_is_not(
    autojump_clock: MockClock,
) -> None:
    apache = ConsumerOffsetWrapper({"orders@billing": {0: 32, 1: 90}})
    slave = manager()
    slave.commit_version("billing", "orders", 0, Commit(5, is_reset=True))
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE, 2: OTHER_SLAVE}),
            SLAVE: fastjson.dumps(versioned(slave)),
            OTHER_SLAVE: fastjson.dumps(apache),
        }
    )
    kept = manager()
    kept.commit_version("billing", "orders", 1, Commit(7, is_reset=True))
    await gather(peers, kept)
    assert kept.query_offsets("billing", "orders") == {0: 5, 1: 7}


async def test_a_deleted_topic_s_offsets_do_not_come_back_from_a_slave(
    autojump_clock: MockClock,
) -> None:
    """It was created again and has as many messages; its readers would skip them."""
    peers = FakePeers(
        {NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: fastjson.dumps(versioned(manager()))}
    )
    kept = manager()
    all_at_once(kept.removal(topic="orders"))
    await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, [NAME_SERVER], "broker-a", OWN),
        consumer_offsets=kept,
        queue_end=lambda topic, queue_id: 200,
    )
    assert kept.query_offsets("billing", "orders") == {}


async def test_topics_and_groups_that_only_a_slave_knows_are_taken_over(
    autojump_clock: MockClock,
) -> None:
    """As when master and slave change places before the next copy."""
    ours, theirs = tables(), tables()
    theirs.topics.update(TopicConfig("late"))
    theirs.groups.update(SubscriptionGroupConfig("late", retry_max_times=3))
    peers = FakePeers(
        {
            NAME_SERVER: cluster_body({1: SLAVE}),
            SLAVE: {
                RequestCode.GET_ALL_TOPIC_CONFIG: fastjson.dumps(theirs.topics.wrapper()),
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: fastjson.dumps(
                    theirs.groups.wrapper()
                ),
                RequestCode.GET_ALL_CONSUMER_OFFSET: offsets({}),
            },
        }
    )
    await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, [NAME_SERVER], "broker-a", OWN),
        consumer_offsets=manager(),
        tables=ours,
    )
    assert ours.topics.topic_config("late") == TopicConfig("late")
    assert ours.groups.subscription_group_table["late"].retry_max_times == 3


@pytest.mark.parametrize("is_copy", [False, True])
async def test_a_copy_s_offsets_beyond_the_end_are_lowered_to_it(
    autojump_clock: MockClock, is_copy: bool
) -> None:
    """A slave is made the master before it has all messages. A master's own are believed."""
    kept = manager()
    if is_copy:
        kept.join(OffsetTable())
    for _ in range(2):
        await gather_slave_offsets(
            peers=Peers(FakePeers({}).call, FakePeers({}).call, (), "broker-a", OWN),
            consumer_offsets=kept,
            queue_end=lambda topic, queue_id: 50,
        )
    assert kept.query_offsets("billing", "orders") == {0: 32, 1: 50 if is_copy else 90}


def offsets_of(queues: dict[int, int], epoch: str, **epochs: dict[int, str]) -> bytes:
    versions = {"epoch": epoch, "epochs": epochs}
    body = {"offsetTable": {"orders@billing": queues}, "rocketrioVersions": versions}
    return fastjson.dumps(body)


async def test_offsets_of_a_slave_count_up_to_where_its_log_parts_from_this_one(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    ends: dict[str, QueueEnd] = {"same": lambda *_: 1000, "parted": lambda *_: 100}
    taken = {}
    for epoch in ("same", "parted", "another history", ""):
        peers = FakePeers(
            {NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: offsets_of({0: 120, 1: 95}, epoch)}
        )
        kept = manager()
        result = await gather_slave_offsets(
            peers=Peers(peers.call, peers.call, (NAME_SERVER,), "broker-a", OWN),
            consumer_offsets=kept,
            queue_end=lambda *_: 110,
            shared_ends=lambda _, epoch: ends.get(epoch),
        )
        assert result.slaves_asked == [SLAVE]
        assert not result.slaves_missing
        taken[epoch] = kept.query_offsets("billing", "orders")
    assert taken == {
        "same": {0: 120, 1: 95},
        "parted": {0: 100, 1: 95},
        "another history": {0: 32, 1: 90},
        "": {0: 110, 1: 95},
    }
    assert caplog.text.count("offsets of another history are not taken") == 1


async def test_offset_counts_in_the_epoch_that_its_member_named(
    autojump_clock: MockClock,
) -> None:
    """A slave that has just begun to follow names an older epoch for what it had before."""
    ends: dict[str, QueueEnd] = {"new": lambda *_: 1000, "old": lambda *_: 100}
    body = offsets_of({0: 120, 1: 120}, "old", **{"orders@billing": {1: "new"}})
    kept = manager()
    peers = FakePeers({NAME_SERVER: cluster_body({1: SLAVE}), SLAVE: body})
    await gather_slave_offsets(
        peers=Peers(peers.call, peers.call, (NAME_SERVER,), "broker-a", OWN),
        consumer_offsets=kept,
        shared_ends=lambda _, epoch: ends.get(epoch),
    )
    assert kept.query_offsets("billing", "orders") == {0: 100, 1: 120}
