"""The demo on a few of its flights: what it says, how it ends, and that it leaves no process behind."""

import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path

import psutil
import pytest
import trio
from tests.support.quick_start import quick_home

DEMO = Path(__file__).parents[2] / "examples" / "demo"
FLIGHTS = 60_000
"""Enough that the first of them are cold for the brokers."""
TIME_LIMIT = 500.0
NO_JAVA = 3
INTERRUPTED = 130


def command(*arguments: str) -> list[str]:
    return [sys.executable, str(DEMO), "--flights", str(FLIGHTS), *arguments]


def left_behind(folder: Path) -> list[str]:
    """Command lines of whatever this demo started: its processes have its folder in their environment."""
    lines = []
    for process in psutil.process_iter(["cmdline", "environ"]):
        if (process.info["environ"] or {}).get("TMPDIR") == str(folder):
            lines.append(" ".join(process.info["cmdline"] or ()))
    return lines


def in_folder(folder: Path) -> dict[str, str]:
    """The demo's data under a folder of its own: another demo may run on this machine."""
    return {**os.environ, "TMPDIR": str(folder)}


def without_java(folder: Path) -> dict[str, str]:
    return {**in_folder(folder), "PATH": str(Path(sys.executable).parent), "JAVA_HOME": ""}


@pytest.mark.real
async def test_demo_without_java_does_the_rest_and_names_what_to_install(tmp_path: Path) -> None:
    with trio.fail_after(TIME_LIMIT):
        done = await trio.run_process(
            command(),
            env=without_java(tmp_path),
            capture_stdout=True,
            capture_stderr=True,
            check=False,
        )
    said = done.stdout.decode()
    assert done.returncode == NO_JAVA, said + done.stderr.decode()
    assert "no Java was found; install Java 17 or later" in said
    assert "NOT TRUE" not in said
    assert len(re.findall(r"│ true +│", said)) == 17
    for shown in (
        r"the slave hangs: FLUSH_SLAVE_TIMEOUT after 3,\d{3}\.\d ms",
        r"no slave is left: SLAVE_NOT_AVAILABLE after \d{1,3}\.\d ms",
        r"the last send that had to wait got PUT_OK after [\d.]+ ms for slaves",
        r"broker +id +role +address +log end +follows +behind +seconds +state",
        r"rebuilt ━+ [\d.]+/[\d.]+ MB",
        r"committed 24,000 before the kill, 48,000 at the slave, 48,000 as the master tells",
    ):
        assert re.search(shown, said), shown
    assert left_behind(tmp_path) == []


@pytest.mark.real
@pytest.mark.parametrize(
    ("number", "moment"),
    [
        (signal.SIGINT, b"killed the master"),
        pytest.param(signal.SIGTERM, b"stopped the slave", marks=pytest.mark.long),
    ],
    ids=["Ctrl-C", "SIGTERM"],
)
async def test_interruption_stops_every_process_of_the_demo(
    number: signal.Signals, moment: bytes, tmp_path: Path
) -> None:
    async with trio.open_nursery() as nursery:
        process = await nursery.start(
            partial(
                trio.run_process,
                command(),
                env=without_java(tmp_path),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                check=False,
            )
        )
        said = b""
        with trio.fail_after(TIME_LIMIT):
            while moment not in said:
                chunk = await process.stdout.receive_some()
                assert chunk, said
                said += chunk
            process.send_signal(number)
            while chunk := await process.stdout.receive_some():
                said += chunk
            assert await process.wait() == INTERRUPTED
    assert "every process was stopped" in said.decode()
    assert left_behind(tmp_path) == []


@pytest.mark.spark
@pytest.mark.long
async def test_demo_with_spark_is_all_true(tmp_path: Path) -> None:
    quick_home(tmp_path / "spark")
    with trio.fail_after(TIME_LIMIT):
        done = await trio.run_process(
            command(), env=in_folder(tmp_path), capture_stdout=True, check=False
        )
    said = done.stdout.decode()
    assert done.returncode == 0, said
    for shown in (
        "Spark and pandas agree: 60,000 rows",
        r"slave  at \S+ gave [\d,]+ messages, [\d,]+ bytes",
        r"60,000 rows to Parquet .* meanwhile the master stored [\d,]+ messages",
        r"[\d,]+ hours, each once, in \d+ micro-batches",
    ):
        assert re.search(shown, said), shown
    assert left_behind(tmp_path) == []
