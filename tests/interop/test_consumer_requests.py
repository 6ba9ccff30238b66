"""Java's consumers on our broker: retries and dead letters, order, SQL92, replies; and expressions judged by both."""

import itertools
import random
import re
import time
from typing import Any

import pytest
import trio

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.queues import ConsumerStatusBody, ResetOffsetBody
from rocketrio_protocol.bodies.running_info import ConsumeMessageDirectlyResult
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.admin import ResetOffsetRequestHeader
from rocketrio_protocol.commands.consumer import (
    ConsumeMessageDirectlyRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    GetConsumerStatusRequestHeader,
)
from rocketrio_protocol.filter.sql92 import ExpressionError, Matcher, compile_sql92
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.record.properties import encode_properties
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp
from tests.interop.conftest import OnOurs
from tests.interop.java_client import JOIN_TIMEOUT, JavaClient, bodies

pytestmark = pytest.mark.interop


@pytest.fixture
def java(on_ours: OnOurs) -> JavaClient:
    return on_ours.java


def seen_until(java: JavaClient, member: str, count: int) -> list[dict[str, Any]]:
    """What a member was handed, once there are `count`."""
    deadline = time.monotonic() + JOIN_TIMEOUT
    while True:
        seen: list[dict[str, Any]] = java.call("work_seen", member=member)
        if len(seen) >= count:
            return seen
        assert time.monotonic() < deadline, f"{member} saw {len(seen)} of {count}: {bodies(seen)}"
        time.sleep(0.2)


def test_a_message_that_fails_comes_again_later(java: JavaClient, topic: str) -> None:
    member = f"failing-{topic}"
    java.call("work_start", member=member, group=member, topic=topic, failures=2, delay_level=1)
    sent = java.call("send", topic=topic, body="twice", properties={"kept": "yes"})
    seen = seen_until(java, member, 3)
    java.call("work_stop", member=member)
    assert [each["reconsume_times"] for each in seen] == [0, 1, 2]
    assert {each["topic"] for each in seen} == {topic}, "a listener sees the first topic"
    assert {each["message_id"] for each in seen} == {sent["message_id"]}
    assert {each["properties"]["kept"] for each in seen} == {"yes"}
    waits = [later["time_ms"] - sooner["time_ms"] for sooner, later in itertools.pairwise(seen)]
    assert min(waits) >= 900, (
        "level 1 is a second; the retry topic itself is found at the next rebalance"
    )


def test_a_message_that_fails_too_often_is_a_dead_letter(java: JavaClient, topic: str) -> None:
    member = f"hopeless-{topic}"
    java.call(
        "work_start",
        member=member,
        group=member,
        topic=topic,
        failures=99,
        delay_level=1,
        max_reconsume=1,
    )
    sent = java.call("send", topic=topic, body="poison", keys="k")
    seen = seen_until(java, member, 2)
    (letter,) = java.until("read_all", topic=f"%DLQ%{member}")
    java.call("work_stop", member=member)
    assert [each["reconsume_times"] for each in seen] == [0, 1]
    assert (letter["body"], letter["keys"]) == ("poison", "k")
    assert letter["message_id"] == sent["message_id"]
    assert letter["properties"]["RETRY_TOPIC"] == topic


def test_two_orderly_members_never_share_a_queue(java: JavaClient, topic: str) -> None:
    members = [f"orderly-{number}-{topic}" for number in range(2)]
    for member in members:
        java.call("work_start", member=member, group=f"o-{topic}", topic=topic, orderly=True)
    queues = [{"topic": topic, "broker": "broker-a", "queue_id": number} for number in range(2)]
    for queue in queues:
        java.call("send_many", prefix=f"q{queue['queue_id']}", count=20, **queue)
    deadline = time.monotonic() + JOIN_TIMEOUT
    seen: list[dict[str, Any]] = []
    while len({each["message_id"] for each in seen}) < 40:
        assert time.monotonic() < deadline, f"{len(seen)} of 40"
        time.sleep(0.2)
        seen = [each for member in members for each in java.call("work_seen", member=member)]
    for member in members:
        java.call("work_stop", member=member)
    for member in members:
        for number in range(2):
            offsets = [
                each["queue_offset"]
                for each in seen
                if (each["member"], each["queue_id"]) == (member, number)
            ]
            assert offsets == sorted(offsets)
    assert len(seen) == 40, "none was handed out twice"


