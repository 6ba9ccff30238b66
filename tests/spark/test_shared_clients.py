"""Clients between tasks: shared, closed when no task comes, replaced when broken. Under a virtual clock."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from rocketrio.spark.shared_clients import CLIENT_IDLE, SharedClients
from rocketrio_broker.embedded import EmbeddedCluster


@asynccontextmanager
async def _kept() -> AsyncIterator[tuple[SharedClients, tuple[str, ...]]]:
    async with EmbeddedCluster() as cluster, trio.open_nursery() as nursery:
        yield SharedClients(nursery, cluster.dial), tuple(cluster.name_servers)
        nursery.cancel_scope.cancel()


async def test_one_client_serves_all_callers(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        found = set()

        async def ask(user: str) -> None:
            found.add(await clients.client(servers, user))

        async with trio.open_nursery() as nursery:
            for user in ("a", "b"):
                nursery.start_soon(ask, user)
        await ask("c")
        assert len(found) == 1
        assert await clients.client(("10.0.0.99:1",), "a") not in found


async def test_client_is_closed_after_a_while_without_users(
    autojump_clock: MockClock,
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        await client.name_servers.topics()
        assert client.pool.open_addrs
        await trio.sleep(10 * CLIENT_IDLE)
        assert not client.is_closed  # a task still has it
        clients.released("a")
        await trio.sleep(CLIENT_IDLE - 1)
        assert not client.is_closed
        await trio.sleep(2)
        assert client.is_closed
        assert not client.pool.open_addrs
        assert await clients.client(servers, "a") is not client


async def test_caller_in_time_keeps_the_client_open(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        await clients.client(servers, "b")
        clients.released("a")
        await trio.sleep(2 * CLIENT_IDLE)
        clients.released("b")
        await trio.sleep(CLIENT_IDLE - 1)
        assert await clients.client(servers, "c") is client
        await trio.sleep(2 * CLIENT_IDLE)
        assert not client.is_closed


async def test_caller_at_the_moment_of_the_close_gets_another_client(
    autojump_clock: MockClock,
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")
        clients.released("a")
        await trio.sleep(CLIENT_IDLE)  # Both are woken at the same time, in any order.
        other = await clients.client(servers, "b")
        await trio.sleep(1)
        assert other is not client
        assert not other.is_closed


async def test_a_broken_client_is_replaced(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _kept() as (clients, servers):
        client = await clients.client(servers, "a")

        def broken() -> None:
            raise LookupError("a fault")

        monkeypatch.setattr(client, "clean_offline_brokers", broken)
        await trio.sleep(35)  # It polls routes every 30 s.
        assert client.is_closed
        other = await clients.client(servers, "a")
        assert other is not client
        assert await other.name_servers.topics()
        clients.released("a")


async def test_a_cancelled_question_leaves_the_client_to_others(autojump_clock: MockClock) -> None:
    async with _kept() as (clients, servers):
        with trio.CancelScope() as scope:
            scope.cancel()
            await clients.client(servers, "a")
        assert scope.cancelled_caught
        clients.released("a")
        await clients.client(servers, "b")
