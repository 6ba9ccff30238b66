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
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import attrs
import trio
from tests.spark.stream_job import READING
from tests.support.ours import OurBroker, our_pair
from tests.support.processes import Process
from tests.support.running_cluster import load_topic

from rocketrio import Message, open_producer
from rocketrio_protocol.errors import Error

TOPIC: Final = "counted"
QUEUES: Final = 3
WRITERS: Final = 4
PAUSE: Final = 0.01
"""Seconds between two sends of one writer: some 300 messages a second."""
ROOT: Final = Path(__file__).parents[2]
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


def driver(name_server: str, home: Path, mode: str, number: int) -> Process:
    """Start a driver, with the JVM and the Python processes that are its own."""
    argv = [sys.executable, "-m", "tests.spark.stream_job", name_server, TOPIC, home, mode]
    return Process.start(f"driver {number}", argv, log=home / f"driver-{number}.log", cwd=ROOT)


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
                _live_and_die(driver(address, home, "run", number), master, number, rng)
        last = driver(address, home, "finish", lives)
        assert last.ended(START_TIMEOUT) == 0, f"the last driver failed: {last.tail()}"
    rows = [tuple(row) for row in json.loads((home / "rows.json").read_text())]
    batches = len([name for name in os.listdir(home / "checkpoint" / "commits") if name.isdigit()])
    return Outcome(rows, writing.acknowledged, writing.unknown, batches)


def _live_and_die(life: Process, master: OurBroker, number: int, rng: random.Random) -> None:
    try:
        if number % 4 == 3:  # Now and then before it has read anything.
            time.sleep(rng.uniform(2, 12))
            return
        life.wait_until(lambda: life.has_said(READING), "reading", START_TIMEOUT)
        time.sleep(rng.uniform(0.2, 3))
        if number % 3 == 0:
            master.kill()
            time.sleep(rng.uniform(0.5, 3))
            master.restart()
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
