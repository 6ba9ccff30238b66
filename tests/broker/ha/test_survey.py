"""A broker asks its peers once, all at the same time, and keeps what they answer."""

from collections import Counter
from collections.abc import Mapping

import attrs
import pytest
import trio
from trio.testing import MockClock

from rocketrio_broker.ha.exchange import READER
from rocketrio_broker.ha.judgement import OtherMaster, other_masters, slaves_of
from rocketrio_broker.ha.peers import Identity, Peers
from rocketrio_broker.ha.survey import ASK_LIMIT, PeerView, Survey, Surveyor
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies.route import BrokerData, ClusterInfo, KVTable
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import GetIdentityResponseHeader
from rocketrio_protocol.errors import NotReachableError, RequestTimeoutError
from rocketrio_protocol.ha.status import HARuntimeInfo, OwnStatus
from rocketrio_protocol.headers import RequestHeader

OWN, MASTER, FIRST, SECOND, THIRD = (f"10.0.0.{host}:10911" for host in range(1, 6))
NAME_SERVER, OTHER_NAME_SERVER = "10.0.0.9:9876", "10.0.0.8:9876"
OF_APACHE = b"brokerName=broker-a\nbrokerId=0\nhaListenPort=10912\n"


@attrs.define
class Network:
    """Answers each request of an address by its code; an address that is missing refuses, None is silent."""

    answers: Mapping[str, Mapping[int, bytes | GetIdentityResponseHeader] | None]
    asked: Counter[tuple[str, str]] = attrs.field(factory=Counter)

    async def call(
        self, addr: str, request: RequestHeader, body: bytes = b"", *, timeout: float = 3.0
    ) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        self.asked[addr, request.code.name] += 1
        if addr not in self.answers:
            raise NotReachableError("No connection", broker_addr=addr)
        if (known := self.answers[addr]) is None:
            await trio.sleep(timeout)
            raise RequestTimeoutError("No answer", broker_addr=addr)
        asked = RemotingCommand.request(request)
        answer = known.get(request.code)
        if answer is None:
            return asked.response(code=ResponseCode.REQUEST_CODE_NOT_SUPPORTED)
        return asked.response(body=answer) if isinstance(answer, bytes) else asked.response(answer)

    def surveyor(self, *name_servers: str, **fields: object) -> Surveyor:
        peers = Peers(self.call, self.call, name_servers or (NAME_SERVER,), "broker-a", OWN)
        return Surveyor(
            attrs.evolve(peers, **fields),
            dial=MemoryNetwork().host("10.0.0.1").dial,
            greeting=lambda: READER,
        )


def listing(addrs: dict[int, str]) -> dict[int, bytes]:
    info = ClusterInfo({"broker-a": BrokerData("lab", "broker-a", addrs)})
    return {RequestCode.GET_BROKER_CLUSTER_INFO: info.to_json()}


def rocketrio(broker_id: int = 1, *, end: int = 100, name: str = "broker-a") -> dict[int, object]:
    role = "slave" if broker_id else "async-master"
    claims = None if broker_id else True
    identity = GetIdentityResponseHeader(
        name, broker_id, f"10.0.0.{broker_id + 2}:10912", 1, end, role, claims
    )
    return {RequestCode.GET_IDENTITY: identity}


async def test_peer_that_several_name_is_asked_once(autojump_clock: MockClock) -> None:
    network = Network(
        {
            NAME_SERVER: listing({0: MASTER, 1: FIRST}),
            OTHER_NAME_SERVER: listing({0: OWN, 1: FIRST, 2: SECOND}),
            **{addr: rocketrio(number) for number, addr in enumerate((MASTER, FIRST, SECOND))},
        }
    )
    surveyor = network.surveyor(NAME_SERVER, OTHER_NAME_SERVER, remembered=lambda: [FIRST, SECOND])
    found = await surveyor.survey([MASTER, SECOND])
    assert set(network.asked.values()) == {1}
    assert [*found.views] == [MASTER, FIRST, SECOND]
    assert found.expected == {FIRST, SECOND}
    assert found.views[SECOND].log_end == 100
    assert trio.current_time() == 0


async def test_a_round_ends_with_its_limit_and_says_who_has_not_answered(
    autojump_clock: MockClock,
) -> None:
    network = Network(
        {
            NAME_SERVER: listing({0: MASTER, 1: FIRST, 2: SECOND, 3: THIRD}),
            OTHER_NAME_SERVER: None,
            MASTER: rocketrio(0),
            FIRST: None,
            THIRD: rocketrio(3, name="broker-b"),
        }
    )
    found = await network.surveyor(NAME_SERVER, OTHER_NAME_SERVER).survey(limit=1.0)
    assert trio.current_time() == 1.0
    assert [*found.listed] == [NAME_SERVER]
    assert [*found.silent_servers] == [OTHER_NAME_SERVER]
    problems = {addr: str(view.problem) for addr, view in found.views.items() if view.problem}
    assert "No answer in time" in problems.pop(FIRST)
    assert "No connection" in problems.pop(SECOND)
    assert not problems
    assert [view.addr for view in found.answered] == [MASTER, THIRD]
    assert found.views[THIRD].is_given_away("broker-a")


