"""Bytes that change on a stopped slave's disk, outside of bodies and not near the end: only a check finds them."""

from pathlib import Path

import pytest
import trio
from tests.support.caller import Caller
from tests.support.commit_logs import wait_caught_up
from tests.support.ours import our_pair
from tests.support.waiting import HANGS

from rocketrio import open_admin
from rocketrio_protocol.bodies.log_check import LogCheckStatus
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.tcp import dial_tcp

pytestmark = [pytest.mark.real, pytest.mark.slow]

QUEUE_OFFSET_AT = 27  # the last byte of it
MESSAGES = 100
"""Twice what a slave compares when it connects."""


async def checked(names: str, addr: str) -> LogCheckStatus:
    async with open_admin(name_servers=names) as admin:
        return [status async for status in admin.check_log(addr)][-1]


async def wait_following(names: str, addr: str) -> None:
    async with open_admin(name_servers=names) as admin:
        for _ in range(300):
            told = await admin.calls.ha_status(addr)
            slave = told and told.ha_client_runtime_info
            if slave and slave.rocketrio_state == "following" and slave.rocketrio_tables_age:
                return
            await trio.sleep(0.1)
    raise AssertionError(f"{addr} does not follow: {told}")


async def test_byte_changed_on_a_slave_that_was_stopped_cleanly_is_found(tmp_path: Path) -> None:
    with our_pair(tmp_path) as pair:
        names, master, slave = pair.name_server, pair.master, pair.slave
        async with open_channel_pool(dial_tcp) as pool:
            for _ in range(MESSAGES):
                await Caller(pool).send(master.address, bytes(5000))
        await trio.to_thread.run_sync(wait_caught_up, master.address, slave.address)
        assert (await checked(names.address, slave.address)).problem_count == 0
        slave.stop()
        log = slave.store / "commitlog" / f"{0:020d}"
        with log.open("r+b") as file:
            address = int.from_bytes(file.read(4))  # of the second record
            file.seek(address + QUEUE_OFFSET_AT)
            byte = file.read(1)[0]
            file.seek(address + QUEUE_OFFSET_AT)
            file.write(bytes([byte ^ 4]))
        slave.start()
        slave.wait_ready()
        await wait_following(names.address, slave.address)
        with trio.fail_after(HANGS):
            found = await checked(names.address, slave.address)
        assert found.problem_count == len(found.problems) == 2
        assert found.problems[0].physical_offset == address
        assert "the record says it is message 5 of queue 0" in found.problems[0].problem
        assert found.master_addr == master.address
        assert "differs from that of the master" in found.problems[1].problem
        assert (await checked(names.address, master.address)).problem_count == 0
