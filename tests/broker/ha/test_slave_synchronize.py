"""A slave's tables: when they are copied, and by which rules; the answers are those that Apache's masters gave."""

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from tests.broker.builders import config_file, live_config, read, versioned
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS
from tests.support.clocks import SettableClock
from trio.testing import MockClock, wait_all_tasks_blocked

from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.slave_synchronize import SlaveSynchronize
from rocketrio_broker.offsets.manager import ConsumerOffsetManager
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import (
    ConsumerOffsetWrapper,
    OffsetVersions,
    VersionedConsumerOffsets,
)
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import NotReachableError, RemoteProtocolError
from rocketrio_protocol.headers import RequestHeader

MASTER = "10.0.0.1:10911"
ROUND = [
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
]


@attrs.define
class Asked:
    """One request, when and where."""

    time: float
    addr: str
    code: RequestCode


@attrs.define
class ScriptedMaster:
    """Answers with these bodies; a code without one is answered 1, and nothing while it is down."""

    bodies: dict[RequestCode, bytes]
    is_down: bool = False
    asked: list[Asked] = attrs.field(factory=list)
    fields: dict[RequestCode, dict[str, str]] = attrs.field(factory=dict)
    """Ext fields of its answers."""

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        self.asked.append(Asked(trio.current_time(), addr, request.code))
        if self.is_down:
            raise NotReachableError("No connection", broker_addr=addr)
        command = RemotingCommand.request(request)
        answer = self.bodies.get(request.code)
        if answer is None:
            return command.response(code=ResponseCode.SYSTEM_ERROR, remark="no such file")
        response = command.response(body=answer)
        response.ext_fields.update(self.fields.get(request.code, {}))
        return response

    @property
    def round_times(self) -> list[float]:
        return [asked.time for asked in self.asked if asked.code == ROUND[0]]


def bodies(
    *,
    topics: Mapping[str, int] | None = None,
    topics_version: int = 1,
    offsets: Mapping[str, dict[int, int]] | None = None,
    groups: Mapping[str, int] | None = None,
) -> dict[RequestCode, bytes]:
    """The answers of a master with these topics (queues), offsets and groups (broker id)."""
    version = DataVersion(topics_version, 1000)
    return {
        RequestCode.GET_ALL_TOPIC_CONFIG: fastjson.dumps(
            TopicConfigSerializeWrapper(
                version, {name: TopicConfig(name, n, n) for name, n in (topics or {}).items()}
            )
        ),
        RequestCode.GET_ALL_CONSUMER_OFFSET: fastjson.dumps(
            ConsumerOffsetWrapper(dict(offsets or {}))
        ),
        RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: fastjson.dumps(
            SubscriptionGroupWrapper(
                DataVersion(1, 1000),
                {n: SubscriptionGroupConfig(n, broker_id=i) for n, i in (groups or {}).items()},
            )
        ),
    }


class World:
    """A slave's tables, and a master whose answers the test sets."""

    def __init__(self, answers: dict[RequestCode, bytes], master: str | None) -> None:
        self.disk = MemoryDisk()
        self.master = ScriptedMaster(answers)
        config, clock = live_config(), SettableClock()
        self.topics = TopicConfigManager(
            config=config, file=config_file("topics.json", self.disk), wall_clock=clock
        )
        self.groups = SubscriptionGroupManager(
            config=config, file=config_file("subscriptionGroup.json", self.disk), wall_clock=clock
        )
        self.offsets = ConsumerOffsetManager(
            file=config_file("consumerOffset.json", self.disk), disk=self.disk
        )
        self.delay_file = config_file("delayOffset.json", self.disk)
        self.address = MasterAddress(master)
        self.followed, self.flushed = Watermark(), Watermark()
        self.gate = ReadGate()
        self.synchronize = SlaveSynchronize(
            call=self.master.call,
            master=self.address,
            topics=self.topics,
            groups=self.groups,
            consumer_offsets=self.offsets,
            delay_offset_file=self.delay_file,
            flushed=self.flushed,
            gate=self.gate,
            followed=self.followed,
        )


@asynccontextmanager
async def running(
    answers: dict[RequestCode, bytes] | None = None, *, master: str | None = MASTER
) -> AsyncGenerator[World]:
    world = World(bodies() if answers is None else answers, master)
    async with trio.open_nursery() as nursery:
        await nursery.start(world.synchronize.run)
        yield world
        nursery.cancel_scope.cancel()