def test_a_group_chooses_by_sql92(java: JavaClient, topic: str) -> None:
    member = f"choosing-{topic}"
    for number in range(10):
        java.call("send", topic=topic, body=f"{number}", properties={"size": f"{number}"})
    java.call(
        "work_start",
        member=member,
        group=member,
        topic=topic,
        sql="size BETWEEN 3 AND 5 OR size = 9",
    )
    seen = seen_until(java, member, 4)
    late = java.call("send", topic=topic, body="late", properties={"size": "4"})
    seen = seen_until(java, member, 5)
    java.call("work_stop", member=member)
    assert sorted(bodies(seen)) == ["3", "4", "5", "9", "late"]
    assert seen[-1]["message_id"] == late["message_id"]


def test_a_request_gets_its_reply(java: JavaClient, topic: str) -> None:
    member = f"replying-{topic}"
    java.call("work_start", member=member, group=member, topic=topic, replies=True)
    # A queue may be read 30 s later than the other (JOIN_TIMEOUT says why).
    for number in range(2):
        java.call("send", topic=topic, body="are you there", broker="broker-a", queue_id=number)
    seen_until(java, member, 2)
    assert java.call("request", topic=topic, body="how much") == "re: how much"
    java.call("work_stop", member=member)


def ask(address: str, header: RequestHeader) -> RemotingCommand:
    """One request of a console to a broker."""

    async def call() -> RemotingCommand:
        async with open_channel_pool(dial_tcp) as pool:
            return await pool.call(address, header, timeout=15)

    return trio.run(call)


def test_a_console_reaches_a_running_consumer(
    java: JavaClient, on_ours: OnOurs, topic: str
) -> None:
    member, master = f"asked-{topic}", on_ours.master.address
    client_id = f"127.0.0.1@working-{member}"
    java.call("work_start", member=member, group=member, topic=topic)
    sent = java.call("send", topic=topic, body="first")
    seen_until(java, member, 1)
    info = ask(master, GetConsumerRunningInfoRequestHeader(member, client_id))
    assert info.code == 0
    assert topic.encode() in bytes(info.body)
    done = ask(
        master,
        ConsumeMessageDirectlyRequestHeader(member, client_id, sent["offset_id"], topic=topic),
    )
    result = fastjson.loads(done.body, ConsumeMessageDirectlyResult)
    assert (done.code, result.consume_result) == (0, "CR_SUCCESS")
    assert bodies(seen_until(java, member, 2)) == ["first", "first"]
    status = ask(master, GetConsumerStatusRequestHeader(topic, member))
    table = ConsumerStatusBody.from_json(status.body).consumer_table
    assert table is not None
    assert sum(table[client_id].values()) == 1
    java.call("work_stop", member=member)


def test_a_running_consumer_follows_a_reset(java: JavaClient, on_ours: OnOurs, topic: str) -> None:
    member, master = f"reset-{topic}", on_ours.master.address
    java.call("work_start", member=member, group=member, topic=topic)
    java.call("send_many", prefix="m", count=6, topic=topic)
    assert len(seen_until(java, member, 6)) == 6
    answer = ask(master, ResetOffsetRequestHeader(topic, member, 0, is_force=True))
    assert set(ResetOffsetBody.from_json(answer.body).offset_table.values()) == {0}
    seen = seen_until(java, member, 12)
    java.call("work_stop", member=member)
    assert sorted(bodies(seen)) == sorted([f"m-{number}" for number in range(6)] * 2)
    rows = java.call("consume_stats", topic=topic, group=member)
    assert sum(row["consumer_offset"] for row in rows) == 6


