"""SIGTERM of a broker process while offsets are committed: what was answered is there after the next start."""

import signal
import subprocess
from pathlib import Path

import pytest
import trio
from tests.cluster.killed_broker import broker_process
from tests.support.caller import Caller
from tests.support.waiting import HANGS, eventually

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

ROUNDS = 3
COMMITTERS = 8


async def commit_until_stopped(addr: str, queue_id: int, answered: dict[int, int]) -> None:
    async with open_channel_pool(dial_tcp) as pool:
        caller = Caller(pool)
        offset = answered.get(queue_id, 0)
        while True:
            offset += 1
            try:
                answer = await caller.commit(addr, offset, queue_id=queue_id)
            except Error:
                return
            if answer.code != ResponseCode.SUCCESS:
                return
            answered[queue_id] = offset


async def commit_through_a_stop(
    process: "subprocess.Popen[str]", addr: str, answered: dict[int, int]
) -> None:
    async with open_channel_pool(dial_tcp) as pool:
        await Caller(pool).create_topic(addr, queues=COMMITTERS)
    async with trio.open_nursery() as nursery:
        for queue_id in range(COMMITTERS):
            nursery.start_soon(commit_until_stopped, addr, queue_id, answered)
        enough = {queue_id: answered.get(queue_id, 0) + 50 for queue_id in range(COMMITTERS)}
        await eventually(
            lambda: all(answered.get(queue_id, 0) >= offset for queue_id, offset in enough.items()),
            HANGS,
            interval=0.01,
        )
        process.send_signal(signal.SIGTERM)


async def committed(addr: str) -> dict[int, int]:
    async with open_channel_pool(dial_tcp) as pool:
        caller = Caller(pool)
        return {
            queue_id: await caller.committed(addr, queue_id=queue_id)
            for queue_id in range(COMMITTERS)
        }


def test_no_answered_commit_is_lost_by_sigterm(tmp_path: Path) -> None:
    answered: dict[int, int] = {}
    data = tmp_path / "data"
    for _ in range(ROUNDS):
        with broker_process(data, "127.0.0.1:0") as (process, addr):
            trio.run(commit_through_a_stop, process, addr, answered)
            assert process.wait(HANGS) == 0
        assert not (data / "abort").exists()
        with broker_process(data, "127.0.0.1:0") as (process, addr):
            found = trio.run(committed, addr)
            process.terminate()
            assert process.wait(HANGS) == 0
        assert all(found[queue_id] >= offset for queue_id, offset in answered.items())
