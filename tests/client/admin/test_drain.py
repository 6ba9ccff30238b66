"""Taking a broker out of service for producers, and back."""

from datetime import timedelta

import pytest
import trio

from rocketrio import (
    ClientInstance,
    Message,
    MessageExt,
    RouteNotFoundError,
    TransactionState,
    open_admin,
    open_consumer,
    open_producer,
)
from rocketrio.admin.drain import Held, Unread, unread_at
from rocketrio.admin.lag_values import GroupLag, LagReport, QueueLag
from rocketrio.limits import QUIET_SECONDS
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.errors import Error
from rocketrio_protocol.lag import Judgement, Owner, Verdict
from rocketrio_protocol.message import MessageQueue


async def test_drained_broker_gets_no_sends_until_it_is_put_back(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=2)
        await producer.send(Message("orders", b"before"))
        done = await admin.drain("broker-a")
        assert list(done.topics) == cluster.name_servers
        assert done.topics[cluster.name_servers[0]] >= 1
        assert done.silent == {}
        await trio.sleep(35)
        with pytest.raises(Error):
            await producer.send(Message("orders", b"while"))
        await admin.undrain("broker-a")
        await trio.sleep(35)
        await producer.send(Message("orders", b"after"))


async def test_wait_quiet_ends_when_nothing_was_stored_for_long_enough(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin, open_producer(client=client) as producer:
        await admin.create_topic("orders", queues=2)
        began = trio.current_time()

        async def send() -> None:
            for _ in range(6):
                await trio.sleep(10)
                await producer.send(Message("orders", b"x"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            await admin.wait_quiet("broker-a")
        assert 60 + QUIET_SECONDS <= trio.current_time() - began < 60 + QUIET_SECONDS + 5


@pytest.mark.slow
async def test_broker_is_drained_when_the_last_delayed_message_was_delivered_and_read(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    read: list[bytes] = []

    async def handle(message: MessageExt) -> None:
        read.append(message.body)

    async with (
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic("orders", queues=2)
        await producer.send(Message("orders", b"now"))
        await producer.send(producer.delayed(Message("orders", b"later"), timedelta(minutes=5)))
        assert await admin.held("broker-a") == Held(1, 0, 0)
        async with open_consumer(
            "orders", group="billing", start_from="earliest", client=client
        ) as consumer:
            nursery.start_soon(consumer.run, handle)
            began = trio.current_time()
            await admin.wait_drained("broker-a")
            assert trio.current_time() - began >= 300 + QUIET_SECONDS
            assert read == [b"now", b"later"]
            assert await admin.held("broker-a") == Held(0, 0, 0)
            nursery.cancel_scope.cancel()


async def test_broker_is_not_drained_while_a_transaction_is_open(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    state = TransactionState.UNKNOWN

    async def check(_: MessageExt) -> TransactionState:
        return state

    async with (
        open_admin(client=client) as admin,
        open_producer(client=client, check_transaction=check) as producer,
    ):
        await admin.create_topic("orders", queues=2)
        with pytest.raises(OSError, match="not known"):
            async with producer.transaction(Message("orders", b"half")):
                raise OSError("not known")
        state = TransactionState.ROLLBACK
        await admin.wait_drained("broker-a")


async def test_dead_letters_are_counted_and_not_waited_for(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async def fail(_: MessageExt) -> None:
        raise OSError("no database")

    async with (
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic("orders", queues=2)
        await producer.send(Message("orders", b"x"))
        async with open_consumer(
            "orders", group="billing", start_from="earliest", max_reconsume_times=0, client=client
        ) as consumer:
            nursery.start_soon(consumer.run, fail)
            await admin.wait_drained("broker-a")
            nursery.cancel_scope.cancel()
        assert await admin.held("broker-a") == Held(0, 0, 1)


@pytest.mark.slow
async def test_name_server_that_restarts_meanwhile_lets_producers_in_for_a_moment_only(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with (
        open_admin(client=client) as admin,
        open_producer(client=client) as producer,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic("orders", queues=2)
        await producer.send(Message("orders", b"before"))
        async with open_consumer("orders", group="billing", start_from="earliest", client=client):
            nursery.start_soon(admin.wait_drained, "broker-a")  # The message is never done.
            await trio.sleep(60)
            with pytest.raises(Error):
                await producer.send(Message("orders", b"while"))
            await cluster.kill_name_server()
            await trio.sleep(0.1)
            await cluster.restart_name_server()
            await trio.sleep(120)
            with pytest.raises(Error):
                await producer.send(Message("orders", b"while"))
            nursery.cancel_scope.cancel()


async def test_name_that_is_not_registered_is_an_error(
    client: ClientInstance, cluster: EmbeddedCluster
) -> None:
    async with open_admin(client=client) as admin:
        with pytest.raises(RouteNotFoundError, match="known names: broker-a"):
            await admin.drain("broker-z")


def test_unread_at_counts_the_queues_of_one_broker_and_never_shows_unknown_as_0() -> None:
    def row(group: str, **lags: int | None) -> GroupLag:
        queues = [
            QueueLag(
                MessageQueue("orders", name.replace("_", "-"), 0), 0, 9, Owner.A_MEMBER, None,
                Judgement(Verdict.OK, "", lag),
            )
            for name, lag in lags.items()
        ]  # fmt: skip
        return GroupLag(group, "orders", Judgement(Verdict.OK, "", None), 1, None, queues, "window")

    report = LagReport(
        [row("a", broker_a=3, broker_b=9), row("b", broker_a=0), row("c", broker_a=None), row("d", broker_b=5)],
        4, {}, 0.0, 1,
    )  # fmt: skip
    assert unread_at(report, "broker-a") == [Unread("a", "orders", 3), Unread("c", "orders", None)]
