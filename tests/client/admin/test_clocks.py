"""Clocks of masters that report none, compared by a message to each."""

import attrs
import pytest
from tests.client.admin.test_doctor import CLOCKED, WELL
from tests.support.clients import open_admin
from tests.support.clocks import SteppedClock
from trio.testing import MockClock

from rocketrio.admin.diagnosis import diagnosis_of
from rocketrio.admin.diagnosis.probes import compare_clocks
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import Error, RouteNotFoundError


async def test_clock_is_compared_by_the_time_of_a_stored_message(autojump_clock: MockClock) -> None:
    async with (
        EmbeddedCluster() as cluster,
        open_admin(
            name_servers=cluster.name_servers, dial=cluster.dial, wall_clock=(own := SteppedClock())
        ) as admin,
    ):
        await admin.create_topic("probe")
        first = await compare_clocks(admin, "probe")
        own.step_ms = -5_000
        second = await compare_clocks(admin, "probe")
        assert not isinstance(first["broker-a"], Error)
        assert second == {"broker-a": pytest.approx(first["broker-a"] + 5.0, abs=0.1)}
        with pytest.raises(RouteNotFoundError):
            await compare_clocks(admin, "no-such")


def test_only_clocks_that_are_not_known_are_taken_over() -> None:
    unknown = attrs.evolve(CLOCKED[0], clock_ahead=None)
    seen = attrs.evolve(WELL, brokers=(unknown, CLOCKED[1]))
    [one] = diagnosis_of(seen.with_clocks({"broker-a": -0.7})).findings
    assert (one.code, one.where) == ("S04", "broker-a 0 (h:1)")
    assert "0.7 s behind" in one.what
    assert diagnosis_of(WELL.with_clocks({"broker-a": 9.0})).findings == []
    silent = seen.with_clocks({"broker-a": Error("no answer")})
    assert silent.unknown == {"clock of broker-a": "no answer"}
