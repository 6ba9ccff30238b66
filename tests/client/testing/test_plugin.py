"""The plugin in pytest runs of its own: what a project of users sees."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

pytestmark = pytest.mark.slow

TRIO = """
import os

import pytest
import trio
from rocketrio import Message, open_consumer, open_producer


async def receive():
    async with open_consumer("orders", group="billing") as consumer:
        return (await consumer.receive()).body


@pytest.mark.rocketmq_cluster(slaves=1)
async def test_five_minutes_pass_at_once_and_a_slave_takes_over(rocketmq_cluster):
    assert rocketmq_cluster.network == "memory"
    async with open_producer() as producer:
        await producer.send(Message("orders", b"{}"))
    await trio.sleep(300)
    await rocketmq_cluster.kill_master()
    assert await receive() == b"{}"
    assert isinstance(trio.lowlevel.current_clock(), trio.testing.MockClock)


async def test_finds_none_of_the_messages_before(rocketmq_cluster):
    assert rocketmq_cluster.slaves == []
    async with open_producer() as producer:
        await producer.send(Message("orders", b"second test"))
    assert await receive() == b"second test"


@pytest.fixture
async def producer(rocketmq_cluster):
    async with open_producer() as opened:
        yield opened


async def test_own_fixture_uses_the_cluster(producer, autojump_clock):
    await producer.send(Message("orders", b"{}"))
    assert await receive() == b"{}"
"""

PLAIN = """
import asyncio
import os
import subprocess
import sys
import threading

import pytest
import trio
from rocketrio import Message, open_consumer, open_producer
from rocketrio.aio import open_trio


async def send():
    async with open_producer() as producer:
        return (await producer.send(Message("orders", b"{}"))).status.name


def test_another_process_finds_the_cluster(rocketmq_cluster):
    assert rocketmq_cluster.name_servers == [os.environ["NAMESRV_ADDR"]]
    command = [sys.executable, os.environ["COMMAND"], "produce", "orders", ]
    subprocess.run(command, check=True, input=b"{}\\n")

    async def receive():
        async with open_consumer("orders", group="billing") as consumer:
            return (await consumer.receive()).body

    assert trio.run(receive) == b"{}"


@pytest.mark.rocketmq_cluster(slaves=1)
def test_asyncio_program_uses_the_cluster_and_the_master_returns(rocketmq_cluster):
    async def main():
        async with open_trio() as trio_side:
            return await trio_side.run(send)

    assert asyncio.run(main()) == "SEND_OK"
    rocketmq_cluster.kill_master()
    rocketmq_cluster.restart_master()
    assert asyncio.run(main()) == "SEND_OK"


def test_nothing_of_the_clusters_is_left():
    assert "NAMESRV_ADDR" not in os.environ
    assert not [thread for thread in threading.enumerate() if "rocketmq" in thread.name]
"""

ALONE = """
import sys


def test_test_without_the_fixture_starts_no_cluster():
    assert "pytest_rocketrio" in sys.modules
    loaded = {name.split(".")[0] for name in sys.modules}
    assert not loaded & {"trio", "rocketrio", "rocketrio_broker", "rocketrio_protocol"}
"""


def passed(folder: Path, source: str, *arguments: str) -> str:
    """Run the tests of a project and return the last line; the plugin is loaded as its entry point does."""
    (folder / "test_orders.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "pytest_rocketrio", "-p", "no:cacheprovider",
               "--strict-markers", "-W", "error", "--rootdir", str(folder), *arguments]  # fmt: skip
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()[-1]


@pytest.fixture(autouse=True)
def _no_name_server_of_this_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    monkeypatch.setenv("COMMAND", str(ROOT / "client/bin/rocketrio"))


def test_trio_tests_get_a_cluster_in_memory_and_virtual_time(tmp_path: Path) -> None:
    assert "3 passed" in passed(tmp_path, TRIO, "-o", "trio_mode=true")


def test_marked_trio_tests_get_one_too(tmp_path: Path) -> None:
    source = TRIO.replace("async def test_", "@pytest.mark.trio\nasync def test_")
    assert "3 passed" in passed(tmp_path, source)


def test_plain_and_asyncio_tests_get_a_cluster_on_ports(tmp_path: Path) -> None:
    assert "3 passed" in passed(tmp_path, PLAIN)


def test_tests_without_a_cluster_load_neither_trio_nor_the_broker(tmp_path: Path) -> None:
    assert "1 passed" in passed(tmp_path, ALONE, "-p", "no:trio")


def test_plugin_is_an_entry_point_of_its_own_name() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["entry-points"]["pytest11"] == {
        "pytest_rocketrio": "pytest_rocketrio"
    }
    assert (
        "client/pytest_rocketrio"
        in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    )


def test_the_cluster_needs_no_pytest() -> None:
    program = "import sys, rocketrio.testing; assert 'pytest' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
