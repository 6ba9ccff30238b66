"""The asyncio service that sells with transactions: killed between half message and decision, asked by the broker."""

import runpy
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trio
from tests.examples.programs import EXAMPLES, Program, run, started
from tests.support.processes import free_port
from tests.support.waiting import HANGS

from rocketrio import TransactionState, open_consumer
from rocketrio_broker.embedded import EmbeddedCluster

EXAMPLE = "asyncio_transactions.py"


@contextmanager
def locked(database: Path) -> Iterator[None]:
    """Keep the service from selling: its transaction begins when this block ends."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.rollback()


def sales(database: Path) -> dict[str, int]:
    with closing(sqlite3.connect(database)) as connection:
        return dict(connection.execute("SELECT * FROM sales"))


async def begin(service: Program, port: int, line: bytes) -> None:
    """Buy, and wait until the half message is stored."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(line)
        await service.has_said("begun")


async def delivered(cluster: EmbeddedCluster, count: int) -> list[str]:
    """Return the keys of the first messages that consumers get."""
    async with open_consumer(
        "sales",
        group="watching",
        start_from="earliest",
        wait_for_topic=HANGS,
        name_servers=cluster.name_servers,
    ) as consumer:
        with trio.fail_after(HANGS):
            return [str((await consumer.receive()).keys) for _ in range(count)]


def a_cluster() -> EmbeddedCluster:
    return EmbeddedCluster(
        slaves=0, network="loopback", transaction_timeout=1.0, transaction_check_interval=0.5
    )


@pytest.mark.real
@pytest.mark.slow
async def test_sale_that_was_not_committed_when_the_service_was_killed_never_was(
    tmp_path: Path,
) -> None:
    database, port = tmp_path / "shop.db", str(free_port())
    async with a_cluster() as cluster:
        async with started(cluster, EXAMPLE, "serve", str(database), port) as service:
            await service.has_said("selling")
            with locked(database):
                await begin(service, int(port), b"order-1 2\n")
                service.process.kill()
                await service.ended()
        async with started(cluster, EXAMPLE, "serve", str(database), port) as service:
            await service.has_said("asked about order-1: ROLLBACK\n")
            assert await run(cluster, EXAMPLE, "buy", port, "order-2", "3") == "sold\n"
            said = await run(cluster, EXAMPLE, "buy", port, "order-2", "3")
            assert said == "not sold: sold before, or given up\n"
            said = await run(cluster, EXAMPLE, "buy", port, "order-3", "98")
            assert said == "not sold: too few are left\n"
            assert await run(cluster, EXAMPLE, "buy", port, "order-4", "97") == "sold\n"
            said = await run(cluster, EXAMPLE, "buy", port, "order-5", "many")
            assert said.startswith("not sold: ")
            await cluster.kill_master()
            said = await run(cluster, EXAMPLE, "buy", port, "order-6", "1")
            assert said.startswith("ask again: ")
            await cluster.restart_master()
        assert service.returncode == 0
        assert sales(database) == {"order-2": 3, "order-4": 97}
        assert await delivered(cluster, 2) == ["order-2", "order-4"]


@pytest.mark.real
@pytest.mark.slow
async def test_sale_that_was_committed_when_the_service_was_killed_is_delivered(
    tmp_path: Path,
) -> None:
    """The master is away from the half message on, so that the decision cannot have arrived."""
    database, port = tmp_path / "shop.db", str(free_port())
    async with a_cluster() as cluster:
        async with started(cluster, EXAMPLE, "serve", str(database), port) as service:
            await service.has_said("selling")
            with locked(database):
                await begin(service, int(port), b"order-1 2\n")
                await cluster.kill_master()
            await service.has_said("order-1 sold\n")
            service.process.kill()
            await service.ended()
        await cluster.restart_master()
        async with started(cluster, EXAMPLE, "serve", str(database), port) as service:
            await service.has_said("asked about order-1: COMMIT\n")
            assert await delivered(cluster, 1) == ["order-1"]
        assert service.returncode == 0
        assert sales(database) == {"order-1": 2}


def test_process_that_is_asked_and_process_that_sells_decide_once(tmp_path: Path) -> None:
    example = runpy.run_path(str(EXAMPLES / EXAMPLE))
    shop = example["Shop"](tmp_path / "shop.db")
    assert shop.decision("first") is TransactionState.ROLLBACK
    with pytest.raises(example["NotSoldError"]):
        shop.sell("order-1", 2, "first")
    shop.sell("order-1", 2, "second")
    assert shop.decision("second") is TransactionState.COMMIT
    assert shop.decision("first") is TransactionState.ROLLBACK
    assert sales(tmp_path / "shop.db") == {"order-1": 2}
