"""What Apache's producers, in Java and Go, notice of a hand-over between our brokers: how long no send of theirs works.

They do not ask for a route when a broker refuses, so with one broker name the gap lasts until their next look at the
routes, 30 s at most; nothing that was acknowledged is lost. `-s` prints the gaps.
"""

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trio

from rocketrio import open_admin, open_client, open_consumer
from tests.interop.jars import UnavailableError
from tests.interop.java_client import JavaClient
from tests.interop.line_client import ClientError, LineClient
from tests.interop.other_clients import OtherClient, go_program
from tests.support.ours import our_pair

pytestmark = pytest.mark.interop

TOPIC = "handed-over"
ROUTE_PERIOD = 30.0
"""Seconds between two looks at the routes (pollNameServerInterval)."""


@pytest.fixture
def names_and_pair(tmp_path: Path) -> Iterator[str]:
    with our_pair(tmp_path, role="sync-master") as pair:
        yield pair.name_server.address


@pytest.fixture(params=["java 4.9.7", "java 5.3.3", "go"])
def producer(request: pytest.FixtureRequest, names_and_pair: str, tmp_path: Path) -> Iterator[Any]:
    language, _, version = request.param.partition(" ")
    home = tmp_path / "client"
    home.mkdir()
    try:
        client: LineClient = (
            JavaClient(version, names_and_pair, home)
            if language == "java"
            else OtherClient([go_program()], names_and_pair, home)
        )
        with client as opened:  # type: ignore[attr-defined]
            yield opened
    except UnavailableError as error:
        pytest.skip(f"interop: skipped: {error}")


async def test_producer_pauses_until_it_refreshes_its_routes_and_loses_nothing(
    names_and_pair: str, producer: LineClient, request: pytest.FixtureRequest
) -> None:
    acknowledged: list[str] = []
    times: list[float] = []
    is_over = False

    def send() -> None:
        number = 0
        while not is_over:
            body = f"{number:06d}"
            number += 1
            try:
                producer.call("send", topic=TOPIC, body=body)
            except ClientError:
                continue
            acknowledged.append(body)
            times.append(time.perf_counter())
            time.sleep(0.01)

    async with (
        open_client(name_servers=[names_and_pair]) as client,
        open_admin(client=client) as admin,
        trio.open_nursery() as nursery,
    ):
        await admin.create_topic(TOPIC, queues=4)
        nursery.start_soon(trio.to_thread.run_sync, send)
        try:
            await trio.sleep(5)
            assert times
            begin = times[-1]
            await admin.hand_over("broker-a")
            with trio.move_on_after(ROUTE_PERIOD + 15):
                while times[-1] < begin + 5:  # noqa: ASYNC110
                    await trio.sleep(0.1)
        finally:
            is_over = True  # Otherwise the thread, and with it the test, would never end.
        gap = max(b - a for a, b in itertools.pairwise(times) if b >= begin)
        print(f"\n{request.node.callspec.id}: longest gap {gap:.2f} s, {len(times)} sends")
        assert gap < ROUTE_PERIOD + 5
        found: set[str] = set()
        with trio.fail_after(60):
            async with open_consumer(
                TOPIC, group="readers", start_from="earliest", client=client
            ) as consumer:
                while not found >= set(acknowledged):
                    found.add((await consumer.receive()).body.decode())
