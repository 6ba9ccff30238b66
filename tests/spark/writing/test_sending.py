"""Sending a task's rows to a cluster in memory, over connections that delay, lose and refuse, in virtual time."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
import trio
from tests.spark.sending import (
    QUEUES,
    TOPIC,
    Task,
    bodies,
    disturbed,
    no_answer,
    numbered,
    one_master,
    stored,
    write,
)
from tests.support.clients import open_admin as admin_of_its_own
from tests.support.clients import open_client
from tests.support.orders import make_topic
from tests.support.second_master import second_master
from trio.testing import MockClock

from rocketrio import ClientInstance, MessageQueue
from rocketrio.cluster.connections import Connections
from rocketrio.producing.publish_route import queue_for_key
from rocketrio.producing.send_request import SendRequest
from rocketrio.spark.access import ClusterAccess
from rocketrio.spark.errors import (
    BrokerUnreachableError,
    NotStoredError,
    RowError,
    TopicNotFoundError,
)
from rocketrio.spark.writing.options import WriteOptions
from rocketrio.spark.writing.schema import WriteColumns
from rocketrio.spark.writing.sending import Sender
from rocketrio.spark.writing.written import Written
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_broker.store.config import StoreConfig
from rocketrio_protocol.errors import BrokerError, NotReachableError, broker_error
from rocketrio_protocol.record.batch import decode_batch

# ------------------------------------------------------------------------------------ waiting


async def test_every_answer_is_awaited_and_the_limit_of_sends_under_way_holds(
    autojump_clock: MockClock,
) -> None:
    async with one_master() as (_, client):

        async def answer_late(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            return partial(trio.sleep, 2)

        unreliable = disturbed(client, answer_late)
        started = trio.current_time()
        written = await write(client, [numbered(n * 100, 100) for n in range(5)], max_in_flight=3)
        assert unreliable.most[-1] == 3
        assert not unreliable.under_way[-1]
        assert written.requests >= 9
        assert trio.current_time() - started >= 2 * written.requests / 3
        assert bodies(await stored(client)) == list(range(500))
        assert (written.rows, written.retries, written.unsafe_rows) == (500, 0, 0)


async def test_result_of_a_write_names_places(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        await write(client, [numbered(0, 40)])
        written = await write(client, [numbered(40, 100)])
        found = await stored(client)
        offsets = {
            message.queue_offset
            for (queue, (first, last)) in written.offsets.items()
            for message in found[queue.queue_id]
            if first <= message.queue_offset <= last
        }
        assert {queue.broker_name for queue in written.offsets} == {"broker-a"}
        assert sum(last - first + 1 for first, last in written.offsets.values()) >= 100
        assert offsets
        properties = len("UNIQ_KEY\x01") + 32 + len("\x02WAIT\x01true\x02")
        assert written.size == sum(22 + len(str(n)) + properties for n in range(40, 140))


async def test_spark_is_asked_for_no_more_than_two_windows(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):

        async def never(addr: str, request: SendRequest) -> Any:
            await trio.sleep_forever()

        disturbed(client, never)
        options = WriteOptions(("unused:1",), topic=TOPIC, send_batch_size=1000, max_in_flight=2)
        task = Task((numbered(0, 10) for _ in range(1000)), options, WriteColumns(0))

        async def find(name_servers: Sequence[str], _: ClusterAccess) -> ClientInstance:
            await trio.lowlevel.checkpoint()
            return client

        with trio.move_on_after(3):
            await Sender(find, options).run(task)  # type: ignore[arg-type]
        assert 4 <= task.wanted <= 10  # some 750 bytes each


async def test_nothing_to_write_is_written_at_once(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        assert await write(client, []) == Written()
        assert await write(client, [numbered(0, 0)]) == Written()


# -------------------------------------------------------------------------------------- order


async def test_rows_of_a_key_keep_their_order_through_lost_answers(
    autojump_clock: MockClock,
) -> None:
    async with one_master() as (_, client):
        sends = Counter[int]()

        async def lose_some(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            sends[request.queue.queue_id] += 1
            number = sends[request.queue.queue_id]
            if number % 4 == 1:
                raise NotReachableError("the request is lost", broker_addr=addr)
            return no_answer if number % 4 == 2 else None

        unreliable = disturbed(client, lose_some)
        keys = [f"k{number % 7}" for number in range(400)]
        batches = [numbered(n * 40, 40, key=keys[n * 40 : n * 40 + 40]) for n in range(10)]
        written = await write(client, batches, WriteColumns(0, sharding_key=1))
        assert written.rows == 400
        assert written.retries > 5
        assert all(unreliable.most[queue_id] <= 1 for queue_id in range(QUEUES))
        client.connections = Connections(unreliable.pool)
        found = await stored(client)
        queues = [MessageQueue(TOPIC, "broker-a", queue_id) for queue_id in range(QUEUES)]
        for queue_id, messages in found.items():
            once = list(dict.fromkeys(int(message.body) for message in messages))
            assert once == sorted(once)
            assert len(messages) > len(once)
            assert {queue_for_key(keys[number], queues).queue_id for number in once} == {queue_id}
        assert sorted(set(bodies(found))) == list(range(400))


# ----------------------------------------------------------------------------------- failures


async def test_lost_answer_causes_another_send_with_the_same_id(
    autojump_clock: MockClock,
) -> None:
    async with one_master() as (_, client):
        lost: list[int] = []

        async def lose_first(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            if lost:
                return None
            lost.append(1)
            return no_answer

        disturbed(client, lose_first)
        written = await write(client, [numbered(0, 5)])
        assert (written.rows, written.retries) == (5, 1)
        found = await stored(client)
        assert bodies(found) == sorted([*range(5), *range(5)])
        ids = Counter(message.message_id for each in found.values() for message in each)
        assert list(ids.values()) == [2] * 5


async def test_a_master_that_comes_back_gets_the_rest(autojump_clock: MockClock) -> None:
    async with one_master(store=StoreConfig(mapped_file_size_commit_log=1 << 20)) as (
        cluster,
        client,
    ):
        killed = trio.Event()

        async def kill_it(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            if not killed.is_set():
                killed.set()
                await cluster.kill_master()
            return None

        disturbed(client, kill_it)
        async with trio.open_nursery() as nursery:

            @nursery.start_soon
            async def return_later() -> None:
                await killed.wait()
                await trio.sleep(2)
                await cluster.restart_master()

            written = await write(client, [numbered(n * 50, 50) for n in range(6)])
        assert written.rows == 300
        assert written.retries
        assert sorted(set(bodies(await stored(client)))) == list(range(300))


async def test_a_broker_that_is_lost_is_replaced_by_another(autojump_clock: MockClock) -> None:
    async with one_master() as (cluster, client):
        other = await second_master(cluster)
        await make_topic(client, TOPIC, queues=QUEUES)
        await client.refresh_topic_route(TOPIC)
        await cluster.kill_master()
        written = await write(client, [numbered(n * 50, 50) for n in range(6)])
        assert written.rows == 300
        assert {queue.broker_name for queue in written.offsets} == {"broker-b"}
        await other.stop()


async def test_broker_that_stays_away_ends_the_task_and_the_error_counts_the_rest(
    autojump_clock: MockClock,
) -> None:
    async with one_master() as (cluster, client):
        sends: list[int] = []

        async def kill_after_two(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            sends.append(1)
            if len(sends) == 3:
                await cluster.kill_master()
            return None

        disturbed(client, kill_after_two)
        with pytest.raises(BrokerUnreachableError) as caught:
            await write(client, [numbered(0, 100)], max_in_flight=1, send_retries=2)
        text = str(caught.value)
        assert text.startswith("[ROCKETMQ_BROKER_UNREACHABLE]")
        assert "rows for topic orders are not stored after 3 attempts" in text
        assert "rows of this task were stored, and stay" in text
        assert len(sends) == 3 or len(sends) == 5


@pytest.mark.parametrize(
    ("code", "attempts"),
    [(2, 4), (14, 4), (16, 4), (1, 4), (13, 1)],
    ids=["busy", "not available", "no permission", "system error", "illegal"],
)
async def test_a_refusal_that_may_pass_is_tried_again(
    autojump_clock: MockClock, code: int, attempts: int
) -> None:
    async with one_master() as (_, client):
        sends: list[float] = []

        async def refuse(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            sends.append(trio.current_time())
            raise broker_error("refused", code=code, remark="because", broker_addr=addr)

        disturbed(client, refuse)
        with pytest.raises(
            NotStoredError, match=rf"not stored after {attempts} attempts?: .*because"
        ):
            await write(client, [numbered(0, 5)], send_retries=3)
        assert len(sends) == attempts
        pauses = [b - a for a, b in pairwise(sends)]
        assert pauses == pytest.approx([0.2, 0.4, 0.8][: attempts - 1])


async def test_message_that_a_broker_finds_too_large_is_an_error_with_its_remark(
    autojump_clock: MockClock,
) -> None:
    async with one_master(store=StoreConfig(max_message_size=500)) as (_, client):
        with pytest.raises(NotStoredError, match=r"MESSAGE_ILLEGAL.*500 is the limit") as caught:
            await write(client, [pa.RecordBatch.from_pydict({"body": [b"x" * 900]})])
        assert isinstance(caught.value.__cause__, BrokerError)
        assert "sendBatchBytes" not in str(caught.value)
        with pytest.raises(NotStoredError, match=r"500 is the limit.*lower sendBatchBytes"):
            await write(client, [pa.RecordBatch.from_pydict({"body": [b"x" * 90] * 30})])


async def test_a_store_that_is_not_safe_fails_unless_that_will_do(
    autojump_clock: MockClock,
) -> None:
    async with one_master(role="sync-master") as (_, client):
        with pytest.raises(
            NotStoredError, match=r"not safely: the broker says SLAVE_NOT_AVAILABLE"
        ):
            await write(client, [numbered(0, 5)], send_retries=1)
        written = await write(client, [numbered(5, 5)], send_retries=1, require_safe_store=False)
        assert (written.rows, written.unsafe_rows, written.retries) == (5, 5, 1)
        # Without a slave readers see it after this time.
        await trio.sleep(BrokerConfig().slave_timeout + 1)
        assert bodies(await stored(client)) == sorted([*range(10), *range(10)])


async def test_a_topic_that_is_not_there_is_made_or_refused(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        with pytest.raises(TopicNotFoundError, match="topic other cannot be written"):
            await write(client, [numbered(0, 1)], topic="other", auto_create_topic=False)
        assert (await write(client, [numbered(0, 1)], topic="other")).rows == 1


async def test_no_name_server_is_an_error_after_the_retries(autojump_clock: MockClock) -> None:
    async with EmbeddedCluster() as cluster:
        servers = cluster.name_servers
        await cluster.kill_name_server()
        async with open_client(name_servers=servers, dial=cluster.dial) as client:
            with pytest.raises(BrokerUnreachableError, match="topic orders cannot be written"):
                await write(client, [numbered(0, 1)], send_retries=2)


async def test_row_for_a_missing_queue_ends_the_task(
    autojump_clock: MockClock,
) -> None:
    async with one_master() as (_, client):
        batches = [
            numbered(first, 3, partition=[0, 1, 4], keys=[f"o-{first + row}" for row in range(3)])
            for first in (0, 3)
        ]
        batches[0] = batches[0].slice(0, 2)
        with pytest.raises(RowError) as caught:
            await write(client, batches, WriteColumns(0, partition=1, keys=2))
        assert str(caught.value).startswith(
            "[ROCKETMQ_ROW] row 4 of task 0, key 'o-5' names partition 4 of topic orders, which has 4 queues"
        )


@pytest.mark.parametrize("column", ["partition", "queue_id"])
async def test_row_for_a_queue_that_the_topic_got_meanwhile_is_written(
    autojump_clock: MockClock, column: str
) -> None:
    """A known route may be half a minute old: a fresh one decides whether the row is refused."""
    async with one_master() as (cluster, client):
        columns = WriteColumns(0, **{column: 1})
        await write(client, [numbered(0, 2, **{column: [0, 3]})], columns)
        servers = cluster.name_servers
        async with admin_of_its_own(name_servers=servers, dial=cluster.dial) as admin:
            await admin.create_topic(TOPIC, queues=2 * QUEUES)
        batches = [
            numbered(2, 2, **{column: [0, 3]}),
            numbered(4, 2, **{column: [5, 7]}),
            numbered(6, 2, **{column: [7, 8]}),
        ]
        assert (await write(client, batches[:2], columns)).rows == 4
        with pytest.raises(RowError, match=r"row 3 of task 0 names (partition|queue) 8 of topic"):
            await write(client, batches[1:], columns)
        found = await stored(client, 2 * QUEUES)
        assert [message.body for message in found[7]][:1] == [b"5"]


@pytest.mark.parametrize(
    ("keys", "batch_size", "said"),
    [
        (["o-0"], 1, "1 row (key 'o-0') for topic orders is not stored after 1 attempt: "),
        (["o-0"], 1000, "1 row (key 'o-0') for topic orders is not stored after 1 attempt: "),
        (["o-0", "o-1", "o-2"], 1, "1 row (key 'o-0') for topic orders is not stored"),
        (["o-0", "o-1", "o-2"], 1000, "3 rows (the first: key 'o-0') for topic orders are not stored"),
        ([None], 1, "1 row for topic orders is not stored"),
        ([None], 1000, "1 row for topic orders is not stored"),
    ],
)  # fmt: skip
async def test_what_a_broker_refuses_is_named(
    autojump_clock: MockClock, keys: list[str | None], batch_size: int, said: str
) -> None:
    async with one_master() as (_, client):

        async def refuse(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            raise broker_error("refused", code=13, remark="because", broker_addr=addr)

        disturbed(client, refuse)
        with pytest.raises(NotStoredError) as caught:
            await write(
                client,
                [numbered(0, len(keys), keys=pa.array(keys, pa.string()))],
                WriteColumns(0, keys=1),
                send_batch_size=batch_size,
                max_in_flight=1,
            )
        assert said in str(caught.value)
        assert "of this task were stored" not in str(caught.value), "there were none"


# --------------------------------------------------------------------------------- what travels


async def test_compressed_rows_share_batches_and_arrive_whole(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        sent: list[tuple[int, int]] = []

        async def look(addr: str, request: SendRequest) -> Any:
            await trio.lowlevel.checkpoint()
            outgoing = request.outgoing
            sent.append((outgoing.sys_flag, len(decode_batch(outgoing.body))))

        disturbed(client, look)
        given = [b"%d " % number * (500 if number % 2 else 1) for number in range(10)]
        batch = pa.RecordBatch.from_pydict({"body": given})
        written = await write(client, [batch], compress_over=100, send_batch_size=100_000)
        assert sorted(sent) == [(0, 5), (1, 5)]
        assert written.size < 3000
        found = await stored(client)
        assert sorted(m.body for each in found.values() for m in each) == sorted(given)


async def test_delayed_rows_come_when_they_are_due(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        rows = numbered(0, 4, delay=[0, 1, None, 2])
        written = await write(client, [rows], WriteColumns(0, delay_level=1))
        assert written.rows == 4
        assert bodies(await stored(client)) == [0, 2]
        await trio.sleep(2)
        assert bodies(await stored(client)) == [0, 1, 2]
        await trio.sleep(5)
        assert bodies(await stored(client)) == [0, 1, 2, 3]


async def test_the_sender_is_known_to_the_broker_and_stays_so(autojump_clock: MockClock) -> None:
    async with one_master() as (_, client):
        await write(client, [numbered(0, 1)], producer_group="shop")
        await write(client, [numbered(0, 1)], producer_group="shop")
        assert client.heartbeat.producers["shop"] == 1
