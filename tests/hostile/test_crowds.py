"""What the event loop of a broker does before it answers a neighbour, while crowds of a hundred and more attack it.

A real broker that says in each answer what CPU time its loop has spent: the difference to what it had spent when the
question was sent is what the neighbour waited for, however busy the machine is. `python -m tests.hostile.test_crowds`
prints the figures for docs/hostile-checklist.md.
"""

import socket
import ssl
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import attrs
import pytest
import trustme

from tests.hostile.attackers import ROOT, attacking, resident
from tests.hostile.crowd import OVER_TLS, PLAIN
from tests.hostile.timed_broker import CPU_TIME
from tests.support.further import every_other, first_of
from tests.support.processes import Process, free_port
from tests.support.raw_client import request
from tests.support.raw_frames import unframed
from tests.support.replication import write_private
from tests.support.slowness import slowness
from tests.support.tls import authority, client_context
from tests.support.wire import read_exactly

pytestmark = [pytest.mark.real, pytest.mark.slow]

COUNT: Final = 20
"""Questions of the neighbour, half of them each on a new connection."""
NEIGHBOUR: Final = "127.0.9.9"
PATIENCE: Final = 120.0
"""Seconds until an answer counts as missing; what is measured is CPU time."""
MEDIAN: Final = 0.1
"""Seconds of the loop's CPU time before half of the answers, on a core that is not slow: twice the goal."""
LONGEST: Final = 0.3
"""The same before nine in ten: other work of the broker may come between."""
TRIES: Final = 6
"""How often an attack may be tried before the answers are too late: a busy machine decides whom the broker meets first.
The memory is checked each time."""
MEMORY: Final = 64 << 20
"""Bytes by which an attack may make the broker grow."""


@attrs.frozen
class Timed:
    """A broker that says what its loop has done."""

    process: Process
    port: int
    tls: ssl.SSLContext | None = None

    def spent(self) -> float:
        """Seconds of CPU time of its main thread."""
        pid = self.process.pid
        return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9

    @contextmanager
    def neighbour(self) -> Iterator[socket.socket]:
        """A connection of another host."""
        with socket.create_connection(
            ("127.0.0.1", self.port), PATIENCE, source_address=(NEIGHBOUR, 0)
        ) as plain:
            if self.tls is None:
                yield plain
            else:
                with self.tls.wrap_socket(plain, server_hostname="127.0.0.1") as secured:
                    yield secured

    def waited(self, connection: socket.socket | None = None) -> float:
        """Seconds of CPU time that the loop spends before it answers, and before it accepts a new connection."""
        before = self.spent()
        with ExitStack() as stack:
            if connection is None:
                connection = stack.enter_context(self.neighbour())
            connection.sendall(request(CPU_TIME))
            head = read_exactly(connection, 4)
            _, _, body = unframed(head + read_exactly(connection, int.from_bytes(head)))
        return float(body) - before


@contextmanager
def timed_broker(home: Path, *words: str, tls: ssl.SSLContext | None = None) -> Iterator[Timed]:
    port = free_port(-2, 1)
    argv = [
        *(sys.executable, "-m", "tests.hostile.timed_broker", "run"),
        *("--listen", f"127.0.0.1:{port}", "--ha-listen", f"127.0.0.1:{port + 1}"),
        *("--namesrv", f"127.0.0.1:{free_port()}", "--data", home / "data", *words),
    ]
    process = Process.start("timed broker", argv, log=home / "broker.log", cwd=ROOT)
    try:
        process.wait_until(lambda: process.has_said("ready role="), "ready")
        yield Timed(process, port, tls)
    finally:
        process.kill()


def measured(broker: Timed, attack: str, log: Path) -> tuple[list[float], int]:
    """Return what each answer waited for, sorted, and by how much the broker has grown.

    Each is divided by how slow the core was just then: it may be twice as slow as a moment later.
    """
    broker.waited()
    before = resident(broker.process.pid)
    with broker.neighbour() as known:
        broker.waited(known)
        with attacking("crowd", attack, "127.0.0.1", broker.port, log=log):
            waits = [
                broker.waited(known if number % 2 else None) / slowness() for number in range(COUNT)
            ]
            grown = resident(broker.process.pid) - before
    return sorted(waits), grown


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Timed]:
    """A broker of its own for each attack: it has nothing to do with what the one before has left."""
    with timed_broker(tmp_path) as running:
        yield running


@pytest.fixture
def broker_with_tls(tmp_path: Path) -> Iterator[Timed]:
    with broker_over_tls(tmp_path) as running:
        yield running


@contextmanager
def broker_over_tls(home: Path) -> Iterator[Timed]:
    issued = authority().issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)
    both = home / "both.pem"
    write_private(issued, both)
    words = ("--tls-cert", str(both), "--tls-key", str(both))
    with timed_broker(home, *words, tls=client_context()) as running:
        yield running


def check(broker: Timed, attack: str, log: Path) -> None:
    for _ in range(TRIES):
        waits, grown = measured(broker, attack, log)
        found = waits[COUNT // 2], waits[COUNT * 9 // 10], grown
        assert grown < MEMORY, found
        if found[0] < MEDIAN and found[1] < LONGEST:
            return
    raise AssertionError(found)


@pytest.mark.parametrize("attack", first_of(2, PLAIN))
def test_crowd_delays_no_neighbour(broker: Timed, attack: str, tmp_path: Path) -> None:
    check(broker, attack, tmp_path / "crowd.log")


@pytest.mark.parametrize("attack", every_other(OVER_TLS))
def test_crowd_of_handshakes_delays_no_neighbour(
    broker_with_tls: Timed, attack: str, tmp_path: Path
) -> None:
    check(broker_with_tls, attack, tmp_path / "crowd.log")


def main() -> None:
    """Print what each attack costs: a broker of its own for each."""
    for attack in (*PLAIN, *OVER_TLS):
        with TemporaryDirectory() as folder:
            home = Path(folder)
            opened = timed_broker(home) if attack in PLAIN else broker_over_tls(home)
            try:
                with opened as running:
                    waits, grown = measured(running, attack, home / "crowd.log")
                median, longest = waits[COUNT // 2] * 1000, waits[-1] * 1000
                print(
                    f"{attack}: {median:.0f} ms median, {longest:.0f} ms longest, {grown >> 20} MiB",
                    flush=True,
                )
            except Exception as error:
                print(f"{attack}: {type(error).__name__} {error}"[:200], flush=True)


if __name__ == "__main__":
    main()
