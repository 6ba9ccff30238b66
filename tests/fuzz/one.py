"""Fuzzes one target until it is told to stop: `python -m tests.fuzz.one TARGET [libFuzzer's options] FOLDER ...`.

Started by `python -m tests.fuzz`; alone it replays a file: `python -m tests.fuzz.one TARGET FILE`. Needs the extra
`fuzz`.
"""

import logging
import random
import sys
import time
from typing import Final

import atheris

with atheris.instrument_imports(include=["rocketrio_protocol", "rocketrio_broker"]):
    from tests.fuzz.targets import BY_NAME, judged

from tests.fuzz.mutations import mutated

CPU_LIMIT: Final = 2.0
"""Seconds of CPU that one input may take, instrumented as the code is here."""


class SlowError(AssertionError):
    """An input holds the only thread for too long."""


def main(arguments: list[str]) -> None:
    """Hand over to the fuzzer, which does not come back."""
    logging.getLogger().addHandler(logging.NullHandler())
    target = BY_NAME[arguments[1]]
    corpus = target.corpus()

    def take(data: bytes) -> None:
        before = time.process_time()
        judged(target, data)
        took = time.process_time() - before
        if took > CPU_LIMIT:
            raise SlowError(f"{len(data)} bytes took {took:.1f} s of CPU")

    def mutate(data: bytes, max_size: int, seed: int) -> bytes:
        rng = random.Random(seed)
        if rng.random() < 0.5:
            return bytes(atheris.Mutate(data, max_size))
        return mutated(data, target.words, corpus, rng, is_framed=target.is_framed)[:max_size]

    atheris.Setup([arguments[0], *arguments[2:]], take, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
