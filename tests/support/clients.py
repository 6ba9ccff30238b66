"""The openers of `rocketrio`, with the network, the clock and the random numbers as keywords.

async with open_client(name_servers=["10.0.0.1:9876"], dial=network.host("10.0.0.7").dial) as client: ...
async with client_of(cluster, host="10.0.0.7") as client: ...
"""

import inspect
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import attrs

import rocketrio
from rocketrio import ClientInstance
from rocketrio.ports import Ports, current_ports, opened_with
from rocketrio_broker.embedded import CLIENT_HOST, EmbeddedCluster

PORTS = frozenset(field.name for field in attrs.fields(Ports))


def _with_ports(
    opener: Callable[..., AbstractAsyncContextManager[Any]],
) -> Callable[..., AbstractAsyncContextManager[Any]]:
    assert not PORTS & set(inspect.signature(opener).parameters)

    @asynccontextmanager
    async def opening(*arguments: Any, **options: Any) -> AsyncGenerator[Any]:
        given = {name: options.pop(name) for name in PORTS & set(options)}
        ports = attrs.evolve(current_ports.get(), **given)
        async with opened_with(ports, opener(*arguments, **options)) as opened:
            yield opened

    return opening


open_client = _with_ports(rocketrio.open_client)
open_producer = _with_ports(rocketrio.open_producer)
open_consumer = _with_ports(rocketrio.open_consumer)
open_admin = _with_ports(rocketrio.open_admin)


@asynccontextmanager
async def client_with_topic(
    cluster: EmbeddedCluster, topic: str = "orders", *, queues: int = 1, **options: Any
) -> AsyncGenerator[ClientInstance]:
    """Open a client of the cluster, and create a topic."""
    async with client_of(cluster, **options) as client:
        async with rocketrio.open_admin(client=client) as admin:
            await admin.create_topic(topic, queues=queues)
        yield client


def client_of(
    cluster: EmbeddedCluster, *, host: str = CLIENT_HOST, **options: Any
) -> AbstractAsyncContextManager[ClientInstance]:
    """Open a client of the cluster, which runs on this host and has the cluster's clock."""
    return open_client(
        name_servers=cluster.name_servers,
        dial=cluster.dial_from(host),
        wall_clock=cluster.wall_clock,
        **options,
    )
