"""The commands as they are installed: interrupted while they import."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.real
@pytest.mark.parametrize("command", ["client/bin/rocketrio", "broker/bin/rocketrio-broker"])
def test_a_command_that_still_imports_ends_without_a_traceback(command: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", str(ROOT / command), "--help"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    while b"rocketrio" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=90)
    assert process.returncode == -signal.SIGINT
    assert b"Traceback" not in said


@pytest.mark.real
@pytest.mark.parametrize("command", ["client/bin/rocketrio", "broker/bin/rocketrio-broker"])
def test_a_command_answers(command: str) -> None:
    done = subprocess.run([sys.executable, str(ROOT / command), "--version"], capture_output=True)
    assert done.returncode == 0
    assert b"version" in done.stdout