async def test_a_round_asks_for_everything_in_apache_s_order(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.synchronize.rounds.wait_reached(1)
        assert [asked.code for asked in world.master.asked] == ROUND
        assert {asked.addr for asked in world.master.asked} == {MASTER}


async def test_rounds_come_every_ten_seconds(autojump_clock: MockClock) -> None:
    async with running() as world:
        await trio.sleep(35)
        assert world.master.round_times == [0.0, 10.0, 20.0, 30.0]


async def test_first_round_comes_as_soon_as_a_master_is_known(autojump_clock: MockClock) -> None:
    async with running(master=None) as world:
        await trio.sleep(7)
        assert world.master.asked == []
        world.address.update(MASTER)
        await world.synchronize.rounds.wait_reached(1)
        assert world.master.round_times == [7.0]


async def test_a_round_comes_at_once_when_replication_connects(autojump_clock: MockClock) -> None:
    async with running() as world:
        await trio.sleep(3)
        world.followed.advance(1)
        await trio.sleep(11)
        assert world.master.round_times == [0.0, 3.0, 13.0]


async def test_another_master_is_asked_at_once(autojump_clock: MockClock) -> None:
    async with running() as world:
        await trio.sleep(3)
        world.address.update("10.0.0.5:10911")
        await wait_all_tasks_blocked()
        assert world.master.asked[-1] == Asked(3.0, "10.0.0.5:10911", ROUND[-1])


async def test_failures_are_tried_again_and_logged_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with running() as world:
        world.master.is_down = True
        await trio.sleep(30)
        assert world.master.round_times == [0.0, 1.0, 3.0, 7.0, 15.0, 25.0]
        assert caplog.text.count("tables not copied") == 1
        assert "No connection" in (world.synchronize.statistics().last_problem or "")
        world.master.is_down = False
        await trio.sleep(20)
        assert caplog.text.count("tables are as the master's") == 1
        assert world.synchronize.statistics().last_problem is None
        assert world.synchronize.statistics().rounds == 2


async def test_nothing_is_copied_from_a_master_that_does_not_lead_yet(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It asks its slaves for topics that it lacks: what is copied before would delete them here."""
    caplog.set_level(logging.INFO)
    async with running(bodies(topics={"orders": 4}, groups={"billing": 1})) as world:
        await world.synchronize.rounds.wait_reached(1)
        world.master.bodies = bodies(topics_version=2)
        fields = world.master.fields
        fields[RequestCode.GET_ALL_TOPIC_CONFIG] = {"rocketrioStandsAside": "true"}
        await trio.sleep(30)
        assert world.synchronize.rounds.value == 1
        assert list(world.topics.topic_config_table) == ["orders"]
        assert list(world.groups.subscription_group_table) == ["billing"]
        problem = world.synchronize.statistics().last_problem or ""
        assert problem.startswith("The master does not lead (yet)")
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        fields.clear()
        await world.synchronize.rounds.wait_reached(2)
        assert not world.topics.topic_config_table


async def test_topics_and_groups_become_those_of_the_master(autojump_clock: MockClock) -> None:
    answers = bodies(topics={"orders": 4}, groups={"billing": 1})
    async with running(answers) as world:
        await world.synchronize.rounds.wait_reached(1)
        assert world.topics.topic_config_table == {"orders": TopicConfig("orders", 4, 4)}
        assert world.topics.data_version == DataVersion(1, 1000)
        assert list(world.groups.subscription_group_table) == ["billing"]
        assert world.groups.subscription_group_table["billing"].broker_id == 1


async def test_table_that_is_here_already_is_not_written_again(autojump_clock: MockClock) -> None:
    async with running(bodies(topics={"orders": 4})) as world:
        await world.synchronize.rounds.wait_reached(1)
        changes = world.topics.changes.value
        await world.synchronize.rounds.wait_reached(3)
        assert world.topics.changes.value == changes
        world.master.bodies = bodies(topics={"orders": 8}, topics_version=2)
        await world.synchronize.rounds.wait_reached(4)
        assert world.topics.topic_config_table["orders"].read_queue_nums == 8


async def test_another_table_of_the_same_version_is_taken(autojump_clock: MockClock) -> None:
    """A slave makes retry topics of its own: in the same millisecond as its master, both count the same version."""
    async with running(bodies(topics={"orders": 4})) as world:
        await world.synchronize.rounds.wait_reached(1)
        world.master.bodies = bodies(topics={"orders": 8})
        await world.synchronize.rounds.wait_reached(2)
        assert world.topics.topic_config_table["orders"].read_queue_nums == 8


async def test_an_offset_is_never_lowered(autojump_clock: MockClock) -> None:
    """What was committed to the slave while the master was away stays, queue by queue."""
    async with running(bodies(offsets={"orders@billing": {0: 32, 1: 50, 2: 7}})) as world:
        world.offsets.commit_offset("billing", "orders", 0, 120)
        world.offsets.commit_offset("billing", "orders", 1, 40)
        world.offsets.commit_offset("audit", "orders", 0, 5)
        await world.synchronize.rounds.wait_reached(2)
        assert world.offsets.query_offsets("billing", "orders") == {0: 120, 1: 50, 2: 7}
        assert world.offsets.query_offsets("audit", "orders") == {0: 5}


async def test_offsets_of_a_rocketrio_master_follow_within_a_second(
    autojump_clock: MockClock,
) -> None:
    def told(offset: int) -> bytes:
        offsets = {"orders@billing": {0: offset}}
        return fastjson.dumps(VersionedConsumerOffsets(offsets, OffsetVersions()))

    code = RequestCode.GET_ALL_CONSUMER_OFFSET
    async with running({**bodies(), code: told(32)}) as world:
        for offset in range(33, 40):
            await trio.sleep(1.1)
            assert world.offsets.query_offset("billing", "orders", 0) == offset - 1
            world.master.bodies[code] = told(offset)
        await trio.sleep(20)
        assert world.master.round_times == [0.0, 10.0, 20.0]
        world.master.is_down = True
        await trio.sleep(5)
        world.master.is_down = False
        world.master.bodies[code] = told(50)
        await trio.sleep(10)
        assert world.offsets.query_offset("billing", "orders", 0) == 50


async def test_delay_offsets_are_kept_as_they_came(autojump_clock: MockClock) -> None:
    body = b'{"offsetTable":{1:4,2:9}}'
    async with running({**bodies(), RequestCode.GET_ALL_DELAY_OFFSET: body}) as world:
        await world.synchronize.rounds.wait_reached(1)
        assert read(world.disk, world.delay_file.path) == body


async def test_delay_offsets_wait_for_the_log_they_hold_for(autojump_clock: MockClock) -> None:
    code = RequestCode.GET_ALL_DELAY_OFFSET
    first, second = b'{"offsetTable":{1:4}}', b'{"offsetTable":{1:9}}'
    async with running({**bodies(), code: first}, master=None) as world:
        world.master.fields[code] = {"rocketrioLogEnd": "1000"}
        world.address.update(MASTER)
        await world.synchronize.rounds.wait_reached(1)
        assert not world.disk.exists(world.delay_file.path)
        world.master.bodies[code], world.master.fields[code] = second, {"rocketrioLogEnd": "2000"}
        world.flushed.advance(1500)
        await trio.sleep(11)
        assert read(world.disk, world.delay_file.path) == first
        world.flushed.advance(2000)
        await trio.sleep(11)
        assert read(world.disk, world.delay_file.path) == second


async def test_delay_offsets_wait_until_their_log_is_confirmed(autojump_clock: MockClock) -> None:
    code = RequestCode.GET_ALL_DELAY_OFFSET
    body = b'{"offsetTable":{1:4}}'
    async with running({**bodies(), code: body}, master=None) as world:
        world.gate.set_reported(900)
        world.flushed.advance(1000)
        world.master.fields[code] = {"rocketrioLogEnd": "1000"}
        world.address.update(MASTER)
        await trio.sleep(30)
        assert not world.disk.exists(world.delay_file.path)
        world.gate.set_reported(1000)
        await trio.sleep(11)
        assert read(world.disk, world.delay_file.path) == body


async def test_master_without_delay_offsets_is_accepted(autojump_clock: MockClock) -> None:
    async with running() as world:
        await world.synchronize.rounds.wait_reached(1)
        assert not world.disk.exists(world.delay_file.path)


async def test_unreadable_answer_ends_the_round_and_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    answers = {**bodies(), RequestCode.GET_ALL_CONSUMER_OFFSET: b'{"offsetTable":7}'}
    async with running(answers) as world:
        await wait_all_tasks_blocked()
        assert world.synchronize.rounds.value == 0
        assert "consumer offsets" in (world.synchronize.statistics().last_problem or "")
        with pytest.raises(RemoteProtocolError):
            await world.synchronize.sync_all(MASTER)


@pytest.mark.parametrize("run", VERSIONS)
async def test_answers_of_apache_s_master_are_taken_over(
    autojump_clock: MockClock, run: str
) -> None:
    """The last answer to each request that the recorded slave got; ours ends with the same tables."""
    recorded = {}
    for code in ROUND:
        answers = [exchange.answer for exchange in exchanges_of(run, "broker", code)]
        last = next(answer for answer in reversed(answers) if answer and answer.code == 0)
        recorded[code] = bytes(last.body)
    async with running(recorded) as world:
        await world.synchronize.rounds.wait_reached(1)
        topics = fastjson.loads(recorded[ROUND[0]], TopicConfigSerializeWrapper)
        offsets = fastjson.loads(recorded[ROUND[1]], ConsumerOffsetWrapper)
        groups = fastjson.loads(recorded[ROUND[3]], SubscriptionGroupWrapper)
        assert len(topics.topic_config_table) > 8
        assert world.topics.topic_config_table == topics.topic_config_table
        assert world.topics.data_version == topics.data_version
        assert world.groups.subscription_group_table == groups.subscription_group_table
        assert versioned(world.offsets).offset_table == offsets.offset_table
        assert offsets.offset_table
        assert read(world.disk, world.delay_file.path) == recorded[ROUND[2]]


async def test_a_full_disk_delays_the_copy_and_ends_nothing(autojump_clock: MockClock) -> None:
    async with running(bodies(topics={"orders": 4}, topics_version=7)) as world:
        await world.synchronize.rounds.wait_reached(1)
        world.disk.is_full = True
        world.master.bodies = bodies(topics={"orders": 4, "refunds": 2}, topics_version=8)
        await trio.sleep(15)
        assert "No space left" in str(world.synchronize.statistics().last_problem)
        world.disk.is_full = False
        await trio.sleep(15)
        assert world.synchronize.statistics().last_problem is None
        assert b"refunds" in read(world.disk, Path("/data/config/topics.json"))
