"""Code of the README and of guides is run as it stands, but for the address of the name server."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from rocketrio import Message, open_admin, open_producer
from rocketrio_broker.embedded import EmbeddedCluster

README = Path(__file__).parents[2] / "README.md"
CLIENT = README.parent / "docs" / "client.md"
LISTED_ADDRESS = "127.0.0.1:9876"


@pytest.mark.real
async def test_readme_code_sends_and_receives(tmp_path: Path) -> None:
    code = re.search(r"```python\n(import trio\n.*?)```", README.read_text(), re.DOTALL)
    assert code is not None
    assert LISTED_ADDRESS in code[1]
    async with EmbeddedCluster(slaves=1, network="loopback") as cluster:
        program = tmp_path / "readme.py"
        program.write_text(code[1].replace(LISTED_ADDRESS, cluster.name_servers[0]))
        with trio.fail_after(60):
            done = await trio.run_process([sys.executable, str(program)], capture_stdout=True)
    lines = done.stdout.decode().splitlines()
    assert lines[0].startswith("SEND_OK numbers@broker-a:")
    assert len(lines) == 1 + 1000
    assert sum(line.endswith("number-1 b'1'") for line in lines) == 1


@pytest.mark.real
async def test_a_container_that_is_stopped_commits(tmp_path: Path) -> None:
    code = re.search(r"```python\n(import signal\n.*?)```", CLIENT.read_text(), re.DOTALL)
    assert code is not None
    program = tmp_path / "service.py"
    program.write_text(code[1])
    async with EmbeddedCluster(network="loopback") as cluster:
        environment = {**os.environ, "NAMESRV_ADDR": cluster.name_servers[0]}
        with trio.fail_after(60):
            async with open_producer(name_servers=cluster.name_servers) as producer:
                await producer.send(Message("orders", b"one"))
            process = await trio.lowlevel.open_process(
                [sys.executable, str(program)], stdout=subprocess.PIPE, env=environment
            )
            assert process.stdout is not None
            assert (await process.stdout.receive_some()).strip() == b"one"
            process.send_signal(signal.SIGTERM)
            assert await process.wait() == 0
            async with open_admin(name_servers=cluster.name_servers) as admin:
                offsets = await admin.offsets("orders", "billing")
    assert sum(queue.committed_offset or 0 for queue in offsets) == 1
