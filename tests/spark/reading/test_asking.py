"""Many questions at once: what becomes of the client's errors, and how often is asked again."""

import pytest
import trio
from trio.testing import MockClock

from rocketrio.cluster.name_servers import NameServers
from rocketrio.spark.errors import BrokerUnreachableError, SparkSourceError, TopicNotFoundError
from rocketrio.spark.reading.asking import (
    QUESTIONS_AT_ONCE,
    Retries,
    for_each,
    repeated,
    source_errors,
)
from rocketrio_protocol.errors import BrokerError, NotReachableError, RouteNotFoundError
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

QUEUES = [MessageQueue("orders", "broker-a", number) for number in range(QUESTIONS_AT_ONCE + 1)]


async def test_of_two_pieces_of_advice_the_one_nearer_to_the_cause_is_given() -> None:
    async with open_channel_pool(dial_tcp) as pool:
        name_servers = NameServers(pool, ("127.0.0.1:1",))
        with pytest.raises(BrokerUnreachableError) as caught, source_errors():
            await name_servers.topic_route("orders")
    text = str(caught.value)
    assert "no name server answered (127.0.0.1:1)" in text
    assert text.endswith("Start one, or give its address as a name server or in NAMESRV_ADDR")


@pytest.mark.parametrize(
    ("raised", "kind", "said"),
    [
        (
            RouteNotFoundError("no route", topic="orders"),
            TopicNotFoundError,
            "no route (topic orders). Check `subscribe`",
        ),
        (NotReachableError("gone", remedy=""), BrokerUnreachableError, "gone. Check that the brokers run"),
        (BrokerError("refused", code=1), SparkSourceError, "refused"),
    ],
)  # fmt: skip
def test_errors_of_the_client_get_a_code(
    raised: Exception, kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=r"^\[ROCKETMQ_") as caught, source_errors():
        raise raised
    assert said in str(caught.value)


async def test_error_that_may_pass_is_asked_again(autojump_clock: MockClock) -> None:
    asked: list[float] = []

    async def ask() -> int:
        asked.append(trio.current_time())
        if len(asked) < 3:
            raise NotReachableError("not yet")
        return 7

    assert await repeated(ask, Retries(3, 0.5)) == 7
    assert [at - asked[0] for at in asked] == [0, 0.5, 1.0]
    asked.clear()
    with pytest.raises(NotReachableError, match="not yet"):
        await repeated(ask, Retries(1, 0.5))


async def test_the_first_failure_is_raised_alone_and_ends_the_rest(
    autojump_clock: MockClock,
) -> None:
    asked = 0

    async def ask(queue: MessageQueue) -> None:
        nonlocal asked
        asked += 1
        await trio.sleep(1)
        raise NotReachableError(f"{queue} is away")

    with pytest.raises(NotReachableError, match="is away"):
        await for_each(QUEUES, ask)
    assert asked == QUESTIONS_AT_ONCE  # those that were under way
