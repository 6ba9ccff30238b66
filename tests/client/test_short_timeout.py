"""How long a client waits for a broker that failed a moment ago."""

from math import inf

import pytest
import trio
from trio.testing import MockClock

from rocketrio import NotReachableError
from rocketrio.client import RECENT_FAILURE_TIMEOUT, short_timeout
from rocketrio.routing import FindBrokerResult

MASTER, SLAVE = FindBrokerResult("10.0.0.10:10911", 0), FindBrokerResult("10.0.0.11:10911", 1)


@pytest.mark.parametrize(
    ("failed", "limit"),
    [
        ((), inf),
        ((SLAVE.addr,), inf),
        ((MASTER.addr,), RECENT_FAILURE_TIMEOUT),
        ((MASTER.addr, SLAVE.addr), inf),  # No broker is better: a slow network is not a dead one.
    ],
)
async def test_short_timeout_broker_that_failed_gets_a_second_if_another_is_healthy(
    failed: tuple[str, ...], limit: float, autojump_clock: MockClock
) -> None:
    started = trio.current_time()
    with trio.move_on_after(60):
        if limit == inf:
            with short_timeout(MASTER, [MASTER, SLAVE], failed.__contains__):
                await trio.sleep_forever()
        else:
            with (
                pytest.raises(NotReachableError, match="within 1 s") as caught,
                short_timeout(MASTER, [MASTER, SLAVE], failed.__contains__),
            ):
                await trio.sleep_forever()
            assert caught.value.broker_addr == MASTER.addr
    assert trio.current_time() - started == min(limit, 60)


async def test_short_timeout_error_of_the_block_is_raised_unchanged(
    autojump_clock: MockClock,
) -> None:
    with pytest.raises(KeyError), short_timeout(MASTER, [MASTER, SLAVE], MASTER.addr.__eq__):
        raise KeyError
