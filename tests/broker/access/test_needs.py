from collections.abc import Iterable, Sequence

import attrs
import pytest
from tests.support.declared_requests import BROKER, NAME_SERVER
from tests.support.secured_broker import message

from rocketrio_broker.access.needs import (
    ADDRESS,
    ANYONE,
    CREATE,
    DELETE,
    GET,
    NAMES_LIMIT,
    ONLY_SUPER,
    PROOF,
    PUB,
    SUB,
    UPDATE,
    VALID_USER,
    Need,
)
from rocketrio_broker.namesrv.processor import ALL_CLUSTERS, NameServerFacts
from rocketrio_broker.requests.declaration import answers, declarations_of
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_protocol.access.model import ResourceKind
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.heartbeat import (
    CheckClientRequestBody,
    ConsumerData,
    HeartbeatData,
    ProducerData,
    SubscriptionData,
)
from rocketrio_protocol.bodies.queues import LockBatch, QueueName
from rocketrio_protocol.bodies.topics import (
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
    TopicConfig,
    TopicConfigList,
)
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import (
    access,
    admin,
    client,
    cluster,
    consumer,
    inspection,
    offset,
    pull,
    query,
    send,
    transaction,
)
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.remoting.channel import Channel

LAB = "lab"


@attrs.frozen
class Facts:
    """A broker with the topics `t` and `stored`, and a message of `stored` at address 7."""

    cluster_name = LAB
    creates_topics: bool = True

    def has_topic(self, name: str) -> bool:
        return name in ("t", "stored")

    def topics_of_group(self, group: str) -> Iterable[str]:
        return ("t", "%RETRY%g")

    def stored_topic(self, address: int) -> str | None:
        return "stored" if address == 7 else None

    def stored_message(self, address: int) -> MessageExt | None:
        return None


def topic(actions: int, name: str = "t") -> Need:
    return Need(ResourceKind.TOPIC, name, actions)


def group(actions: int, name: str = "g") -> Need:
    return Need(ResourceKind.GROUP, name, actions)


def lab(actions: int) -> Need:
    return Need(ResourceKind.CLUSTER, LAB, actions)


def needs(
    request: RequestHeader | RemotingCommand, body: object = None, *, facts: Facts | None = None
) -> set[Need]:
    command = request if isinstance(request, RemotingCommand) else RemotingCommand.request(request)
    if body is not None:
        command.body = fastjson.dumps(body)
    return set(BROKER[command.code].rule(command, facts or Facts()))


def v1(
    name: str, header: type[send.SendMessageRequestHeader] = send.SendMessageRequestHeader
) -> RequestHeader:
    return header("any", name, "TBW102", 4, 0, 0, 1000, 0)


def v2(name: str, header: type[send.SendMessageRequestHeaderV2]) -> RequestHeader:
    return header("any", name, "TBW102", 4, 0, 0, 1000, 0)


SENDS = [
    v1,
    message,
    lambda name: v2(name, send.SendBatchMessageRequestHeader),
    lambda name: v1(name, send.SendReplyMessageRequestHeader),
    lambda name: v2(name, send.SendReplyMessageRequestHeaderV2),
]


@pytest.mark.parametrize("make", SENDS)
def test_send_needs_pub_on_its_topic(make) -> None:  # type: ignore[no-untyped-def]
    assert needs(make("t")) == {topic(PUB)}
    assert needs(make("%DLQ%g")) >= {topic(PUB, "%DLQ%g")}
    assert needs(make("%RETRY%g")) == {group(SUB)}


@pytest.mark.parametrize("make", SENDS[:3])
def test_send_that_creates_its_topic_needs_create_too(make) -> None:  # type: ignore[no-untyped-def]
    assert needs(make("new")) == {topic(PUB, "new"), topic(CREATE, "new")}
    assert needs(make("new"), facts=Facts(creates_topics=False)) == {topic(PUB, "new")}
    assert needs(make("RMQ_SYS_TRACE_TOPIC")) == set()


PULL = (0, 0, 32, 0, 0, 0, 0)
MESSAGE_7 = "0A0000010000277600000000000000" + "07"
MESSAGE_8 = "0A0000010000277600000000000000" + "08"


