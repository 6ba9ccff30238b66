"""A master's process that was stopped (SIGSTOP) tells, from its first answer on, what was committed to its slave."""

from pathlib import Path

import pytest
import trio
from tests.support.caller import Caller
from tests.support.commit_logs import wait_caught_up
from tests.support.load import stopped
from tests.support.ours import our_pair

from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]


async def test_stopped_master_reports_what_its_slave_took_meanwhile(tmp_path: Path) -> None:
    with our_pair(tmp_path) as pair:
        master, slave = pair.master, pair.slave
        async with open_channel_pool(dial_tcp) as pool:
            caller = Caller(pool)
            for _ in range(40):
                await caller.send(master.address, b"x")
            await caller.commit(master.address, 10)
            await trio.to_thread.run_sync(wait_caught_up, master.address, slave.address)
            for _ in range(200):
                if await caller.committed(slave.address) == 10:
                    break
                await trio.sleep(0.1)
            answers: list[int] = []

            async def ask() -> None:
                answers.append(await caller.committed(master.address))

            async with trio.open_nursery() as nursery:
                with stopped(master):
                    await trio.sleep(5)
                    await caller.commit(slave.address, 30)
                    # These lie in the socket when the process goes on.
                    for _ in range(5):
                        nursery.start_soon(ask)
                    await trio.sleep(0.2)
                for _ in range(50):
                    await ask()
                    await trio.sleep(0.02)
            assert set(answers) == {30}
