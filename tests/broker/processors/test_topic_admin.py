import json

import attrs
import msgspec
import pytest
import trio
from tests.broker.processors.asking import Asking, asking
from tests.support.caller import Caller
from trio.testing import MockClock

from rocketrio_broker.processors.topic_admin import LIST_LIMIT
from rocketrio_broker.store.refusals import Refuser
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import TopicList, TopicRouteData
from rocketrio_protocol.bodies.topics import TopicConfig, TopicConfigSerializeWrapper
from rocketrio_protocol.codes import VERSION_5, RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin, cluster


def create(topic: str, *, queues: int = 4, order: bool = False) -> admin.CreateTopicRequestHeader:
    return admin.CreateTopicRequestHeader(topic, "TBW102", queues, queues, 6, "SINGLE_TAG", order)


async def test_a_created_topic_has_its_route_when_the_answer_comes(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        answer = await one.ask(create("T", order=True))
        assert (answer.code, answer.remark) == (ResponseCode.SUCCESS, None)
        route = await one.ask_name_server(cluster.GetRouteInfoRequestHeader("T"))
        assert TopicRouteData.from_json(route.body).queue_datas[0].read_queue_nums == 4
        assert one.broker.state.topics.topic_config("T") == TopicConfig("T", 4, 4, 6, order=True)


def listed(*topics: dict[str, object]) -> RemotingCommand:
    """The list form of 5.3.3's tool."""
    body = json.dumps({"topicConfigList": topics}).encode()
    return RemotingCommand(code=RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body)


async def test_a_list_of_topics_is_made_at_once(autojump_clock: MockClock) -> None:
    async with asking() as one:
        topics = one.broker.state.topics
        before = topics.data_version.counter
        answer = await one.ask(
            listed(
                {
                    "topicName": "T",
                    "readQueueNums": 3,
                    "writeQueueNums": 2,
                    "perm": 6,
                    "order": True,
                },
                {"topicName": "U", "attributes": {"+message.type": "FIFO"}},
            )
        )
        assert answer.code == ResponseCode.SUCCESS
        assert topics.topic_config("T") == TopicConfig("T", 3, 2, 6, order=True)
        assert topics.topic_config("U") == TopicConfig("U", attributes={"message.type": "FIFO"})
        assert topics.data_version.counter == before + 1
        route = await one.ask_name_server(cluster.GetRouteInfoRequestHeader("T"))
        assert TopicRouteData.from_json(route.body).queue_datas[0].read_queue_nums == 3


@pytest.mark.parametrize(
    "odd",
    [
        {"topicName": "a b"},
        {"topicName": "O", "perm": 99},
        {"topicName": "O", "attributes": {"+odd": "1"}},
    ],
)
async def test_list_with_an_impossible_topic_creates_none(
    autojump_clock: MockClock, odd: dict[str, object]
) -> None:
    async with asking() as one:
        answer = await one.ask(listed({"topicName": "T"}, odd))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert one.broker.state.topics.topic_config("T") is None


async def test_a_list_has_a_limit(autojump_clock: MockClock) -> None:
    async with asking() as one:
        answer = await one.ask(listed(*({"topicName": f"t{n}"} for n in range(LIST_LIMIT + 1))))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(LIST_LIMIT) in (answer.remark or "")
        groups = [{"groupName": f"g{n}"} for n in range(LIST_LIMIT + 1)]
        for count, code in ((LIST_LIMIT + 1, ResponseCode.SYSTEM_ERROR), (3, ResponseCode.SUCCESS)):
            body = json.dumps({"groupConfigList": groups[:count]}).encode()
            request = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            assert (await one.ask(RemotingCommand(code=request, body=body))).code == code
        assert "g2" in one.broker.state.groups.subscription_group_table
        assert "g3" not in one.broker.state.groups.subscription_group_table


async def test_a_topic_can_be_changed(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await one.ask(create("T", queues=4))
        await one.ask(create("T", queues=8))
        route = await one.ask_name_server(cluster.GetRouteInfoRequestHeader("T"))
        assert TopicRouteData.from_json(route.body).queue_datas[0].read_queue_nums == 8


@pytest.mark.parametrize("topic", ["", "a b", "x" * 128, "TBW102", "lab", "broker-a", "rmq_sys_x"])
async def test_impossible_topic_names_are_refused(autojump_clock: MockClock, topic: str) -> None:
    async with asking() as one:
        before = one.broker.state.topics.data_version
        assert (await one.ask(create(topic))).code == ResponseCode.SYSTEM_ERROR
        delete = admin.DeleteTopicInBrokerRequestHeader(topic)
        assert (await one.ask(delete)).code == ResponseCode.SYSTEM_ERROR
        assert one.broker.state.topics.data_version == before


@pytest.mark.parametrize("queues", [-1, 65_537])
async def test_impossible_number_of_queues_is_refused(
    autojump_clock: MockClock, queues: int
) -> None:
    async with asking() as one:
        answer = await one.ask(create("T", queues=queues))
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert str(queues) in (answer.remark or "")


@pytest.mark.parametrize(
    ("field", "value"), [("topicFilterType", "NO_TAG"), ("perm", "16"), ("perm", "-1")]
)
async def test_settings_that_no_peer_could_read_are_refused(
    autojump_clock: MockClock, field: str, value: str
) -> None:
    async with asking() as one:
        header = create("T")
        header.perm = int(value) if field == "perm" else header.perm
        header.topic_filter_type = value if field != "perm" else header.topic_filter_type
        answer = await one.ask(header)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert answer.remark is not None
        assert field in answer.remark
        assert one.broker.state.topics.topic_config("T") is None


FIFO = "+message.type=FIFO,+reserve.time=-1"


async def test_attributes_are_kept_reported_and_copied_to_slaves(autojump_clock: MockClock) -> None:
    kept = {"message.type": "FIFO", "reserve.time": "-1"}
    async with asking(slaves=1) as one:
        assert (await one.ask(msgspec.structs.replace(create("T"), attributes=FIFO))).code == 0
        assert (await one.ask(create("T", queues=9))).code == 0  # A change of something else.
        single = await one.ask(admin.GetTopicConfigRequestHeader("T", logical=True))
        assert json.loads(bytes(single.body))["attributes"] == kept
        everything = await one.ask(admin.GetAllTopicConfigRequestHeader())
        assert json.loads(bytes(everything.body))["topicConfigTable"]["T"]["attributes"] == kept
        await trio.sleep(15)
        slave = one.cluster.slaves[0].broker.state.topics.topic_config("T")
        assert slave == TopicConfig("T", 9, 9, attributes=kept)
        await one.cluster.kill_master()
        restarted = await one.cluster.restart_master()
        assert restarted.state.topics.topic_config("T") == slave


@pytest.mark.parametrize(
    ("version", "is_told"), [(407, True), (413, False), (479, False), (481, True)]
)
async def test_table_for_slaves_of_5_x_that_would_drop_theirs_has_no_attributes(
    autojump_clock: MockClock, version: int, is_told: bool
) -> None:
    asked = RemotingCommand.request(admin.GetAllTopicConfigRequestHeader())
    async with asking() as one:
        await one.ask(msgspec.structs.replace(create("T"), attributes=FIFO))
        await one.ask(create("plain"))
        answer = await one.ask(attrs.evolve(asked, version=version))
        table = json.loads(bytes(answer.body))["topicConfigTable"]
        assert bool(table["T"].pop("attributes")) is is_told
        assert table["T"] == {
            "topicName": "T",
            **{k: v for k, v in table["plain"].items() if k not in ("topicName", "attributes")},
        }
        kept = one.broker.state.topics.topic_config("T")
        assert kept is not None
        assert kept.attributes


async def test_message_of_another_type_than_the_topics_is_stored(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await one.ask(
            msgspec.structs.replace(create("orders"), attributes="+message.type=TRANSACTION")
        )
        assert (await Caller(one.pool).send(one.broker.address, b"plain")).code == 0


async def test_attributes_that_are_refused_change_nothing(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await one.ask(msgspec.structs.replace(create("T"), attributes=FIFO))
        before = one.broker.state.topics.data_version
        answer = await one.ask(
            msgspec.structs.replace(create("T", queues=9), attributes="+message.type=ODD")
        )
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "message.type=ODD" in (answer.remark or "")
        assert one.broker.state.topics.data_version == before


async def test_deletion_of_a_topic_deletes_its_queues_and_offsets(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await one.ask(create("T"))
        one.put("T", b"a")
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 1)
        answer = await one.ask(admin.DeleteTopicInBrokerRequestHeader("T"))
        assert answer.code == ResponseCode.SUCCESS
        assert one.broker.state.topics.topic_config("T") is None
        assert one.broker.store.queue_bounds("T", 0) is None
        assert one.broker.state.consumer_offsets.query_offset("G", "T", 0) == -1


async def test_topic_created_again_has_no_message_of_the_deleted_one_after_a_crash(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await one.ask(create("T"))
        one.put("other", b"a")
        one.put("T", b"a")
        await one.broker.store.checkpoint()
        one.put("T", b"b")
        await one.ask(admin.DeleteTopicInBrokerRequestHeader("T"))
        await one.ask(create("T"))
        await one.cluster.kill_master()
        master = await one.cluster.restart_master()
        assert master.store.queue_bounds("T", 0) is None
        assert master.store.next_queue_offset("T", 0) == 0


async def test_deletion_that_cannot_be_logged_changes_nothing(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await one.ask(create("T"))
        one.put("T", b"a")
        one.broker.state.consumer_offsets.commit_offset("G", "T", 0, 1)
        one.broker.store.refusals.refuse(Refuser.STANDING, "of a test")
        answer = await one.ask(admin.DeleteTopicInBrokerRequestHeader("T"))
        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, "of a test")
        assert one.broker.state.topics.topic_config("T") is not None
        assert one.broker.store.queue_bounds("T", 0) == (0, 1)
        assert one.broker.state.consumer_offsets.query_offset("G", "T", 0) == 1


async def test_requests_for_topics_return_their_settings(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await one.ask(create("T"))
        everything = await one.ask(admin.GetAllTopicConfigRequestHeader())
        wrapper = fastjson.loads(everything.body, TopicConfigSerializeWrapper)
        assert wrapper.topic_config_table == one.broker.state.topics.topic_config_table
        assert wrapper.data_version == one.broker.state.topics.data_version
        single = await one.ask(admin.GetTopicConfigRequestHeader("T", logical=True))
        assert fastjson.loads(single.body, TopicConfig) == wrapper.topic_config_table["T"]
        unknown = await one.ask(admin.GetTopicConfigRequestHeader("U"))
        assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
        system = await one.ask(admin.GetSystemTopicListFromBrokerRequestHeader())
        assert {"TBW102", "lab", "broker-a"} <= set(TopicList.from_json(system.body).topic_list)


async def test_queues_without_a_topic_are_cleaned_up(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await one.ask(create("T"))
        one.put("T", b"a")
        one.put("orphan", b"a")
        await one.ask(RemotingCommand(code=RequestCode.CLEAN_UNUSED_TOPIC))
        assert one.broker.store.queue_bounds("orphan", 0) is None
        assert one.broker.store.queue_bounds("T", 0) == (0, 1)


async def test_queues_that_a_slave_cleans_up_are_gone_there_alone(
    autojump_clock: MockClock,
) -> None:
    async with asking(slaves=1) as one:
        one.put("orphan", b"a")
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await slave.broker.store.dispatched.wait_reached(one.broker.store.max_physical_offset)
        await slave.ask(RemotingCommand(code=RequestCode.CLEAN_UNUSED_TOPIC))
        assert slave.broker.store.queue_bounds("orphan", 0) is None
        assert one.broker.store.queue_bounds("orphan", 0) == (0, 1)


async def test_slave_refuses_changes_of_topics(autojump_clock: MockClock) -> None:
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        for header in (create("T"), admin.DeleteTopicInBrokerRequestHeader("T")):
            answer = await slave.ask(header)
            assert answer.code == ResponseCode.SYSTEM_ERROR
            assert "master" in (answer.remark or "")


@pytest.mark.parametrize("slave_is_asked_first", [False, True])
async def test_topic_that_a_program_of_5_x_creates_at_every_broker_is_on_every_broker(
    autojump_clock: MockClock, slave_is_asked_first: bool
) -> None:
    one_topic = RemotingCommand.request(create("T"))
    list_of_topics = listed({"topicName": "L", "readQueueNums": 2, "writeQueueNums": 2})
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        order = (slave, one) if slave_is_asked_first else (one, slave)
        for request in (one_topic, list_of_topics):
            for broker in order:
                answer = await broker.ask(attrs.evolve(request, version=VERSION_5))
                assert answer.code == ResponseCode.SUCCESS
        await trio.sleep(15)
        for name in ("T", "L"):
            topic = one.broker.state.topics.topic_config(name)
            assert topic is not None
            assert slave.broker.state.topics.topic_config(name) == topic


async def test_topic_that_only_a_slave_was_asked_for_is_nowhere(autojump_clock: MockClock) -> None:
    """On Apache's slaves it is gone with their next copy of the master's topics."""
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        request = attrs.evolve(RemotingCommand.request(create("T")), version=VERSION_5)
        version = slave.broker.state.topics.data_version
        assert (await slave.ask(request)).code == ResponseCode.SUCCESS
        assert slave.broker.state.topics.topic_config("T") is None
        assert slave.broker.state.topics.data_version == version


async def test_slave_answers_a_deletion_of_5_x_and_waits_for_its_masters(
    autojump_clock: MockClock,
) -> None:
    """Tools of 5.x delete at every broker, a slave first if its address comes first, and stop at a refusal."""
    delete = RemotingCommand.request(admin.DeleteTopicInBrokerRequestHeader("T"))
    async with asking(slaves=1) as one:
        slave = Asking(one.cluster, one.pool, one.cluster.slaves[0].broker)
        await one.ask(create("T"))
        one.put("T", b"a")
        await trio.sleep(15)
        answer = await slave.ask(attrs.evolve(delete, version=479))
        assert answer.code == ResponseCode.SUCCESS
        assert slave.broker.state.topics.topic_config("T") is not None
        assert slave.broker.store.queue_bounds("T", 0) == (0, 1)
        assert (await one.ask(attrs.evolve(delete, version=479))).code == ResponseCode.SUCCESS
        await trio.sleep(15)
        assert slave.broker.state.topics.topic_config("T") is None
        assert slave.broker.store.queue_bounds("T", 0) is None
