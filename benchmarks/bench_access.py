"""What access control and TLS cost: sends and pulls with an account, with TLS and with both, beside the same without.

Four clusters run side by side, one for each kind. Each round measures all, in turn, so that a busy machine is busy for
all; a line has the ratio of the medians. `hold` is the least ratio that there should be. `cpu_value` is the same ratio
of the CPU time of client or broker, of which the busier one limits the rate where each has a core: it depends less on
what else the machine does. `bench_peers.py protected` measures Apache's brokers with the same protection.

    send_64     awaited sends, 64 in flight          pipeline    sends in batches
    pull_32     pulls of up to 32 messages           consume     a consumer, message by message
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import Final, TypeAlias

import attrs
import trio
from peers.figures import cpu_seconds
from processes import Cluster, cluster

from rocketrio import (
    ClientInstance,
    Credentials,
    Message,
    MessageQueue,
    TlsOptions,
    open_admin,
    open_client,
    open_consumer,
    open_producer,
)
from rocketrio_protocol.commands.pull import PullMessageRequestHeader, PullSysFlag

ROUNDS: Final = 5
COUNT: Final = 20_000
SINGLES_DIVISOR: Final = 4
"""Awaited sends and pulls cost more: a fourth of the messages is enough."""
SIZES: Final = (128, 1024)
OWN: Final = Credentials("benchmark", "benchmark-secret")
INNER: Final = Credentials("inner-account", "inner-secret")
TOPICS: Final = tuple(f"bench-{size}" for size in SIZES)
GROUP: Final = "bench"

Work: TypeAlias = Callable[[ClientInstance, str, int, int], Awaitable[None]]


async def send_64(client: ClientInstance, topic: str, size: int, count: int) -> None:
    body, left = bytes(size), iter(range(count))
    async with open_producer(client=client) as producer, trio.open_nursery() as nursery:

        async def work() -> None:
            for _ in left:
                await producer.send(Message(topic, body))

        for _ in range(64):
            nursery.start_soon(work)


async def pipeline(client: ClientInstance, topic: str, size: int, count: int) -> None:
    body = bytes(size)
    async with open_producer(client=client) as producer, producer.pipeline() as sends:
        for _ in range(count):
            await sends.send(Message(topic, body))


async def pull_32(client: ClientInstance, topic: str, size: int, count: int) -> None:
    queue = MessageQueue(topic, "broker-a", 0)
    await client.topic_route(topic)
    [found, *_] = client.routing.candidates(queue.broker_name)
    first = await client.api.min_offset(found.addr, queue)
    for number in range(count // 32):
        header = PullMessageRequestHeader(
            consumer_group=GROUP,
            topic=topic,
            queue_id=queue.queue_id,
            queue_offset=first + number % 100,
            max_msg_nums=32,
            sys_flag=int(PullSysFlag.SUBSCRIPTION),
            commit_offset=0,
            suspend_timeout_millis=0,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=queue.broker_name,
        )
        result = await client.api.pull_message(found.addr, header, timeout=5)
        assert result.body


async def consume(client: ClientInstance, topic: str, size: int, count: int) -> None:
    queues = [MessageQueue(topic, "broker-a", number) for number in range(4)]
    async with open_consumer(
        topic, group=GROUP, queues=queues, start_from="earliest", auto_commit=False, client=client
    ) as consumer:
        received = 0
        async for _ in consumer:
            received += 1
            if received == count:
                break


WORKS: Final[dict[str, tuple[Work, int]]] = {
    "send_64": (send_64, SINGLES_DIVISOR),
    "pipeline": (pipeline, 1),
    "pull_32": (pull_32, 1),
    "consume": (consume, 1),
}


@attrs.frozen
class Kind:
    """A cluster, and how clients use it."""

    name: str
    hold: float | None
    """The least ratio to the plain cluster that there should be."""
    at: Cluster
    account: Credentials | None = None
    admin: Credentials | None = None
    tls: TlsOptions | None = None


@contextmanager
def clusters() -> Iterator[list[Kind]]:
    """Start one cluster without protection, and one with each kind of it."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        access, tls = _access_settings(folder), _tls_settings(folder)
        options = TlsOptions(folder / "server.pem")

        def run(*settings: str) -> Cluster:
            return stack.enter_context(cluster(settings))

        yield [
            Kind("plain", None, run()),
            Kind("access", 0.8, run(*access), OWN, INNER),
            Kind("tls", 0.6, run(*tls), tls=options),
            Kind("access_and_tls", 0.5, run(*access, *tls), OWN, INNER, options),
        ]


