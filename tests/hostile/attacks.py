"""Peers that mean harm: `python -m tests.hostile.attacks NAME BROKER NAME_SERVER HA_PORT METRICS_PORT`.

Each attack writes its own bytes, over and over until it is killed, as a process of its own: it may use a quarter of a
core, so that what others feel is what it does to the servers and not to the machine.

Invariant: no attacker here knows a secret, and none waits for an answer that the attack does not need.
"""

import json
import struct
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from tests.hostile.attackers import BEGUN
from tests.support.raw_client import CPP, PULL, WIDE, heartbeat, registering, request
from tests.support.raw_frames import framed

TOPIC: Final = "orders"
CPU_SHARE: Final = 0.25
_CONNECTIONS: Final = 40
_PAGE: Final = b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"
_REPLY: Final = "MSG_TYPE\x01reply\x02REPLY_TO_CLIENT\x01deaf\x02CORRELATION_ID\x01x\x02"


@attrs.define
class Target:
    """Where to."""

    broker: tuple[str, int]
    name_server: tuple[str, int]
    replication: tuple[str, int]
    metrics: tuple[str, int]
    open_streams: list[trio.SocketStream] = attrs.Factory(list)

    async def connection(self, to: tuple[str, int]) -> trio.SocketStream:
        """One more connection, which stays open as long as the peer lets it."""
        stream = await trio.open_tcp_stream(*to)
        self.open_streams.append(stream)
        return stream

    async def throw(self, to: tuple[str, int], *chunks: bytes, seconds: float = 1.0) -> None:
        """Send on a connection of its own, wait for a first answer or a while, and be gone."""
        try:
            stream = await trio.open_tcp_stream(*to)
        except OSError:
            return
        async with stream:
            with trio.move_on_after(seconds):
                try:
                    for chunk in chunks:
                        await stream.send_all(chunk)
                    await stream.receive_some(1 << 16)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return

    async def keep_few(self, most: int = _CONNECTIONS) -> None:
        """End every connection once there are `most` of them."""
        if len(self.open_streams) >= most:
            await self.close_all()

    async def close_all(self) -> None:
        """Be gone with every connection."""
        for stream in self.open_streams:
            await trio.aclose_forcefully(stream)
        self.open_streams.clear()


def pull(**fields: Any) -> bytes:
    """A pull that is to be held."""
    return request(11, {**PULL, "topic": TOPIC, "queueOffset": 1 << 40, "sysFlag": 6, **fields})


