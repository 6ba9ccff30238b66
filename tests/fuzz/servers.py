"""Targets that are whole servers: whatever one peer sends, another one is answered, and no defect is logged.

    broker, namesrv   a chunk of bytes at the port for clients
    master_link       at a master's replication port: first line `plain`, `sealed` or `handshake`
    slave_link        to a slave that follows: first line `apache`, `exchange`, `sealed` or `handshake`
    tls               at a port with TLS: first line `handshake`, `records` (after one) or `frames` (inside of it)

`sealed` bytes come from a peer that knows the secret; those of a `handshake` are the first of a link that asks for one.
"""

import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import trio

from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.link_security import LinkSecurity, secured_dial
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.errors import Error, NotReachableError
from rocketrio_protocol.ha.exchange import (
    EXCHANGE_HEAD_SIZE,
    Epoch,
    Greeting,
    Welcome,
    encode_exchange,
    exchange_size,
)
from rocketrio_protocol.ha.link import LINK_MAGIC, LinkHello, encode_hello
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.server_tls import ServerTls
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tls import connect_tls, tls_dial
from tests.fuzz import seeds
from tests.fuzz.lab import cluster_on, disk_of, lived
from tests.fuzz.seeds import FRAME_WORDS
from tests.fuzz.target import DefectError, Target, live, named, split_name
from tests.golden.mutations import is_whole
from tests.support.clocks import SettableClock
from tests.support.raw_client import raw_client, request
from tests.support.replication import (
    HEADER,
    MASTER,
    MASTER_HA,
    OTHER_SLAVE,
    REPORT,
    SLAVE,
    RawPeer,
    fill,
    log_bytes,
)
from tests.support.stores import opened
from tests.support.tls import client_context, server_context

_PROBE_OPAQUE: Final = 1_234_567
_LISTEN_TIME: Final = 1.0
"""Virtual seconds for answers to what was sent."""
_AFTERLIFE: Final = 12.0
"""Virtual seconds in which a server does what it does on a period with what it has received."""
_MESSAGES: Final = 8
_SECURITY: Final = LinkSecurity(
    bytes(32), broker_name="broker-a", address=MASTER_HA, new_nonce=bytes
)


def take_broker(data: bytes) -> None:
    """Send a chunk to a broker."""
    live(_ask, "broker", data, disk_of(lived()))


def take_namesrv(data: bytes) -> None:
    """Send a chunk to a name server."""
    live(_ask, "namesrv", data, MemoryDisk())


async def _ask(server: str, data: bytes, disk: MemoryDisk) -> None:
    probe = (
        request(30, {"topic": "none", "queueId": 0}, opaque=_PROBE_OPAQUE)
        if server == "broker"
        else request(206, opaque=_PROBE_OPAQUE)
    )
    async with cluster_on(disk) as running:
        address = running.master.broker.address if server == "broker" else running.name_server.addr
        async with (
            raw_client(running.dial, address) as healthy,
            raw_client(running.dial, address) as hostile,
        ):
            if server == "broker":
                await hostile.asked(request(34, {}, seeds.MEMBER))
            with suppress(
                NotReachableError
            ):  # What cannot be read may end its connection while it is sent.
                await hostile.send(data + (probe if is_whole(data) else b""))
            with trio.move_on_after(_LISTEN_TIME):
                while (told := await hostile.told()) is not None:
                    if not told.serialize_type and told.is_answer and told.opaque == _PROBE_OPAQUE:
                        break
            await trio.sleep(_AFTERLIFE)
            told = await healthy.asked(probe)
            if told.code != 0:
                raise DefectError(f"A good question was answered with {told.header}")


def _taken(life: Callable[[str, bytes], Awaitable[None]], *ways: str) -> Callable[[bytes], None]:
    """Return what takes inputs of these ways, and gives each a life."""

    def take(data: bytes) -> None:
        way, rest = split_name(data)
        if way in ways:
            live(life, way, rest)

    return take


