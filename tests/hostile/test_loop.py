"""No request holds the event loop for more than 50 ms of CPU at a stretch, however large it or the tables are.

Each code is asked with its largest body, at a broker and a name server whose tables are as large as they may become: a
stretch is what one task does between two checkpoints, in CPU of the thread, and a slow core is allowed more, so that a
busy machine is not the broker's fault. What takes longer is asked again: a collection of garbage, or a page of memory,
is no request's either.
"""

import gc
import json
import time
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import attrs
import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.bodies.registration import (
    RegisterBrokerBody,
    encode_register_body,
)
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    SubscriptionGroupConfig,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode
from tests.support.raw_client import (
    BORN_MS,
    CPP,
    PULL,
    WIDE,
    RawClient,
    batch_entry,
    broker_and_client,
    heartbeat,
    raw_client,
    registering,
    request,
    subscription,
)
from tests.support.slowness import slowness

pytestmark = pytest.mark.slow

LONGEST: Final = 0.05
"""Seconds of CPU, on a core that is not slow (tests/support/slowness.py)."""
TRIES: Final = 6
"""How often a request may be asked, as others on the core slow a try down; the longest takes 36 ms alone."""
TOPICS: Final = 10_000
GROUPS: Final = 2_000
PAIRS: Final = 30
"""Groups that have committed on each topic, until the table of offsets is full."""
MEMBERS: Final = 120
GROUPS_OF_A_MEMBER: Final = 400
REGISTERED_TOPICS: Final = 50_000
NAME_SERVER: Final = "10.0.0.9:9876"

PYTHONS_THRESHOLDS: Final = (700, 10, 10)
"""Python's own limits for its garbage collector, which the tests raise (tests/conftest.py)."""

SETTINGS: Final = b"".join(b"setting%d=%s\n" % (each, b"v" * 18) for each in range(2_000))

Make = Callable[[int], bytes]
"""The bytes of a request, for the first try, the second, and so on."""


class Stretches(trio.abc.Instrument):
    """Measures what each task but one does at a stretch."""

    def __init__(self) -> None:
        self.longest = 0.0
        self.where = ""
        self._own = trio.lowlevel.current_task()
        self._began = 0.0
        self._slowness = 1.0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self._began = time.thread_time()

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        took = time.thread_time() - self._began
        if task is not self._own and took > self.longest:
            self.longest, self.where = took, task.name

    def begin(self) -> None:
        self.longest, self.where = 0.0, ""
        self._slowness = slowness()

    def are_short(self) -> bool:
        """Return whether none since `begin` was too long for the core as it was at the beginning, or is now."""
        # The core is at least as slow as the reference: how slow is only measured where that matters.
        return self.longest <= LONGEST or self.longest <= LONGEST * max(self._slowness, slowness())


@contextmanager
def stretches() -> Generator[Stretches]:
    """As in a process of its own: the collector looks as often, and not at what the tests have imported and kept."""
    gc.collect()
    gc.freeze()
    before = gc.get_threshold()
    gc.set_threshold(*PYTHONS_THRESHOLDS)
    measured = Stretches()
    trio.lowlevel.add_instrument(measured)
    yield measured
    trio.lowlevel.remove_instrument(measured)
    gc.set_threshold(*before)
    gc.unfreeze()


async def too_long(
    client: RawClient, measured: Stretches, stories: dict[str, Make]
) -> dict[str, str]:
    """What takes too long, whenever it is asked."""
    found = {}
    for name, make in stories.items():
        for number in range(TRIES):
            data = make(number)
            measured.begin()
            told = await client.asked(data)
            await trio.sleep(0.1)
            assert told.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED, name
            if measured.are_short():
                break
        else:
            found[name] = f"{measured.longest * 1000:.0f} ms in {measured.where}"
    return found


