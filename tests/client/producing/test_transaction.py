"""Transactions against a cluster in memory: what is delivered, what never is, and what stays undecided."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from tests.support.clients import client_of
from tests.support.orders import delivered, make_topic
from trio.testing import MockClock

from rocketrio import (
    BrokerError,
    ClientInstance,
    Message,
    MessageExt,
    Producer,
    SendStatus,
    Transaction,
    TransactionNotBegunError,
    TransactionState,
    open_producer,
)
from rocketrio.producing.sender import LATE_ROUTE
from rocketrio.producing.transaction import END_TIMEOUT
from rocketrio_broker.embedded import NAME_SERVER_HOST, EmbeddedCluster
from rocketrio_protocol.errors import ConfigError, LocalProtocolError

TOPIC = "orders"
SOON = 2.0
"""Seconds in which a decided message is there, and long before the broker asks."""
ASKED_WITHIN = 120.0
"""Seconds; a broker looks every 30, at transactions older than 6."""


class Answers:
    """A `check_transaction` that gives the answers of the test, and remembers what it was asked."""

    def __init__(self, *states: TransactionState) -> None:
        self.states = list(states)
        self.asked: list[MessageExt] = []

    async def check(self, message: MessageExt) -> TransactionState:
        await trio.lowlevel.checkpoint()
        self.asked.append(message.copy())
        return self.states.pop(0) if self.states else TransactionState.UNKNOWN


@asynccontextmanager
async def transacting(
    client: ClientInstance, answers: Answers | None = None
) -> AsyncIterator[Producer]:
    await make_topic(client, TOPIC, queues=1)
    check = (answers or Answers()).check
    async with open_producer(client=client, group="shop", check_transaction=check) as producer:
        yield producer


async def test_message_is_delivered_when_the_work_is_done(client: ClientInstance) -> None:
    async with transacting(client) as producer:
        async with producer.transaction(Message(TOPIC, b"paid", keys="k", tags="t")) as transaction:
            assert transaction.sent.status is SendStatus.SEND_OK
            assert await delivered(client, SOON) == []
        assert transaction.state is TransactionState.COMMIT
        assert transaction.is_acknowledged
        assert await delivered(client, SOON) == [b"paid"]


async def test_exception_drops_the_message_and_comes_out(client: ClientInstance) -> None:
    answers = Answers(TransactionState.COMMIT)
    async with transacting(client, answers) as producer:
        with pytest.raises(ValueError, match="sold out"):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                raise ValueError("sold out")
        assert transaction.state is TransactionState.ROLLBACK
        assert transaction.is_acknowledged
        await trio.sleep(ASKED_WITHIN)
        assert answers.asked == []
    assert await delivered(client, SOON) == []


async def test_transaction_can_be_rolled_back_without_an_exception(client: ClientInstance) -> None:
    async with (
        transacting(client) as producer,
        producer.transaction(Message(TOPIC, b"paid")) as transaction,
    ):
        transaction.rollback()
    assert transaction.is_acknowledged
    assert await delivered(client, SOON) == []


@pytest.mark.parametrize("state", [TransactionState.COMMIT, TransactionState.ROLLBACK])
async def test_transaction_that_is_left_open_is_checked(
    client: ClientInstance, state: TransactionState
) -> None:
    answers = Answers(TransactionState.UNKNOWN, state)
    async with transacting(client, answers) as producer:
        async with producer.transaction(Message(TOPIC, b"paid", keys="order-7")) as transaction:
            transaction.leave_open()
        await trio.sleep(ASKED_WITHIN)
    assert [message.message_id for message in answers.asked] == [transaction.message_id] * 2
    first = answers.asked[0]
    assert (first.topic, first.keys, first.body) == (TOPIC, "order-7", b"paid")
    assert await delivered(client, SOON) == ([b"paid"] if state is TransactionState.COMMIT else [])


def _unanswered(transaction: Transaction) -> ConnectionError:
    transaction.leave_open()
    return ConnectionError("no answer to COMMIT")


async def test_exception_after_it_was_left_open_decides_nothing(client: ClientInstance) -> None:
    """As when the connection to a database breaks during its commit: the work may be done."""
    answers = Answers(TransactionState.COMMIT)
    async with transacting(client, answers) as producer:
        with pytest.raises(ConnectionError):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                raise _unanswered(transaction)
        assert transaction.state is TransactionState.UNKNOWN
        await trio.sleep(ASKED_WITHIN)
    assert len(answers.asked) == 1
    assert await delivered(client, SOON) == [b"paid"]


async def test_work_under_way_is_not_asked_for(client: ClientInstance) -> None:
    answers = Answers(TransactionState.ROLLBACK)
    async with transacting(client, answers) as producer:
        async with producer.transaction(Message(TOPIC, b"slow")):
            await trio.sleep(ASKED_WITHIN)
        assert answers.asked == []
    assert await delivered(client, SOON) == [b"slow"]


async def test_work_that_waits_for_its_half_message_is_not_asked_for(
    autojump_clock: MockClock,
) -> None:
    """A slave is late: the half message is stored, and old enough for a check, before its sender has an answer."""
    answers = Answers(TransactionState.ROLLBACK)
    async with (
        EmbeddedCluster(
            slaves=1,
            role="sync-master",
            slave_timeout=30.0,
            transaction_timeout=1.0,
            transaction_check_interval=1.0,
        ) as cluster,
        client_of(cluster) as client,
        transacting(client, answers) as producer,
        trio.open_nursery() as nursery,
    ):
        await trio.sleep(SOON)
        hosts = cluster.master.host, cluster.slaves[0].host
        cluster.memory_network.partition(*hosts)

        async def slave_comes_back() -> None:
            await trio.sleep(10)
            cluster.memory_network.reconnect(*hosts)

        nursery.start_soon(slave_comes_back)
        async with producer.transaction(Message(TOPIC, b"paid"), timeout=20):
            assert answers.asked == []
        assert await delivered(client, SOON) == [b"paid"]


@pytest.mark.slow
async def test_broker_leaves_the_time_that_a_message_asks_for(client: ClientInstance) -> None:
    answers = Answers()
    async with transacting(client, answers) as producer:
        patient = Message(TOPIC, b"", properties={"CHECK_IMMUNITY_TIME_IN_SECONDS": "300"})
        async with producer.transaction(patient) as transaction:
            transaction.leave_open()
        await trio.sleep(ASKED_WITHIN)
        assert answers.asked == []
        await trio.sleep(300)
        assert answers.asked


async def test_cancelled_work_decides_nothing(client: ClientInstance) -> None:
    answers = Answers(TransactionState.COMMIT)
    async with transacting(client, answers) as producer:
        with trio.move_on_after(1):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                await trio.sleep_forever()
        assert transaction.state is None
        assert not transaction.is_acknowledged
        assert await delivered(client, SOON) == []
        await trio.sleep(ASKED_WITHIN)
    assert len(answers.asked) == 1
    assert await delivered(client, SOON) == [b"paid"]


async def test_cancel_after_the_work_does_not_keep_the_decision(client: ClientInstance) -> None:
    async with transacting(client) as producer:
        with trio.CancelScope() as scope:
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                scope.cancel()
        assert transaction.is_acknowledged
    assert await delivered(client, SOON) == [b"paid"]


async def test_cancel_inside_a_group_of_faults_decides_nothing(client: ClientInstance) -> None:
    async with transacting(client) as producer:
        with pytest.raises(BaseExceptionGroup):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                raise BaseExceptionGroup("both", [ValueError("x"), KeyboardInterrupt()])
    assert transaction.state is None


async def test_master_that_is_gone_at_the_end_asks_when_it_is_back(
    client: ClientInstance, cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    answers = Answers(TransactionState.COMMIT)
    async with transacting(client, answers) as producer:
        with caplog.at_level(logging.WARNING, "rocketrio.producer"):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                await cluster.kill_master()
        assert transaction.state is TransactionState.COMMIT
        assert not transaction.is_acknowledged
        assert "will ask" in caplog.text
        await cluster.restart_master()
        await trio.sleep(ASKED_WITHIN)
    assert await delivered(client, SOON) == [b"paid"]


async def test_producer_started_after_the_first_died_is_asked(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        transacting(client) as producer,
        producer.transaction(Message(TOPIC, b"paid")) as transaction,
    ):
        transaction.leave_open()
    answers = Answers(TransactionState.COMMIT)
    async with (
        client_of(cluster) as other,
        # It sends nothing itself, and has never heard of the topic.
        open_producer(client=other, group="shop", check_transaction=answers.check),
    ):
        await trio.sleep(ASKED_WITHIN)
    assert [message.message_id for message in answers.asked] == [transaction.message_id]
    assert await delivered(client, SOON) == [b"paid"]


async def test_refused_decision_is_an_error(client: ClientInstance) -> None:
    async with transacting(client) as producer:
        with pytest.raises(BrokerError, match=r"commit of transaction \w+ refused"):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                transaction.sent.queue_offset += 7


def _fault(transaction: Transaction) -> ValueError:
    transaction.sent.queue_offset += 7  # So that the broker refuses the rollback.
    return ValueError("the work")


async def test_exception_of_the_work_wins_over_a_refused_rollback(
    client: ClientInstance,
) -> None:
    async with transacting(client) as producer:
        with pytest.raises(ValueError, match="the work"):
            async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
                raise _fault(transaction)


async def test_work_does_not_begin_on_an_unsafe_half_message() -> None:
    async with (
        EmbeddedCluster(role="sync-master") as cluster,  # Without a slave to wait for.
        client_of(cluster) as client,
        transacting(client) as producer,
    ):
        with pytest.raises(TransactionNotBegunError, match="SLAVE_NOT_AVAILABLE"):
            async with producer.transaction(Message(TOPIC, b"paid")):
                pytest.fail("the work began")


async def test_transactions_without_a_check_function_are_refused(client: ClientInstance) -> None:
    async with open_producer(client=client) as producer:
        with pytest.raises(ConfigError, match="check_transaction"):
            async with producer.transaction(Message(TOPIC, b"")):
                pytest.fail("the work began")


async def test_delayed_transaction_is_refused(client: ClientInstance) -> None:
    async with transacting(client) as producer:
        with pytest.raises(LocalProtocolError, match="delayed"):
            async with producer.transaction(Message(TOPIC, b"", delay_level=3)):
                pytest.fail("the work began")


async def test_decision_is_sent_within_three_seconds_or_not_at_all(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with transacting(client) as producer:
        async with producer.transaction(Message(TOPIC, b"paid")) as transaction:
            client.routing.broker_addr_table.clear()
            cluster.memory_network.silence(NAME_SERVER_HOST)
            started = trio.current_time()
        assert trio.current_time() <= started + END_TIMEOUT + LATE_ROUTE
    assert not transaction.is_acknowledged
