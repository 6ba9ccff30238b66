"""Faults on real processes for as long as the arguments say: `python -m tests.faults.campaign`, or `make faults`.

    --minutes M     for how long (default 10)
    --seed N        the first round's seed; a round is a mode, a story and its times
    --rounds N      how many at most
    --story NAME    this one alone
    --mutant NAME   with brokers that lack a rule (`mutants.py`)
    --keep DIR      leave logs and data there

As root every host has a network of its own, and the story "power cut" its file systems in image files; otherwise the
stories that need neither are played on the loopback address. The exit status is 1 when a promise was broken.
"""

import argparse
import contextlib
import logging
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Final, Literal, get_args

import attrs
import trio
from tests.faults.at_rest import unrest
from tests.faults.faults import Loss, Mode
from tests.faults.lab import Lab, Network, is_root, open_lab
from tests.faults.mutants import MUTANTS, mutant
from tests.faults.verdict import gone, verdict
from tests.faults.workload import Record, Seen, Workload, working
from tests.support.load import ready, stopped
from tests.support.ours import COMMAND

from rocketrio import Error, open_admin
from rocketrio.admin import Admin

NETWORK_VARIABLE: Final = "ROCKETRIO_FAULTS_NETWORK"
WARM_UP: Final = 5.0
"""Seconds before a story; a fault costs the last one at most."""
LONG_WARM_UP: Final = 14.0
"""Before a story that loses progress of the last ten seconds."""
AFTERWARDS: Final = 4.0
"""Seconds of load after a story."""
ORDER_LIMIT: Final = 30.0

Story = Callable[[Lab, random.Random], Awaitable[None]]


async def order(lab: Lab, number: int, role: str, broker_id: int) -> None:
    """Give a broker another role, as an operator does."""
    address = lab.brokers[number].address
    await _until_done(lab, lambda admin: admin.change_role(address, role, broker_id))


async def let_cut(lab: Lab, number: int) -> None:
    """Let a broker put aside what only it has, as an operator does who has chosen the other log."""
    address, settings = lab.brokers[number].address, {"haDivergentTail": "cut"}
    await _until_done(lab, lambda admin: admin.change_settings(address, settings))


async def _until_done(lab: Lab, do: Callable[[Admin], Awaitable[object]]) -> None:
    with trio.fail_after(ORDER_LIMIT):
        while True:
            try:
                async with open_admin(name_servers=[lab.names.address]) as admin:
                    await do(admin)
                    return
            except Error:
                await trio.sleep(0.2)


async def back(lab: Lab, number: int) -> None:
    """A dead broker is started again, as it is set."""
    await ready(lab.brokers[number])


# ------------------------------------------------------------------------------------------------- stories


async def return_as_master(lab: Lab, rng: random.Random) -> None:
    """Killed, replaced, and back as master before clients have looked at their routes again."""
    lab.kill(0, Loss.COPY)
    await order(lab, 1, lab.role, 0)
    await trio.sleep(rng.uniform(0.2, 1.5))
    await back(lab, 0)
    await trio.sleep(rng.uniform(2.0, 6.0))


async def torn_end(lab: Lab, rng: random.Random) -> None:
    """The last bytes are zeros, or anything, when it comes back."""
    lab.kill(0, Loss.COPY)
    lab.tear(0, rng.choice((1, 5, 17, 60, rng.randrange(1, 1024), rng.randrange(1, 20_000))), rng)
    await back(lab, 0)


async def pause(lab: Lab, rng: random.Random) -> None:
    """SIGSTOP, and it goes on as if nothing had been."""
    lab.faults.begin()
    with stopped(lab.brokers[rng.randrange(2)]):
        await trio.sleep(rng.uniform(1.0, 8.0))


async def kills(lab: Lab, rng: random.Random) -> None:
    """Both, one after the other."""
    for number in rng.sample((0, 1), 2):
        lab.kill(number)
        await trio.sleep(rng.uniform(0.0, 2.0))
        await back(lab, number)
        await trio.sleep(rng.uniform(0.0, 2.0))


async def wiped(lab: Lab, rng: random.Random) -> None:
    """One comes back with an empty disk."""
    number = rng.randrange(2)
    lab.kill(number, *((Loss.COPY,) if number == 0 else ()))
    lab.wipe(number)
    await back(lab, number)


