"""A stream whose topics are deleted or created again, and whose brokers and name servers go away and return."""

import re

import attrs
import pytest
import trio
from tests.spark.stream_story import Story, a_story, queue
from tests.support.further import every_other
from trio.testing import MockClock

from rocketrio.spark.errors import BrokerUnreachableError, OffsetOutOfRangeError
from rocketrio.spark.reading.offsets import OffsetTable
from rocketrio.spark.streaming.driver import Limit, StreamDriver
from rocketrio.spark.streaming.position import SHRUNK_GRACE
from rocketrio_broker.embedded import SMALL_STORE
from rocketrio_broker.offsets.reader_places import ReaderPlaces
from rocketrio_protocol.message import MessageQueue


@pytest.mark.parametrize("fails", [True, False])
async def test_deleted_topic_is_a_loss_that_is_reported_once(
    autojump_clock: MockClock, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="1000", failOnDataLoss=str(fails).lower())
        start = {queue(0): 3, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.admin.delete_topic("orders")
        await trio.sleep(1)
        if fails:
            with pytest.raises(OffsetOutOfRangeError, match="orders@broker-a:0 is gone"):
                await story.latest(stream, start)
            return
        for _ in range(3):
            assert await story.latest(stream, start) == {0: 3, 1: 5}
        assert caplog.text.count("is gone") == 2


async def test_a_topic_that_no_name_server_knows_is_warned_of_once(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(subscribe="orders,oders", discoveryIntervalMs="1000")
        for _ in range(3):
            assert await story.latest(stream, {queue(0): 3, queue(1): 5}) == {0: 5, 1: 5}
            await trio.sleep(1)
        assert caplog.text.count("no name server has a route of topics names=oders") == 1


@pytest.mark.parametrize("count", every_other([8, 50, 80]))
@pytest.mark.parametrize("fails", [True, False])
@pytest.mark.parametrize("restarts", [True, False])
async def test_topic_created_again_is_a_loss_and_read_from_its_beginning(
    autojump_clock: MockClock,
    restarts: bool,
    fails: bool,
    count: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """However long it is, and also if the query did not run meanwhile: its checkpoint says which topic it read."""
    async with a_story(queues=1, count=50) as story:
        given = {"discoveryIntervalMs": "60000", "failOnDataLoss": str(fails).lower()}
        stream = story.stream(**given)
        start: OffsetTable = {queue(0): 50}
        assert await story.latest(stream, start) == {0: 50}
        read = stream.incarnations(start)
        await story.admin.delete_topic("orders")
        await story.topic(1)
        await story.write(0, count)
        if restarts:
            stream = story.stream(**given)
            stream.continue_in(read)
        said = f"was deleted: it was read to before 50, .* now holds 0 to {count} there"
        if fails:
            with pytest.raises(OffsetOutOfRangeError, match=said):
                await story.latest(stream, start)
            return
        assert await story.latest(stream, start, Limit(5)) == {0: 5}
        assert re.search(said, caplog.text)
        (part,) = stream.ranges(start, {queue(0): 5}, {queue(0)})
        assert (part.start, part.end) == (0, 5)
        assert await story.latest(stream, {queue(0): 5}) == {0: count}
        assert caplog.text.count("was deleted: it") == 1


@pytest.mark.parametrize("fails", [True, False])
async def test_interrupted_batch_of_a_topic_that_was_created_again_is_not_repeated(
    autojump_clock: MockClock, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Other messages have the planned offsets now."""
    async with a_story(queues=1, count=50) as story:
        await story.admin.delete_topic("orders")
        await story.topic(1)
        await story.write(0, 80)
        start, planned_in = {queue(0): 10}, {queue(0): 0}
        stream = story.stream(failOnDataLoss=str(fails).lower())
        if fails:
            with pytest.raises(OffsetOutOfRangeError, match="it was read to before 10"):
                await stream.created_again(story.client, start, planned_in)
            return
        assert await stream.created_again(story.client, start, planned_in) == {queue(0)}
        assert caplog.text.count("was deleted: it") == 1
        present = story.stream()
        assert await present.created_again(story.client, start, {queue(0): 1}) == set()


async def test_checkpoint_without_incarnations_goes_on_where_it_was(
    autojump_clock: MockClock,
) -> None:
    """An earlier release wrote it, perhaps long after the topic was created again."""
    async with a_story(queues=1, count=50) as story:
        await story.admin.delete_topic("orders")
        await story.topic(1)
        await story.write(0, 20)
        stream = story.stream()
        assert await story.latest(stream, {queue(0): 10}) == {0: 20}
        assert stream.incarnations({queue(0): 20}) == {queue(0): 1}


async def test_query_with_a_target_reads_a_topic_that_was_created_again_to_its_end(
    autojump_clock: MockClock,
) -> None:
    async with a_story(queues=1, count=50) as story:
        await story.admin.delete_topic("orders")
        await story.topic(1)
        await story.write(0, 80)
        stream = story.stream(failOnDataLoss="false")
        stream.continue_in({queue(0): 0})
        await stream.set_target(story.client)
        start: OffsetTable = {queue(0): 50}
        ends = []
        while (end := await stream.latest(story.client, start, Limit(30))) != start:
            ends.append(end[queue(0)])
            start = end
        assert ends == [30, 60, 80]


@pytest.mark.parametrize("fails", [True, False])
async def test_topic_created_again_at_a_broker_that_does_not_say_so_is_read_on_from_its_end(
    autojump_clock: MockClock, fails: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at Apache's: only a shorter queue shows it."""
    monkeypatch.setattr(ReaderPlaces, "incarnation", lambda places, topic: None)
    async with a_story(count=50) as story:
        stream = story.stream(discoveryIntervalMs="60000", failOnDataLoss=str(fails).lower())
        start: OffsetTable = {queue(0): 50, queue(1): 50}
        assert await story.latest(stream, start) == {0: 50, 1: 50}
        await story.admin.delete_topic("orders")
        await story.topic(2)
        await story.write(0, 8)
        assert await story.latest(stream, start) == {0: 50, 1: 50}, (
            "a master that returns may be short"
        )
        await trio.sleep(SHRUNK_GRACE)
        if fails:
            with pytest.raises(
                OffsetOutOfRangeError, match="was truncated or recreated: it was read to before 50"
            ):
                await story.latest(stream, start)
            with pytest.raises(OffsetOutOfRangeError, match="from 50 to before 8"):
                stream.ranges(start, {queue(0): 8, queue(1): 0})
            return
        assert await story.latest(stream, start) == {0: 8, 1: 0}
        end = {queue(0): 8, queue(1): 0}
        assert stream.ranges(start, end) == []
        await story.write(0, 2)
        assert await story.latest(stream, end) == {0: 10, 1: 0}


@pytest.mark.parametrize("fails", [True, False])
async def test_what_retention_took_is_a_loss_and_passed_over(
    autojump_clock: MockClock, fails: bool, caplog: pytest.LogCaptureFixture
) -> None:
    small_files = attrs.evolve(SMALL_STORE, mapped_file_size_commit_log=64 << 10)
    async with a_story(queues=1, count=1500, store=small_files) as story:
        store = story.cluster.master.broker.store
        await trio.sleep(2)
        await store.checkpoint()  # Nothing newer is ever deleted.
        await store._retention.delete_files(2)
        (least, _) = store.queue_bounds("orders", 0) or (0, 0)
        assert least > 100
        stream = story.stream(failOnDataLoss=str(fails).lower())
        said = f"offsets 10 to {least} ({least - 10} messages) were to be read"
        if fails:
            with pytest.raises(OffsetOutOfRangeError, match=re.escape(said)):
                await story.latest(stream, {queue(0): 10})
            return
        assert await story.latest(stream, {queue(0): 10}, Limit(100)) == {0: least + 100}
        assert said in caplog.text
        (part,) = stream.ranges({queue(0): 10}, {queue(0): least + 100})
        assert (part.start, part.end) == (least, least + 100), (
            "tasks are not planned by what is gone"
        )


async def test_an_outage_is_ridden_out(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="60000")
        start = {queue(0): 3, queue(1): 5}
        await story.cluster.kill_master()
        for _ in range(20):
            assert await story.latest(stream, start) == {0: 3, 1: 5}
        await story.cluster.restart_master()
        await trio.sleep(6)
        assert await story.latest(stream, start) == {0: 5, 1: 5}


async def test_an_outage_that_lasts_too_long_ends_the_query(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="30000")
        start = {queue(0): 5, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_master()
        began = trio.current_time()
        with pytest.raises(
            BrokerUnreachableError, match="no broker named broker-a has answered for 3"
        ):
            await _for_ever(story, stream, start)
        assert 30 <= trio.current_time() - began < 45


async def _for_ever(story: Story, stream: StreamDriver, start: OffsetTable) -> None:
    while True:
        await story.latest(stream, start)


async def test_without_name_servers_what_is_known_will_do(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="500")
        start = {queue(0): 3, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_name_server()
        await story.write(1, 2)
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 5, 1: 7}


async def test_a_name_server_that_forgot_everything_loses_no_queue(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(discoveryIntervalMs="500")
        start = {queue(0): 3, queue(1): 5}
        assert await story.latest(stream, start) == {0: 5, 1: 5}
        await story.cluster.kill_master()
        await story.cluster.kill_name_server()
        await trio.sleep(0.1)
        await story.cluster.restart_name_server()
        await trio.sleep(1)
        assert await story.latest(stream, start) == {0: 3, 1: 5}, "silent, and not gone"


@pytest.mark.slow
async def test_a_slave_answers_for_its_master_and_proves_no_loss(
    autojump_clock: MockClock,
) -> None:
    async with a_story(count=5, slaves=1) as story:
        stream = story.stream()
        await trio.sleep(5)
        await story.cluster.kill_master()
        assert await story.latest(stream, {queue(0): 3, queue(1): 500}) == {0: 5, 1: 500}
        await trio.sleep(2 * SHRUNK_GRACE)
        assert await story.latest(stream, {queue(0): 3, queue(1): 500}) == {0: 5, 1: 500}


async def test_addresses_are_waited_for(autojump_clock: MockClock) -> None:
    async with a_story(count=5) as story:
        stream = story.stream(offsetFailureTimeoutMs="60000")
        await story.cluster.kill_name_server()

        async def back() -> None:
            await trio.sleep(20)
            await story.cluster.restart_name_server()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(back)
            found = await stream.addresses(story.client, [queue(0)])
        assert found == {"broker-a": {0: story.master}}


async def test_unknown_addresses_are_an_error_in_the_end(
    autojump_clock: MockClock,
) -> None:
    async with a_story() as story:
        stream = story.stream(offsetFailureTimeoutMs="5000")
        lost = MessageQueue("orders", "broker-z", 0)
        with pytest.raises(
            BrokerUnreachableError, match="no name server knows an address of broker-z"
        ):
            await stream.addresses(story.client, [lost])