async def _be_slave(way: str, data: bytes) -> None:
    """Connect to a master's replication port, and say this."""
    network, security = MemoryNetwork(), None if way == "plain" else _SECURITY
    async with opened(MemoryDisk()) as store, background_nursery() as nursery:
        await _write(store)
        log = log_bytes(store)
        listener = await network.host(MASTER).listen(MASTER_HA)
        service = HAService(store, listener, wall_clock=SettableClock(), security=security)
        await nursery.start(service.run)
        transport: Transport = await network.host(SLAVE).dial(MASTER_HA)
        if way == "sealed":
            transport = await _SECURITY.connect(transport, MASTER_HA)
        await _say(transport, data)
        dial = network.host(OTHER_SLAVE).dial
        honest = RawPeer(await (secured_dial(dial, security) if security else dial)(MASTER_HA))
        await honest.report(0)
        if b"".join(each.body for each in await honest.read_log(len(log))) != log:
            raise DefectError("An honest slave got another log than the master has")


async def _be_master(way: str, data: bytes) -> None:
    """Be the master of a slave, and say this."""
    network, is_secured = MemoryNetwork(), way in ("sealed", "handshake")
    async with opened(MemoryDisk()) as store, background_nursery() as nursery:
        await _write(store)
        log = log_bytes(store)
        store.begin_replication()
        listener = await network.host(MASTER).listen(MASTER_HA)
        dial = network.host(SLAVE).dial

        async def knows_epochs() -> bool:
            return way != "apache"

        client = HAClient(
            store,
            address=MasterAddress(MASTER_HA),
            dial=secured_dial(dial, _SECURITY) if is_secured else dial,
            wall_clock=SettableClock(),
            knows_epochs=knows_epochs,
        )
        await nursery.start(client.run)
        transport: Transport = await listener.accept()
        with suppress(Error):
            if way == "sealed":
                transport = await _SECURITY.accept(transport)
            if way in ("exchange", "sealed"):
                peer = RawPeer(transport)
                await peer.read(exchange_size(await peer.read(EXCHANGE_HEAD_SIZE)))
        await _say(transport, data)
        await (await listener.accept()).aclose()  # It tries again, whatever the answer was.
        if not log_bytes(store).startswith(log):
            raise DefectError("A slave gave up what it had")


async def _ask_over_tls(way: str, data: bytes) -> None:
    """Connect to a server that enforces TLS, and send this instead of a handshake, or after one."""
    network, executed = MemoryNetwork(), []

    def execute(channel: Channel, command: RemotingCommand) -> RemotingCommand:
        executed.append(command)
        return command.response()

    tls = ServerTls(lambda: server_context(MASTER))
    async with background_nursery() as nursery:
        listener = await network.host(MASTER).listen(f"{MASTER}:10911")
        await nursery.start(partial(serve_remoting, [listener], {}, default=execute, tls=tls))
        dial = network.host(SLAVE).dial
        transport: Transport = await dial(listener.addr)
        spoken = transport
        if way != "handshake":
            spoken = await connect_tls(transport, client_context(), MASTER)
        await _say(spoken if way == "frames" else transport, data)
        if executed and way != "frames":
            raise DefectError("A request was executed that did not come through TLS")
        async with open_channel_pool(
            tls_dial(network.host(OTHER_SLAVE).dial, client_context)
        ) as pool:
            answer = await pool.call(listener.addr, RemotingCommand(10))
        if answer.code != 0:
            raise DefectError(f"A good request was answered with {answer}")


def _tls_seeds() -> Sequence[bytes]:
    return [
        *(named("handshake", hello) for hello in _client_hellos()),
        named("handshake", request(10)),
        named("records", bytes.fromhex("1503030002 0100")),
        named("records", bytes.fromhex("1703030020") + bytes(32)),
        named("frames", request(10) + request(10, opaque=2)),
    ]


def _client_hellos() -> Sequence[bytes]:
    """Return what a client of this machine begins with."""
    hellos = []
    for host in (MASTER, "broker.example"):
        outgoing = ssl.MemoryBIO()
        client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=host)
        with suppress(ssl.SSLWantReadError):
            client.do_handshake()
        hellos.append(outgoing.read())
    return hellos


