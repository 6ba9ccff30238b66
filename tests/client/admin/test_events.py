"""The events of all brokers of a cluster, as an operator follows them."""

import logging
from datetime import UTC, datetime, timedelta

import pytest
import trio

from rocketrio import ClientInstance, open_admin
from rocketrio.admin import BrokerEvent
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import ConfigError

log = logging.getLogger("rocketrio_broker.test")


@pytest.fixture(autouse=True)
def info_lines(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


def shown(events: list[BrokerEvent]) -> list[tuple[str, str, dict[str, object]]]:
    """The events, once for each: both brokers of the cluster in memory have those of their process."""
    found = {str(one.values): (one.level, one.event, one.values) for one in events}
    return list(found.values())


async def test_feed_returns_each_event_once_and_then_only_new_ones(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        feed = admin.events(kinds=["clock"])
        assert await feed.poll() == []
        log.error("clock jumped by=%s in_all=%s", "1 h", None)
        assert shown(await feed.poll()) == [
            ("ERROR", "clock jumped", {"by": "1 h", "in_all": None})
        ]
        log.warning("store time caught up seconds=%.0f", 3.0)
        assert shown(await feed.poll()) == [("WARNING", "store time caught up", {"seconds": 3.0})]
        assert await feed.poll() == []


async def test_event_of_a_clock_that_shows_no_time_is_the_last_and_has_none(
    client: ClientInstance,
) -> None:
    async with open_admin(client=client) as admin:
        feed = admin.events(kinds=["clock"])
        wrong = log.makeRecord(
            log.name, logging.ERROR, "x", 1, "clock jumped by=%s in_all=%s", ("1 h", None), None
        )
        wrong.created = 1e15
        log.handle(wrong)
        log.error("clock jumped by=%s in_all=%s", "2 h", None)
        found = {str(one.values["by"]): one.time for one in await feed.poll()}
        assert list(found) == ["2 h", "1 h"]
        assert found["2 h"] is not None
        assert found["1 h"] is None


async def test_restarted_broker_numbers_its_events_from_the_beginning(
    cluster: EmbeddedCluster, client: ClientInstance
) -> None:
    async with open_admin(client=client) as admin:
        feed = admin.events(kinds=["process"])
        before = await feed.poll()
        assert "serving" in {one.event for one in before}
        await cluster.kill_master()
        await trio.sleep(5)
        await cluster.restart_master()
        after = await feed.poll()
        assert "serving" in {one.event for one in after}
        assert not set(map(str, before)) & set(map(str, after))


@pytest.mark.usefixtures("slave")
async def test_broker_that_does_not_answer_is_named(
    cluster: EmbeddedCluster, client: ClientInstance
) -> None:
    async with open_admin(client=client) as admin:
        feed = admin.events()
        await feed.poll()
        assert feed.silent == {}
        addr = cluster.slaves[0].broker.address
        cluster.silence(cluster.slaves[0])
        log.error("clock jumped by=%s", "1 h")
        assert "clock jumped" in {one.event for one in await feed.poll()}
        assert list(feed.silent) == [addr]


async def test_events_before_since_are_left_out(client: ClientInstance) -> None:
    async with open_admin(client=client) as admin:
        later = admin.events(since=datetime.now(UTC) + timedelta(hours=1))
        assert await later.poll() == []
        with pytest.raises(ConfigError, match="time zone"):
            admin.events(since=datetime(2026, 1, 1))
