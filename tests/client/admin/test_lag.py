"""Lag of groups: on a cluster in memory, and on brokers that answer what a test wants."""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import trio
from tests.client.admin.lag_calls import FakeCalls, window_of
from tests.support.clients import client_of
from tests.support.clocks import SettableClock
from tests.support.orders import fill

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    MessageQueue,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin import GroupLag, LagReport, Owner
from rocketrio.admin.diagnosis import diagnosis_of
from rocketrio.admin.diagnosis.checks import check_lag
from rocketrio.admin.lag import LagWindow
from rocketrio.admin.reset_plan import target_of
from rocketrio.cluster.connections import Connections
from rocketrio.thresholds import Status
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.bodies.stats import (
    Connection,
    ConsumerConnection,
    ConsumeStats,
    OffsetWrapper,
)
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.commands.offset import UpdateConsumerOffsetRequestHeader
from rocketrio_protocol.errors import (
    GroupNotExistError,
    NotReachableError,
)

QUEUE = MessageQueue("orders", "broker-a", 0)


def row(report: LagReport, group: str, topic: str | None = "orders") -> GroupLag:
    [found] = [one for one in report.rows if (one.group, one.topic) == (group, topic)]
    return found


# ------------------------------------------------------------------------------ a cluster in memory


async def test_group_that_read_everything_is_ok_after_one_sample(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 6})
        report = await admin.lag()
    found = row(report, "billing")
    assert (found.verdict, found.lag, found.members, found.oldest_seconds) == ("ok", 0, 0, 0)
    assert (report.samples, report.window) == (1, 0)


async def test_group_without_members_that_has_unread_messages_is_stopped(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 2})
        await trio.sleep(30)
        report = await admin.lag()
    found = row(report, "billing")
    assert (found.verdict, found.lag, found.members) == ("stopped", 4, 0)
    assert found.judgement.why == "queue 0 of broker-a stands at 2 for 60 s; no member owns it"
    assert found.oldest_seconds == pytest.approx(90, abs=1)
    assert (report.samples, report.window) == (13, 60)
    assert report.worst == "stopped"


async def committed_beyond(client: ClientInstance, cluster: EmbeddedCluster, offset: int) -> None:
    """Commit as a member of another client does: a rocketrio broker refuses such a reset."""
    header = UpdateConsumerOffsetRequestHeader("billing", "orders", 0, offset)
    await client.api.call(cluster.master.broker.address, header, what="not committed")


