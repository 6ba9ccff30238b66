"""What the page of metrics says of a broker in memory."""

import time
from pathlib import Path

import msgspec
import pytest
import trio
from tests.support.scraping import COMMON, beside, rest, scraping
from tests.support.tls import write_files
from tests.support.transaction_producer import COMMIT, ROLLBACK, producing_on
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.metrics.broker_stats_manager import BrokerStatsManager
from rocketrio_broker.metrics.certificates import PERIOD
from rocketrio_broker.offsets.version import Commit
from rocketrio_broker.waiting.answers import WaitingAnswers
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig
from rocketrio_protocol.commands.admin import (
    CreateTopicRequestHeader,
    UpdateAndCreateSubscriptionGroupRequestHeader,
)
from rocketrio_protocol.commands.consumer import ConsumerSendMsgBackRequestHeader
from rocketrio_protocol.commands.offset import CommitOutcome
from rocketrio_protocol.remoting.tls_files import expires_ms

LAG = "rocketmq_consumer_lag_messages"
AGE = "rocketmq_consumer_lag_latency_milliseconds"
IN_FLIGHT = "rocketmq_consumer_inflight_messages"
READY = "rocketmq_consumer_ready_messages"
KNOWN = "rocketrio_group_lag_known"


async def test_messages_in_count_by_topic_and_type(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"plain")
        await one.call.send(one.addr, b"x" * 2000, properties="KEYS\x01k\x02")
        await one.call.send(one.addr, b"in order", properties="__SHARDINGKEY\x01a\x02")
        await one.call.send(one.addr, b"late", properties="DELAY\x013\x02")
        scrape = await one.scrape()
        kinds = scrape.all("rocketmq_messages_in_total", topic="orders")
        assert {s.labels["message_type"]: s.value for s in kinds} == {
            "normal": 2, "fifo": 1, "delay": 1,
        }  # fmt: skip
        normal = {"topic": "orders", "message_type": "normal", "is_system": "false"}
        assert normal in [rest(sample.labels) for sample in kinds]
        assert 2000 < (scrape.value("rocketmq_throughput_in_total", **normal) or 0) < 2500
        buckets = scrape.all("rocketmq_message_size_bucket", **normal)
        assert [bucket.value for bucket in buckets] == [1, 2, 2, 2, 2, 2, 2]


async def test_messages_out_count_by_group_and_outlive_the_minute(
    autojump_clock: MockClock,
) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.call.send(one.addr, b"2")
        await one.call.pull(one.addr, 0)
        await trio.sleep(70)
        await one.call.pull(one.addr, 1)
        out = {"topic": "orders", "consumer_group": "billing", "is_system": "false"}
        scrape = await one.scrape()
        assert scrape.value("rocketmq_messages_out_total", **out) == 3
        assert scrape.value("rocketmq_throughput_out_total", **out) > 100  # type: ignore[operator]