async def partition(lab: Lab, rng: random.Random) -> None:
    """The pair cannot reach each other for a while."""
    assert lab.network is not None
    lab.faults.begin()
    lab.network.part("b0", "b1")
    await trio.sleep(rng.uniform(1.0, 8.0))
    lab.network.join("b0", "b1")


async def shortened(lab: Lab, rng: random.Random) -> None:
    """The slave is cut off, the master dies, and the slave becomes master without what it lacks."""
    assert lab.network is not None
    since = lab.faults.begin()
    lab.network.part("b0", "b1")
    await trio.sleep(rng.uniform(0.5, 4.0))
    lab.kill(0)
    lab.faults.lose(Loss.COPY, since=since)
    lab.network.join("b0", "b1")
    await order(lab, 1, lab.role, 0)
    await trio.sleep(rng.uniform(0.5, 3.0))
    await back(lab, 0)
    await trio.sleep(2.0)


async def power_cut(lab: Lab, rng: random.Random) -> None:
    """Of the master, or of both at once."""
    assert lab.volumes is not None
    numbers = rng.choice(((0,), (0, 1)))
    since = lab.faults.begin()
    for number in numbers:
        lab.volumes[number].cut_power(lab.brokers[number])
    lab.faults.lose(Loss.CACHES if len(numbers) == 2 else Loss.CACHE, since=since)
    for number in numbers:
        await back(lab, number)


async def older_copy(lab: Lab, rng: random.Random) -> None:
    """One comes back with a copy of its directory, made a while before."""
    number = rng.randrange(2)
    lab.copy(number)
    await trio.sleep(rng.uniform(0.5, 4.0))
    lab.kill(number, *((Loss.COPY,) if number == 0 else ()))
    lab.set_back(number)
    await back(lab, number)


async def set_back(lab: Lab, rng: random.Random) -> None:
    """The slave replaces the master on an older copy, and the master, which has the rest, waits for the operator."""
    since = lab.faults.begin()
    lab.copy(1)
    await trio.sleep(rng.uniform(0.5, 4.0))
    if rng.random() < 0.5:
        lab.kill(0)
    else:
        await trio.to_thread.run_sync(lab.brokers[0].stop)
    lab.kill(1)
    lab.set_back(1)
    await back(lab, 1)
    await order(lab, 1, lab.role, 0)
    await back(lab, 0)
    await trio.sleep(rng.uniform(2.0, 4.0))
    if files := lab.cut_files(0):
        raise AssertionError(f"the former master cut off what it had acknowledged: {files}")
    await order(lab, 1, "slave", 9)
    await order(lab, 0, lab.role, 0)
    if lab.role == "async-master":
        # It may have answered for what it took meanwhile, and waits for the operator as well.
        await let_cut(lab, 1)
    # What the other one took meanwhile, as a master that waits for no slave.
    lab.faults.lose(Loss.COPY, since=since)


@attrs.frozen
class Plot:
    """A story, and what it needs."""

    play: Story
    needs: str = ""
    """`network` or `volume`."""
    warm_up: float = WARM_UP
    divergent_tail: Literal["cut", "refuse"] = "cut"


PLOTS: Final[dict[str, Plot]] = {
    "return as master": Plot(return_as_master),
    "torn end": Plot(torn_end),
    "pause": Plot(pause),
    "kills": Plot(kills),
    "wiped": Plot(wiped),
    "older copy": Plot(older_copy, warm_up=LONG_WARM_UP),
    "set back": Plot(set_back, warm_up=LONG_WARM_UP, divergent_tail="refuse"),
    "partition": Plot(partition, "network"),
    "shortened": Plot(shortened, "network"),
    "power cut": Plot(power_cut, "volume", LONG_WARM_UP),
}


# -------------------------------------------------------------------------------------------------- rounds


@attrs.frozen
class Round:
    """What became of a story once played."""

    seen: Seen
    stored: list[Record]
    problems: list[str]

    def __str__(self) -> str:
        seen = self.seen
        return (
            f"acknowledged={len(seen.promised)} in_doubt={len(seen.in_doubt)}"
            f" unsafe={len(seen.unsafe)} gone={len(gone(seen, self.stored))}"
            f" stored={len(self.stored)}"
            f" handled={sum(map(len, seen.handled.values()))}"
            f" longest_gap={seen.longest_gap:.1f} longest_silence={seen.longest_silence:.1f}"
        )


