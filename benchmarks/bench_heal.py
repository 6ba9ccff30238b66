"""How long producers and groups stand still in each story of faults: `python benchmarks/bench_heal.py`.

    --rounds N        how often each story is played (default 3), with the times of the seeds 1 to N
    --mode MODE       how the pair is set (default money)
    --story NAME      this one alone
    --brokers FOLDER  another checkout of this repository, whose brokers are measured with the clients of this one

    heal.STORY.producer   the longest time between two answers that said stored, median of the rounds
    heal.STORY.group      the longest time in which a group got nothing new, the same

The stories, and what is checked in them, are those of `make faults`. As root with networks of their own; otherwise
without the stories that part the pair.
"""

import argparse
import json
import logging
import os
import signal
import statistics
import sys
import tempfile
from pathlib import Path
from typing import get_args

FOLDER = Path(__file__).parent
sys.path.insert(0, str(FOLDER.parent))

from tests.faults.campaign import NETWORK_VARIABLE, PLOTS, as_host_of_a_network, play  # noqa: E402
from tests.faults.faults import Mode  # noqa: E402
from tests.faults.lab import Network, is_root  # noqa: E402


def main(arguments: list[str]) -> int:
    """Play all stories, and print a line for each figure."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--mode", choices=get_args(Mode), default="money")
    parser.add_argument("--story", choices=list(PLOTS))
    parser.add_argument("--brokers", type=Path)
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # What clients say of the faults.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    network = Network(os.environ[NETWORK_VARIABLE]) if NETWORK_VARIABLE in os.environ else None
    if network is None and is_root():
        return as_host_of_a_network(__file__, *arguments)
    if options.brokers is not None:
        parts = [str(options.brokers.resolve() / part) for part in ("broker", "client", "protocol")]
        os.environ["PYTHONPATH"] = os.pathsep.join(parts)  # Of what is started from now on.
    can = {"", *(("network",) if network else ()), *(("volume",) if is_root() else ())}
    for name, plot in PLOTS.items():
        if plot.needs in can and options.story in (None, name):
            _measure(name, options.mode, options.rounds, network)
    return 0


def _measure(name: str, mode: Mode, rounds: int, network: Network | None) -> None:
    gaps, silences, broken = [], [], 0
    for seed in range(1, rounds + 1):
        with tempfile.TemporaryDirectory(
            prefix="rocketrio-heal-", ignore_cleanup_errors=True
        ) as home:
            played = play(Path(home), mode, name, seed, network)
        gaps.append(played.seen.longest_gap)
        silences.append(played.seen.longest_silence)
        broken += bool(played.problems)
        for problem in played.problems:
            print(f"{name}, seed {seed}: {problem}", file=sys.stderr)
    for who, seconds in (("producer", gaps), ("group", silences)):
        line = {
            "name": f"heal.{name}.{who}",
            "value": round(statistics.median(seconds), 2),
            "unit": "s",
            "worst": round(max(seconds), 2),
            "mode": mode,
            "rounds": rounds,
            "broken": broken,
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
