"""Ports that tests are given are theirs alone, also before a server listens there and while it is down."""

import subprocess
import sys

import pytest

from tests.support.processes import free_port

TAKE_A_THIRD = """
from tests.support.processes import free_port
print(*(free_port(1, 2) for _ in range(1300)), flush=True)
input()
"""


@pytest.mark.slow
def test_no_process_is_given_a_port_of_another_one() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", TAKE_A_THIRD], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        first = [int(word) for word in other.stdout.readline().split()]
        theirs = {port + distance for port in first for distance in (0, 1, 2)}
        assert len(theirs) == 3 * 1300
        assert not theirs & {free_port() for _ in range(100)}
        other.stdin.write(b"\n")
