"""Our resets by a plan on both products, with and without a Java member."""

import attrs
import pytest
import trio

from rocketrio import MessageQueue, open_admin
from rocketrio.admin.admin import Admin
from rocketrio.admin.reset_plan import Target, Way
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.java_client import JavaClient

pytestmark = pytest.mark.interop

TOPIC, GROUP = "reset-orders", "reset-billing"
QUEUES, PER_QUEUE = 2, 3
ALL = QUEUES * PER_QUEUE
END = [PER_QUEUE] * QUEUES
WORK_MS = 500
JOIN_TIMEOUT = 75.0
"""Seconds, as in test_java_on_our_broker.py."""


@attrs.frozen
class Side:
    name_server: str
    java: JavaClient


@pytest.fixture(scope="module", params=["apache", "ours"])
def side(request: pytest.FixtureRequest, on_apache: OnApache, on_ours: OnOurs) -> Side:
    """A cluster with a topic that a Java member has read; the tests here follow each other."""
    cluster: OnApache | OnOurs = on_apache if request.param == "apache" else on_ours
    java = cluster.java
    java.call("create_topic", address=cluster.master.address, topic=TOPIC, queues=QUEUES)
    java.until("publish_queues", topic=TOPIC)
    for queue_id in range(QUEUES):
        for number in range(PER_QUEUE):
            java.call(
                "send", topic=TOPIC, broker="broker-a", queue_id=queue_id, body=f"{number}", keys="", tags="",
                properties={},
            )  # fmt: skip
    # With work it is a while at the target, where our plan sees it.
    java.call("push_start", group=GROUP, topic=TOPIC, work_ms=WORK_MS)
    assert len(java.call("push_take", group=GROUP, count=ALL, timeout=JOIN_TIMEOUT)) == ALL
    return Side(cluster.name_server, java)


async def until_committed(admin: Admin) -> None:
    """Java commits every five seconds."""
    with trio.fail_after(60):
        while [one.committed_offset for one in await admin.offsets(TOPIC, GROUP)] != END:  # noqa: ASYNC110
            await trio.sleep(0.5)


async def test_java_member_is_directed_to_the_first_message(side: Side) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await until_committed(admin)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(from_first=0))
        assert (plan.way, plan.members) == (Way.ONLINE, 1)
        assert [one.messages_again for one in plan.queues] == END
        done = await admin.apply_reset(plan)
    assert [one.has_arrived for one in done.queues] == [True] * QUEUES
    again = side.java.call("push_take", group=GROUP, count=ALL, timeout=JOIN_TIMEOUT)
    assert len(again) == ALL


async def test_offset_that_a_java_member_undoes_is_not_reported_as_done(side: Side) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await until_committed(admin)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(offset=1), offline=True)
        done = await admin.apply_reset(plan)
    # To any broker the member's commit is progress.
    assert [(one.after, one.has_arrived) for one in done.queues] == [(PER_QUEUE, False)] * QUEUES


async def test_group_without_members_gets_any_offset(side: Side) -> None:
    side.java.call("push_stop", group=GROUP)
    async with open_admin(name_servers=[side.name_server]) as admin:
        queue = MessageQueue(TOPIC, "broker-a", 1)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(offset=2), queues=[queue])
        assert (plan.way, plan.members) == (Way.OFFLINE, 0)
        done = await admin.apply_reset(plan)
        assert [(one.queue, one.after) for one in done.queues] == [(queue, 2)]
