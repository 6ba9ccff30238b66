"""How long producers and groups pause in a hand-over under load, and how long no broker takes writes.

`python benchmarks/bench_hand_over.py [--rounds N] [--rate N] [--folder DIR]`. Name server and brokers are processes of
their own, the clients are ours and in this one. A round hands over there and back.

    hand_over.writes     from the last write the old master took to the first one the new master takes, as it says
    hand_over.producer   the longest time between two acknowledged sends of one producer (one send at a time, by key)
    hand_over.consumer   the longest time between two messages of a member of a group
    hand_over.quiet      the same two without a hand-over, in the same run, for comparison

Every message must come; those that came twice, and those whose answer was not SEND_OK, are counted.
"""

import argparse
import itertools
import json
import os
import statistics
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import attrs
import trio
from bench_failover import Running, running, wait_listed
from processes import started

from rocketrio import ClientInstance, Message, open_admin, open_client, open_consumer, open_producer
from rocketrio.admin import Admin
from rocketrio.producing.send_result import SendStatus
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

TOPIC: Final = "bench"
BODY: Final = 1024
WARM_UP: Final = 3.0
AROUND: Final = 3.0
"""Seconds of traffic before and after each hand-over."""
MONEY: Final = ("--set", "store.flush_disk_type=sync", "--set", "ha_acknowledge=disk")
LIMIT: Final = 60.0


def show(name: str, value: float, unit: str, **details: object) -> None:
    print(json.dumps({"name": name, "value": round(value, 4), "unit": unit, **details}), flush=True)


@attrs.define
class Traffic:
    """When each message was acknowledged, and when it came."""

    rate: int
    sent: list[float] = attrs.Factory(list)
    came: list[float] = attrs.Factory(list)
    seen: set[bytes] = attrs.Factory(set)
    repeats: int = 0
    unconfirmed: int = 0
    is_over: bool = False

    async def send(self, client: ClientInstance) -> None:
        async with open_producer(client=client, timeout=10) as producer:
            number = 0
            while not self.is_over:
                body = b"%012d" % number + bytes(BODY)
                result = await producer.send(Message(TOPIC, body), sharding_key=str(number % 8))
                self.unconfirmed += result.status is not SendStatus.SEND_OK
                self.sent.append(trio.current_time())
                number += 1
                await trio.sleep(1 / self.rate)

    async def receive(self, client: ClientInstance) -> None:
        async with open_consumer(TOPIC, group="readers", client=client) as consumer:
            async for message in consumer:
                key = message.body[:12]
                self.repeats += key in self.seen
                self.seen.add(key)
                self.came.append(trio.current_time())

    async def wait_all(self) -> None:
        with trio.fail_after(LIMIT):
            while len(self.seen) < len(self.sent):  # noqa: ASYNC110
                await trio.sleep(0.05)


def longest(times: list[float], since: float, until: float) -> float:
    inside = [time for time in times if since <= time <= until]
    return max((after - before for before, after in itertools.pairwise(inside)), default=0.0)


async def measure(name_server: str, brokers: list[Running], rounds: int, rate: int) -> None:
    async with open_channel_pool(dial_tcp) as pool:
        await wait_listed(pool, name_server, len(brokers))
    traffic = Traffic(rate)
    async with (
        open_client(name_servers=[name_server]) as sending,
        open_client(name_servers=[name_server]) as receiving,
        open_admin(client=receiving) as admin,
    ):
        await admin.create_topic(TOPIC, queues=8)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(traffic.receive, receiving)
            await trio.sleep(WARM_UP)
            nursery.start_soon(traffic.send, sending)
            await trio.sleep(WARM_UP)
            began = trio.current_time()
            await trio.sleep(2 * AROUND)
            quiet = began, trio.current_time()
            writes, windows = [], []
            for _ in range(2 * rounds):
                began = trio.current_time()
                writes.append(await hand_over(admin))
                await trio.sleep(AROUND)
                windows.append((began, trio.current_time()))
            traffic.is_over = True
            await trio.sleep(1)
            await traffic.wait_all()
            nursery.cancel_scope.cancel()
    tell("hand_over.writes", writes)
    tell("hand_over.producer", [longest(traffic.sent, *window) for window in windows])
    tell("hand_over.consumer", [longest(traffic.came, *window) for window in windows])
    show(
        "hand_over.quiet", longest(traffic.sent, *quiet), "s",
        consumer_s=round(longest(traffic.came, *quiet), 4),
        messages=len(traffic.sent), repeats=traffic.repeats, unconfirmed=traffic.unconfirmed,
    )  # fmt: skip


async def hand_over(admin: Admin) -> float:
    done = await admin.hand_over("broker-a")
    assert done.seconds is not None
    return done.seconds


def tell(name: str, values: list[float]) -> None:
    show(
        name, statistics.median(values), "s",
        best=round(min(values), 4), worst=round(max(values), 4), hand_overs=len(values),
    )  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="hand-overs there and back")
    parser.add_argument("--rate", type=int, default=200, help="sends a second at most")
    parser.add_argument("--folder", type=Path, help="where the data is made, and removed again")
    arguments = parser.parse_args()
    show("load_average", os.getloadavg()[0], "processes")
    with (
        tempfile.TemporaryDirectory(dir=arguments.folder, prefix="bench-hand-over-") as folder,
        started("namesrv", "--listen", "127.0.0.1:0") as (_, ready),
        ExitStack() as stack,
    ):
        named = ("--namesrv", ready["address"], *MONEY)
        brokers = [
            stack.enter_context(running(Path(folder) / role, "--role", role, "--id", id_, *named))
            for role, id_ in (("sync-master", "0"), ("slave", "1"))
        ]
        trio.run(measure, ready["address"], brokers, arguments.rounds, arguments.rate)


if __name__ == "__main__":
    main()