def _access_settings(folder: Path) -> tuple[str, ...]:
    """Write an account that may do no more than what is measured."""
    inner = _private(folder / "inner.yml", _keys(INNER))
    perms = ", ".join(f"{topic}=PUB|SUB" for topic in TOPICS)
    accounts = _private(
        folder / "plain_acl.yml",
        f"accounts:\n  - accessKey: {OWN.access_key}\n    secretKey: {OWN.secret_key}\n"
        f"    topicPerms: [{perms}]\n    groupPerms: [{GROUP}=SUB]\n",
    )
    return f"acl_file={accounts}", f"inner_credentials_file={inner}"


def _tls_settings(folder: Path) -> tuple[str, ...]:
    """Write a certificate that signs itself."""
    certificate, key = folder / "server.pem", _private(folder / "server.key", "")
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2"
    names = ("-subj", "/CN=benchmark", "-addext", "subjectAltName=IP:127.0.0.1")
    subprocess.run(
        [*command.split(), *names, "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip
    return (
        f"tls_certificate_file={certificate}",
        f"tls_key_file={key}",
        f"peer_tls_authority_file={certificate}",
    )


def _keys(account: Credentials) -> str:
    return f"accessKey: {account.access_key}\nsecretKey: {account.secret_key}\n"


def _private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.write_text(text)
    return path


@asynccontextmanager
async def _clients(kinds: Sequence[Kind]) -> AsyncGenerator[dict[str, ClientInstance]]:
    async with AsyncExitStack() as stack:
        clients = {}
        for kind in kinds:
            name_servers = [kind.at.name_server]
            async with open_admin(
                name_servers=name_servers, credentials=kind.admin, tls=kind.tls
            ) as admin:
                for topic in TOPICS:
                    await admin.create_topic(topic, queues=4)
            clients[kind.name] = await stack.enter_async_context(
                open_client(name_servers=name_servers, credentials=kind.account, tls=kind.tls)
            )
        yield clients


async def measure(kinds: Sequence[Kind], count: int, rounds: int) -> None:
    async with _clients(kinds) as clients:
        for size, topic in zip(SIZES, TOPICS, strict=True):
            for name, (work, divisor) in WORKS.items():
                used: dict[str, list[Used]] = {kind.name: [] for kind in kinds}
                for number in range(rounds):
                    for kind in kinds if number % 2 else kinds[::-1]:
                        before = _now(kind)
                        await work(clients[kind.name], topic, size, count // divisor)
                        used[kind.name].append(_now(kind).since(before))
                for each in kinds[1:]:
                    _print(each, name, size, count // divisor, used)


@attrs.frozen
class Used:
    """Seconds: on the clock, and of CPU time."""

    clock: float
    client: float
    broker: float

    def since(self, before: "Used") -> "Used":
        return Used(
            self.clock - before.clock, self.client - before.client, self.broker - before.broker
        )


def _now(kind: Kind) -> Used:
    return Used(time.perf_counter(), time.process_time(), cpu_seconds(kind.at.pid))


def _median(used: Sequence[Used]) -> Used:
    return Used(
        *(statistics.median(getattr(each, name) for each in used) for name in ("clock", "client", "broker"))
    )  # fmt: skip


def _print(kind: Kind, name: str, size: int, count: int, used: dict[str, list[Used]]) -> None:
    plain, protected = _median(used["plain"]), _median(used[kind.name])
    busiest = [max(each.client, each.broker) for each in (plain, protected)]
    line: dict[str, object] = {
        "name": f"{kind.name}.{name}",
        "value": round(plain.clock / protected.clock, 3),
        "cpu_value": round(busiest[0] / busiest[1], 3),
        "unit": "of plain",
        "hold": kind.hold,
        "size": size,
        "count": count,
    }
    for words, each in (("plain", plain), ("protected", protected)):
        line[f"{words}_per_s"] = round(count / each.clock)
        line[f"{words}_client_cpu_us"] = round(each.client / count * 1e6, 2)
        line[f"{words}_broker_cpu_us"] = round(each.broker / count * 1e6, 2)
    line["load_average"] = round(os.getloadavg()[0], 1)
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="messages a figure and round")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    chosen = parser.parse_args()
    with clusters() as kinds:
        trio.run(measure, kinds, chosen.count, chosen.rounds)


if __name__ == "__main__":
    main()
