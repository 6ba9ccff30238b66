"""Replication with faults in its bytes, at either end: the connection may end, the service never does.

The stream has no checksum of its own, so that a slave may take what is no part of its master's log. Then it says so.
"""

from contextlib import suppress
from itertools import cycle
from typing import Any

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from tests.golden.golden import VERSIONS, recorded_frames
from tests.golden.mutations import Fault, faults, same_faults_each_run
from tests.support.replication import (
    HEADER,
    OTHER_SLAVE,
    REPORT,
    RawPeer,
    followed,
    log_bytes,
    master,
    some_log,
)
from trio.testing import MockClock

from rocketrio_broker.ha.client import HAClientState
from rocketrio_protocol.errors import NotReachableError

AT_ONCE = 12
"""Damaged streams in the life of one service."""
PATIENCE = 60.0
"""Virtual seconds: three times the silence after which either end leaves."""
TRANSFER_SIZE = 4096
MESSAGES = 100


def recorded_reports() -> list[bytes]:
    """What slaves of Apache's reported, of each run as one stream."""
    return [
        b"".join(each.data for each in recorded_frames(run) if each.server == "ha" and each.from_dialer)
        for run in VERSIONS
    ]  # fmt: skip


def with_faults(data: bytes, changes: list[Fault]) -> bytes:
    for fault in changes:
        data = fault.of(data)
    return data


async def stay(peer: RawPeer, data: bytes) -> None:
    """Send it, and read for as long as the other end may want to talk."""
    with suppress(NotReachableError), trio.move_on_after(PATIENCE):
        await peer.transport.send_all(data)
        while await peer.read(4096):
            pass
    await peer.transport.aclose()


def run(main: Any, *arguments: Any) -> None:
    trio.run(main, *arguments, clock=MockClock(autojump_threshold=0))


many_faults = st.lists(faults, min_size=AT_ONCE, max_size=AT_ONCE)


@pytest.mark.slow
@same_faults_each_run(4)
@given(many_faults)
def test_a_master_survives_damaged_reports(seen: list[list[Fault]]) -> None:
    async def main() -> None:
        async with master(messages=MESSAGES) as ours:
            whole, end = log_bytes(ours.store), ours.store.max_physical_offset
            honest = b"".join(REPORT.pack(offset) for offset in (0, 1000, end))
            kinds = cycle([honest, *recorded_reports()])
            for number, (reports, changes) in enumerate(zip(kinds, seen, strict=False)):
                await stay(await ours.raw_slave(f"10.0.1.{number}"), with_faults(reports, changes))
            peer = await ours.raw_slave(OTHER_SLAVE)
            await peer.report(0)
            with trio.fail_after(PATIENCE):
                assert b"".join(each.body for each in await peer.read_log(end)) == whole

    run(main)


def transfers_of(log: bytes) -> list[bytes]:
    """The log as a master sends it, and a heartbeat behind it."""
    starts = range(0, len(log), TRANSFER_SIZE)
    bodies = [(start, log[start : start + TRANSFER_SIZE]) for start in starts]
    return [HEADER.pack(start, len(body)) + body for start, body in [*bodies, (len(log), b"")]]


async def follows_or_says_why(damaged: bytes) -> None:
    """A slave that was sent this, and then has a good master at the same address."""
    async with followed() as (theirs, ours):
        await stay(await theirs.accept(), damaged)
        theirs.listener.close()
        async with master(network=theirs.network, messages=MESSAGES) as good:
            with trio.move_on_after(PATIENCE):
                await ours.wait_end(good.store.max_physical_offset)
            await trio.sleep(PATIENCE)
            if ours.store.health.damage is not None:
                assert "is damaged at" in str(ours.client.problem)
            elif log_bytes(ours.store) == log_bytes(good.store):
                assert ours.client.state is HAClientState.FOLLOWING
            else:
                assert "differs from the master's" in str(ours.client.problem)


@pytest.mark.slow
@same_faults_each_run(4)
@given(many_faults)
def test_a_slave_survives_damaged_bytes(seen: list[list[Fault]]) -> None:
    async def main() -> None:
        sound = b"".join(transfers_of(await some_log(MESSAGES)))
        for changes in seen:
            await follows_or_says_why(with_faults(sound, changes))

    run(main)


@pytest.mark.slow
@same_faults_each_run(4)
@given(many_faults)
def test_a_slave_survives_damaged_headers(seen: list[list[Fault]]) -> None:
    async def main() -> None:
        sound = transfers_of(await some_log(MESSAGES))
        for number, changes in enumerate(seen):
            at = number % len(sound)
            header, body = sound[at][: HEADER.size], sound[at][HEADER.size :]
            changed = with_faults(header, changes) + body
            await follows_or_says_why(b"".join([*sound[:at], changed, *sound[at + 1 :]]))

    run(main)