async def test_brokers_that_are_excepted_are_not_asked(autojump_clock: MockClock) -> None:
    network = Network({NAME_SERVER: listing({0: MASTER, 1: FIRST}), FIRST: rocketrio()})
    surveyor = network.surveyor(remembered=lambda: [SECOND])
    assert [*(await surveyor.survey([THIRD], but=[SECOND, THIRD])).views] == [MASTER, FIRST]
    assert [*(await surveyor.survey(slaves_only=True)).views] == [FIRST, SECOND]


async def test_question_ends_with_the_first_answer_that_is_enough(
    autojump_clock: MockClock,
) -> None:
    network = Network({FIRST: None, SECOND: rocketrio(2)})

    def enough(view: PeerView) -> bool:
        return view.log_end == 100

    views = await network.surveyor().ask([FIRST, SECOND, OWN], limit=ASK_LIMIT, enough=enough)
    assert trio.current_time() == 0
    assert [view.addr for view in views if enough(view)] == [SECOND]


async def test_broker_that_has_said_who_it_is_is_not_asked_again(
    autojump_clock: MockClock,
) -> None:
    """Its epochs can be asked for all the same."""
    network = Network({FIRST: rocketrio()})
    surveyor = network.surveyor()
    before = await surveyor.ask([FIRST], limit=ASK_LIMIT)
    (view,) = await surveyor.ask(before, then=surveyor.epochs, limit=ASK_LIMIT)
    assert view.identity is not None
    assert isinstance(view.problem, NotReachableError)  # Nothing listens at its link.
    assert network.asked == {(FIRST, "GET_IDENTITY"): 1}


async def test_slave_of_apache_is_asked_where_its_log_ends(autojump_clock: MockClock) -> None:
    info = KVTable({"commitLogMaxOffset": "70"}).to_json()
    settings = OF_APACHE.replace(b"brokerId=0", b"brokerId=1")
    network = Network(
        {
            FIRST: {
                RequestCode.GET_BROKER_CONFIG: settings,
                RequestCode.GET_BROKER_RUNTIME_INFO: info,
            },
            SECOND: {RequestCode.GET_BROKER_CONFIG: settings},
        }
    )
    first, second = await network.surveyor().ask([FIRST, SECOND], limit=ASK_LIMIT)
    assert first.log_end == 70
    assert (second.log_end, second.log) == (None, None)
    assert second.identity is not None
    assert second.problem is not None


def of_apache(own: OwnStatus | None) -> dict[int, bytes]:
    answers = {int(RequestCode.GET_BROKER_CONFIG): OF_APACHE}
    if own is not None:
        status = HARuntimeInfo(master=own.role != "slave", rocketrio=own)
        answers[RequestCode.GET_BROKER_HA_STATUS] = status.to_json()
    return answers


async def found(answers: Mapping[int, bytes]) -> Survey:
    return await Network({NAME_SERVER: listing({}), MASTER: answers}).surveyor().survey([MASTER])


@pytest.mark.parametrize("claims", [True, False])
async def test_master_of_the_name_leads_unless_it_claims_nothing(
    autojump_clock: MockClock, claims: bool
) -> None:
    own = OwnStatus(role="async-master", broker_id=0, claims=claims, max_offset=7)
    ha_addr = MASTER.replace("10911", "10912")
    expected = OtherMaster(MASTER, ha_addr, True, claims, 7)
    assert other_masters(await found(of_apache(own))) == [expected]
    assert other_masters(await found(of_apache(None))) == [OtherMaster(MASTER, ha_addr)]


async def test_master_that_becomes_a_slave_while_it_is_asked_is_no_master(
    autojump_clock: MockClock,
) -> None:
    """It has just handed over: if the new master followed it, neither would take writes."""
    answers = await found(of_apache(OwnStatus(role="slave", broker_id=1)))
    assert other_masters(answers) == []
    assert slaves_of(answers) == {MASTER}


def test_of_two_rounds_the_later_one_counts() -> None:
    before = PeerView(FIRST, Identity("broker-a", 1, None), 10, 0.0)
    first = Survey(
        listed={NAME_SERVER: {1: FIRST}},
        silent_servers={OTHER_NAME_SERVER: NotReachableError("No connection")},
        views={FIRST: before, MASTER: PeerView(MASTER)},
    )
    later = Survey(
        listed={OTHER_NAME_SERVER: {2: SECOND}},
        also=frozenset({THIRD}),
        views={FIRST: attrs.evolve(before, log_end=20)},
    )
    both = first.joined(later)
    assert both.expected == {FIRST, SECOND}
    assert both.silent_servers == {}
    assert both.also == {THIRD}
    assert both.views[FIRST].log_end == 20
    assert MASTER in both.views
