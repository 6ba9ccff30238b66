"""The small applications among the examples: what they promise, and that they end well on Ctrl-C."""

import re
import runpy
import sqlite3
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, closing
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import trio
from tests.examples.programs import EXAMPLES, run, run_until, started
from tests.support.clients import open_consumer, open_producer
from tests.support.waiting import eventually
from trio.testing import MockClock

from rocketrio import MessageExt, Producer, TransactionState
from rocketrio.producing.transaction_checks import CheckTransaction
from rocketrio_broker.embedded import EmbeddedCluster

pytestmark = pytest.mark.real


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster(slaves=0, network="loopback") as running:
        yield running


async def test_asyncio_service_bills_every_order(cluster: EmbeddedCluster) -> None:
    said = await run(cluster, "asyncio_service.py", "100")
    assert said == f"taking orders\nbilled 100 orders, {sum(range(100))} cents\n"


async def test_asyncio_service_ends_well_on_ctrl_c(cluster: EmbeddedCluster) -> None:
    said = await run_until(cluster, "taking orders\n", "asyncio_service.py")
    found = re.fullmatch(r"taking orders\nbilled (\d+) orders, \d+ cents\n", said)
    assert found is not None, said


async def test_backfill_writes_every_message_into_one_file(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await run(cluster, "produce.py")
    said = await run(cluster, "backfill_to_parquet.py", "orders", str(tmp_path / "orders"))
    assert "\n1009 messages of orders in " in said
    rows = pq.read_table(tmp_path / "orders").to_pylist()
    assert sorted(row["keys"] for row in rows) == sorted(f"order-{n}" for n in range(1, 1010))
    for name in (path.stem for path in (tmp_path / "orders").iterdir()):
        broker_name, queue_id, offset = name.rsplit("-", 2)
        assert (broker_name, queue_id in "0123", int(offset) >= 0) == ("broker-a", True, True)


async def test_backfill_ends_well_on_ctrl_c_and_continues(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    await run(cluster, "produce.py")
    arguments = ("backfill_to_parquet.py", "orders", str(tmp_path))
    first = await run_until(cluster, "copying", *arguments)
    second = await run(cluster, *arguments)
    copied = [int(found) for found in re.findall(r"(\d+) messages", first + second)]
    assert sum(copied) == 1009
    assert pq.read_table(tmp_path).num_rows == 1009


async def test_reminders_come_when_they_are_due_and_not_before(cluster: EmbeddedCluster) -> None:
    said = await run(cluster, "delayed_reminder.py", "bread=4", "tea=1")
    assert re.fullmatch(r"waiting for 2\ntea, \d\.\d s late\nbread, \d\.\d s late\n", said), said


async def test_reminder_waits_at_the_broker_for_the_next_consumer(
    cluster: EmbeddedCluster,
) -> None:
    said = await run_until(cluster, "waiting for 1\n", "delayed_reminder.py", "bread=4")
    assert said == "waiting for 1\n"
    said = await run(cluster, "delayed_reminder.py", "tea=4")
    assert said.count("bread") == 1
    assert said.count("tea") == 1


async def test_order_service_bills_again_and_sets_aside(cluster: EmbeddedCluster) -> None:
    async with started(cluster, "order_service.py", "serve") as service:
        await service.has_said("serving")
        await run(cluster, "order_service.py", "order", "99")
        await service.has_said("billed 95 attempt 2")
        said = await run(cluster, "order_service.py", "dead")
        assert said.endswith("9 dead letters\n")
        mended = await run(cluster, "order_service.py", "mend")
        assert sorted(mended.splitlines()) == sorted(said.splitlines())
        assert await run(cluster, "order_service.py", "mend") == "0 dead letters\n"
        await service.has_said("billed 90 attempt 2")
    again = re.findall(r"billed (\d+) attempt 2", service.said)
    assert {int(number) for number in again} <= set(range(0, 100, 5))
    assert re.search(r"(\d+) orders, \d+ cents\n$", service.said)
    assert service.returncode == 0


async def test_payment_and_message_both_happen_or_neither(tmp_path: Path) -> None:
    outbox, database = "transactional_outbox.py", str(tmp_path / "payments.db")
    async with EmbeddedCluster(
        slaves=0, network="loopback", transaction_timeout=1.0, transaction_check_interval=0.5
    ) as cluster:
        await run(cluster, outbox, "pay", database, "10")
        await run(cluster, outbox, "crash", database, check=False)
        async with (
            started(cluster, outbox, "pay", database) as paying,
            started(cluster, outbox, "listen") as listening,
        ):
            await paying.has_said("asked about payment-1001: paid")
            await listening.has_said("payment-1001")
    assert paying.returncode == listening.returncode == 0
    received = {int(number) for number in re.findall(r"received payment-(\d+)", listening.said)}
    assert received == {1, 2, 3, 4, 6, 7, 8, 9, 1001}


async def test_payment_that_is_still_under_way_is_not_taken_for_one_that_never_was(
    autojump_clock: MockClock, tmp_path: Path
) -> None:
    example = runpy.run_path(str(EXAMPLES / "transactional_outbox.py"))
    payments = example["Payments"](tmp_path / "payments.db")
    answers = []

    async def of_another_process(message: MessageExt) -> TransactionState:
        answers.append(await payments.what_became_of(message))
        return answers[-1]

    async def of_this_process(message: MessageExt) -> TransactionState:
        raise AssertionError("its block still runs")

    def opened(check: CheckTransaction) -> AbstractAsyncContextManager[Producer]:
        return open_producer(
            group="paying",
            check_transaction=check,
            name_servers=cluster.name_servers,
            dial=cluster.dial,
            wall_clock=cluster.wall_clock,
        )

    async with EmbeddedCluster() as cluster, opened(of_another_process):
        async with (
            opened(of_this_process) as producer,
            producer.transaction(example["payment"](7)) as transaction,
        ):
            await trio.sleep(70)
            payments.pay(7, transaction.message_id)
        async with open_consumer(
            "payments",
            group="listening",
            start_from="earliest",
            name_servers=cluster.name_servers,
            dial=cluster.dial,
        ) as consumer:
            with trio.fail_after(10):
                assert (await consumer.receive()).keys == "payment-7"
    payments.close()
    assert answers
    assert set(answers) == {TransactionState.UNKNOWN}


def rows_of(database: str, query: str) -> list[tuple[Any, ...]]:
    """Return what a query finds in a database that a program writes."""
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(query).fetchall()


async def test_ledger_applies_the_entries_of_an_account_in_order(
    cluster: EmbeddedCluster, tmp_path: Path
) -> None:
    ledger, database = "ordered_ledger.py", str(tmp_path / "ledger.db")
    async with started(cluster, ledger, "keep", database) as keeper:
        await keeper.has_said("keeping 4 queues")
        assert await run(cluster, ledger, "post", "10") == "posted 100 entries\n"
        await keeper.has_said("applied 100")
        # A second one takes over some of the accounts, with entries under way.
        async with started(cluster, ledger, "keep", database) as other:
            await run(cluster, ledger, "post", "20")
            await other.has_said("keeping ")
            everything = 100 + 200
            # Entries of all queues: their offsets have no gaps.
            applied = "SELECT sum(next) FROM applied"
            await eventually(lambda: rows_of(database, applied)[0][0] >= everything, 30)
    assert keeper.returncode == other.returncode == 0, keeper.said + other.said
    names = ("ada", "bea", "cleo", "dora", "eve")
    balances = dict(rows_of(database, "SELECT name, cents FROM accounts"))
    assert balances == dict.fromkeys(names, 0)


async def test_every_cache_forgets_what_changed(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    caches, database = "cache_invalidator.py", str(tmp_path / "shop.db")
    async with (
        started(cluster, caches, "serve", database, "a") as one,
        started(cluster, caches, "serve", database, "b") as other,
    ):
        for name, cache in (("a", one), ("b", other)):
            await cache.has_said(f"{name}: sku-7 costs None")
        await run(cluster, caches, "change", database, "sku-7", "1299")
        for name, cache in (("a", one), ("b", other)):
            await cache.has_said(f"{name} forgets sku-7")
            await cache.has_said(f"{name}: sku-7 costs 1299")
    assert one.returncode == other.returncode == 0, one.said + other.said
    assert (tmp_path / "shop.a.json").exists()