async def digits(at: Target) -> None:
    """Bodies that took a parser hours."""
    for code in (34, 322, 41, 46, 200):
        for piece in (b"1", b"-", b'\\"{}', b'{"a'):
            body = b'{"x":' + piece * (200_000 // len(piece)) + b" y}"
            await at.throw(at.broker, request(code, {}, body))
            await at.throw(at.name_server, request(103, {"brokerName": "x"}, body))


async def groups(at: Target) -> None:
    """Heartbeats that name thousands of groups that do not exist."""
    name = str(time.monotonic_ns())
    await at.throw(
        at.broker,
        request(34, {}, heartbeat(name, consumers=(f"g-{name}-{n}" for n in range(3_000)))),
    )
    await at.throw(
        at.broker,
        request(34, {}, heartbeat(name, producers=(f"p-{name}-{n}" for n in range(50_000)))),
    )


async def registrations(at: Target) -> None:
    """Brokers by the thousand over one connection, and topics by the million in one body."""
    body = b"".join(
        request(103, registering(f"evil-{n}", f"10.0.{n >> 8}.{n & 255}:1", clusterName="evil"))
        for n in range(5_000)
    )
    await at.throw(at.name_server, body, seconds=3)
    lines = b"".join(_sized(b"t%d 4 4 6 SINGLE_TAG" % n) for n in range(300_000))
    table = struct.pack(">i", 300_000) + lines
    packed = zlib.compress(
        _sized(b'{"counter":1,"stateVersion":0,"timestamp":1}') + table + struct.pack(">i", 0)
    )
    fields = registering("evil", "10.1.0.1:1", packed, clusterName="evil", compressed=True)
    await at.throw(at.name_server, request(103, fields, packed), seconds=3)


def _sized(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


async def usurper(at: Target) -> None:
    """Takes the master's name away at the name server, and gives it to an address of its own."""
    host, port = at.broker
    true, false = f"{host}:{port}", "127.0.0.1:9"
    stream = await at.connection(at.name_server)
    away = request(104, registering("broker-a", true))
    await stream.send_all(away + request(103, registering("broker-a", false)))
    with trio.move_on_after(2):
        await stream.receive_some(1 << 16)


async def expressions(at: Target) -> None:
    """Expressions that are long, that no parser should try, and ever new ones over many connections."""
    for expression in ("-" * 16_000 + "1 > 0", "a = 1 OR " * 1_700 + "b = 2", "(" * 8_000):
        await at.throw(at.broker, pull(expressionType="SQL92", subscription=expression, sysFlag=4))
    for number in range(3):
        await at.throw(at.broker, pull(subscription=f"{number}" * 4_000_000, sysFlag=4))
    async with trio.open_nursery() as nursery:
        for connection in range(_CONNECTIONS):
            first = time.monotonic_ns() + 1_000 * connection
            fresh = (" OR ".join(f"a = {first + n}" for n in range(300)) for _ in range(3))
            chunk = b"".join(
                pull(expressionType="SQL92", subscription=f"{expression} OR b = {n}", sysFlag=4)
                for n, expression in enumerate(fresh)
            )
            nursery.start_soon(at.throw, at.broker, chunk)


async def held_pulls(at: Target) -> None:
    """Pulls that are to be held for ever, thousands on each connection, some as large as can be."""
    await at.keep_few()
    stream = await at.connection(at.broker)
    one = pull(suspendTimeoutMillis=(1 << 63) - 1)
    large = pull(suspendTimeoutMillis=60_000, unknown="x" * 4_000_000)
    with trio.move_on_after(2):
        await stream.send_all(one * 2_000 + large)


async def unfinished(at: Target) -> None:
    """Frames that never end."""
    await at.keep_few()
    for to in (at.broker, at.name_server):
        stream = await at.connection(to)
        with trio.move_on_after(1):
            await stream.send_all(struct.pack(">iI", (16 << 20) - 100, 100) + b"{" * (4 << 20))


async def half_open(at: Target) -> None:
    """Connections that say nothing, at every port."""
    await at.keep_few(600)
    for to in (at.broker, at.name_server, at.replication):
        for _ in range(20):
            try:
                await at.connection(to)
            except OSError:
                return


async def replication(at: Target) -> None:
    """Reports of a slave that has everything, and other numbers."""
    for offset in (0, 1, 1 << 40, -1, (1 << 63) - 1):
        await at.throw(at.replication, struct.pack(">q", offset), struct.pack(">q", 1 << 40))


async def slow_reader(at: Target) -> None:
    """Asks for everything there is, and reads nothing."""
    await at.keep_few()
    stream = await at.connection(at.broker)
    ask = request(11, {**PULL, "topic": TOPIC, "queueOffset": 0, "maxMsgNums": 1024, "sysFlag": 4})
    with trio.move_on_after(1):
        await stream.send_all(ask * 500)


def commit(group: str, topic: str, **fields: Any) -> bytes:
    """Return a commit of a group."""
    place = {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 0}
    return request(15, {**place, **fields})


async def offsets(at: Target) -> None:
    """Commits of groups that do not exist, for topics that do not exist."""
    chunk = b"".join(
        commit(f"g{n}", f"t{time.monotonic_ns()}", queueId=n, commitOffset=n) for n in range(1_000)
    )
    await at.throw(at.broker, chunk)
    generation = "999999999999999999.999999999999999999"
    await at.throw(at.broker, commit("workers", TOPIC, rocketrioGeneration=generation))


async def settings(at: Target) -> None:
    """Values of the name server's tables that are large."""
    for number in range(4):
        fields = {"namespace": "n", "key": f"{number}", "value": "v" * 5_000_000}
        await at.throw(at.name_server, request(100, fields))
    await at.throw(at.name_server, request(318, {}, b"a=b\\\n" * 50_000))


async def many_queues(at: Target) -> None:
    """A group whose retry topic has a queue for everybody alive, and a topic with as many as are allowed."""
    group = {"groupName": "wide", "consumeEnable": True, "retryQueueNums": 10**12}
    await at.throw(at.broker, request(200, {}, json.dumps(group).encode()))
    await at.throw(at.broker, request(34, {}, heartbeat("wide", consumers=["g-wide"])))
    await at.throw(at.broker, request(17, WIDE))
    for topic in ("wide", "%RETRY%wide"):
        await at.throw(at.broker, request(202, {"topic": topic}))


async def replies(at: Target) -> None:
    """Replies to a client of its own that never answers."""
    ear = await at.connection(at.broker)
    await ear.send_all(request(34, {}, heartbeat("deaf", producers=["p-deaf"])))
    await at.throw(at.broker, request(325, {**CPP, "i": _REPLY}, b"x") * 1_100)
    await at.close_all()


async def log_lines(at: Target) -> None:
    """Names with line ends in them."""
    name = "x\n2026-01-01 00:00:00,000 INFO rocketrio_broker forged\x1b[2J"
    await at.throw(at.broker, request(34, {}, heartbeat(name, producers=[name], consumers=[name])))
    named = dict.fromkeys(("brokerAddr", "clusterName", "haServerAddr"), name)
    await at.throw(at.name_server, request(103, registering(name, "10.0.0.1:1", **named)))


async def rubbish(at: Target) -> None:
    """Bytes of no protocol at all, and headers of wrong kinds."""
    for data in (
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01" + b"\0" * 500, b"\xff" * 5_000, b"\0" * 5_000,
        framed(b"\xdf\xff\xff\xff\xff", serialize_type=2), framed(b"{" * 100_000), framed(b"\0" * 40, serialize_type=1),
        framed(b'{"extFields":{' + b",".join(b'"k%d":"v"' % n for n in range(100_000)) + b"}}"),
    ):  # fmt: skip
        for to in (at.broker, at.name_server, at.replication):
            await at.throw(to, data, seconds=0.3)


async def metrics_held(at: Target) -> None:
    """Many connections to the page of metrics: silent ones, slow headers, and pages that are not read."""
    await at.keep_few()
    for beginning in (b"", b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ", _PAGE):
        for _ in range(8):
            try:
                stream = await at.connection(at.metrics)
                with trio.move_on_after(0.1):
                    await stream.send_all(beginning)
            except (OSError, trio.BrokenResourceError):
                continue
    for stream in at.open_streams:
        try:
            await stream.send_all(b"a")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            continue


async def metrics_requests(at: Target) -> None:
    """Requests for metrics that are huge, many at once, of wrong methods, or of no protocol at all."""
    for data in (
        _PAGE * 500,
        b"GET /metrics HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * 4_000_000,
        b"GET /" + b"../" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\n" + b"".join(b"X-%d: 1\r\n" % n for n in range(50_000)) + b"\r\n",
        b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 999999999999\r\n\r\n" + b"x" * 100_000,
        b"PUT /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n",
        b"DELETE / HTTP/1.1\r\nHost: x\r\n\r\n", b"TRACE / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"CONNECT 127.0.0.1:10911 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /metrics?" + b"name[]=%00" * 1_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01" + b"\0" * 500, b"\xff" * 5_000, b"\r\n" * 100_000, request(11, {**PULL, "topic": TOPIC}),
    ):  # fmt: skip
        await at.throw(at.metrics, data, seconds=0.3)


ATTACKS: Final[dict[str, Callable[[Target], Awaitable[None]]]] = {
    one.__name__: one
    for one in (
        digits, groups, registrations, usurper, expressions, held_pulls, unfinished, half_open, replication,
        slow_reader, offsets, settings, many_queues, replies, log_lines, rubbish,
        metrics_held, metrics_requests,
    )
}  # fmt: skip


async def main(
    name: str, broker: str, name_server: str, replication_port: str, metrics_port: str
) -> None:
    """Report the beginning, and attack until killed, resting as long as the share of a core demands."""
    host, _, port = broker.rpartition(":")
    names_host, _, names_port = name_server.rpartition(":")
    at = Target(
        (host, int(port)),
        (names_host, int(names_port)),
        (host, int(replication_port)),
        ("127.0.0.1", int(metrics_port)),
    )
    begin = trio.current_time()
    print(BEGUN, flush=True)
    while True:
        try:
            await ATTACKS[name](at)
        except (OSError, trio.BrokenResourceError):
            await at.close_all()
        used = time.process_time() / CPU_SHARE - (trio.current_time() - begin)
        await trio.sleep(max(0.05, used))


if __name__ == "__main__":
    trio.run(main, *sys.argv[1:])
