"""Pulls with an SQL92 subscription: by the pull itself and by heartbeat, waiting, and refused."""

from typing import Any

import attrs
import pytest
import trio
from tests.broker.builders import RecordingChannel as Channel
from tests.broker.processors.asking import Asking, asking
from tests.support.caller import SUBSCRIPTION, SUSPEND, Caller, bodies
from trio.testing import MockClock

from rocketrio_broker.clients.sql_expressions import COMPILE_BURST, COMPILE_RATE, SqlExpressions
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.bodies.heartbeat import ConsumerData, HeartbeatData, SubscriptionData
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.filter.sql92 import Matcher

BIG_EVEN = "size > 2 AND kind = 'even'"


async def fill(one: Asking, count: int = 6, **properties: str) -> None:
    caller = Caller(one.pool)
    for number in range(count):
        kind = "even" if number % 2 == 0 else "odd"
        await caller.send(
            one.broker.address,
            b"%d" % number,
            topic="T",
            properties=f"size\x01{number}\x02kind\x01{kind}\x02TAGS\x01t",
        )


async def pull(one: Asking, offset: int = 0, **fields: Any) -> RemotingCommand:
    arguments = {"expression_type": "SQL92", "expression": BIG_EVEN, **fields}
    return await Caller(one.pool).pull(one.broker.address, offset, topic="T", **arguments)


async def beat(one: Asking, expression: str) -> None:
    subscription = SubscriptionData("T", expression, sub_version=1, expression_type="SQL92")
    await one.beat(
        HeartbeatData("c1", [ConsumerData("billing", subscription_data_set=[subscription])])
    )


async def test_a_pull_gets_what_its_expression_chooses(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await fill(one)
        answer = await pull(one)
        assert bodies(answer) == [b"4"]
        assert answer.ext_fields["nextBeginOffset"] == "6"
        assert bodies(await pull(one, expression="TAGS = 't' AND size >= 4")) == [b"4", b"5"]


async def test_a_group_gets_what_its_heartbeat_chooses(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await fill(one)
        await beat(one, BIG_EVEN)
        assert bodies(await pull(one, sys_flag=0, expression=None)) == [b"4"]


async def test_pull_skips_messages_that_the_expression_rejects(autojump_clock: MockClock) -> None:
    async with asking() as one:
        await fill(one)
        answer = await pull(one, expression="size > 100")
        assert answer.code == ResponseCode.PULL_RETRY_IMMEDIATELY
        assert answer.ext_fields["nextBeginOffset"] == "6"


async def test_a_held_pull_is_woken_by_what_it_chooses_alone(autojump_clock: MockClock) -> None:
    async with asking() as one, trio.open_nursery() as nursery:
        await fill(one)
        answers: list[tuple[float, RemotingCommand]] = []
        begin = trio.current_time()

        async def wait() -> None:
            answer = await pull(
                one, 6, sys_flag=SUBSCRIPTION | SUSPEND, suspend=20.0, expression="size > 4"
            )
            answers.append((trio.current_time() - begin, answer))

        nursery.start_soon(wait)
        await trio.sleep(1.0)
        await fill(one, 3)
        await trio.sleep(1.0)
        assert not answers
        await fill(one)
        await trio.testing.wait_all_tasks_blocked()
        ((seconds, answer),) = answers
        assert (seconds, bodies(answer)) == (2.0, [b"5"])


@pytest.mark.parametrize(
    ("fields", "settings", "code"),
    [
        ({}, {"enable_property_filter": False}, ResponseCode.SYSTEM_ERROR),
        ({"expression_type": "XPATH"}, {}, ResponseCode.SYSTEM_ERROR),
        ({"expression": "size >"}, {}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
        ({"expression": None}, {}, ResponseCode.SUBSCRIPTION_PARSE_FAILED),
    ],
)
async def test_a_pull_is_refused(
    autojump_clock: MockClock, fields: dict[str, Any], settings: dict[str, Any], code: ResponseCode
) -> None:
    async with asking(**settings) as one:
        await fill(one, 1)
        assert (await pull(one, **fields)).code == code


async def test_a_wrong_expression_of_a_heartbeat_is_refused_at_the_pull(
    autojump_clock: MockClock,
) -> None:
    async with asking() as one:
        await fill(one, 1)
        await beat(one, "size >")
        answer = await pull(one, sys_flag=0, expression=None)
        assert answer.code == ResponseCode.FILTER_DATA_NOT_EXIST
        assert "its end" in (answer.remark or "")


async def test_refused_expression_has_a_reason() -> None:
    expressions, channel = SqlExpressions(), Channel()
    off = attrs.evolve(BrokerConfig(), enable_property_filter=False)
    with pytest.raises(RefusedError, match="does not support consumer to filter message by SQL92"):
        expressions.filter(channel, "SQL92", "a = 5", off)
    assert expressions.filter(channel, "SQL92", "a = 5", BrokerConfig())(b"a\x015")


async def test_host_with_many_new_expressions_is_refused_for_a_while_and_no_other(
    autojump_clock: MockClock,
) -> None:
    expressions, broker = SqlExpressions(), BrokerConfig()
    here, beside, elsewhere = (
        Channel(f"10.0.0.{host}:{port}") for host, port in ((1, 1), (1, 2), (2, 1))
    )

    def compiled(channel: Channel, number: int) -> Matcher:
        return expressions.filter(channel, "SQL92", f"{number} = size".rjust(4096), broker)

    for number in range(COMPILE_BURST // 4096):
        compiled(here, number)
    for channel in (here, beside):
        with pytest.raises(RefusedError) as caught:
            compiled(channel, 100)
        assert caught.value.code == ResponseCode.SYSTEM_BUSY
    assert compiled(here, 1)(b"size\x011"), "what is compiled already costs nothing"
    compiled(elsewhere, 101)
    await trio.sleep(4096 / COMPILE_RATE)
    compiled(beside, 102)
    with pytest.raises(RefusedError):
        compiled(here, 103)


@pytest.mark.slow
async def test_hosts_that_compile_nothing_are_forgotten(autojump_clock: MockClock) -> None:
    expressions = SqlExpressions()
    for number in range(1100):
        await trio.sleep(1)
        channel = Channel(f"10.0.{number >> 8}.{number & 255}:1")
        expressions.filter(channel, "SQL92", f"size = {number}", BrokerConfig())
    assert len(expressions._paid_until) <= 1000


async def test_too_long_expression_is_refused_without_using_the_limit() -> None:
    expressions = SqlExpressions()
    for _ in range(20):
        with pytest.raises(RefusedError, match="is the limit"):
            expressions.filter(Channel(), "SQL92", "a" * 10_000, BrokerConfig())
    assert expressions.filter(Channel(), "SQL92", "size = -1", BrokerConfig())
