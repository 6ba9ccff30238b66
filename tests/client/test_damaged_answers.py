"""Recorded answers with faults in them: each call has a value or an error of its own, in time; the next one works."""

import re
from contextlib import suppress

import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, remoting_frames
from tests.golden.mutations import Fault, damaged, faults, same_faults_each_run
from tests.support import client_calls
from tests.support.raw_server import ROUTE, Answer, answer_of, server_and_client, told
from trio.testing import MockClock

from rocketrio import NotReachableError
from rocketrio.cluster.connections import TIMEOUTS_IN_A_ROW
from rocketrio_protocol.errors import Error

PATIENCE = 20.0
"""Virtual seconds for one call, whatever its own timeout."""


CALLS = {
    client_calls.CALLS[name][0]: client_calls.CALLS[name][1]
    for name in (
        "pull", "offset", "topics", "runtime_info", "search_offset", "max_offset", "min_offset", "earliest",
        "heartbeat", "consumers", "route", "cluster", "groups", "topic_stats", "members", "all_topics",
        "consume_stats", "send",
    )
}  # fmt: skip
"""Those whose answers were recorded, by code."""


def recorded_answers() -> dict[int, bytes]:
    """The longest answer to each code that a rocketrio client asks."""
    asked: dict[tuple[str, int, bytes], int] = {}
    found: dict[int, list[bytes]] = {code: [] for code in CALLS}
    for version in VERSIONS:
        for frame in remoting_frames(version):
            code, opaque = (
                re.search(rb'"%b":(-?\d+)' % name, frame.data) for name in (b"code", b"opaque")
            )
            if code is None or opaque is None:
                continue
            where = version, frame.connection, opaque[1]
            if frame.from_dialer:
                asked[where] = int(code[1])
            elif asked.get(where) in found and code[1] == b"0":
                found[asked[where]].append(frame.data)
    return {code: max(frames, key=len) for code, frames in found.items()}


ANSWERS = recorded_answers()
FAULTS = st.lists(faults, min_size=len(ANSWERS), max_size=len(ANSWERS))


def with_faults(frame: bytes, changes: list[Fault]) -> Answer:
    """Return the recorded answer to a request, damaged."""
    answer = answer_of(frame)
    return lambda request: damaged(answer(request), changes)


def test_each_call_is_recorded() -> None:
    assert ANSWERS.keys() == CALLS.keys()

    async def main() -> None:
        async with server_and_client() as (server, client):
            for code, call in CALLS.items():
                server.answers[code] = [answer_of(ANSWERS[code])]
                await call(client)  # Undamaged, each is read.
                server.answers[105] = [told(body=ROUTE)]

    trio.run(main, clock=MockClock(autojump_threshold=0))


@same_faults_each_run(3)
@given(FAULTS)
def test_a_client_survives_damaged_answers(seen: list[list[Fault]]) -> None:
    async def main() -> None:
        async with server_and_client() as (server, client):
            for (code, frame), changes in zip(ANSWERS.items(), seen, strict=True):
                before = server.answers.get(code, [])
                server.answers[code] = [with_faults(frame, changes)]
                with trio.fail_after(PATIENCE), suppress(Error):
                    await CALLS[code](client)
                server.answers[code] = before
                with trio.fail_after(PATIENCE):
                    # A frame that claims more takes the answer behind it along: two timeouts end the connection.
                    for _ in range(TIMEOUTS_IN_A_ROW):
                        with suppress(NotReachableError):
                            await client.name_servers.topic_route("orders")
                    assert await client.name_servers.topic_route("orders") is not None

    trio.run(main, clock=MockClock(autojump_threshold=0))
