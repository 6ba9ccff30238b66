"""Asks what is wrong with a cluster; also what no request reports: certificates, and clocks that differ.

A certificate is read by connecting. It is not verified, so that one that has expired can be read too, and nothing is
sent after the handshake. A clock is compared by a message to each master, for brokers that report none.

Invariant: only ports that are known to speak TLS, or RocketMQ's remoting protocol, are dialled: Apache's replication
port would take a handshake for offsets.
Answers to: nothing in Apache's tools.
"""

import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import attrs
import trio

from rocketrio.admin.brokers import BrokerAdmin, listed_brokers
from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.cluster_status import UNKNOWN_STATES, clock_ahead
from rocketrio.admin.diagnosis import (
    Diagnosis,
    GroupCheck,
    Health,
    diagnosis_of,
    group_findings,
    health_of,
)
from rocketrio.admin.diagnosis.snapshot import Snapshot, ask_twice, completed
from rocketrio.admin.messages import MessageAdmin
from rocketrio.admin.name_servers import ORDER_NAMESPACE, NameServerAdmin
from rocketrio.admin.secret_settings import without_secrets
from rocketrio.producing.produce import open_producer
from rocketrio_protocol.bodies.route import ClusterInfo
from rocketrio_protocol.errors import Error, TlsError
from rocketrio_protocol.lag import WINDOW
from rocketrio_protocol.message import Message
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.ports import Dial, join_addr, split_addr
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.remoting.tls import TlsTransport, tls_dial
from rocketrio_protocol.remoting.tls_files import certificate_expiry_ms, new_context

DIAL_TIMEOUT: Final = 10.0

CLOCK_BODY: Final = b"rocketrio doctor: whose clock is right?"

logger = logging.getLogger("rocketrio.admin")


