"""Our lag of groups on Apache's brokers and on ours, beside what `mqadmin consumerProgress` prints of them."""

from collections.abc import Sequence

import attrs
import pytest

from rocketrio import open_admin
from rocketrio.admin import GroupLag, LagReport, QueueLag
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.java_client import JavaClient
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP, IDLE = "lag-orders", "lag-billing", "lag-idle"
QUEUES, PER_QUEUE = 2, 3
JOIN_TIMEOUT = 75.0
"""Seconds, as in test_java_on_our_broker.py."""


@attrs.frozen
class Side:
    """A cluster with a topic that a Java member has read."""

    name_server: str
    master: str
    java: JavaClient

    def progress(self, group: str) -> dict[tuple[str, int], tuple[int, int]]:
        """What mqadmin prints of a group: the end and the committed offset by topic and queue."""
        lines = self.java.call("mqadmin", words=["consumerProgress", "-g", group]).splitlines()
        rows = [line.split() for line in lines if "broker-a" in line]
        return {(row[0], int(row[2])): (int(row[3]), int(row[4])) for row in rows}

    def send(self, queue_id: int, count: int) -> None:
        for number in range(count):
            self.java.call(
                "send", topic=TOPIC, broker="broker-a", queue_id=queue_id, body=f"{number}",
                keys="", tags="", properties={},
            )  # fmt: skip


@pytest.fixture(scope="module", params=["apache", "ours"])
def side(request: pytest.FixtureRequest, on_apache: OnApache, on_ours: OnOurs) -> Side:
    cluster: OnApache | OnOurs = on_apache if request.param == "apache" else on_ours
    side = Side(cluster.name_server, cluster.master.address, cluster.java)
    side.java.call("create_topic", address=side.master, topic=TOPIC, queues=QUEUES)
    side.java.until("publish_queues", topic=TOPIC)
    for queue_id in range(QUEUES):
        side.send(queue_id, PER_QUEUE)
    side.java.call("push_start", group=GROUP, topic=TOPIC)
    side.java.call("push_take", group=GROUP, count=QUEUES * PER_QUEUE, timeout=JOIN_TIMEOUT)
    wait_until(lambda: sum(read for _, read in _of(side).values()) == 6, "committed")
    return side


def _of(side: Side) -> dict[tuple[str, int], tuple[int, int]]:
    return {key: ends for key, ends in side.progress(GROUP).items() if key[0] == TOPIC}


def row(report: LagReport, group: str = GROUP, topic: str | None = TOPIC) -> GroupLag:
    [found] = [one for one in report.rows if (one.group, one.topic) == (group, topic)]
    return found


def as_mqadmin(queues: Sequence[QueueLag]) -> dict[tuple[str, int], object]:
    return {
        (one.queue.topic, one.queue.queue_id): (one.max_offset, one.committed_offset)
        for one in queues
    }


async def test_group_that_read_everything_is_ok_and_its_owner_is_known(side: Side) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        report = await admin.lag(GROUP, owners=True)
        members = await admin.consumer_connections(GROUP)
    found = row(report)
    assert (found.verdict, found.lag, found.members) == ("ok", 0, 1)
    assert {one.owner for one in found.queues} == {members.connection_set[0].client_id}
    assert as_mqadmin(found.queues) == _of(side)
    assert {one.lag for one in report.rows} == {0}  # With the retry topic, once it is committed.


async def test_all_groups_and_few_groups_have_the_same_lag(side: Side) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await admin.create_group(IDLE)
        every, one = await admin.lag(seconds=0), await admin.lag(GROUP, seconds=0)
    assert row(every).queues == row(one).queues
    idle = row(every, IDLE, None)
    assert (idle.verdict, idle.lag, idle.members) == ("unknown", None, 0)


async def test_group_whose_member_ended_is_stopped(side: Side) -> None:
    side.java.call("push_stop", group=GROUP)
    side.send(0, 2)
    async with open_admin(name_servers=[side.name_server]) as admin:
        found = row(await admin.lag(GROUP, seconds=10))
        assert (found.verdict, found.lag, found.members) == ("stopped", 2, 0)
        assert "queue 0 of broker-a stands at 3 for 1" in found.judgement.why
        assert found.oldest_seconds is not None
        assert 5 < found.oldest_seconds < 120
        assert as_mqadmin(found.queues) == _of(side)
        once = row(await admin.lag(GROUP, seconds=0))
        assert (once.lag, once.source) == (2, "counters")
        assert once.judgement.in_per_second is not None
        assert once.verdict in ("unknown", "stopped")
