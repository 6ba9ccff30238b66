"""The clients that are connected to a cluster's brokers: producers and members of groups.

`merged` is a function of what brokers answered.

Invariant: a broker that did not answer is reported: the clients that only it knows are unknown.
Answers to: ProducerConnectionSubCommand, ProducerSubCommand, ConsumerConnectionSubCommand.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.cluster_questions import ask_each
from rocketrio_protocol.bodies.inspection import ProducerInfo
from rocketrio_protocol.bodies.stats import Connection
from rocketrio_protocol.errors import ConsumerNotOnlineError, Error
from rocketrio_protocol.remoting.tasks import ungrouped

PARALLEL_REQUESTS: Final = 16
"""The requests that wait for one broker at the same time."""


@attrs.frozen
class ConnectedClient:
    """One client, under one address."""

    client_id: str
    address: str
    """As the first broker saw it."""
    language: str
    version: int
    """The number of the protocol's version, as 407 for 4.9.7."""
    produces: Sequence[str]
    """The producer groups for which it may send."""
    consumes: Sequence[str]
    """The consumer groups whose member it is."""


@attrs.frozen
class ConnectedClients:
    """All clients, and the brokers that did not answer."""

    clients: Sequence[ConnectedClient]
    silent: Mapping[str, str]
    """Why brokers did not answer, by broker name."""


def merged(
    producers: Iterable[tuple[str, ProducerInfo]], members: Iterable[tuple[str, Connection]]
) -> list[ConnectedClient]:
    """Return one value for each client id from pairs of a group and a connection, in the order of ids."""
    found: dict[str, ConnectedClient] = {}

    def add(client_id: str, address: str, language: str, version: int) -> ConnectedClient:
        return found.setdefault(
            client_id, ConnectedClient(client_id, address, language, version, (), ())
        )

    for group, producer in producers:
        one = add(
            producer.client_id,
            producer.remote_ip.removeprefix("/"),
            producer.language,
            producer.version,
        )
        groups = tuple(sorted({*one.produces, group}))
        found[one.client_id] = attrs.evolve(one, produces=groups)
    for group, member in members:
        one = add(member.client_id, member.client_addr, member.language, member.version)
        groups = tuple(sorted({*one.consumes, group}))
        found[one.client_id] = attrs.evolve(one, consumes=groups)
    return [found[client_id] for client_id in sorted(found)]


async def connected_clients(admin: Admin) -> ConnectedClients:
    """Return all clients of a cluster: its producers, and the members of all groups.

    Raises RouteNotFoundError without a master, NotReachableError without a name server.
    """
    producers: list[tuple[str, ProducerInfo]] = []
    members: list[tuple[str, Connection]] = []
    silent: dict[str, str] = {}
    known = admin.client.namespace.known

    async def ask(name: str, addr: str) -> None:
        limit = trio.Semaphore(PARALLEL_REQUESTS)

        async def ask_members(group: str) -> None:
            async with limit:
                try:
                    found = await admin.calls.consumer_connections(addr, group)
                except ConsumerNotOnlineError:
                    return
                except Error as error:
                    silent[name] = error.what
                    return
            members.extend((group, one) for one in found.connection_set)

        try:
            table = await admin.calls.producers(addr)
            groups = known(await admin.calls.groups(addr))
        except Error as error:
            silent[name] = error.what
            return
        for group, clients in table.items():
            for short in known([group]):
                producers.extend((short, one) for one in clients)
        async with trio.open_nursery() as nursery:
            for group in groups:
                nursery.start_soon(ask_members, group)

    with ungrouped():
        async with trio.open_nursery() as nursery:
            for name, addr in (await admin.masters()).items():
                nursery.start_soon(ask, name, addr)
    return ConnectedClients(merged(producers, members), silent)


async def producers_of(admin: Admin, topic: str, *, group: str | None = None) -> ConnectedClients:
    """Return the producers that are connected to the brokers of a topic, of one producer group if it is given.

    Brokers do not know to which topics a producer sends: these may. Raises RouteNotFoundError.
    """
    await admin.client.refresh_topic_route(topic)
    route = await admin.client.topic_route(topic)
    masters = await admin.masters()
    producers: list[tuple[str, ProducerInfo]] = []
    names = [broker.broker_name for broker in route.broker_datas]
    answers, failed = await ask_each(
        {name: masters[name] for name in names if name in masters}, admin.calls.producers
    )
    silent = {name: "it has no master now" for name in names if name not in masters}
    silent.update((name, error.what) for name, error in failed.items())
    for table in answers.values():
        for long_name, clients in table.items():
            for short in admin.client.namespace.known([long_name]):
                if group in (None, short):
                    producers.extend((short, one) for one in clients)
    return ConnectedClients(merged(producers, ()), silent)
