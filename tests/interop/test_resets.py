"""Our resets by a plan on both products, with and without a Java member."""

import pytest
import trio

from rocketrio import MessageQueue, open_admin
from rocketrio.admin.admin import Admin
from rocketrio.admin.reset_plan import Target, Way
from tests.interop.conftest import OnApache, OnOurs
from tests.interop.java_client import JOIN_TIMEOUT, read_by_a_member

pytestmark = pytest.mark.interop

TOPIC, GROUP = "reset-orders", "reset-billing"
QUEUES, PER_QUEUE = 2, 3
ALL = QUEUES * PER_QUEUE
END = [PER_QUEUE] * QUEUES
WORK_MS = 500


@pytest.fixture(scope="module")
def side(side: OnApache | OnOurs) -> OnApache | OnOurs:
    """A cluster with a topic that a Java member has read; the tests here follow each other."""
    # With work it is a while at the target, where our plan sees it.
    read_by_a_member(side.java, side.master.address, TOPIC, GROUP, work_ms=WORK_MS)
    return side


async def until_committed(admin: Admin) -> None:
    """Java commits every five seconds."""
    with trio.fail_after(60):
        while [one.committed_offset for one in await admin.offsets(TOPIC, GROUP)] != END:  # noqa: ASYNC110
            await trio.sleep(0.5)


async def test_java_member_is_directed_to_the_first_message(side: OnApache | OnOurs) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await until_committed(admin)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(from_first=0))
        assert (plan.way, plan.members) == (Way.ONLINE, 1)
        assert [one.messages_again for one in plan.queues] == END
        done = await admin.apply_reset(plan)
    assert [one.has_arrived for one in done.queues] == [True] * QUEUES
    again = side.java.call("push_take", group=GROUP, count=ALL, timeout=JOIN_TIMEOUT)
    assert len(again) == ALL


async def test_offset_that_a_java_member_undoes_is_not_reported_as_done(
    side: OnApache | OnOurs,
) -> None:
    async with open_admin(name_servers=[side.name_server]) as admin:
        await until_committed(admin)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(offset=1), offline=True)
        done = await admin.apply_reset(plan)
    # To any broker the member's commit is progress.
    assert [(one.after, one.has_arrived) for one in done.queues] == [(PER_QUEUE, False)] * QUEUES


async def test_group_without_members_gets_any_offset(side: OnApache | OnOurs) -> None:
    side.java.call("push_stop", group=GROUP)
    async with open_admin(name_servers=[side.name_server]) as admin:
        queue = MessageQueue(TOPIC, "broker-a", 1)
        plan = await admin.plan_reset(GROUP, [TOPIC], Target(offset=2), queues=[queue])
        assert (plan.way, plan.members) == (Way.OFFLINE, 0)
        done = await admin.apply_reset(plan)
        assert [(one.queue, one.after) for one in done.queues] == [(queue, 2)]