def ask(code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Make:
    """The same request each time."""
    return lambda number: request(code, fields or {}, body)


def json_body(code: int, value: Callable[[int], object]) -> Make:
    """Make a request with a body of its own each time."""
    return lambda number: request(code, {}, json.dumps(value(number)).encode())


def many(name: str, number: int) -> list[dict[str, str]]:
    """Return a thousand new topics or groups."""
    return [{name: f"many{number}-{each}"} for each in range(1_000)]


def topic_of(number: int) -> str:
    return f"t{number}"


def group_of(number: int) -> str:
    return f"g{number}"


def locks(count: int) -> bytes:
    queues = [{"topic": "t", "brokerName": "b", "queueId": number} for number in range(count)]
    body = {"consumerGroup": "g", "clientId": "c", "mqSet": queues}
    return json.dumps(body, separators=(",", ":")).encode()


def fill(state: BrokerState) -> None:
    """Make the tables as large as they may be."""
    topics, groups, offsets = state.topics, state.groups, state.consumer_offsets
    topics.table.put({name: TopicConfig(name, 8, 8) for name in map(topic_of, range(TOPICS))})
    groups.table.put({name: SubscriptionGroupConfig(name) for name in map(group_of, range(GROUPS))})
    for number in range(GROUPS):
        for queue_id in range(8):
            offsets.table.commit((topic_of(0), group_of(number)), queue_id, number)
    for number in range(TOPICS):
        offsets.table.commit((topic_of(number), group_of(0)), 0, number)
    for number in range(TOPICS * PAIRS):
        if offsets.is_full:
            break
        offsets.table.commit((topic_of(number // PAIRS), group_of(1 + number % PAIRS)), 0, number)
    assert offsets.is_full
    for manager in (topics, groups):
        manager.load()


@asynccontextmanager
async def full_broker() -> AsyncGenerator[tuple[EmbeddedCluster, RawClient]]:
    store = StoreConfig(mapped_file_size_commit_log=64 << 20)
    async with broker_and_client(store=store) as (cluster, client):
        fill(cluster.master.broker.state)
        await trio.sleep(30)
        yield cluster, client


FOUR: Final = [topic_of(number) for number in range(4)]
SEND: Final = {**CPP, "b": "t1", "m": "true"}
PULL_ALL: Final = {**PULL, "topic": "t1", "consumerGroup": "g1", "maxMsgNums": 1024}
LONG_SQL: Final = "a = 1 OR " * 900 + "b = 2"
KEYS: Final = b"KEYS\x01" + b" ".join(b"k%d" % number for number in range(20)) + b"\x02"
DIFFERENT: Final = b"".join(batch_entry(b"x", b"KEYS\x01k%d\x02" % each) for each in range(16_384))
UMLAUTS: Final = "ä".encode() * 100
TAGGED: Final = b"".join(
    batch_entry(b"x" * (each % 2), b"TAGS\x01%b%d\x02" % (UMLAUTS, each)) for each in range(16_384)
)
LONG_KEYS: Final = (
    b"KEYS\x01" + b" ".join(b"%b%d" % (UMLAUTS, number) for number in range(80)) + b"\x02"
)
SCHEDULED: Final = {"group": "g1", "offset": 0, "delayLevel": 1, "originTopic": "t1"}

BROKER: Final[dict[str, Make]] = {
    "21": ask(21),
    "43": ask(43),
    "43 with versions": ask(43, {"rocketrioVersions": "true"}),
    "45": ask(45),
    "201": ask(201),
    "17": lambda number: request(17, {**WIDE, "topic": f"new{number}", "readQueueNums": 8}),
    "17 wide": ask(17, WIDE),
    "18": json_body(18, lambda number: {"topicConfigList": many("topicName", number)}),
    "225": json_body(225, lambda number: {"groupConfigList": many("groupName", number)}),
    "200": json_body(
        200,
        lambda number: {"groupName": f"new{number}", "subscriptionDataSet": [{"topic": "t" * 20}] * 1_800},
    ),
    "320 uniform": ask(320, SEND, batch_entry(b"x") * 16_384),
    "320 long": ask(320, SEND, batch_entry(b"x") * 180_000),
    "320 mixed": ask(320, SEND, (batch_entry(b"x") + batch_entry(b"xx")) * 8_192),
    "320 with keys": ask(320, SEND, (batch_entry(b"x", KEYS) + batch_entry(b"xx", KEYS)) * 8_192),
    "320 with a key each": ask(320, SEND, DIFFERENT),
    "320 with tags each": ask(320, SEND, TAGGED),
    "320 with long keys": ask(320, SEND, (batch_entry(b"x", LONG_KEYS) + batch_entry(b"xx", LONG_KEYS)) * 120),
    "320 mixed and long": ask(320, SEND, (batch_entry(b"x") + batch_entry(b"xx")) * 80_000),
    "10": ask(10, {"producerGroup": "p", "topic": "t1", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                   "queueId": 0, "sysFlag": 0, "bornTimestamp": BORN_MS, "flag": 0}, bytes(4 << 20)),
    "310": ask(310, {**SEND, "m": "false"}, bytes(4 << 20)),
    "11": ask(11, PULL_ALL),
    "11 by SQL92": lambda number: request(
        11, {**PULL_ALL, "subscription": LONG_SQL + " " * number, "expressionType": "SQL92"}
    ),
    "11 by tags": lambda number: request(
        11, {**PULL_ALL, "subscription": f"{number}||" + "||".join(map(str, range(1600)))}
    ),
    "361": ask(361, PULL_ALL),
    "12": ask(12, {"topic": "t1", "key": "k1", "maxNum": 1 << 30, "beginTimestamp": 0, "endTimestamp": 1 << 62}),
    "33": ask(33, {"offset": 0}),
    "14": ask(14, {"consumerGroup": "g0", "topic": "t0", "queueId": 0}),
    "15": ask(15, {"consumerGroup": "g0", "topic": "t0", "queueId": 0, "commitOffset": 0}),
    "29": ask(29, {"topic": "t1", "queueId": 0, "timestamp": BORN_MS}),
    "30": ask(30, {"topic": "t1", "queueId": 0}),
    "31": ask(31, {"topic": "t1", "queueId": 0}),
    "32": ask(32, {"topic": "t1", "queueId": 0}),
    "25": ask(25, {}, SETTINGS),
    "25 of too many lines": ask(25, {}, b"x=y\n" * 16_000),
    "26": ask(26),
    "28": ask(28),
    "34 of new groups": lambda number: request(
        34, {}, heartbeat("c1", consumers=[f"new{number}-{each}" for each in range(500)], topics=FOUR)
    ),
    "34 again": ask(34, {}, heartbeat("c1", consumers=[f"new0-{each}" for each in range(500)], topics=FOUR)),
    "35": ask(35, {"clientID": "c1", "consumerGroup": "new0-1"}),
    "38": ask(38, {"consumerGroup": "new0-2"}),
    "36": ask(36, SCHEDULED),
    "37": ask(37, {"producerGroup": "p", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8,
                   "msgId": "x"}),
    "41": ask(41, {}, locks(10_000)),
    "41 long": ask(41, {}, locks(20_000)),
    "42": ask(42, {}, locks(10_000)),
    "46": json_body(
        46,
        lambda number: {
            "subscriptionData": subscription("t", LONG_SQL + " " * number, expressionType="SQL92")
        },
    ),
    "202": ask(202, {"topic": "wide"}),
    "203": ask(203, {"consumerGroup": "new0-2"}),
    "204": ask(204, {"producerGroup": "p1"}),
    "208": ask(208, {"consumerGroup": "g0"}),
    "300": ask(300, {"topic": "t0"}),
    "303": ask(303, {"topic": "wide", "group": "g0"}),
    "305": ask(305),
    "306": ask(306),
    "307": ask(307, {"consumerGroup": "g0", "clientId": "x"}),
    "308": ask(308, {"compareGroup": "g0", "topic": "t0"}),
    "309": ask(309, {"consumerGroup": "g0", "clientId": "x", "msgId": "0" * 32, "brokerName": "b"}),
    "315": ask(315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "t1"}),
    "316": ask(316),
    "317": ask(317, {"isOrder": "false"}),
    "321": ask(321, {"topic": "t1", "queueId": 0, "index": 0, "count": 1 << 20}),
    "323": ask(323, {"topic": "t1", "msgId": "0" * 32}),
    "324": ask(324, {"producerGroup": "p", "topic": "t1", "defaultTopic": "TBW102", "defaultTopicQueueNums": 4,
                     "queueId": 0, "sysFlag": 0, "bornTimestamp": BORN_MS, "flag": 0}, bytes(4 << 20)),
    "325": ask(325, SEND, bytes(4 << 20)),
    "328": ask(328),
    "329": ask(329),
    "343": ask(343, {"group": "g0"}),
    "345": ask(345, {"group": "g0", "topic": "t0"}),
    "351": ask(351, {"topic": "t0"}),
    "352": ask(352, {"group": "g0"}),
    "907": ask(907),
    "71002": ask(71002),
    "71003": ask(71003),
    "71021": ask(71021),
    "71022": ask(71022),
    # These take away what others need.
    "207": lambda number: request(207, {"groupName": group_of(number), "cleanOffset": "true"}),
    "314": ask(314, {"srcGroup": "g3", "destGroup": "g1999"}),
    "222": ask(222, {"topic": "t0", "group": "g4", "timestamp": 0, "isForce": "true"}),
    "223": ask(223, {"topic": "t0", "group": "g4"}),
    "215": lambda number: request(215, {"topic": topic_of(number)}),
}  # fmt: skip
ELSEWHERE: Final = {
    RequestCode.CHANGE_BROKER_ROLE, RequestCode.CLAIM_SLAVE_ID, RequestCode.HAND_OVER, RequestCode.TAKE_OVER,
}  # fmt: skip
"""Codes of operators and slaves, which stop or turn a broker and read nothing that clients fill."""


async def test_no_request_holds_a_broker_whose_tables_are_full(autojump_clock: MockClock) -> None:
    async with full_broker() as (cluster, client):
        with stretches() as measured:
            await trio.lowlevel.checkpoint()
            found = await too_long(client, measured, BROKER)
            # A commit in each queue, and the period at which all offsets are written.
            table = cluster.master.broker.state.consumer_offsets.table
            for _ in range(TRIES):
                for key, queues in table.offsets.items():
                    table.commit(key, 0, queues.get(0, 0) + 1)
                measured.begin()
                await trio.sleep(30)
                if measured.are_short():
                    break
            else:
                found["30 s"] = f"{measured.longest * 1000:.0f} ms in {measured.where}"
        assert not found
        served = {code for code in RequestCode if await is_served(client, code)}
        asked = {RequestCode(int(name.split()[0])) for name in BROKER}
        assert served - ELSEWHERE <= asked, "write what is the largest request of each"


async def is_served(client: RawClient, code: RequestCode) -> bool:
    if code in ELSEWHERE:
        return False
    return (await client.ask(code)).code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED


async def test_no_member_of_many_groups_holds_a_broker(autojump_clock: MockClock) -> None:
    groups = [group_of(number) for number in range(GROUPS_OF_A_MEMBER)]
    producers = [f"p{number}" for number in range(500 - GROUPS_OF_A_MEMBER)]
    members_of = {"consumers": groups, "producers": producers, "topics": [topic_of(0)]}
    async with broker_and_client() as (cluster, client), AsyncExitStack() as stack:
        state = cluster.master.broker.state
        address = cluster.master.broker.address
        members = [
            await stack.enter_async_context(raw_client(cluster.dial, address))
            for _ in range(MEMBERS)
        ]
        state.config.replace(
            attrs.evolve(state.config.broker, notify_consumer_ids_changed_enable=False)
        )
        for number, member in enumerate(members):
            await member.ask(34, {}, heartbeat(f"c{number}", **members_of))
        state.config.replace(
            attrs.evolve(state.config.broker, notify_consumer_ids_changed_enable=True)
        )
        with stretches() as measured:
            await trio.lowlevel.checkpoint()
            stories = {
                "34": lambda number: request(34, {}, heartbeat(f"new{number}", **members_of)),
                "35": ask(35, {"clientID": "new0", "consumerGroup": "g0"}),
                "38": ask(38, {"consumerGroup": "g1"}),
                "203": ask(203, {"consumerGroup": "g1"}),
                "204": ask(204, {"producerGroup": "p1"}),
                "328": ask(328),
            }
            found = await too_long(client, measured, stories)
            for number in range(TRIES):
                measured.begin()
                await members[number].transport.aclose()
                await trio.sleep(1)
                if measured.are_short():
                    break
            else:
                found["the end of a connection"] = f"{measured.longest * 1000:.0f} ms"
        assert not found


NAMES: Final[dict[str, Make]] = {
    "206": ask(206),
    "105": ask(105, {"topic": "a1"}),
    "106": ask(106),
    "224": ask(224, {"cluster": "lab"}),
    "304": ask(304),
    "311": ask(311),
    "312": ask(312),
    "313": ask(313),
    "205": ask(205, {"brokerName": "broker-a"}),
    "327": ask(327, {"brokerName": "broker-a"}),
    "216": lambda number: request(216, {"topic": f"a{number}"}),
    "319": ask(319),
    "318": ask(318, {}, SETTINGS),
    "318 of too many lines": ask(318, {}, b"x=y\n" * 16_000),
    "100": lambda number: request(100, {"namespace": "n", "key": f"k{number}", "value": "v" * 60_000}),
    "101": ask(101, {"namespace": "n", "key": "k0"}),
    "102": lambda number: request(102, {"namespace": "n", "key": f"x{number}"}),
    "219": ask(219, {"namespace": "n"}),
    "322": ask(322, registering("broker-a", "10.0.0.1:1"), b"{" * (100 << 10)),
    "104": ask(104, registering("b", "10.0.0.1:1")),
}  # fmt: skip


def registration(name: str, host: str, counter: int) -> bytes:
    topics = (f"{name}{number}" for number in range(REGISTERED_TOPICS))
    table = {topic: TopicConfig(topic, 8, 8) for topic in topics}
    wrapper = TopicConfigSerializeWrapper(DataVersion(counter, counter), table)
    body = encode_register_body(RegisterBrokerBody(wrapper))
    return request(103, registering(f"broker-{name}", f"{host}:10911", body), body, version=400)


async def test_no_request_holds_a_name_server_whose_tables_are_full(
    autojump_clock: MockClock,
) -> None:
    network = MemoryNetwork()
    server = NameServer([await network.host("10.0.0.9").listen(NAME_SERVER)])
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        async with (
            raw_client(network.host("10.0.0.1").dial, NAME_SERVER) as first,
            raw_client(network.host("10.0.0.2").dial, NAME_SERVER) as second,
        ):
            requests = [
                [registration(name, host, counter) for counter in range(TRIES)]
                for name, host in (("a", "10.0.0.1"), ("b", "10.0.0.2"))
            ]
            gc.collect()
            with stretches() as measured:
                await trio.lowlevel.checkpoint()
                found = await too_long(first, measured, {"103": lambda number: requests[0][number]})
                found |= await too_long(
                    second, measured, {"103 of another": lambda number: requests[1][number]}
                )
                found |= await too_long(first, measured, NAMES)
                measured.begin()
                await second.transport.aclose()
                await trio.sleep(1)
                if not measured.are_short():
                    found["a broker is gone"] = f"{measured.longest * 1000:.0f} ms"
            assert not found
        nursery.cancel_scope.cancel()
