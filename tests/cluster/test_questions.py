"""How many questions brokers ask their peers when one of them comes back."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
from tests.support.caller import accepted, caller_of
from tests.support.pair import Pair

from rocketrio_broker.embedded import EmbeddedCluster, Member
from rocketrio_broker.ha.survey import ASK_LIMIT
from rocketrio_broker.namesrv.probes import PROBE_LIMIT
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.frame import Body
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.pool import ChannelPool

WATCHED: Final = 2.5
"""Seconds after a start: the slaves follow by then, and the master has gathered offsets a second time."""
COPIES: Final = (
    RequestCode.GET_ALL_TOPIC_CONFIG,
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
)
"""What slaves ask their master for again and again, and a new master asks its slaves for."""


class Questions:
    """What brokers ask each other and the name server, by code."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.of: Counter[RequestCode] = Counter()
        self._copied_from = ""
        call = ChannelPool.call

        async def counted(
            pool: ChannelPool, addr: str, request: RequestHeader, body: Body = b"", **named: Any
        ) -> RemotingCommand:
            code = RequestCode(request.code)
            if code not in COPIES or addr != self._copied_from:
                self.of[code] += 1
            return await call(pool, addr, request, body, **named)

        patch.setattr(ChannelPool, "call", counted)

    def begin(self, master: Member) -> None:
        """Count from now on; what slaves copy from this master does not count."""
        self.of.clear()
        self._copied_from = master.config.listen


@asynccontextmanager
async def settled() -> AsyncIterator[Pair]:
    """A master and two slaves with the same log, two seconds after their start."""
    async with EmbeddedCluster(slaves=2) as cluster, caller_of(cluster) as caller:
        pair = Pair(cluster, caller)
        await pair.settle()
        await trio.sleep(2)
        yield pair


@pytest.mark.slow
async def test_master_that_comes_back_to_two_slaves_asks_at_most_twenty_questions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = Questions(monkeypatch)
    async with settled() as pair:
        await pair.first.kill()
        questions.begin(pair.first)
        await pair.first.start()
        assert pair.master.store.writable
        await trio.sleep(WATCHED)
        asked = dict(questions.of)
    # Each slave says once who it is, and again before the master takes writes; and each asks once whom it follows.
    assert asked[RequestCode.GET_IDENTITY] == 2 * 2 + 2
    # Two surveys, one before offsets are gathered again; and each of the three brokers asks for its slaves.
    assert asked[RequestCode.GET_BROKER_CLUSTER_INFO] == 3 + 3
    assert asked[RequestCode.GET_ALL_TOPIC_CONFIG] == 2
    assert sum(asked.values()) <= 20, asked


async def test_promoted_slave_waits_once_for_a_silent_master() -> None:
    """The name server asks it, too."""
    async with settled() as pair:
        pair.cluster.silence(pair.first)
        began = trio.current_time()
        await pair.promote(pair.second)
        assert trio.current_time() - began == pytest.approx(ASK_LIMIT + PROBE_LIMIT)


async def test_hand_over_asks_each_slave_who_it_is_and_how_it_follows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = Questions(monkeypatch)
    async with settled() as pair:
        questions.begin(pair.first)
        began = trio.current_time()
        accepted(await pair.hand_over())
        assert trio.current_time() - began < 0.1
        asked = dict(questions.of)
    # Two by the master, one by the new master, which knows who handed over; the others to follow the new master.
    assert asked[RequestCode.GET_IDENTITY] <= 2 + 1 + 4
    assert asked[RequestCode.GET_BROKER_HA_STATUS] == 2
    # The new master asks at once for the slave that it does not know: the former one.
    assert asked[RequestCode.GET_BROKER_CLUSTER_INFO] <= 2 + 1
