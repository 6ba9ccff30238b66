"""The topic as a Spark DataFrame: Spark's numbers beside those of pandas, or what to install."""

import json
import os
import shutil
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from time import perf_counter

import trio
from cluster import Demo
from flights import AirportDelay
from steps import TOPIC

SPARK_LIMIT = 240.0
"""Seconds for the whole job."""
JAVA_VERSION = 17


async def read_with_spark(demo: Demo, expected: dict[str, AirportDelay]) -> bool:
    """The topic as a DataFrame; False when Java is missing."""
    demo.report.step(8, "The topic as a Spark DataFrame")
    claim = "Spark and pandas agree"
    missing = await trio.to_thread.run_sync(_java_problem)
    if missing:
        demo.report.leave_out(claim, missing)
        return False
    started = perf_counter()
    command = [
        sys.executable,
        str(Path(__file__).with_name("spark_step.py")),
        demo.name_servers[0],
        TOPIC,
    ]
    done = None
    with trio.move_on_after(SPARK_LIMIT):
        done = await trio.run_process(
            command,
            capture_stdout=True,
            capture_stderr=True,
            check=False,
            start_new_session=True,
            deliver_cancel=partial(_kill_group),
        )
    result = _spark_result(done.stdout) if done is not None else None
    if result is None:
        said = done.stderr.decode(errors="replace")[-600:] if done else "it took too long"
        demo.report.check(claim, holds=False, detail=f"the Spark job failed: {said}")
        return True
    for airport, delay in sorted(expected.items()):
        found = result.get(airport)
        demo.report.say(
            f"{airport}  pandas {_spelled(delay)}   Spark {_spelled(found) if found else '-'}"
        )
    agree = result.keys() == expected.keys() and all(
        (found.flights, found.departures) == (delay.flights, delay.departures)
        and abs(found.mean_delay - delay.mean_delay) < 1e-9
        for airport, delay in expected.items()
        for found in [result[airport]]
    )
    demo.report.check(
        claim,
        holds=agree,
        detail=f"{sum(found.flights for found in result.values()):,} rows in "
        f"{perf_counter() - started:.1f} s, the start of Spark included",
    )
    return True


def _spelled(delay: AirportDelay) -> str:
    return f"{delay.flights:,} flights, {delay.departures:,} departures, {delay.mean_delay:.4f} min"


def _spark_result(output: bytes) -> dict[str, AirportDelay] | None:
    for line in output.decode(errors="replace").splitlines():
        if line.startswith("RESULT "):
            found = json.loads(line.removeprefix("RESULT "))
            return {airport: AirportDelay(**numbers) for airport, numbers in found.items()}
    return None


def _java_problem() -> str | None:
    """Why Spark cannot run here and what to install, or None."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java", path=f"{home}/bin") if home else shutil.which("java")
    advice = f"install Java {JAVA_VERSION} (Debian, Ubuntu: openjdk-{JAVA_VERSION}-jre-headless)"
    if java is None:
        return f"no Java was found; {advice}"
    done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    version = done.stderr.split('"')[1] if '"' in done.stderr else ""
    major = version.split(".")[0]
    if not major.isdigit() or int(major) < JAVA_VERSION:
        return f"{java} is version {version or 'unknown'}; {advice}"
    return None


async def _kill_group(process: trio.Process) -> None:
    """End Spark with its JVM and its Python workers."""
    os.killpg(process.pid, signal.SIGKILL)
