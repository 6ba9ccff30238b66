"""Our lag of groups on Apache's brokers and on ours, beside what `mqadmin consumerProgress` prints of them."""

from collections.abc import Sequence

import pytest

from rocketrio import open_admin
from rocketrio.admin import GroupLag, LagReport, QueueLag
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.java_client import queue_of, read_by_a_member
from tests.support.waiting import wait_until

pytestmark = pytest.mark.interop

TOPIC, GROUP, IDLE = "lag-orders", "lag-billing", "lag-idle"


def progress(side: OnApache | OnOurs, group: str = GROUP) -> dict[tuple[str, int], tuple[int, int]]:
    """Return the end and the committed offset of each queue of a group, as mqadmin prints them."""
    lines = side.java.mqadmin("consumerProgress", "-g", group).splitlines()
    rows = [line.split() for line in lines if "broker-a" in line]
    return {(row[0], int(row[2])): (int(row[3]), int(row[4])) for row in rows}


def of_topic(side: OnApache | OnOurs) -> dict[tuple[str, int], tuple[int, int]]:
    return {key: ends for key, ends in progress(side).items() if key[0] == TOPIC}


@pytest.fixture(scope="module")
def side(side: OnApache | OnOurs) -> OnApache | OnOurs:
    """A cluster with a topic that a Java member has read."""
    read_by_a_member(side.java, side.master.address, TOPIC, GROUP)
    wait_until(lambda: sum(read for _, read in of_topic(side).values()) == 6, "committed")
    return side


def row(report: LagReport, group: str = GROUP, topic: str | None = TOPIC) -> GroupLag:
    [found] = [one for one in report.rows if (one.group, one.topic) == (group, topic)]
    return found


def as_mqadmin(queues: Sequence[QueueLag]) -> dict[tuple[str, int], object]:
    return {
        (one.queue.topic, one.queue.queue_id): (one.max_offset, one.committed_offset)
        for one in queues
    }


async def test_group_that_read_everything_is_ok_and_its_owner_is_known(
    side: OnApache | OnOurs,
) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        report = await admin.lag(GROUP, owners=True)
        members = await admin.consumer_connections(GROUP)
    found = row(report)
    assert (found.verdict, found.lag, found.members) == ("ok", 0, 1)
    assert {one.owner for one in found.queues} == {members.connection_set[0].client_id}
    assert as_mqadmin(found.queues) == of_topic(side)
    assert {one.lag for one in report.rows} == {0}  # With the retry topic, once it is committed.


async def test_all_groups_and_few_groups_have_the_same_lag(side: OnApache | OnOurs) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await admin.create_group(IDLE)
        every, one = await admin.lag(seconds=0), await admin.lag(GROUP, seconds=0)
    assert row(every).queues == row(one).queues
    idle = row(every, IDLE, None)
    assert (idle.verdict, idle.lag, idle.members) == ("unknown", None, 0)


async def test_group_whose_member_ended_is_stopped(side: OnApache | OnOurs) -> None:
    side.java.call("push_stop", group=GROUP)
    for body in ("late", "later"):
        side.java.call("send", body=body, keys="", tags="", properties={}, **queue_of(TOPIC))
    async with open_admin(name_servers=[side.name_server]) as admin:
        found = row(await admin.lag(GROUP, seconds=10))
        assert (found.verdict, found.lag, found.members) == ("stopped", 2, 0)
        assert "queue 0 of broker-a stands at 3 for 1" in found.judgement.why
        assert found.oldest_seconds is not None
        assert 5 < found.oldest_seconds < 120
        assert as_mqadmin(found.queues) == of_topic(side)
        once = row(await admin.lag(GROUP, seconds=0))
        assert (once.lag, once.source) == (2, "counters")
        assert once.judgement.in_per_second is not None
        assert once.verdict in ("unknown", "stopped")