async def _write(store: MessageStore) -> None:
    """Begin a history of one epoch with some messages."""
    await store.epochs.begin(new_name=lambda: "me", reports_disk=False)
    await store.epochs.open(_EPOCH)
    fill(store, _MESSAGES)


async def _say(transport: Transport, data: bytes) -> None:
    """Send it all, hear what comes back for a while, and leave."""
    peer = RawPeer(transport)
    with suppress(Error), trio.move_on_after(_AFTERLIFE):
        await transport.send_all(data)
        while await peer.read(1 << 12):
            pass
    await transport.aclose()


# --- good inputs -----------------------------------------------------------------------------

_EPOCH: Final = Epoch(number=1, id="a", start=0, member="me")
_LINK_WORDS: Final = (
    b"\0" * 8, b"\xff" * 8, b"\x8arktrix\x01", LINK_MAGIC, b'"epochs":[', b'"number":1', b'"start":0', b'"covers":{',
    b'"opens":2', b'"asks_only":true', b'"is_reader":true', b'"highest":', b'"version":', b"\0\0\0\0\0\0\0\x01",
)  # fmt: skip


def _greetings() -> Sequence[bytes]:
    common: dict[str, Any] = {
        "member": "you",
        "begin": 0,
        "end": 0,
        "highest": 1,
        "epochs": [_EPOCH],
    }
    return [
        encode_exchange(Greeting(**common, **more))
        for more in ({}, {"opens": 2}, {"asks_only": True}, {"is_reader": True}, {"broker_id": 3})
    ]


def _master_link_seeds() -> Sequence[bytes]:
    reports = b"".join(REPORT.pack(offset) for offset in (0, 100, 1000))
    hello = LinkHello(end="slave", broker_name="broker-a", address=MASTER_HA, nonce=bytes(32))
    said = [reports, *(greeting + reports for greeting in _greetings())]
    shaken = [LINK_MAGIC, LINK_MAGIC + encode_hello(hello) + bytes(32)]
    return [
        *(named(way, data) for way in ("plain", "sealed") for data in said),
        *(named("handshake", data) for data in shaken),
    ]


def _slave_link_seeds() -> Sequence[bytes]:
    welcome = Welcome(member="you", begin=0, end=1600, highest=1, epochs=[_EPOCH])
    further = Epoch(number=2, id="b", start=800, member="you", covers={"me": 1})
    other = Welcome(member="you", begin=0, end=900, highest=2, epochs=[_EPOCH, further])
    hello = LinkHello(end="master", broker_name="broker-a", address=MASTER_HA, nonce=bytes(32))
    log = bytes(64)
    plain = HEADER.pack(0, len(log)) + log + HEADER.pack(len(log), 0)
    confirming = HEADER.pack(0, len(log)) + REPORT.pack(0) + log
    said = [encode_exchange(answer) + confirming for answer in (welcome, other)]
    return [
        named("apache", plain),
        *(named(way, data) for way in ("exchange", "sealed") for data in said),
        named("handshake", encode_hello(hello) + bytes(32)),
    ]


SERVERS: Final = (
    Target(
        "broker",
        take_broker,
        FRAME_WORDS,
        lambda: seeds.questions("broker"),
        is_framed=True,
        is_program=True,
    ),
    Target(
        "namesrv",
        take_namesrv,
        FRAME_WORDS,
        lambda: seeds.questions("namesrv"),
        is_framed=True,
        is_program=True,
    ),
    Target(
        "master_link",
        _taken(_be_slave, "plain", "sealed", "handshake"),
        _LINK_WORDS,
        _master_link_seeds,
        is_named=True,
        is_program=True,
    ),
    Target(
        "slave_link",
        _taken(_be_master, "apache", "exchange", "sealed", "handshake"),
        _LINK_WORDS,
        _slave_link_seeds,
        is_named=True,
        is_program=True,
    ),
    Target(
        "tls",
        _taken(_ask_over_tls, "handshake", "records", "frames"),
        (
            b"\x16\x03\x01",
            b"\x16\x03\x03",
            b"\x15\x03\x03\0\2",
            b"\x17\x03\x03",
            b"\x14\x03\x03\0\1\1",
        ),
        _tls_seeds,
        is_named=True,
        is_program=True,
    ),
)
