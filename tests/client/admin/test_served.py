"""What brokers have given to a group, told apart by broker."""

import pytest
import trio
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import ClientInstance, Message, open_admin, open_consumer, open_producer
from rocketrio_broker.embedded import EmbeddedCluster

SLAVE_ID = 1
A_SAMPLE = 11
"""Seconds until what was counted is reported."""


@pytest.mark.usefixtures("slave")
async def test_messages_that_the_slave_served_are_counted_for_the_slave(
    client: ClientInstance, cluster: EmbeddedCluster, autojump_clock: MockClock
) -> None:
    async with open_producer(client=client) as producer:
        for number in range(5):
            await producer.send(Message("orders", b"%d" % number))
    await trio.sleep(1)  # The slave copies them.
    async with (
        client_of(cluster, connect_broker_by_user=True, default_broker_id=SLAVE_ID) as reading,
        open_consumer("orders", group="archive", start_from="earliest", client=reading) as consumer,
    ):
        for _ in range(5):
            await consumer.receive()
    await trio.sleep(A_SAMPLE)
    async with open_admin(client=client) as admin:
        master, slave = await admin.served("orders", "archive")
        assert (master.broker_id, master.messages, master.bytes) == (0, 0, 0)
        assert (slave.broker_id, slave.messages) == (SLAVE_ID, 5)
        assert slave.bytes is not None
        assert slave.bytes > 5 * 88  # the fixed part of a record
        assert await admin.served("orders", "archive", period="day") == [master, slave]
        await cluster.slaves[0].kill()
        found = await admin.served("orders", "archive")
        assert [one for one in found if one.broker_id == SLAVE_ID] in (
            [],
            [type(slave)(slave.broker_name, SLAVE_ID, slave.address, None, None)],
        )
