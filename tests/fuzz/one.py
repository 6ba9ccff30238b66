"""Fuzzes one target until it is stopped: `python -m tests.fuzz.one TARGET [libFuzzer's options] FOLDER ...`.

Started by `python -m tests.fuzz`; alone it replays a file: `python -m tests.fuzz.one TARGET FILE`. Needs the extra
`fuzz`.
"""

import logging
import random
import sys
import time
from typing import Final

import atheris

with atheris.instrument_imports(include=["rocketrio_protocol", "rocketrio_broker", "rocketrio"]):
    from tests.fuzz.target import Target, judged
    from tests.fuzz.targets import BY_NAME

from tests.fuzz.mutations import long_form, mutated
from tests.support.slowness import slowness

CPU_LIMIT: Final = 1.0
"""Seconds of CPU that any input may take on a core that is not slow, instrumented as the code is here."""
LIFE_CPU_LIMIT: Final = 3.0
"""The same for a life of a broker, name server or client."""
CPU_LIMIT_PER_BYTE: Final = 8e-6
"""Seconds more for each byte: linear time is below it (`columns` looks twice for a record at each byte of a damaged
range, which takes 6e-6), quadratic time is beyond it with 64 KiB."""


class SlowError(AssertionError):
    """An input holds the only thread for too long."""


def take_in_time(target: Target, data: bytes) -> None:
    """Feed one input. Raises SlowError if it takes longer than its size explains."""
    before = time.process_time()
    judged(target, data)
    took = time.process_time() - before
    limit = LIFE_CPU_LIMIT if target.is_program else CPU_LIMIT
    # How slow the core is costs time to measure: only where it matters.
    limit += CPU_LIMIT_PER_BYTE * len(data)
    if took > limit and took > limit * slowness():
        raise SlowError(f"{len(data)} bytes took {took:.1f} s of CPU")


def main(arguments: list[str]) -> None:
    """Hand over to the fuzzer, which does not come back."""
    logging.getLogger().addHandler(logging.NullHandler())
    target = BY_NAME[arguments[1]]
    corpus = target.corpus()

    def take(data: bytes) -> None:
        take_in_time(target, data)
        longer = long_form(target, data)
        if longer is not None:
            take_in_time(target, longer)

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(target, data, corpus, rng)[:max_size]

    # To merge, libFuzzer starts the program again: by this line, which a shell reads.
    program = f"{sys.executable} -m tests.fuzz.one {target.name}"
    atheris.Setup([program, *arguments[2:]], take, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