WORDS = (
    *("a", "a", "b", "b", "c", "5", "7", "3000000000", "5.0", ".5", "'x'", "'5'", "''", "NULL"),
    *("TRUE", "FALSE", "AND", "AND", "OR", "OR", "NOT", "IS NULL", "IS NOT NULL", "=", "=", "<>"),
    *("<", "<=", ">", ">=", "(", ")", "-5", "- a", "+", "IN ('x', '5')", "NOT IN ('y')"),
    *("BETWEEN 2 AND 7", "NOT BETWEEN 2 AND 6"),
)
TEXT_TESTS = ("CONTAINS", "STARTSWITH", "ENDSWITH")
WORDS_5_X = ("CONTAINS 'x'", "STARTSWITH '5'", "ENDSWITH 'x'", "NOT CONTAINS '5'")
PROPERTIES: tuple[dict[str, str], ...] = (
    {},
    {"a": "5"},
    {"a": "5", "b": "x", "c": "true"},
    {"a": "5.0", "b": "7"},
    {"a": "x", "b": "5"},
    {"a": "3000000000", "b": "-5", "c": "xx5"},
    {"b": "TRUE", "c": "NaN"},
    {"a": "-0.0", "b": " 5 ", "c": "05"},
)


def random_expression(rng: random.Random, words: tuple[str, ...]) -> str:
    """Mostly what could be meant, now and then any words in a row."""
    if rng.random() < 0.3:
        return " ".join(rng.choice(words) for _ in range(rng.randint(1, 6)))
    return condition(rng, words, depth=rng.randint(0, 2))


def condition(rng: random.Random, words: tuple[str, ...], *, depth: int) -> str:
    if depth:
        left, right = (condition(rng, words, depth=rng.randrange(depth)) for _ in range(2))
        joined = f"{left} {rng.choice(('AND', 'OR', '=', '<>'))} {right}"
        return rng.choice((joined, joined, f"({joined})", f"NOT ({joined})"))
    operands = [word for word in words if word[0] in "abc357-.'"]
    tests = [
        word for word in words if word.startswith(("IS", "IN", "NOT ", "BETWEEN", *TEXT_TESTS))
    ]
    left, right = rng.choice(operands), rng.choice(operands)
    if rng.random() < 0.4:
        return f"{left} {rng.choice(tests)}"
    return f"{left} {rng.choice(('=', '<>', '<', '<=', '>', '>='))} {right}"


def test_expressions_choose_what_they_choose_at_apache(java: JavaClient, on_ours: OnOurs) -> None:
    rng = random.Random(92)
    words = WORDS if on_ours.version == "4.9.7" else WORDS + WORDS_5_X
    expressions = sorted({random_expression(rng, words) for _ in range(6000)})
    encoded = [encode_properties(properties).encode() for properties in PROPERTIES]
    theirs = java.call("judge", expressions=expressions, properties=PROPERTIES)
    judged = cut = 0
    for expression, verdicts in zip(expressions, theirs, strict=True):
        matches, rest = whole_or_prefix(expression)
        if matches is None:
            assert set(verdicts) == {"refused"}, f"{expression}: {verdicts} at Apache"
            continue
        cut += bool(rest)
        judged += not rest
        for properties, raw, verdict in zip(PROPERTIES, encoded, verdicts, strict=True):
            assert matches(raw) == verdict, f"{expression} on {properties}: {verdict} at Apache"
    assert judged > 1000
    assert cut > 100


def whole_or_prefix(expression: str) -> tuple[Matcher | None, str]:
    """What judges the expression, or as Java does that part of it which is a whole one; and the rest."""
    try:
        return compile_sql92(expression), ""
    except ExpressionError as error:
        found = re.search(r"character (\d+)", error.what)
    if found is None:
        return None, ""
    end = int(found[1]) - 1
    try:
        return compile_sql92(expression[:end]), expression[end:]
    except ExpressionError:
        return None, ""