class DiagnosisAdmin(MessageAdmin, BrokerAdmin, NameServerAdmin):
    """The methods of `Admin` about what is wrong with a cluster."""

    __slots__ = ()

    async def check_group(self, group: str) -> GroupCheck:
        """Return what is wrong with the members of a group: subscriptions, owners of queues, versions.

        Brokers and members that do not answer are findings. Raises NoBrokerRegisteredError, NotReachableError without
        a name server, and GroupNotExistError if no broker knows the group.
        """
        await self.group(group)
        members = await ask_twice(self.client, self.calls, await self.masters(), group)
        return GroupCheck(members, group_findings(members))

    async def health(self) -> Health:
        """Return what is wrong with the name servers, the brokers and their replication.

        A server that does not answer is a finding. Raises NotReachableError only if no name server answers.
        """
        return health_of(await self.snapshot())

    async def snapshot(self) -> Snapshot:
        """Return what name servers and brokers answer about themselves: what `health` and most checks judge.

        The brokers are all that any name server knows. Raises NotReachableError only if no name server answers.
        """
        runtimes: dict[str, dict[str, str]] = {}

        async def ask(addr: str) -> None:
            try:
                runtimes[addr] = await self.calls.runtime_info(addr)
            except Error as error:
                logger.info("runtime unknown addr=%s error=%s", addr, error)

        servers = await self.client.name_servers.cluster_info_of_each()
        known = [one for one in servers.values() if isinstance(one, ClusterInfo)]
        statuses = await self._status(listed_brokers(known or [await self.cluster_info()]))
        async with trio.open_nursery() as nursery:
            for one in statuses:
                if one.state not in UNKNOWN_STATES:
                    nursery.start_soon(ask, one.address)
        return Snapshot(servers, statuses, runtimes, self.client.wall_clock.now_ms())

    async def diagnose(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Diagnosis:
        """Return everything that is wrong with the cluster and its groups, by requests that read.

        `groups` limits what is said of groups; `seconds` is the window of their lag, as in `lag`; `slaves` is how many
        each master should have, because a slave that was stopped is not registered any more. What could not be asked is
        in `unknown`, and never counts as well.

        Raises NotReachableError only if no name server answers, NoBrokerRegisteredError, and GroupNotExistError if no
        broker knows a group that was named.
        """
        return diagnosis_of(await self.whole_snapshot(*groups, seconds=seconds, slaves=slaves))

    async def whole_snapshot(
        self, *groups: str, seconds: float = WINDOW, slaves: int | None = None
    ) -> Snapshot:
        """Return what `diagnose` judges; otherwise like it."""
        await registered_brokers(self.client)
        window = self.lag_window(*groups, seconds=seconds)
        seen = await completed(self.client, self.calls, await self.snapshot(), window)
        return attrs.evolve(seen, slaves_wanted=slaves)

    async def bundle_files(self, seen: Snapshot) -> dict[str, Any]:
        """Return what a bundle has beside a snapshot, by file name. A server that does not answer leaves its reason."""
        # It imports what only an archive needs.
        from rocketrio.admin.diagnosis.bundle import with_folders

        files: dict[str, Any] = {}

        async def ask(name: str, question: Callable[[str], Awaitable[Any]], addr: str) -> None:
            try:
                files[name] = await question(addr)
            except Error as error:
                files[name] = {"not_answered": error.what}

        async with trio.open_nursery() as nursery:
            for one, folder in with_folders(seen.brokers):
                if one.state in UNKNOWN_STATES:
                    continue
                nursery.start_soon(
                    ask, f"{folder}/replication.json", self.calls.ha_status, one.address
                )
                if one.role != "slave":
                    nursery.start_soon(ask, f"{folder}/groups.json", self.calls.groups, one.address)
                    nursery.start_soon(
                        ask, f"{folder}/offsets.json", self.calls.all_offsets, one.address
                    )
        tables = {
            "settings": await self.name_server_settings(),
            ORDER_NAMESPACE: await self.name_server_texts(ORDER_NAMESPACE),
        }
        for name, found in tables.items():
            files[f"name_servers/{name}.json"] = {
                address: {"not_answered": one.what}
                if isinstance(one, Error)
                else without_secrets(one)
                for address, one in found.items()
            }
        return dict(sorted(files.items()))

    async def compare_clocks(self, topic: str) -> dict[str, float | Error]:
        """Store a message of the topic on each of its masters; return by how many seconds each clock is ahead.

        The result is by broker name; a master that did not take the message is an Error. Raises RouteNotFoundError for
        an unknown topic.
        """
        found: dict[str, float | Error] = {}
        clock = self.client.wall_clock
        async with open_producer(
            client=self.client, auto_create_topic=False, retries=0
        ) as producer:
            queues = {queue.broker_name: queue for queue in await producer.queues(topic)}
            for name, queue in sorted(queues.items()):
                try:
                    asked_ms = clock.now_ms()
                    sent = await producer.send(Message(topic, CLOCK_BODY), queue=queue)
                    answered_ms = clock.now_ms()
                    stored = await self.view_message(sent.offset_message_id)
                except Error as error:
                    found[name] = error
                else:
                    found[name] = clock_ahead(stored.store_time_ms, asked_ms, answered_ms)
        return found

    async def certificate_ends(self, also: Sequence[str] = ()) -> dict[str, int | Error]:
        """Return until when each server's certificate is valid, in ms since 1970, or why it shows none.

        Servers are name servers, registered brokers, replication ports of rocketrio brokers with TLS, and `also`,
        further addresses. Raises nothing for a server; without any name server only their addresses are tried.
        """
        places: dict[str, str] = {
            f"name server {one}": one for one in self.client.name_servers.addresses
        }
        found: dict[str, int | Error] = {}
        try:
            info = await self.cluster_info()
        except Error as error:
            found["brokers"] = error
        else:
            for name, broker in info.broker_addr_table.items():
                for number, addr in broker.broker_addrs.items():
                    where = f"{name} {number} ({addr})"
                    places[where] = addr
                    replication = await self._replication_port(addr)
                    if replication is not None:
                        places[f"replication of {where}"] = replication
        places |= {one: one for one in also}

        async def ask(where: str, addr: str) -> None:
            try:
                found[where] = await certificate_end(addr)
            except Error as error:
                found[where] = error

        async with trio.open_nursery() as nursery:
            for where, addr in places.items():
                nursery.start_soon(ask, where, addr)
        return dict(sorted(found.items()))

    async def _replication_port(self, addr: str) -> str | None:
        """Return the replication port of a rocketrio broker that has TLS there."""
        try:
            settings = await self.calls.broker_config(addr)
        except Error:
            return None
        port = decimal_value(settings.get("haListenPort"))
        if not settings.get("haTlsCertificateFile") or port is None:
            return None
        return join_addr(settings.get("brokerIP2") or split_addr(addr)[0], port)


async def certificate_end(addr: str, *, dial: Dial = dial_tcp) -> int:
    """Return until when the certificate of a server is valid. Raises NotReachableError, and TlsError without TLS."""
    context = new_context(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    transport = await tls_dial(dial, lambda: context)(addr, timeout=DIAL_TIMEOUT)
    assert isinstance(transport, TlsTransport)
    shown = transport.shown_certificate()
    await transport.aclose()
    if shown is None:
        raise TlsError(f"{addr} shows no certificate")
    return certificate_expiry_ms(shown)
