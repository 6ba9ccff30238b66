"""The README's code is run as it stands, but for the address of the name server."""

import re
import sys
from pathlib import Path

import pytest
import trio

from rocketrio_broker.embedded import EmbeddedCluster

README = Path(__file__).parents[2] / "README.md"
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