async def test_group_without_members_has_a_lag(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        for number in range(5):
            await one.call.send(one.addr, b"%d" % number)
            await trio.sleep(10)
        await one.call.pull(one.addr, 0, max_messages=3)
        await one.call.commit(one.addr, 2)
        scrape = await one.scrape()
        (found,) = scrape.all(LAG, consumer_group="billing")
        assert rest(found.labels) == {
            "consumer_group": "billing", "topic": "orders", "is_retry": "false", "is_system": "false",
        }  # fmt: skip
        assert (found.value, scrape.value(IN_FLIGHT), scrape.value(READY)) == (3, 1, 2)
        assert scrape.value(AGE) == 30_000
        assert scrape.value("rocketmq_consumer_queueing_latency_milliseconds") == 20_000
        assert scrape.value("rocketrio_group_members", consumer_group="billing") == 0
        await trio.sleep(5)
        assert (await one.scrape()).value(AGE) == 35_000
        await one.call.commit(one.addr, 5)
        scrape = await one.scrape()
        assert (scrape.value(LAG), scrape.value(AGE), scrape.value(READY)) == (0, 0, 0)


async def test_lag_that_no_broker_knows_has_no_series(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.beat("new", "orders")
        await one.beat("everyone", "orders", model="BROADCASTING")
        scrape = await one.scrape()
        for group in ("new", "everyone"):
            where = {"consumer_group": group, "topic": "orders"}
            assert scrape.value(KNOWN, **where) == 0
            for name in (LAG, AGE, IN_FLIGHT, READY):
                assert scrape.value(name, **where) is None


async def test_empty_queue_without_a_commit_is_no_unknown_lag(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1", queue_id=2)
        await one.call.commit(one.addr, 0, queue_id=2)
        assert (await one.scrape()).value(LAG, topic="orders") == 1


async def test_topic_that_members_left_has_no_lag(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await one.call.send(one.addr, b"1", topic="bills")
        await one.beat("billing", "bills")
        assert not (await one.scrape()).all(LAG, topic="orders")


async def test_clients_are_counted_by_language_and_version(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.beat("billing", "orders")
        (found,) = (await one.scrape()).all("rocketmq_consumer_connections")
        assert found.value == 1
        assert rest(found.labels) == {
            "consumer_group": "billing", "language": "java", "version": "v5_3_3",
            "consume_mode": "push", "protocol_type": "remoting", "is_system": "false",
        }  # fmt: skip


async def test_members_that_subscribe_differently_are_shown(autojump_clock: MockClock) -> None:
    async with scraping() as one, beside(one) as other:
        await one.beat("billing", "orders")
        await other.beat("billing", "orders")
        name = "rocketrio_group_subscriptions_differ"
        assert (await one.scrape()).value(name, consumer_group="billing") == 0
        await other.beat("billing", "orders", expression="red")
        scrape = await one.scrape()
        assert scrape.value(name, consumer_group="billing") == 1
        assert scrape.value("rocketrio_group_members", consumer_group="billing") == 1


async def test_dead_letters_count_by_group_and_first_topic(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        one.state.groups.update(SubscriptionGroupConfig("billing"))
        await one.call.send(one.addr, b"bad")
        header = ConsumerSendMsgBackRequestHeader(0, "billing", -1)
        assert (await one.call.pool.call(one.addr, header)).code == 0
        (found,) = (await one.scrape()).all("rocketmq_send_to_dlq_messages_total")
        assert found.value == 1
        assert rest(found.labels) == {
            "topic": "orders", "consumer_group": "billing", "is_system": "false",
        }  # fmt: skip


async def test_transactions_count_by_topic(autojump_clock: MockClock) -> None:
    async with scraping() as one, producing_on(one.cluster) as producer:
        for decision in (COMMIT, COMMIT, ROLLBACK):
            half = await producer.send(b"paid")
            await trio.sleep(2)
            await producer.end(half, decision)
        scrape = await one.scrape()
        assert scrape.value("rocketmq_commit_messages_total", topic="orders") == 2
        assert scrape.value("rocketmq_rollback_messages_total", topic="orders") == 1
        finished = "rocketmq_finish_message_latency_milliseconds_count"
        assert scrape.value(finished, topic="orders") == 2
        (in_,) = scrape.all("rocketmq_messages_in_total", topic="orders")
        assert (in_.labels["message_type"], in_.value) == ("transaction", 3)


async def test_open_transactions_count_by_topic_before_they_are_old_and_after(
    autojump_clock: MockClock,
) -> None:
    async with scraping() as one, producing_on(one.cluster) as producer:
        half = "rocketmq_half_messages"
        first = await producer.send(b"paid")
        await producer.send(b"open")
        assert (await one.scrape()).value(half, topic="orders") == 2  # Too young to be asked about.
        await trio.sleep(3)
        await producer.end(first, COMMIT)
        scrape = await one.scrape()
        assert scrape.value(half, topic="orders") == 1
        assert scrape.value("rocketrio_transaction_age_seconds_bucket", le="5.0") == 1
        assert scrape.value("rocketrio_transaction_age_seconds_sum") >= 3  # type: ignore[operator]
        await trio.sleep(70)
        scrape = await one.scrape()
        assert scrape.value("rocketrio_transactions_checked_total") >= 1  # type: ignore[operator]
        assert (
            scrape.value(half, topic="orders") == 1
        )  # It was stored again when it was asked about.


async def test_requests_that_create_are_timed_by_their_result(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        name = "rocketmq_topic_create_execution_time_milliseconds_count"
        create = CreateTopicRequestHeader(
            topic="orders", default_topic="TBW102", read_queue_nums=1, write_queue_nums=1,
            perm=6, topic_filter_type="SINGLE_TAG", order=False,
        )  # fmt: skip
        for header in (create, create, msgspec.structs.replace(create, perm=99)):
            await one.call.pool.call(one.addr, header)
        group = fastjson.dumps(SubscriptionGroupConfig("billing"))
        await one.call.pool.call(one.addr, UpdateAndCreateSubscriptionGroupRequestHeader(), group)
        scrape = await one.scrape()
        assert scrape.value(name, invocation_status="success", is_system="false") == 2
        assert scrape.value(name, invocation_status="failure") == 1
        name = "rocketmq_consumer_group_create_execution_time_milliseconds_count"
        assert scrape.value(name, invocation_status="success") == 1


async def test_dropped_commits_count_by_group(autojump_clock: MockClock) -> None:
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        offsets = one.state.consumer_offsets
        before = offsets.query_version("billing", "orders", 0).generation
        offsets.commit_version("billing", "orders", 0, Commit(0, is_reset=True))
        offsets.commit_version("billing", "orders", 0, Commit(1, is_reset=True))
        offsets.commit_version("billing", "orders", 0, Commit(0, is_reset=True))
        late = Commit(1, generation=before, is_owner=True)
        outcome, _ = offsets.commit_version("billing", "orders", 0, late)
        assert outcome is CommitOutcome.RESET
        scrape = await one.scrape()
        assert scrape.value("rocketrio_offsets_refused_total", consumer_group="billing") == 1


@pytest.mark.slow
async def test_slave_reports_its_replication_but_no_topics_and_groups(
    autojump_clock: MockClock,
) -> None:
    async with scraping(slaves=1, role="sync-master") as one:
        await trio.sleep(30)
        await one.call.send(one.addr, b"1")
        await one.call.commit(one.addr, 0)
        await trio.sleep(10)
        master, slave = await one.scrape(), await one.scrape(host="10.0.0.11")
        assert master.value(LAG) == 1
        assert master.value("rocketrio_sends_answered_total", status="PUT_OK") == 1
        assert master.value("rocketrio_send_wait_seconds_count", **{"for": "slaves"}) == 1
        assert master.value("rocketrio_ha_slave_behind_bytes", slave="1") == 0
        assert master.value("rocketrio_ha_slave_behind_seconds", slave="1") == 0
        assert master.value("rocketrio_ha_live_slaves") == 1
        assert master.value("rocketrio_broker_takes_writes") == 1
        assert slave.value("rocketrio_broker_takes_writes") == 0
        assert slave.value("rocketrio_ha_state", state="following") == 1
        assert sum(each.value for each in slave.all("rocketrio_ha_state")) == 1
        assert slave.value("rocketrio_log_end_offset") == master.value("rocketrio_log_end_offset")
        labels = {name for sample in slave.samples for name in sample.labels}
        assert not labels & {"topic", "consumer_group"}
        assert not any(name.startswith("rocketmq_consumer_lag") for name in slave.names)


async def test_slave_that_lacks_messages_is_behind_in_bytes_and_seconds(
    autojump_clock: MockClock,
) -> None:
    async with scraping(slaves=1) as one:
        await trio.sleep(10)
        one.cluster.partition(one.cluster.master, one.cluster.slaves[0])
        await one.call.send(one.addr, b"1" * 1000)
        await trio.sleep(7)
        scrape = await one.scrape()
        assert scrape.value("rocketrio_ha_slave_behind_bytes", slave="1") > 1000  # type: ignore[operator]
        assert scrape.value("rocketrio_ha_slave_behind_seconds", slave="1") == 7


async def test_series_beyond_the_limit_are_left_out_and_counted(autojump_clock: MockClock) -> None:
    async with scraping(metrics_series_limit=2) as one:
        for topic in ("a", "b", "c", "d"):
            await one.call.send(one.addr, b"1", topic=topic)
            one.state.consumer_offsets.commit_offset("billing", topic, 0, 0)
        scrape = await one.scrape()
        assert len(scrape.all(LAG)) == 2
        assert len(scrape.all("rocketmq_messages_in_total")) == 2
        assert scrape.value("rocketrio_metrics_dropped_series") == 2


async def test_names_of_strangers_cannot_break_the_page(autojump_clock: MockClock) -> None:
    group = 'a"} 1\nfake{x="\\'
    async with scraping() as one:
        await one.call.send(one.addr, b"1")
        one.state.consumer_offsets.commit_offset(group, "orders", 0, 0)
        scrape = await one.scrape()
        assert scrape.value(LAG, consumer_group=group) == 1
        assert "fake" not in scrape.names


async def test_further_labels_are_on_every_sample_of_the_broker(autojump_clock: MockClock) -> None:
    async with scraping(metrics_label="zone:a, rack:7") as one:
        for sample in (await one.scrape()).samples:
            if sample.name.startswith("rocket"):
                assert {**COMMON, "zone": "a", "rack": "7"}.items() <= sample.labels.items()


async def test_broker_without_metrics_counts_nothing_for_them(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster:
        state = cluster.master.broker.state
        assert type(state.stats) is BrokerStatsManager
        assert type(state.waiting_answers) is WaitingAnswers


@pytest.mark.slow
async def test_probes_distinguish_a_live_broker_from_a_ready_one(autojump_clock: MockClock) -> None:
    async with scraping(slaves=1) as one:
        await trio.sleep(30)
        for host in ("10.0.0.10", "10.0.0.11"):
            for path in ("/healthz", "/-/healthy", "/readyz"):
                assert (await one.page(path, host=host)).status == 200
        await one.cluster.master.kill()
        await trio.sleep(60)
        assert (await one.page("/healthz", host="10.0.0.11")).status == 200
        unready = await one.page("/readyz", host="10.0.0.11")
        assert (unready.status, unready.text[:9]) == (503, "the slave")


@pytest.mark.slow
async def test_end_of_certificates_is_shown(tmp_path: Path, autojump_clock: MockClock) -> None:
    files = write_files(tmp_path)
    async with scraping(
        ha_tls_certificate_file=files.certificate,
        ha_tls_key_file=files.key,
        ha_tls_authority_file=files.authority,
    ) as one:
        await trio.sleep(1)
        (found,) = (await one.scrape()).all("rocketrio_certificate_expires_timestamp_seconds")
        assert found.labels["file"] == str(files.certificate)
        assert found.value == (expires_ms(files.certificate) or 0) / 1000
        assert found.value > time.time()
        files.certificate.write_text("broken")
        await trio.sleep(PERIOD)
        scrape = await one.scrape()
        assert not scrape.all("rocketrio_certificate_expires_timestamp_seconds")
