"""Fault schedules without end: `python -m tests.cluster.soak` runs seed after seed and stops at what breaks a promise.

    --seed N        replay one seed, print its history and what it breaks
    --from N        the first seed (default 0)
    --seeds N       how many; by default as many as the time allows
    --minutes M     for how long (default 10)
    --keep-going    do not stop at the first seed that breaks something

Runs itself again under PYTHONHASHSEED=0, so that a seed means the same everywhere. The exit status is 1 when a
promise was broken, and the last lines then say how to replay it. So they do for a seed that does not end.
"""

import argparse
import logging
import os
import sys
import time
from typing import Final

from tests.cluster.histories.checker import check
from tests.cluster.histories.events import History
from tests.cluster.histories.hang_guard import real_time_limit
from tests.cluster.histories.schedule import make_schedule
from tests.cluster.histories.story import FinalState, Story, run_story
from tests.cluster.histories.tail_losses import any_divergent, tail_losses
from tests.cluster.histories.violation import failure_text

HASH_SEED: Final = "0"
REAL_TIME_LIMIT = 120.0
"""Real seconds of one seed, which usually takes half of one; where many share a machine, several."""
PROGRESS_EVERY: Final = 10.0
"""Seconds between two lines of progress."""


def main(arguments: list[str]) -> int:
    options = _options(arguments)
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.cluster.soak", *arguments])
    if options.seed is not None:
        return _replay(options.seed)
    return _soak(options.first, options.seeds, options.minutes * 60, options.keep_going)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.soak")
    parser.add_argument("--seed", type=int, help="replay this one and print its history")
    parser.add_argument("--from", type=int, default=0, dest="first", help="the first seed")
    parser.add_argument("--seeds", type=int, help="how many seeds at most")
    parser.add_argument("--minutes", type=float, default=10.0, help="how long at most")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at a failing seed")
    return parser.parse_args(arguments)


def run_guarded(seed: int) -> Story:
    """The story of a seed; the process ends, with what is known of it, if it takes too long."""
    schedule, history = make_schedule(seed), History(seed)

    def tell(problem: str) -> str:
        hung = Story(schedule, history, FinalState((), came_to_rest=False), crash=problem)
        return failure_text(hung, check(hung))

    with real_time_limit(REAL_TIME_LIMIT, tell):
        return run_story(schedule, history)


def _replay(seed: int) -> int:
    story = run_guarded(seed)
    violations = check(story)
    if violations:
        print(failure_text(story, violations))
        return 1
    print(f"{story.schedule}\n{story.history.text()}\n\nseed {seed} keeps every promise")
    return 0


def _soak(first: int, count: int | None, seconds: float, keep_going: bool) -> int:
    logging.disable(logging.CRITICAL)  # What brokers say of the faults; a replay prints it.
    begin = told = time.monotonic()
    seed, broken = first, 0
    seen = {"events": 0, "divergent": 0, "tail losses": 0}
    while (count is None or seed < first + count) and time.monotonic() < begin + seconds:
        story = run_guarded(seed)
        violations = check(story)
        if violations:
            broken += 1
            print(failure_text(story, violations), flush=True)
            if not keep_going:
                return 1
        seen["events"] += len(story.history.events)
        seen["divergent"] += any_divergent(story)
        seen["tail losses"] += bool(tail_losses(story))
        seed += 1
        if time.monotonic() >= told + PROGRESS_EVERY:
            told = time.monotonic()
            _tell(first, seed, broken, seen, told - begin)
    _tell(first, seed, broken, seen, time.monotonic() - begin)
    return 1 if broken else 0


def _tell(first: int, seed: int, broken: int, seen: dict[str, int], seconds: float) -> None:
    counts = " ".join(f"{name.replace(' ', '_')}={number}" for name, number in seen.items())
    print(f"seeds={first}..{seed - 1} broken={broken} {counts} seconds={seconds:.0f}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
