"""Open transactions and those that were given up, of a cluster in memory."""

import trio
from tests.support.clients import client_of
from trio.testing import MockClock

from rocketrio import Message, TransactionState, open_admin, open_producer
from rocketrio.admin import Transactions
from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.message import MessageExt
from rocketrio_protocol.names import TRANSACTION_GROUP


async def undecided(message: MessageExt) -> TransactionState:
    return TransactionState.UNKNOWN


async def test_undecided_transaction_is_open_and_then_given_up(
    autojump_clock: MockClock,
) -> None:
    async with (
        EmbeddedCluster(transaction_check_max=2, transaction_check_interval=10.0) as cluster,
        client_of(cluster) as client,
        open_admin(client=client) as admin,
        open_producer(group="shop", check_transaction=undecided, client=client) as producer,
    ):
        await admin.create_topic("orders")
        assert await admin.transactions() == {"broker-a": Transactions(0, 0, None)}
        async with producer.transaction(Message("orders", b"paid")) as transaction:
            transaction.leave_open()
        assert (await admin.transactions())["broker-a"].open == 1
        await trio.sleep(120)
        found = (await admin.transactions())["broker-a"]
        assert (found.open, found.given_up) == (0, 1)
        assert found.last_given_up_ms is not None
        offsets = await admin.calls.all_offsets(cluster.master.broker.address)
        ids = [set(table) for (group, _), table in offsets.items() if group == TRANSACTION_GROUP]
        assert ids == [{0}, {0}]  # LEDGER_END_ID belongs to no queue.
        assert "T01" in {one.code for one in (await admin.diagnose(seconds=0)).findings}
