"""Asks what no request reports: until when certificates are valid, and by how much clocks differ.

A certificate is read by connecting. It is not verified, so that one that has expired can be read too, and nothing is
sent after the handshake. A clock is compared by a message to each master, for brokers that report none.

Invariant: only ports that are known to speak TLS, or RocketMQ's remoting protocol, are dialled: Apache's replication
port would take a handshake for offsets.
Answers to: nothing in Apache's tools.
"""

import ssl
from collections.abc import Sequence
from typing import Final

import trio

from rocketrio.admin.admin import Admin
from rocketrio.admin.cluster_status import clock_ahead
from rocketrio.producing.produce import open_producer
from rocketrio_protocol.errors import Error, TlsError
from rocketrio_protocol.message import Message
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.ports import Dial, join_addr, split_addr
from rocketrio_protocol.remoting.tcp import dial_tcp
from rocketrio_protocol.remoting.tls import TlsTransport, tls_dial
from rocketrio_protocol.remoting.tls_files import certificate_expiry_ms, new_context

DIAL_TIMEOUT: Final = 10.0
CLOCK_BODY: Final = b"rocketrio doctor: whose clock is right?"


async def compare_clocks(admin: Admin, topic: str) -> dict[str, float | Error]:
    """Store a message of the topic on each of its masters; return how many seconds each clock is ahead, by broker name.

    Raises RouteNotFoundError for an unknown topic. A master that did not take the message is an Error.
    """
    found: dict[str, float | Error] = {}
    clock = admin.client.wall_clock
    async with open_producer(client=admin.client, auto_create_topic=False, retries=0) as producer:
        queues = {queue.broker_name: queue for queue in await producer.queues(topic)}
        for name, queue in sorted(queues.items()):
            try:
                asked_ms = clock.now_ms()
                sent = await producer.send(Message(topic, CLOCK_BODY), queue=queue)
                answered_ms = clock.now_ms()
                stored = await admin.view_message(sent.offset_message_id)
            except Error as error:
                found[name] = error
            else:
                found[name] = clock_ahead(stored.store_time_ms, asked_ms, answered_ms)
    return found


async def certificate_ends(admin: Admin, also: Sequence[str] = ()) -> dict[str, int | Error]:
    """Return until when each server's certificate is valid, in ms since 1970, or why it shows none.

    Servers are name servers, registered brokers, replication ports of rocketrio brokers with TLS, and `also`, further
    addresses. Raises nothing for a server; without any name server only their addresses are tried.
    """
    places: dict[str, str] = {
        f"name server {one}": one for one in admin.client.name_servers.addresses
    }
    found: dict[str, int | Error] = {}
    try:
        info = await admin.cluster_info()
    except Error as error:
        found["brokers"] = error
    else:
        for name, broker in info.broker_addr_table.items():
            for number, addr in broker.broker_addrs.items():
                where = f"{name} {number} ({addr})"
                places[where] = addr
                replication = await _replication_port(admin, addr)
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


async def _replication_port(admin: Admin, addr: str) -> str | None:
    """Return the replication port of a rocketrio broker that has TLS there."""
    try:
        settings = await admin.calls.broker_config(addr)
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
