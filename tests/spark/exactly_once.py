"""Exactly once: drivers killed with -9 at random moments, over a topic still written and a master that comes and goes.

    python -m tests.spark.exactly_once --lives 20 --seed 7

Each life of the driver reads on from the checkpoint of the one before it into one Parquet sink, until it is killed; in
the first life and every third one the master is killed too, and comes back seconds later. The last life reads to the
end. Then every message that a broker acknowledged is in the sink once, and none is there twice.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import attrs
import trio
from tests.support.ours import OurBroker, our_pair
from tests.support.processes import die_with_parent
from tests.support.running_cluster import load_topic

from rocketrio import Message, open_producer
from rocketrio_protocol.errors import Error

TOPIC: Final = "counted"
QUEUES: Final = 3
WRITERS: Final = 4
PAUSE: Final = 0.01
"""Seconds between two sends of one writer: some 300 messages a second."""
START_TIMEOUT: Final = 600.0
"""Seconds until a driver has done its first batch: ten on a quiet machine, minutes where many share it."""


@attrs.define
class Writing:
    """Sends numbers, each once, until it is stopped; what was acknowledged, and what is in doubt."""

    name_server: str
    acknowledged: set[str] = attrs.Factory(set)
    unknown: set[str] = attrs.Factory(set)
    _stop: threading.Event = attrs.Factory(threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Writing":
        self._thread = threading.Thread(target=trio.run, args=(self._run,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    async def _run(self) -> None:
        async with (
            open_producer(name_servers=self.name_server, retries=0, timeout=3.0) as producer,
            trio.open_nursery() as nursery,
        ):
            for writer in range(WRITERS):
                nursery.start_soon(self._write, producer, writer)

    async def _write(self, producer: object, writer: int) -> None:
        number = 0
        while not self._stop.is_set():
            name, number = f"{writer}-{number}", number + 1
            try:
                await producer.send(Message(TOPIC, name.encode()))  # type: ignore[attr-defined]
            except Error:
                self.unknown.add(name)
                await trio.sleep(0.2)
            else:
                self.acknowledged.add(name)
            await trio.sleep(PAUSE)


class Life:
    """One driver process, with the JVM and the Python processes that are its own."""

    def __init__(self, name_server: str, home: Path, mode: str, number: int) -> None:
        self._log = (home / f"driver-{number}.log").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.stream_job", name_server, TOPIC, str(home), mode],
            stdout=subprocess.PIPE,
            stderr=self._log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )

    def wait_reading(self) -> None:
        """Until its first batch is done."""
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        deadline, said = time.monotonic() + START_TIMEOUT, b""
        while b"reading" not in said:
            assert time.monotonic() < deadline, "the driver does not read"
            assert self._process.poll() is None, f"the driver ended: {self.said()}"
            said += self._process.stdout.read() or b""
            time.sleep(0.05)

    def said(self) -> str:
        """The end of its log, without Java's stack."""
        lines = Path(self._log.name).read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if not line.lstrip().startswith("at ")][-30:])

    def kill(self) -> None:
        """kill -9 of the whole session: driver, JVM, and the process that asks brokers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self.end()

    def end(self) -> int:
        """Wait for its end."""
        try:
            return self._process.wait(START_TIMEOUT)
        finally:
            if self._process.poll() is None:
                os.killpg(self._process.pid, signal.SIGKILL)
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._log.close()


@attrs.frozen
class Outcome:
    """What is to be judged."""

    rows: list[tuple[int, int, str]]
    acknowledged: set[str]
    unknown: set[str]
    batches: int
    """Micro-batches that were committed, over all lives."""

    def problems(self) -> list[str]:
        """Broken promises."""
        bodies = [body for _, _, body in self.rows]
        places = {(queue, offset) for queue, offset, _ in self.rows}
        found = []
        if len(places) != len(self.rows):
            found.append(f"{len(self.rows) - len(places)} messages were written twice")
        if missing := self.acknowledged - set(bodies):
            found.append(f"{len(missing)} messages are missing: {sorted(missing)[:5]}")
        if strange := set(bodies) - self.acknowledged - self.unknown:
            found.append(f"{len(strange)} messages were never sent: {sorted(strange)[:5]}")
        if len(set(bodies)) != len(bodies) and not found:
            found.append("a message was stored twice, which this story cannot have")
        return found


def play(home: Path, *, lives: int, rng: random.Random) -> Outcome:
    """`lives` drivers that are killed, and one that reads to the end."""
    with our_pair(home, settings=("slave_read_enable=true",)) as pair:
        address, master = pair.name_server.address, pair.master
        load_topic(master.address, TOPIC, QUEUES, 0)
        with Writing(address) as writing:
            for number in range(lives):
                _live_and_die(Life(address, home, "run", number), master, number, rng)
        last = Life(address, home, "finish", lives)
        assert last.end() == 0, f"the last driver failed: {last.said()}"
    rows = [tuple(row) for row in json.loads((home / "rows.json").read_text())]
    batches = len([name for name in os.listdir(home / "checkpoint" / "commits") if name.isdigit()])
    return Outcome(rows, writing.acknowledged, writing.unknown, batches)


def _live_and_die(life: Life, master: OurBroker, number: int, rng: random.Random) -> None:
    try:
        if number % 4 == 3:  # Now and then before it has read anything.
            time.sleep(rng.uniform(2, 12))
            return
        life.wait_reading()
        time.sleep(rng.uniform(0.2, 3))
        if number % 3 == 0:
            assert master.process is not None
            master.process.kill()
            time.sleep(rng.uniform(0.5, 3))
            master.start()
            master.wait_ready()
            time.sleep(rng.uniform(0.2, 3))
    finally:
        life.kill()


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.exactly_once")
    parser.add_argument("--lives", type=int, default=20, help="drivers that are killed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as home:
        outcome = play(Path(home), lives=options.lives, rng=random.Random(options.seed))
    problems = outcome.problems()
    print(
        f"lives={options.lives} seed={options.seed} rows={len(outcome.rows)} batches={outcome.batches}"
        f" acknowledged={len(outcome.acknowledged)} unknown={len(outcome.unknown)}"
    )
    for problem in problems:
        print(f"broken: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
