"""What administration says of brokers that refuse some of its requests: which account lacks which right.

A refusal is no fault of a broker, and what was refused is unknown, never 0 and never well.
"""

from contextlib import AbstractAsyncContextManager
from pathlib import Path

from tests.support.clients import open_admin
from tests.support.secured_broker import INNER, SECRET, Secured, secured

from rocketrio import Credentials
from rocketrio.admin import Admin
from rocketrio.admin.cluster_status import REFUSED
from rocketrio.admin.diagnosis.checks import check_brokers, check_errors
from rocketrio.thresholds import Limits, Status

WATCHER = Credentials("watcher", SECRET)
GROUP_REFUSED = "without a right on Group:billing"


def admin_of(here: Secured, account: Credentials = WATCHER) -> AbstractAsyncContextManager[Admin]:
    return open_admin(
        name_servers=here.cluster.name_servers,
        dial=here.cluster.dial,
        wall_clock=here.cluster.wall_clock,
        credentials=account,
    )


async def prepare(here: Secured, *rights: str) -> None:
    async with admin_of(here, INNER) as admin:
        await admin.create_topic("orders", queues=1)
        await admin.create_group("billing")
    await here.add_user(WATCHER.access_key, {name: ["Get"] for name in rights})


async def test_broker_that_refuses_an_account_is_unknown_and_not_dead(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await prepare(here)
        addr = here.broker.address
        lacking = f"account watcher was refused at {addr}, without a right on Cluster:lab"
        async with admin_of(here) as admin:
            seen = await admin.snapshot()
            health = await admin.health()
            found = await admin.diagnose(seconds=0)
            [topic], silent = await admin.topic_overviews()
        [status] = seen.brokers
        assert status.state == REFUSED
        assert lacking in (status.problem or "")
        assert not health.findings
        assert not health.is_well
        assert lacking in health.silent[addr]
        for check in (
            check_errors(seen),
            check_brokers(seen, (), Limits(1_000, 10_000)),
        ):
            assert check.status is Status.UNKNOWN
            assert lacking in check.text
        assert not found.findings
        assert found.unknown.keys() == {addr, "lag at broker-a"}
        assert all(lacking in why for why in found.unknown.values())
        assert lacking in silent["broker-a"]
        assert topic.queues is None
        assert topic.permission is None


async def test_what_is_refused_of_groups_and_topics_is_named(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await prepare(here, "Cluster:lab")
        async with admin_of(here) as admin:
            found = await admin.diagnose(seconds=0)
            checked = await admin.check_group("billing")
            report = await admin.lag("billing", seconds=0)
            _, of_topics = await admin.topic_overviews()
            [group], of_groups = await admin.group_overviews()
        addr = here.broker.address
        assert "G09" not in {one.code for one in found.findings}
        assert GROUP_REFUSED in found.unknown[f"members of billing at {addr}"]
        assert not checked.findings
        assert GROUP_REFUSED in checked.answers.silent[addr]
        assert "without a right on Topic:orders" in of_topics["broker-a"]
        assert GROUP_REFUSED in of_groups["group billing"]
        assert group.members is None
        assert [row.lag for row in report.rows] in ([], [None])


async def test_lag_of_a_group_alone_says_which_right_is_missing(tmp_path: Path) -> None:
    async with secured(tmp_path) as here:
        await prepare(here, "Cluster:lab")
        async with admin_of(here, INNER) as admin:
            [queue] = [one.queue for one in await admin.offsets("orders", "billing")]
            await admin.reset_offsets("billing", {queue: 0})
        async with admin_of(here) as admin:
            report = await admin.lag("billing", seconds=0)
        assert GROUP_REFUSED in report.silent["broker-a"]
        assert all(row.lag is None and GROUP_REFUSED in row.judgement.why for row in report.rows)
