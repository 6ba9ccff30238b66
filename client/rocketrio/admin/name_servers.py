"""Administration of name servers: whether they agree, their settings, and their table of texts.

Name servers do not exchange anything. A text or a setting is changed at each of them, and each is reported by itself.

    namespace ORDER_TOPIC_CONFIG, key orders, value broker-a:4;broker-b:4    the queues of an ordered topic

Invariant: a name server that did not answer is an Error under its address, never an empty table.
Answers to: UpdateKvConfigCommand, DeleteKvConfigCommand, UpdateOrderConfCommand, GetNamesrvConfigCommand,
UpdateNamesrvConfigCommand.
"""

from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import trio

from rocketrio.admin.subject import AdminSubject
from rocketrio_protocol.bodies.java_properties import format_properties, parse_properties
from rocketrio_protocol.bodies.route import ClusterInfo, KVTable
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.cluster import (
    DeleteKVConfigRequestHeader,
    GetBrokerClusterInfoRequestHeader,
    GetKVListByNamespaceRequestHeader,
    GetNameServerConfigRequestHeader,
    PutKVConfigRequestHeader,
    UpdateNameServerConfigRequestHeader,
)
from rocketrio_protocol.errors import ConfigError, Error, QueryNotFoundError

ORDER_NAMESPACE: Final = "ORDER_TOPIC_CONFIG"
"""The namespace of the texts that say which queues an ordered topic has."""


@attrs.frozen
class NameServerState:
    """One name server."""

    address: str
    seconds: float | None
    """How long it took to answer; None if it did not."""
    brokers: int | None
    """The addresses that it knows; None if it did not answer."""
    differs: Sequence[str]
    """The answers in which it differs from most of them, or from the first if no majority agrees."""
    problem: str | None


class NameServerAdmin(AdminSubject):
    """The methods of `Admin` about name servers."""

    __slots__ = ()

    async def name_server_states(self) -> list[NameServerState]:
        """Return how each name server answers, and how their brokers differ. Raises nothing if one is silent."""
        servers = self.client.name_servers
        started = trio.current_time()

        def read(answer: RemotingCommand) -> tuple[float, ClusterInfo]:
            return trio.current_time() - started, ClusterInfo.from_json(answer.body)

        found = await servers.ask_each(
            GetBrokerClusterInfoRequestHeader(), read, what="cluster info failed"
        )
        known = {
            address: _places(one[1]) for address, one in found.items() if not isinstance(one, Error)
        }
        differences = differing(known)
        return [
            NameServerState(address, None, None, [], one.what)
            if isinstance(one, Error)
            else NameServerState(address, one[0], len(known[address]), differences[address], None)
            for address, one in found.items()
        ]

    async def name_server_settings(self) -> dict[str, dict[str, str] | Error]:
        """Return the settings of each name server, under Java's names."""
        return await self.client.name_servers.ask_each(
            GetNameServerConfigRequestHeader(),
            lambda answer: parse_properties(answer.body),
            what="settings not read",
        )

    async def change_name_server_settings(
        self, settings: Mapping[str, str]
    ) -> dict[str, dict[str, str] | Error]:
        """Change settings of each name server while it runs; return all its settings afterwards.

        A name server that refused, or took a setting without effect, is an Error. Apache's ignore unknown names
        silently.
        """
        body = format_properties(settings)
        done = await self.client.name_servers.ask_each(
            UpdateNameServerConfigRequestHeader(),
            lambda answer: None,
            body,
            what="settings not changed",
        )
        after = await self.name_server_settings()
        result: dict[str, dict[str, str] | Error] = {}
        for address, now in after.items():
            refused = done[address]
            if isinstance(refused, Error):
                result[address] = refused
            elif isinstance(now, Error):
                result[address] = now
            else:
                ignored = [name for name, value in settings.items() if now.get(name) != value]
                result[address] = (
                    ConfigError(f"{address} took {', '.join(ignored)} without effect")
                    if ignored
                    else now
                )
        return result

    async def name_server_texts(self, namespace: str) -> dict[str, dict[str, str] | Error]:
        """Return the texts of a namespace by key, as each name server has them; empty if it has none."""
        found = await self.client.name_servers.ask_each(
            GetKVListByNamespaceRequestHeader(namespace),
            lambda answer: {
                key: str(value) for key, value in KVTable.from_json(answer.body).table.items()
            },
            what=f"texts of {namespace} not read",
        )
        return {
            address: {} if isinstance(one, QueryNotFoundError) else one
            for address, one in found.items()
        }

    async def put_name_server_text(self, namespace: str, key: str, value: str) -> dict[str, Error]:
        """Store a text at each name server; return the errors of those that did not.

        After a cancel some may have it.
        """
        _check_text(namespace, key, value)
        return await self._failures(
            PutKVConfigRequestHeader(namespace, key, value), f"{namespace} {key} not stored"
        )

    async def delete_name_server_text(self, namespace: str, key: str) -> dict[str, Error]:
        """Remove a text at each name server; return the errors of those that did not. A missing text is no error."""
        _check_text(namespace, key, "x")
        return await self._failures(
            DeleteKVConfigRequestHeader(namespace, key), f"{namespace} {key} not removed"
        )

    async def _failures(
        self,
        header: PutKVConfigRequestHeader | DeleteKVConfigRequestHeader,
        what: str,
    ) -> dict[str, Error]:
        done = await self.client.name_servers.ask_each(header, lambda answer: None, what=what)
        return {address: one for address, one in done.items() if isinstance(one, Error)}


def _places(info: ClusterInfo) -> dict[str, str]:
    """Return the address of each broker name and id."""
    return {
        f"{name}/{broker_id}": addr
        for name, broker in info.broker_addr_table.items()
        for broker_id, addr in broker.broker_addrs.items()
    }


def differing(known: Mapping[str, Mapping[str, str]]) -> dict[str, list[str]]:
    """Return for each name server in what its table differs from the table that most of them have."""
    tables = list(known.values())
    if not tables:
        return {}
    usual = max(tables, key=tables.count)
    found: dict[str, list[str]] = {}
    for address, table in known.items():
        found[address] = [
            f"{key} is {table.get(key, 'missing')}"
            + (f", elsewhere {usual[key]}" if key in usual else ", elsewhere missing")
            for key in sorted({*usual, *table})
            if table.get(key) != usual.get(key)
        ]
    return found


def _check_text(namespace: str, key: str, value: str) -> None:
    for name, text in (("namespace", namespace), ("key", key), ("value", value)):
        if not text:
            raise ConfigError(f"the {name} is empty")


def order_text(queues: Mapping[str, int]) -> str:
    """Return the text for the queues of an ordered topic, by broker name. Raises ConfigError."""
    for broker_name, count in queues.items():
        if count < 1 or not broker_name or set(":;") & set(broker_name):
            raise ConfigError(
                f"{broker_name}:{count} is not a broker and its queues, as broker-a:4"
            )
    return ";".join(f"{broker_name}:{count}" for broker_name, count in queues.items())
