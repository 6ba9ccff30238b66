"""Recorded requests with faults in them: each gets an answer or ends its connection, and no other client notices.

What may stay silent is only what is no question: an answer, a oneway request, a frame that claims more than was sent.
"""

import logging
from collections.abc import Callable

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, remoting_frames
from tests.golden.mutations import Fault, damaged, faults, is_whole, same_faults_each_run
from tests.support.raw_client import raw_client, request
from trio.testing import MockClock

from rocketrio_broker.embedded import EmbeddedCluster
from rocketrio_protocol.remoting.ports import Dial

PROBE_OPAQUE = 1_234_567


def requests_to(server: str) -> list[bytes]:
    """One of each kind of request that was recorded: the longest, which has most to damage."""
    found: dict[bytes, list[bytes]] = {}
    for version in VERSIONS:
        for frame in remoting_frames(version):
            if frame.server == server and frame.from_dialer:
                found.setdefault(frame.data[8:24], []).append(frame.data)
    return [max(same, key=len) for same in found.values()]


REQUESTS = {server: requests_to(server) for server in ("broker", "namesrv")}
ADDRESS: dict[str, Callable[[EmbeddedCluster], str]] = {
    "broker": lambda cluster: cluster.master.broker.address,
    "namesrv": lambda cluster: cluster.name_server.addr,
}


async def act_on(dial: Dial, address: str, data: bytes, probe: bytes) -> None:
    """Send it on a connection of its own, and a good question behind it."""
    async with raw_client(dial, address) as client:
        await client.send(data + probe)
        while True:
            try:
                told = await client.told()
            except trio.TooSlowError:
                # The good question is still taken for the rest of it.
                assert not is_whole(data), data
                return
            if told is None:
                return
            if told.is_answer and told.opaque == PROBE_OPAQUE:
                return


async def survive(
    address_of: Callable[[EmbeddedCluster], str],
    cases: list[tuple[bytes, list[Fault]]],
    probe: bytes,
) -> None:
    async with EmbeddedCluster(cluster_name="lab") as cluster:
        address = address_of(cluster)
        async with raw_client(cluster.dial, address) as healthy:
            for frame, changes in cases:
                await act_on(cluster.dial, address, damaged(frame, changes), probe)
                told = await healthy.asked(probe)
                assert told.code == 0


def check(
    server: str, seen: list[list[Fault]], probe: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Each recorded request with the faults that are its turn."""
    cases = list(zip(REQUESTS[server], seen, strict=True))
    caplog.clear()
    with caplog.at_level(logging.WARNING, "rocketrio_protocol"):
        trio.run(survive, ADDRESS[server], cases, probe, clock=MockClock(autojump_threshold=0))
    bugs = [record for record in caplog.records if "a processor failed" in record.getMessage()]
    assert not bugs, [record.exc_info for record in bugs]


def faults_for(server: str) -> st.SearchStrategy[list[list[Fault]]]:
    count = len(REQUESTS[server])
    return st.lists(faults, min_size=count, max_size=count)


@pytest.mark.slow
@same_faults_each_run(3)
@given(faults_for("broker"))
def test_a_broker_survives_damaged_requests(
    caplog: pytest.LogCaptureFixture, seen: list[list[Fault]]
) -> None:
    probe = request(30, {"topic": "none", "queueId": 0}, opaque=PROBE_OPAQUE)
    check("broker", seen, probe, caplog)


@same_faults_each_run(3)
@given(faults_for("namesrv"))
def test_a_name_server_survives_damaged_requests(
    caplog: pytest.LogCaptureFixture, seen: list[list[Fault]]
) -> None:
    check("namesrv", seen, request(206, opaque=PROBE_OPAQUE), caplog)