@pytest.mark.parametrize(
    ("request_header", "expected"),
    [
        (pull.PullMessageRequestHeader("g", "t", *PULL), {topic(SUB), group(SUB)}),
        (pull.LitePullMessageRequestHeader("g", "t", *PULL), {topic(SUB), group(SUB)}),
        (pull.PullMessageRequestHeader("g", "%RETRY%g2", *PULL), {group(SUB, "g2"), group(SUB)}),
        (query.QueryMessageRequestHeader("t", "k", 1, 0, 1), {topic(SUB | GET)}),
        (query.ViewMessageRequestHeader(7, topic="t"), {topic(SUB | GET, "stored")}),
        (consumer.ConsumeMessageDirectlyRequestHeader("g", "id", MESSAGE_7),
         {topic(SUB | GET, "stored"), group(SUB)}),
        (consumer.ConsumerSendMsgBackRequestHeader(7, "g", 0), {topic(SUB, "stored"), group(SUB)}),
        (offset.QueryConsumerOffsetRequestHeader("g", "t", 0), {topic(SUB | GET), group(SUB | GET)}),
        (offset.UpdateConsumerOffsetRequestHeader("g", "t", 0, 1), {topic(SUB), group(SUB)}),
        (offset.UpdateConsumerOffsetRequestHeader("g", "t", 0, 1, reset=True), {topic(SUB), group(UPDATE)}),
        (offset.SearchOffsetRequestHeader("t", 0, 1), {topic(SUB | GET | PUB)}),
        (offset.GetMaxOffsetRequestHeader("t", 0), {topic(SUB | GET | PUB)}),
        (offset.GetMinOffsetRequestHeader("t", 0), {topic(SUB | GET | PUB)}),
        (offset.GetEarliestMsgStoretimeRequestHeader("t", 0), {topic(SUB | GET | PUB)}),
        (client.UnregisterClientRequestHeader("id", "p", "g"), {group(SUB)}),
        (client.UnregisterClientRequestHeader("id", "p"), set()),
        (client.GetConsumerListByGroupRequestHeader("g"), {group(SUB)}),
        (admin.CreateTopicRequestHeader("t", "", 1, 1, 6, "", order=False), {topic(UPDATE)}),
        (admin.CreateTopicRequestHeader("n", "", 1, 1, 6, "", order=False), {topic(CREATE, "n")}),
        (admin.DeleteTopicInBrokerRequestHeader("t"), {topic(DELETE)}),
        (admin.GetTopicConfigRequestHeader("t"), {topic(GET)}),
        (admin.GetTopicStatsInfoRequestHeader("t"), {topic(GET)}),
        (admin.QueryTopicConsumeByWhoRequestHeader("t"), {topic(GET)}),
        (inspection.QueryConsumeQueueRequestHeader("t", 0, 1, 0), {topic(GET)}),
        (admin.DeleteSubscriptionGroupRequestHeader("g"), {group(DELETE)}),
        (admin.GetSubscriptionGroupConfigRequestHeader("g"), {group(GET)}),
        (admin.GetConsumerConnectionListRequestHeader("g"), {group(GET)}),
        (admin.GetConsumeStatsRequestHeader("g"), {group(GET)}),
        (consumer.GetConsumerRunningInfoRequestHeader("g", "id"), {group(GET)}),
        (inspection.QueryTopicsByConsumerRequestHeader("g"), {group(GET)}),
        (admin.ResetOffsetRequestHeader("t", "g", 0, is_force=True), {topic(UPDATE), group(UPDATE)}),
        (admin.CloneGroupOffsetRequestHeader("s", "g", "t"), {topic(UPDATE), group(UPDATE), group(GET | UPDATE, "s")}),
        (consumer.GetConsumerStatusRequestHeader("t", "g"), {topic(GET), group(GET)}),
        (admin.QueryConsumeTimeSpanRequestHeader("t", "g"), {topic(GET), group(GET)}),
        (admin.QueryCorrectionOffsetRequestHeader("t", "g"), {topic(GET), group(GET)}),
        (inspection.QuerySubscriptionByConsumerRequestHeader("g", "t"), {topic(GET), group(GET)}),
        (admin.GetAllConsumerOffsetRequestHeader(), {lab(GET)}),
        (admin.GetAllConsumerOffsetRequestHeader(broker_id=1, ha_addr="h:1"), {lab(UPDATE)}),
        (admin.CheckLogRequestHeader(), {lab(GET)}),
        (admin.CheckLogRequestHeader(start=True), {lab(UPDATE)}),
        (access.GetSealedUsersRequestHeader(), {lab(ONLY_SUPER)}),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_request_needs_what_its_header_names(
    request_header: RequestHeader, expected: set[Need]
) -> None:
    assert needs(request_header) == expected


@pytest.mark.parametrize(
    ("request_header", "body", "expected"),
    [
        (
            client.HeartBeatRequestHeader(),
            HeartbeatData(
                "id",
                [ConsumerData("g", subscription_data_set=[SubscriptionData("t"), SubscriptionData("%RETRY%g")])],
                [ProducerData("p")],
            ),
            {group(SUB), topic(SUB)},
        ),
        (client.HeartBeatRequestHeader(), HeartbeatData("id", [], [ProducerData("p")]), set()),
        (
            client.CheckClientConfigRequestHeader(),
            CheckClientRequestBody("id", "g", SubscriptionData("t")),
            {group(SUB), topic(SUB)},
        ),
        (consumer.LockBatchMqRequestHeader(), LockBatch("g", "id", [QueueName("t", "b", 0)]), {group(SUB), topic(SUB)}),
        (consumer.UnlockBatchMqRequestHeader(), LockBatch("g", "id"), {group(SUB)}),
        (admin.UpdateAndCreateSubscriptionGroupRequestHeader(), SubscriptionGroupConfig("g"), {group(CREATE | UPDATE)}),
        (
            RemotingCommand(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST),
            SubscriptionGroupConfigList([SubscriptionGroupConfig("g"), SubscriptionGroupConfig("h")]),
            {group(CREATE | UPDATE), group(CREATE | UPDATE, "h")},
        ),
        (
            RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST),
            TopicConfigList([TopicConfig("t"), TopicConfig("new")]),
            {topic(UPDATE), topic(CREATE, "new")},
        ),
    ],
)  # fmt: skip
def test_request_needs_what_its_body_names(
    request_header: RequestHeader | RemotingCommand, body: object, expected: set[Need]
) -> None:
    assert needs(request_header, body) == expected


def test_clone_of_all_topics_needs_update_on_each_of_them() -> None:
    found = needs(admin.CloneGroupOffsetRequestHeader("s", "g"))
    assert found == {group(GET | UPDATE, "s"), group(UPDATE), topic(UPDATE)}


@pytest.mark.parametrize(
    "request_header",
    [
        query.ViewMessageRequestHeader(8),
        consumer.ConsumeMessageDirectlyRequestHeader("g", "id", MESSAGE_8),
        consumer.ConsumeMessageDirectlyRequestHeader("g", "id", "no message id"),
        consumer.ConsumerSendMsgBackRequestHeader(8, "g", 0),
        transaction.EndTransactionRequestHeader("p", 0, 8, 8, "id"),
        transaction.ResumeCheckHalfMessageRequestHeader(MESSAGE_8),
    ],
    ids=lambda header: type(header).__name__,
)
def test_message_that_is_not_there_is_refused_by_the_rule(request_header: RequestHeader) -> None:
    with pytest.raises(RefusedError):
        needs(request_header)


CLUSTER_UPDATES: Sequence[int] = (
    25,
    306,
    316,
    329,
    71001,
    71011,
    71012,
    71013,
    50,
    51,
    53,
    *range(3001, 3004),
    *range(3006, 3009),
)
CLUSTER_GETS: Sequence[int] = (
    26,
    28,
    204,
    305,
    315,
    317,
    328,
    907,
    52,
    3004,
    3005,
    3009,
    3010,
    21,
    45,
    201,
    71022,
    71002,
)


@pytest.mark.parametrize(
    ("codes", "actions"), [(CLUSTER_UPDATES, UPDATE), (CLUSTER_GETS, GET)], ids=["update", "get"]
)
def test_request_about_the_broker_needs_the_cluster(codes: Sequence[int], actions: int) -> None:
    for code in codes:
        assert needs(RemotingCommand(code)) == {lab(actions)}, code


def test_code_that_changes_users_or_settings_needs_a_signature_from_every_address() -> None:
    changing = {25, 50, 51, 53, 318, *range(3001, 3004), *range(3006, 3009), 71001, 71032}
    assert not {
        code
        for code, one in (*BROKER.items(), *NAME_SERVER.items())
        if code in changing and one.known_by in (ADDRESS, ANYONE)
    }


def test_all_about_users_and_all_of_rocketrios_own_codes_need_more_than_apaches_signature() -> None:
    accounts = {50, 51, 52, 53, *range(3001, 3011)}
    own = {code for code in BROKER if code > 71_000} - {RequestCode.GET_ALL_USERS}
    for_anyone = {code for code, one in BROKER.items() if one.known_by is ANYONE}
    needing = {code for code, one in BROKER.items() if one.known_by is PROOF}
    assert needing | for_anyone == accounts | own
    assert for_anyone == {RequestCode.GET_IDENTITY}


def test_code_that_declares_nothing_needs_the_most() -> None:
    class Family:
        @answers(RequestCode.GET_EVENTS, needs=VALID_USER)
        def events(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
            return request.response()

    [(name, declared)] = declarations_of(Family)
    assert (name, declared.known_by) == ("events", PROOF)


def test_body_with_too_many_names_is_refused_before_any_decision() -> None:
    names = [f"t{number}" for number in range(NAMES_LIMIT + 1)]
    for code, body in (
        (41, LockBatch("g", "c", [QueueName(name, "b", 0) for name in names])),
        (
            34,
            HeartbeatData(
                "c",
                consumer_data_set=[
                    ConsumerData(
                        "g", subscription_data_set=[SubscriptionData(each) for each in names]
                    )
                ],
            ),
        ),
        (18, TopicConfigList([TopicConfig(name) for name in names])),
        (225, SubscriptionGroupConfigList([SubscriptionGroupConfig(name) for name in names])),
    ):
        request = RemotingCommand(code, body=fastjson.dumps(body))
        with pytest.raises(RefusedError, match="1000 topics or groups at most, not 1001"):
            BROKER[code].rule(request, Facts())


def name_server_needs(request: RequestHeader | RemotingCommand) -> set[Need]:
    command = request if isinstance(request, RemotingCommand) else RemotingCommand.request(request)
    return set(NAME_SERVER[command.code].rule(command, NameServerFacts()))


def test_route_at_a_name_server_needs_no_more_than_a_user() -> None:
    for code in (105, 106, 206, 224, 304, 311, 312, 313):
        assert name_server_needs(RemotingCommand(code)) == set()


def test_broker_at_a_name_server_needs_its_cluster() -> None:
    wanted = {lab(UPDATE)}
    register = cluster.RegisterBrokerRequestHeader("b", "h:1", LAB, "h:2", 0)
    assert name_server_needs(register) == wanted
    assert name_server_needs(cluster.UnregisterBrokerRequestHeader("b", "h:1", LAB, 0)) == wanted
    assert name_server_needs(cluster.QueryDataVersionRequestHeader("b", "h:1", LAB, 0)) == wanted
    assert name_server_needs(cluster.DeleteTopicInNamesrvRequestHeader("t", LAB)) == wanted


def test_operator_at_a_name_server_needs_all_clusters() -> None:
    for code, actions in {205: UPDATE, 327: UPDATE, 216: UPDATE, 100: UPDATE, 102: UPDATE, 318: UPDATE,
                          101: GET, 219: GET, 319: GET}.items():  # fmt: skip
        request = RemotingCommand(code, ext_fields={"topic": "t"})
        assert name_server_needs(request) == {Need(ResourceKind.CLUSTER, ALL_CLUSTERS, actions)}, (
            code
        )
