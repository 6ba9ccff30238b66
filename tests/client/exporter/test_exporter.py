"""The exporter of a cluster in memory, and its command."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
import pytest
import trio
from click.testing import CliRunner
from tests.golden.reported_keys import RUNTIME as REPORTED
from tests.support.caller import Caller, caller_of
from tests.support.clients import client_of
from tests.support.http import get
from tests.support.scraping import Scrape, parsed
from trio.testing import MockClock

from rocketrio import Message, MessageQueue, open_admin, open_consumer, open_producer
from rocketrio.admin.admin_calls import AdminCalls
from rocketrio.admin.lag_values import GroupLag, QueueLag
from rocketrio.cli import main
from rocketrio.client import ClientInstance
from rocketrio.exporter.details import (
    GROUP_SIZE,
    PERIOD,
    RATE_LIMIT,
    SENT_BACK,
    TOPIC_SIZE,
    Answers,
)
from rocketrio.exporter.names import page_of
from rocketrio.exporter.offsets import Total
from rocketrio.exporter.rounds import BrokerFound, Round, Rounds
from rocketrio.exporter.service import Exporter
from rocketrio.limits import EXPORTER_NAMES
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster
from rocketrio_broker.offsets.version import Commit
from rocketrio_protocol.bodies.running_info import ConsumeStatus
from rocketrio_protocol.bodies.stats import BrokerStatsItem, Connection, TopicStatsTable
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.lag import Judgement, Owner, Verdict

ADDR = f"{CLIENT_HOST}:5557"
NAMES_OF_JAVA = Path(__file__).with_name("exporter_names.txt")
"""Names and labels, as RMQMetricsCollector.java of rocketmq-exporter has them, but for those that are never filled."""
RUNTIME = {
    **dict.fromkeys(REPORTED, "1"),
    **dict.fromkeys(
        ("putTps", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps"), "1.0 2.0 3.0 "
    ),
    "putMessageDistributeTime": "[<=0ms]:1 [0~10ms]:1 [10~50ms]:1 [50~100ms]:1 [100~200ms]:1 "
    "[200~500ms]:1 [500ms~1s]:1 [1~2s]:1 [2~3s]:1 [3~4s]:1 [4~5s]:1 [5~10s]:1 [10s~]:1 ",
    "commitLogDirCapacity": "Total : 251.0 GiB, Free : 78.5 GiB.",
    "remainHowManyDataToFlush": "42 B",
}  # fmt: skip


@attrs.frozen
class Exported:
    cluster: EmbeddedCluster
    call: Caller
    client: ClientInstance

    async def scrape(self) -> Scrape:
        return parsed((await get(self.cluster.dial, ADDR)).text)

    @property
    def addr(self) -> str:
        return self.cluster.master.broker.address


@asynccontextmanager
async def exporting(
    *,
    names: tuple[str, ...] = EXPORTER_NAMES,
    include_groups: str = "",
    sizes: bool = False,
    members: bool = False,
    slaves: int = 0,
) -> AsyncGenerator[Exported]:
    async with (
        EmbeddedCluster(slaves=slaves, cluster_name="lab") as cluster,
        caller_of(cluster) as call,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
        trio.open_nursery() as nursery,
    ):
        listener = cluster.memory_network.listen(ADDR)
        rounds = Rounds(admin, include_groups=include_groups, sizes=sizes, members=members)
        exporter = Exporter(rounds, names=names, period=15)
        await trio.sleep(10)
        await nursery.start(exporter.run, listener)
        yield Exported(cluster, call, client)
        nursery.cancel_scope.cancel()


@pytest.mark.slow
async def test_page_has_the_lag_of_groups_and_the_state_of_brokers(
    autojump_clock: MockClock,
) -> None:
    async with exporting(slaves=1) as one:
        for number in range(5):
            await one.call.send(one.addr, b"%d" % number)
        await one.call.commit(one.addr, 2)
        await trio.sleep(61)
        found = await one.scrape()
        lag = found.all("rocketmq_consumer_lag_messages", consumer_group="billing", topic="orders")
        assert [each.value for each in lag] == [3]
        assert lag[0].labels == {
            "cluster": "lab", "node_type": "broker", "node_id": "broker-a",
            "consumer_group": "billing", "topic": "orders", "is_retry": "false", "is_system": "false",
        }  # fmt: skip
        group = {"group": "billing", "topic": "orders"}
        assert found.value("rocketmq_group_diff", **group) == 3
        assert found.value("rocketmq_consumer_offset", **group) == 2
        assert found.value("rocketmq_producer_offset", topic="orders") == 5
        verdict = found.all("rocketrio_group_verdict", consumer_group="billing", topic="orders")
        assert [each.labels["verdict"] for each in verdict] == ["stopped"]
        ups = found.all("rocketrio_exporter_up", node_id="broker-a")
        assert {each.labels["broker_id"]: each.value for each in ups} == {"0": 1, "1": 1}
        ends = found.all("rocketmq_brokeruntime_commitlog_maxoffset")
        assert [each.value for each in ends] == [
            one.cluster.master.broker.store.max_physical_offset
        ] * 2
        assert found.value("rocketmq_broker_commitlog_diff") == 0
        assert (found.value("rocketrio_exporter_age_seconds") or 0) < 15


async def test_silent_broker_loses_its_series_and_no_number_stays(
    autojump_clock: MockClock,
) -> None:
    async with exporting() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await trio.sleep(31)
        assert (await one.scrape()).value("rocketmq_group_diff", topic="orders") == 1
        await one.cluster.master.kill()
        await trio.sleep(60)
        found = await one.scrape()
        assert not found.all("rocketmq_group_diff", topic="orders")
        assert not found.all("rocketmq_consumer_lag_messages", topic="orders")
        master = found.all("rocketrio_exporter_up", broker_id="0")
        assert not [each for each in master if each.value]
        await one.cluster.kill_name_server()
        await trio.sleep(60)
        found = await one.scrape()
        assert not found.all("rocketrio_exporter_up")
        assert (found.value("rocketrio_exporter_failed_rounds_total") or 0) >= 1
        assert (await get(one.cluster.dial, ADDR, "/readyz")).status == 503


@pytest.mark.slow
async def test_rounds_that_fail_are_logged_ever_more_rarely(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with exporting() as one:
        await trio.sleep(20)
        await one.cluster.kill_name_server()
        await trio.sleep(20 * 15)
        lines = [r.getMessage() for r in caplog.records if r.name == "rocketrio.exporter"]
        assert [line.split(" error=")[0] for line in lines] == [
            f"rounds fail in_a_row={number}" for number in (1, 2, 4, 8, 16)
        ]


async def test_group_that_never_committed_has_no_lag(autojump_clock: MockClock) -> None:
    async with exporting() as one:
        await one.call.send(one.addr, b"1", queue_id=0)
        await one.call.send(one.addr, b"1", queue_id=1)
        await one.call.commit(one.addr, 0, queue_id=0)
        await trio.sleep(31)
        found = await one.scrape()
        where = {"consumer_group": "billing", "topic": "orders"}
        assert found.value("rocketrio_group_lag_known", **where) == 0
        assert not found.all("rocketmq_consumer_lag_messages", **where)
        assert not found.all("rocketmq_group_diff", group="billing", topic="orders")


async def test_group_beyond_the_end_has_no_lag_and_a_verdict(autojump_clock: MockClock) -> None:
    async with exporting() as one:
        await one.call.send(one.addr, b"1", queue_id=0)
        await one.call.commit(one.addr, 1000, queue_id=0)
        await trio.sleep(31)
        found = await one.scrape()
        where = {"consumer_group": "billing", "topic": "orders"}
        assert found.value("rocketrio_group_verdict", **where, verdict="ahead") == 1
        assert found.value("rocketrio_group_lag_known", **where) == 0
        assert not found.all("rocketmq_consumer_lag_messages", **where)
        assert not found.all("rocketmq_group_diff", group="billing", topic="orders")
        assert not found.all("rocketmq_group_get_latency_by_storetime", group="billing")


async def test_only_chosen_names_and_groups_are_shown(autojump_clock: MockClock) -> None:
    async with exporting(names=("native",), include_groups="^ship") as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await one.call.pull(one.addr, 0, group="shipping")
        one.cluster.master.broker.state.consumer_offsets.commit_offset("shipping", "orders", 0, 0)
        await trio.sleep(31)
        found = await one.scrape()
        groups = {s.labels["consumer_group"] for s in found.all("rocketmq_consumer_lag_messages")}
        assert groups == {"shipping"}
        assert not [name for name in found.names if name.startswith("rocketmq_broker")]


async def test_rates_are_what_offsets_grew_by_and_a_reset_has_none(
    autojump_clock: MockClock,
) -> None:
    async with exporting() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await trio.sleep(16)
        for _ in range(30):
            await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 15)
        await trio.sleep(15)
        found = await one.scrape()
        assert found.value("rocketmq_producer_tps", topic="orders") == pytest.approx(30 / 15)
        where = {"topic": "orders", "group": "billing"}
        assert found.value("rocketmq_consumer_tps", **where) == pytest.approx(15 / 15)
        state = one.cluster.master.broker.state
        state.consumer_offsets.commit_version("billing", "orders", 0, Commit(3, is_reset=True))
        await trio.sleep(15)
        found = await one.scrape()
        assert found.value("rocketmq_consumer_tps", **where) is None
        assert found.value("rocketmq_producer_tps", topic="orders") == 0


@pytest.mark.slow
async def test_topics_without_groups_members_and_producers_are_shown_within_minutes(
    autojump_clock: MockClock,
) -> None:
    async with exporting(sizes=True, members=True) as one:
        state = one.cluster.master.broker.state
        await one.call.send(one.addr, b"1", topic="unread")
        await one.call.send(one.addr, b"1", topic="%DLQ%billing")
        await one.call.send(one.addr, b"1")

        async def handle(message: object) -> None:
            """Succeed."""

        async with (
            open_producer(client=one.client, group="shop") as producer,
            open_consumer(
                "orders", group="billing", start_from="earliest", client=one.client
            ) as consumer,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(consumer.run, handle)
            for _ in range(20):
                await producer.send(Message("orders", b"x" * 600))
                await trio.sleep(10)
            found = await one.scrape()
            nursery.cancel_scope.cancel()
        here = {"cluster": "lab", "broker": "broker-a"}
        assert found.value("rocketmq_producer_offset", topic="unread", **here) == 1
        assert found.value("rocketmq_topic_dlq_offset", group="billing", **here) == 1
        assert not found.all("rocketmq_producer_offset", topic="%DLQ%billing")
        assert found.value("rocketmq_producer_count", group="shop", **here) == 1
        (count,) = found.all("rocketmq_group_count", group="billing")
        assert (count.value, count.labels["localaddr"]) == (1, one.client.client_id)
        assert count.labels["caddr"].startswith(f"{CLIENT_HOST}:")
        (diff,) = found.all("rocketmq_group_diff", group="billing", topic="orders")
        assert diff.value <= 1
        assert (diff.labels["countOfOnlineConsumers"], diff.labels["msgModel"]) == ("1", "1")
        assert found.value("rocketrio_group_members", consumer_group="billing") == 1
        of = {"topic": "orders", "group": "billing"}
        assert found.value("rocketmq_producer_message_size", topic="orders", **here) > 0  # type: ignore[operator]
        assert found.value("rocketmq_consumer_message_size", **here, **of) > 0  # type: ignore[operator]
        assert found.value("rocketmq_send_back_nums", **here, **of) == 0
        (pulls,) = found.all("rocketmq_client_consumer_pull_tps", **of)
        assert pulls.labels["clientId"] == one.client.client_id
        (kind,) = found.all("rocketmq_consumer_connections", consumer_group="billing")
        assert (kind.labels["language"], kind.labels["consume_mode"]) == ("python", "push")
        assert found.value("rocketmq_producer_connections", language="python") == 1
        assert found.value("rocketmq_topic_number") == len(state.topics.topic_config_table)
        assert found.value("rocketmq_storage_dispatch_behind_bytes") == 0


@pytest.mark.slow
async def test_group_without_members_counts_none_and_unknown_members_are_no_zero(
    autojump_clock: MockClock,
) -> None:
    async with exporting() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await trio.sleep(PERIOD + 31)
        (diff,) = (await one.scrape()).all("rocketmq_group_diff", group="billing")
        assert diff.labels["countOfOnlineConsumers"] == "0"
        await one.cluster.master.kill()
        await trio.sleep(31)
        found = await one.scrape()
        for name in ("rocketmq_group_count", "rocketrio_group_members", "rocketmq_topic_number"):
            assert not found.all(name)


@pytest.mark.slow
async def test_broker_is_asked_few_questions_at_a_time(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    stats = AdminCalls.topic_stats

    async def topic_stats(self: AdminCalls, addr: str, topic: str) -> TopicStatsTable:
        asked.append(trio.current_time())
        return await stats(self, addr, topic)

    monkeypatch.setattr(AdminCalls, "topic_stats", topic_stats)
    async with exporting() as one:
        topics = one.cluster.master.broker.state.topics
        for number in range(300):
            topics.update(TopicConfig(f"idle-{number}", 1, 1))
        await trio.sleep(3 * PERIOD)
        found = await one.scrape()
        idle = [s for s in found.all("rocketmq_producer_offset") if "idle" in s.labels["topic"]]
        assert len(idle) == 300
    first = [at for at in asked if at < asked[0] + PERIOD]
    last = asked[-300:]
    assert first[-1] - first[0] >= len(first) / RATE_LIMIT - 1
    assert last[-1] - last[0] > 0.8 * PERIOD


def test_names_are_those_of_rocketmq_exporter() -> None:
    answers = Answers(
        producers={"shop": []},
        ends={"%DLQ%g": (1, 0.0)},
        members={"g": None},
        counts={
            (TOPIC_SIZE, ("t",)): BrokerStatsItem(),
            **{(name, ("t", "g")): BrokerStatsItem() for name in (GROUP_SIZE, SENT_BACK)},
        },
        running={("g", "c"): (Connection("c", "a", "JAVA", 1), {"t": ConsumeStatus()})},
    )
    fine = Judgement(Verdict.OK, "", 0)
    rows = [GroupLag("g", topic, fine, None, 0.0, [], "window") for topic in ("t", "%RETRY%g")]
    for row in rows:
        queue = MessageQueue(row.topic or "", "b", 0)
        row.queues.append(QueueLag(queue, 1, 1, Owner.NO_MEMBER, 0.0, fine))  # type: ignore[attr-defined]
    total = Total(1, 0.0, 1.0)
    found = Round(
        brokers=[BrokerFound("c", "b", number, f"h:{number}", RUNTIME, None) for number in (0, 1)],
        rows=rows,
        ends={("b", topic): total for topic in ("t", "%RETRY%g", "%DLQ%g")},
        committed={("b", "t", "g"): total},
        details={"b": answers},
        member_counts={"g": 0},
        seconds=1.0,
        now_ms=1,
    )
    ours = {
        f"{sample.name} {' '.join(sample.labels)}"
        for sample in parsed("".join(page_of(found, ["exporter"]))).samples
    }
    assert ours == set(NAMES_OF_JAVA.read_text().splitlines())


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--names", "mine"], "mine"),
        (["--include-groups", "("], "regular"),
        (["--every", "1"], "5"),
    ],
)
def test_wrong_use_of_the_command_is_refused(arguments: list[str], told: str) -> None:
    done = CliRunner().invoke(main, ["exporter", *arguments])
    assert done.exit_code == 2
    assert told in done.output