def play(
    home: Path,
    mode: Mode,
    name: str,
    seed: int,
    network: Network | None,
    *,
    command: tuple[str | Path, ...] = COMMAND,
) -> Round:
    """Play a story once, with the times that belong to the seed. `command` starts a broker."""
    plot, rng = PLOTS[name], random.Random(f"{seed} {mode} {name}")
    with open_lab(
        home,
        mode,
        network=network,
        on_volumes=plot.needs == "volume",
        divergent_tail=plot.divergent_tail,
        command=command,
    ) as lab:
        workload, stored, problems = trio.run(_play, lab, plot, rng)
        problems += verdict(workload.seen, stored, lab.faults)
    return Round(workload.seen, stored, problems)


async def _play(
    lab: Lab, plot: Plot, rng: random.Random
) -> tuple[Workload, list[Record], list[str]]:
    problems = []
    async with working(lab.names.address) as workload:
        await trio.sleep(plot.warm_up)
        try:
            await plot.play(lab, rng)
        except (
            Exception
        ) as error:  # What the lab itself cannot do is reported as any other problem.
            problems.append(f"the story broke off: {error!r}")
        lab.faults.ended = trio.current_time()
        workload.is_over.set()
        before = len(workload.seen.promised)
        await trio.sleep(AFTERWARDS)
        with trio.move_on_after(ORDER_LIMIT):  # Until routes are looked at again.
            while len(workload.seen.promised) <= before:  # noqa: ASYNC110
                await trio.sleep(0.5)
        if len(workload.seen.promised) <= before:
            problems.append("no send was acknowledged afterwards")
        await workload.stop_sending()
        await workload.drain()
        if problem := await unrest(lab):
            problems.append(problem)
        stored = await workload.stored()
    return workload, stored, problems


def as_host_of_a_network(*arguments: str) -> int:
    """Run Python again as the host of the clients; it finds the network's name in `NETWORK_VARIABLE`."""
    with Network.made(f"rrf{os.getpid()}") as made:
        return subprocess.call(
            [*made.prefix("client"), sys.executable, *arguments],
            env={**os.environ, NETWORK_VARIABLE: made.name},
        )


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    # However it ends, it leaves no namespace behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    network = Network(os.environ[NETWORK_VARIABLE]) if NETWORK_VARIABLE in os.environ else None
    if network is None and is_root() and not options.loopback:
        return as_host_of_a_network("-m", "tests.faults.campaign", *arguments)
    logging.disable(logging.CRITICAL)
    can = {"", *(("network",) if network else ()), *(("volume",) if is_root() else ())}
    names = [
        name for name, plot in PLOTS.items() if plot.needs in can and options.story in (None, name)
    ]
    command = mutant(options.mutant) if options.mutant else COMMAND
    begin, broken, count = time.monotonic(), 0, 0
    while time.monotonic() < begin + options.minutes * 60 and count < options.rounds:
        seed = options.seed + count
        name, mode = names[seed % len(names)], random.Random(seed).choice(get_args(Mode))
        with _home(options.keep, seed) as home:
            started = time.monotonic()
            played = play(home, options.mode or mode, name, seed, network, command=command)
        count += 1
        broken += bool(played.problems)
        took = time.monotonic() - started
        print(
            f"seed={seed} mode={options.mode or mode} story={name!r} {played} seconds={took:.0f}",
            flush=True,
        )
        for problem in played.problems:
            print(f"    BROKEN: {problem}", flush=True)
    print(f"rounds={count} broken={broken} seconds={time.monotonic() - begin:.0f}", flush=True)
    return 1 if broken else 0


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.campaign")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long at most")
    parser.add_argument("--rounds", type=int, default=10_000, help="how many at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first round")
    parser.add_argument("--story", choices=list(PLOTS), help="this one alone")
    parser.add_argument("--mode", choices=list(get_args(Mode)), help="this one alone")
    parser.add_argument("--mutant", choices=list(MUTANTS), help="with brokers that lack this rule")
    parser.add_argument("--keep", type=Path, help="leave logs and data in this folder")
    parser.add_argument("--loopback", action="store_true", help="no networks, as without root")
    return parser.parse_args(arguments)


@contextlib.contextmanager
def _home(kept: Path | None, seed: int) -> Iterator[Path]:
    if kept is not None:
        yield kept / str(seed)
        return
    home = Path(tempfile.mkdtemp(prefix="rocketrio-faults-"))
    try:
        yield home
    finally:
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
