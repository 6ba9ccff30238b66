"""The benchmarks of this room run, briefly, so that they stay true."""

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.benchmarks import BENCHMARKS, figures
from tests.support.waiting import wait_until


@pytest.mark.slow
def test_codec_benchmark_measures_every_header_in_every_encoding() -> None:
    measured = {
        (line["header"], line["encoding"])
        for line in figures("codec", "5")
        if line["name"] == "codec.frame_decode"
    }
    assert len(measured) == 4 * 3


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.long
def test_remoting_benchmark_measures_both_sides() -> None:
    lines = figures("remoting", "0.05")
    assert {str(line["name"]).rpartition(".")[2] for line in lines} == {
        "rate",
        "client_cpu",
        "server_cpu",
    }
    assert all(float(str(line["value"])) > 0 for line in lines if "rate" in str(line["name"]))


_MEASURES_FOR_EVER = """
import time
from processes import started
with started("namesrv", "--listen", "127.0.0.1:0") as (process, _):
    print(process.pid, flush=True)
    time.sleep(600)
"""


@pytest.mark.slow
@pytest.mark.real
def test_killed_benchmark_leaves_no_process_behind() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _MEASURES_FOR_EVER], cwd=BENCHMARKS, stdout=subprocess.PIPE
    ) as benchmark:
        assert benchmark.stdout is not None
        name_server = int(benchmark.stdout.readline())
        assert _is_running(name_server)
        benchmark.kill()
    wait_until(lambda: not _is_running(name_server), "it has ended")


def _is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
