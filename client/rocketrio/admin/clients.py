"""The clients that are connected to a cluster's brokers: producers and members of groups.

`merged` is a function of what brokers answered.

Invariant: a broker that did not answer is reported: the clients that only it knows are unknown.
Answers to: ProducerConnectionSubCommand, ProducerSubCommand, ConsumerConnectionSubCommand.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.cluster_questions import ask_each
from rocketrio.admin.subject import AdminSubject
from rocketrio_protocol.bodies.inspection import ProducerInfo
from rocketrio_protocol.bodies.stats import Connection, ConsumerConnection, ProducerConnection
from rocketrio_protocol.commands.admin import GetProducerConnectionListRequestHeader
from rocketrio_protocol.errors import BrokerError, ConsumerNotOnlineError, Error, NotReachableError
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


class ClientAdmin(AdminSubject):
    """The methods of `Admin` about the clients that are connected to brokers."""

    __slots__ = ()

    async def consumer_connections(
        self, group: str, *, masters: Mapping[str, str] | None = None
    ) -> ConsumerConnection:
        """Return the members that are connected for a group, from the first master (of those given) that knows any.

        Raises ConsumerNotOnlineError if no master knows a member, and NotReachableError if one of them could not be
        asked.
        """
        asked = await self.masters() if masters is None else masters
        answers, failed = await ask_each(
            asked, lambda addr: self.calls.consumer_connections(addr, group)
        )
        for answer in answers.values():
            return self._short(answer)
        errors = list(failed.values())
        silent = [error for error in errors if isinstance(error, NotReachableError)]
        raise (silent or errors)[0]

    def _short(self, found: ConsumerConnection) -> ConsumerConnection:
        table = found.subscription_table
        found.subscription_table = {}
        for subscription in table.values():
            subscription.topic = self.client.namespace.unwrapped(subscription.topic)
            found.subscription_table[subscription.topic] = subscription
        return found

    async def member_stacks(self, group: str, client_id: str) -> str:
        """Return the stacks of all tasks and threads of a group's member, as it reports them.

        Raises ConsumerNotOnlineError if no master knows this member, BrokerError if it does not answer, and
        NotReachableError.
        """
        masters = await self.masters()
        answers, failed = await ask_each(
            masters, lambda addr: self.calls.consumer_connections(addr, group)
        )
        for name, found in answers.items():
            if client_id in {member.client_id for member in found.connection_set}:
                info = await self.calls.running_info(masters[name], group, client_id, stacks=True)
                return info.jstack or ""
        for error in failed.values():
            if not isinstance(error, ConsumerNotOnlineError):
                raise error
        raise ConsumerNotOnlineError(
            f"no master knows a member {client_id} of {group}",
            remedy=f"`rocketrio group members {group}` lists them",
        )

    async def producer_connections(self, group: str) -> ProducerConnection:
        """Return the clients that send for a producer group, from all masters. Raises BrokerError if none knows any."""
        found = ProducerConnection()
        header = GetProducerConnectionListRequestHeader(group)
        what = f"clients of producer group {group} not read"
        answers, failed = await ask_each(
            await self.masters(), lambda addr: self.calls.read(addr, header, what)
        )
        for error in failed.values():
            if not isinstance(error, BrokerError):
                raise error
        for answer in answers.values():
            known = {connection.client_id for connection in found.connection_set}
            found.connection_set += [
                connection
                for connection in answer.connection_set
                if connection.client_id not in known
            ]
        if failed and not found.connection_set:
            raise next(reversed(failed.values()))
        return found

    async def connected_clients(self) -> ConnectedClients:
        """Return all clients of a cluster: its producers, and the members of all groups.

        Raises RouteNotFoundError without a master, NotReachableError without a name server.
        """
        producers: list[tuple[str, ProducerInfo]] = []
        members: list[tuple[str, Connection]] = []
        silent: dict[str, str] = {}
        known = self.client.namespace.known

        async def ask(name: str, addr: str) -> None:
            limit = trio.Semaphore(PARALLEL_REQUESTS)

            async def ask_members(group: str) -> None:
                async with limit:
                    try:
                        found = await self.calls.consumer_connections(addr, group)
                    except ConsumerNotOnlineError:
                        return
                    except Error as error:
                        silent[name] = error.what
                        return
                members.extend((group, one) for one in found.connection_set)

            try:
                table = await self.calls.producers(addr)
                groups = known(await self.calls.groups(addr))
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
                for name, addr in (await self.masters()).items():
                    nursery.start_soon(ask, name, addr)
        return ConnectedClients(merged(producers, members), silent)

    async def producers_of(self, topic: str, *, group: str | None = None) -> ConnectedClients:
        """Return the producers that are connected to the brokers of a topic, of one producer group if it is given.

        Brokers do not know to which topics a producer sends: these may. Raises RouteNotFoundError.
        """
        await self.client.refresh_topic_route(topic)
        route = await self.client.topic_route(topic)
        masters = await self.masters()
        producers: list[tuple[str, ProducerInfo]] = []
        names = [broker.broker_name for broker in route.broker_datas]
        answers, failed = await ask_each(
            {name: masters[name] for name in names if name in masters}, self.calls.producers
        )
        silent = {name: "it has no master now" for name in names if name not in masters}
        silent.update((name, error.what) for name, error in failed.items())
        for table in answers.values():
            for long_name, clients in table.items():
                for short in self.client.namespace.known([long_name]):
                    if group in (None, short):
                        producers.extend((short, one) for one in clients)
        return ConnectedClients(merged(producers, ()), silent)


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