async def test_group_beyond_the_end_is_ahead_everywhere_until_it_is_reset(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    await committed_beyond(client, cluster, 1000)
    async with open_admin(client=client) as admin:
        report = await admin.lag(seconds=0)
        found = row(report, "billing")
        assert (found.verdict, found.lag, found.oldest_seconds) == ("ahead", None, None)
        assert "queue 0 of broker-a is ahead of the end by 994" in found.judgement.why
        assert check_lag(report).status is Status.CRITICAL
        [queue] = await admin.offsets("orders", "billing")
        assert (queue.lag, queue.ahead) == (None, 994)
        seen = await admin.whole_snapshot(seconds=0)
        assert "G14" in {one.code for one in diagnosis_of(seen).findings}
        stats = await admin.consume_stats("billing", "orders")
        assert [
            (one.broker_offset, one.consumer_offset) for one in stats.offset_table.values()
        ] == [(6, 1000)]
        plan = await admin.plan_reset("billing", ["orders"], target_of("last", 0))
        [done] = (await admin.apply_reset(plan)).queues
        assert (done.from_offset, done.to_offset, done.after) == (1000, 6, 6)
        assert row(await admin.lag(seconds=0), "billing").verdict == "ok"


async def test_group_beyond_what_readers_of_a_new_master_see_is_ok(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    await committed_beyond(client, cluster, 5)
    store = cluster.master.broker.state.store
    entry = store.queue_table.by_key["orders", 0].entry(2)
    assert entry is not None
    store.read_gate.set_reported(entry[0])
    async with open_admin(client=client) as admin:
        [queue] = await admin.offsets("orders", "billing")
        assert (queue.max_offset, queue.stored_offset, queue.lag, queue.ahead) == (2, 6, 0, 0)
        assert row(await admin.lag(seconds=0), "billing").verdict == "ok"
        plan = await admin.plan_reset("billing", ["orders"], target_of("last", 0))
        assert [one.to_offset for one in plan.queues] == [5]


async def test_member_that_makes_no_progress_is_named(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with (
        open_admin(client=client) as admin,
        open_consumer(
            "orders", group="billing", start_from="earliest", client=client, auto_commit=False
        ) as consumer,
    ):
        await consumer.receive()
        await consumer.commit()
        report = await admin.lag("billing")
        found = row(report, "billing")
        assert (found.verdict, found.lag, found.members) == ("stalled", 5, 1)
        assert found.judgement.why.endswith(f"stands at 1 for 60 s; owner {client.client_id}")
        assert found.queues[0].owner == client.client_id


@pytest.mark.slow
async def test_member_that_is_slower_than_producers_is_behind(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with (
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        await admin.reset_offsets("billing", {QUEUE: 0})

        async def trade() -> None:
            for done in range(1, 100):
                await trio.sleep(1)
                for _ in range(4):
                    await producer.send(Message("orders", b"x"), queue=QUEUE)
                await admin.reset_offsets("billing", {QUEUE: done})

        nursery.start_soon(trade)
        found = row(await admin.lag("billing", topic="orders"), "billing")
        nursery.cancel_scope.cancel()
    assert found.verdict == "behind"
    assert found.judgement.in_per_second == pytest.approx(4, abs=0.3)
    assert found.judgement.out_per_second == pytest.approx(1, abs=0.1)
    assert found.catches_up is False


async def send_smoothly(client: ClientInstance, per_second: float, burst: int = 1) -> None:
    """Send until cancelled, as many messages together as `burst` says."""
    async with open_producer(client=client) as producer:
        begun = trio.current_time()
        for number in itertools.count(1):
            for _ in range(burst):
                await producer.send(Message("orders", b"x"))
            await trio.sleep_until(begun + number * burst / per_second)


async def read_slowly(client: ClientInstance, each: float) -> None:
    """Handle messages one at a time until cancelled."""

    async def handle(message: MessageExt) -> None:
        await trio.sleep(each)

    async with open_consumer(
        "orders", group="billing", start_from="earliest", client=client
    ) as consumer:
        await consumer.run(handle, concurrency=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("per_second", "burst", "each", "verdict"),
    [
        pytest.param(40, 1, 0, "ok", id="keeps up with 40/s"),
        pytest.param(12, 240, 0.25, "behind", id="too slow for bursts"),
        pytest.param(15, 1, 0, "ok", id="keeps up with 15/s", marks=pytest.mark.long),
        pytest.param(12, 1, 0.25, "behind", id="too slow", marks=pytest.mark.long),
    ],
)
async def test_verdict_on_a_member_does_not_change_while_its_load_does_not(
    client: ClientInstance,
    cluster: EmbeddedCluster,
    per_second: float,
    burst: int,
    each: float,
    verdict: str,
) -> None:
    """Commits travel with pulls: a member that keeps up has one unread message in each queue at any time."""
    await fill(client, 0, queues=4)
    async with open_admin(client=client) as admin, trio.open_nursery() as nursery:
        nursery.start_soon(send_smoothly, client, per_second, burst)
        nursery.start_soon(read_slowly, client, each)
        await trio.sleep(120 if each else 20)
        window = admin.lag_window("billing", topic="orders")
        for _ in range(3):
            await window.sample()
            await trio.sleep(5)
        found = []
        for _ in range(12):
            await window.sample()
            found.append(row(await window.report(), "billing"))
            await trio.sleep(5)
        nursery.cancel_scope.cancel()
    assert all(one.lag for one in found)
    settled = found if verdict == "ok" else found[-1:]
    assert {one.verdict for one in settled} == {verdict}, [one.judgement.why for one in settled]


async def test_counters_replace_the_window_if_brokers_are_asked_once(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 2})
        await trio.sleep(90)
        began = trio.current_time()
        found = row(await admin.lag(seconds=0), "billing")
        assert trio.current_time() - began < 1
    assert (found.verdict, found.lag, found.source) == ("stopped", 4, "counters")
    assert found.judgement.why == (
        "queue 0 of broker-a stands at 2 in the last minute; no member owns it"
    )


async def test_reset_by_an_operator_is_not_rewound(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 5})
        window = admin.lag_window()
        await window.sample()
        await trio.sleep(5)
        await admin.reset_offsets("billing", {QUEUE: 2})
        await window.sample()
        report = await window.report()
    assert row(report, "billing").verdict == "stopped"


async def test_queue_in_which_nothing_was_committed_is_unknown(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6, queues=2)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 3})
        report = await admin.lag()
    found = row(report, "billing")
    assert (found.verdict, found.lag, found.lag_at_least) == ("unknown", None, 0)
    assert [one.lag for one in found.queues] == [0, None]
    assert "nothing is committed in queue 1 of broker-a" in found.judgement.why


async def test_broadcasting_group_is_unknown(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with (
        open_admin(client=client) as admin,
        open_consumer("orders", group="billing", mode="broadcasting", client=client),
    ):
        await trio.sleep(1)
        found = row(await admin.lag("billing"), "billing", topic=None)
    assert (found.verdict, found.lag, found.members) == ("unknown", None, 1)
    assert "broadcasting" in found.judgement.why


async def test_unknown_group_is_an_error_and_not_an_empty_report(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        with pytest.raises(GroupNotExistError, match="biling"):
            await admin.lag("biling")


@pytest.mark.usefixtures("slave")
async def test_master_that_is_away_makes_its_groups_unknown(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        await admin.reset_offsets("billing", {QUEUE: 6})
        window = admin.lag_window()
        await window.sample()
        await cluster.kill_master()
        await window.sample()
        report = await window.report()
    found = row(report, "billing")
    assert (found.verdict, found.lag) == ("unknown", None)
    assert list(report.silent) == ["broker-a"]
    assert "broker-a did not answer" in found.judgement.why


async def test_namespace_shows_its_own_groups_by_their_short_names(
    cluster: EmbeddedCluster,
) -> None:
    async with client_of(cluster, namespace="lab") as client:
        await fill(client, 6)
        async with open_admin(client=client) as admin:
            await admin.reset_offsets("billing", {QUEUE: 6})
            report = await admin.lag("billing", topic="orders")
            [found] = report.rows
            assert (found.group, found.topic, found.queues[0].queue) == ("billing", "orders", QUEUE)
    async with (
        client_of(cluster) as other,
        open_admin(client=other) as admin,
    ):
        assert (await admin.lag("lab%billing")).rows


async def test_number_of_requests_does_not_grow_with_groups(
    client: ClientInstance, cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, 6)
    async with open_admin(client=client) as admin:
        for number in range(40):
            await admin.create_group(f"group-{number}")
            await admin.reset_offsets(f"group-{number}", {QUEUE: 6})
        asked: Counter[int] = Counter()
        with counting(monkeypatch, asked):
            await admin.lag(worst=0)
    assert asked == {106: 1, 21: 1, 201: 1, 28: 1, 43: 1, 317: 1}


@contextmanager
def counting(monkeypatch: pytest.MonkeyPatch, asked: Counter[int]) -> Iterator[None]:
    """Count requests by code."""
    call = Connections.call

    async def counted(self: Connections, addr: str, request: Any, *rest: Any, **more: Any) -> Any:
        asked[int(request.code)] += 1
        return await call(self, addr, request, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(Connections, "call", counted)
        yield


# ------------------------------------------------------------------- brokers that answer as wanted


async def reported(window: LagWindow, **options: Any) -> LagReport:
    await window.run()
    return await window.report(**options)


async def test_group_of_an_apache_broker_beyond_the_end_is_ahead(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = FakeCalls(committed={"a": {("billing", "orders"): {0: 1000}}}, delay_ms=0)
    found = row(await reported(window_of(calls, "a", "b")), "billing")
    assert (found.verdict, found.lag, found.lag_at_least) == ("ahead", None, 4)
    [first, _] = found.queues
    assert (first.committed_offset, first.max_offset, first.oldest_seconds) == (1000, 9, None)


async def test_silent_broker_makes_unknown_what_it_stores_and_hides_no_other_lag(
    autojump_clock: trio.testing.MockClock,
) -> None:
    report = await reported(window_of(FakeCalls(silent={"b:1"}), "a", "b"))
    found = row(report, "billing")
    assert (found.lag, found.lag_at_least) == (None, 4)
    assert found.verdict == "stopped"
    assert report.silent == {"b": "b:1 is away"}
    quiet = await reported(window_of(FakeCalls(silent={"b:1"}, ends={"a": 5}), "a", "b"))
    assert (quiet.rows[0].verdict, quiet.rows[0].lag) == ("unknown", None)
    assert quiet.rows[0].judgement.why == "b did not answer: b:1 is away"


async def test_broker_that_is_slow_to_fail_costs_no_answer_of_the_others(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Hanging(FakeCalls):
        async def topics(self, addr: str) -> dict[str, TopicConfig]:
            if addr == "b:1":
                await trio.sleep(20)
                raise NotReachableError("no answer within 20 s")
            return await super().topics(addr)

    calls = Hanging()
    report = await reported(window_of(calls, "a", "b", length=0))
    assert row(report, "billing").lag_at_least == 4
    assert row(report, "billing").members is None
    assert {addr for _, addr in calls.asked} == {"a:1"}
    assert list(report.silent) == ["b"]


async def test_broker_on_which_the_group_has_no_offset_counts(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = FakeCalls(committed={"b": {("other", "orders"): {0: 9}}}, ends={"a": 5})
    found = row(await reported(window_of(calls, "a", "b")), "billing")
    assert (found.verdict, found.lag) == ("unknown", None)
    empty = FakeCalls(committed={"b": {("other", "orders"): {0: 0}}}, ends={"a": 5, "b": 0})
    found = row(await reported(window_of(empty, "a", "b")), "billing")
    assert (found.verdict, found.lag) == ("ok", 0)


async def test_zero_that_was_never_committed_is_unknown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Apache(FakeCalls):
        async def consume_stats(self, addr: str, group: str, topic: str | None) -> ConsumeStats:
            return ConsumeStats({MessageQueue("orders", "a", 0): OffsetWrapper(9, 0)})

    calls = Apache(committed={"a": {("billing", "orders"): {}}})
    found = row(await reported(window_of(calls, "a")), "billing")
    assert (found.verdict, found.lag) == ("unknown", None)
    calls = Apache(committed={"a": {("billing", "orders"): {0: 0}}})
    assert row(await reported(window_of(calls, "a")), "billing").lag == 9


async def test_groups_are_asked_for_one_by_one_the_worst_first_if_the_walk_takes_too_long(
    autojump_clock: trio.testing.MockClock,
) -> None:
    offsets = {(f"g{number:02}", "orders"): {0: number} for number in range(9)}
    calls = FakeCalls(committed={"a": offsets})
    window = window_of(calls, "a")
    await window.sample()
    calls.slow_walk = True
    calls.asked.clear()
    await window.sample()
    asked = [what.removeprefix("group ") for what, _ in calls.asked if what.startswith("group")]
    # Eight requests are under way at once, and begin in any order.
    assert set(asked[:8]) == {f"g{number:02}" for number in range(8)}
    assert asked[8] == "g08"
    report = await window.report()
    assert row(report, "g00").lag == 9


async def test_offset_that_went_back_without_a_known_reset_is_rewound(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = FakeCalls()
    window = window_of(calls, "a")
    await window.sample()
    calls.committed = {"a": {("billing", "orders"): {0: 3}}}
    await window.sample()
    found = row(await window.report(), "billing")
    assert (found.verdict, found.judgement.why) == ("rewound", "queue 0 of a went back from 5 to 3")


async def test_walk_is_left_out_if_few_groups_are_named(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = FakeCalls()
    await reported(window_of(calls, "a", groups=["billing"]))
    assert "walk" not in {what for what, _ in calls.asked}


@pytest.mark.parametrize(("delay_hours", "verdict"), [(41, "losing"), (39, "stopped")])
async def test_message_that_is_nearly_as_old_as_the_log_is_losing(
    autojump_clock: trio.testing.MockClock, delay_hours: int, verdict: str
) -> None:
    clock = SettableClock()
    runtime = {
        "commitLogMinOffset": "1024",
        "earliestMessageTimeStamp": str(clock.now - 50 * 3_600_000),
    }
    calls = FakeCalls(runtime=runtime, delay_ms=delay_hours * 3_600_000)
    found = row(await reported(window_of(calls, "a", clock=clock)), "billing")
    assert (found.verdict, found.oldest_seconds) == (verdict, delay_hours * 3600)


async def test_log_that_deleted_nothing_yet_loses_nothing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    clock = SettableClock()
    runtime = {"commitLogMinOffset": "0", "earliestMessageTimeStamp": str(clock.now - 3_600_000)}
    calls = FakeCalls(runtime=runtime, delay_ms=3_600_000)
    found = row(await reported(window_of(calls, "a", clock=clock)), "billing")
    assert found.verdict == "stopped"


async def test_next_message_below_the_first_of_its_queue_is_losing(
    autojump_clock: trio.testing.MockClock,
) -> None:
    found = row(await reported(window_of(FakeCalls(min_offset=7), "a")), "billing")
    assert found.verdict == "losing"
    assert "deleted before it was read" in found.judgement.why


async def test_age_of_a_deleted_message_is_unknown_and_not_fifty_years(
    autojump_clock: trio.testing.MockClock,
) -> None:
    calls = FakeCalls(delay_ms=4 * 10**12)
    assert row(await reported(window_of(calls, "a")), "billing").oldest_seconds is None


@pytest.mark.parametrize("retry", ["%RETRY%billing_orders", "%RETRY%billing+orders"])
async def test_group_with_a_retry_topic_of_pop_is_unknown(
    autojump_clock: trio.testing.MockClock, retry: str
) -> None:
    found = row(await reported(window_of(FakeCalls(extra_topics=(retry,)), "a")), "billing")
    assert (found.verdict, found.lag) == ("unknown", None)
    assert "POP" in found.judgement.why


async def test_group_whose_members_receive_by_pop_is_unknown(
    autojump_clock: trio.testing.MockClock,
) -> None:
    members = ConsumerConnection([Connection("c", "h:1", "JAVA", 1)], consume_type="CONSUME_POP")
    found = row(await reported(window_of(FakeCalls(members=members), "a")), "billing")
    assert (found.verdict, found.members) == ("unknown", 1)


async def test_group_of_which_no_broker_reports_members_counts_as_having_some(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class Mute(FakeCalls):
        async def consumer_connections(self, addr: str, group: str) -> ConsumerConnection:
            raise NotReachableError("away")

    found = row(await reported(window_of(Mute(), "a")), "billing")
    assert (found.verdict, found.members) == ("stalled", None)
    assert found.queues[0].owner is Owner.A_MEMBER


def member(client_id: str) -> ConsumerConnection:
    return ConsumerConnection([Connection(client_id, "10.0.0.9:1", "PYTHON", 407)])


@pytest.mark.parametrize(("delay_ms", "expected"), [(3_000, "ok"), (90_000, "unknown")])
async def test_at_once_a_group_with_unread_messages_is_ok_only_if_it_read_what_is_older(
    delay_ms: int, expected: str
) -> None:
    calls = FakeCalls(members=member("app-7"), delay_ms=delay_ms)
    found = row(await reported(window_of(calls, "a", length=0)), "billing")
    assert (found.verdict, found.source) == (expected, "counters")
    assert (found.judgement.in_per_second, found.judgement.out_per_second) == (1, 2)
    assert (found.judgement.eta, found.catches_up) == (4, True)


async def test_counters_stand_for_a_window_that_has_too_few_samples(
    autojump_clock: trio.testing.MockClock,
) -> None:
    window = window_of(FakeCalls(), "a")
    found = []
    for _ in range(4):
        await window.sample()
        found.append(row(await window.report(), "billing"))
        await trio.sleep(5)
    assert [(one.verdict, one.source) for one in found] == [
        ("unknown", "counters"), ("unknown", "counters"), ("stopped", "window"), ("stopped", "window")
    ]  # fmt: skip


async def test_report_counts_the_rows_that_it_omits(
    autojump_clock: trio.testing.MockClock,
) -> None:
    offsets: Mapping[tuple[str, str], dict[int, int]] = {
        (f"g{number}", "orders"): {0: number} for number in range(9)
    }
    calls = FakeCalls(committed={"a": dict(offsets)})
    report = await reported(window_of(calls, "a"), worst=2)
    assert [(one.group, one.lag) for one in report.rows] == [("g0", 9), ("g1", 8)]
    assert report.rows_in_all == 10  # billing has no offset.
    assert sum(what == "members" for what, _ in calls.asked) == 2
