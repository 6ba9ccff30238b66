"""A fixed handful of what `make fuzz` tries for ten minutes, without a fuzzer: the same inputs in each run."""

import random
from typing import Final

import pytest

from tests.fuzz.mutations import mutated
from tests.fuzz.targets import TARGETS, Target, judged

INPUTS: Final = 400
SERVER_INPUTS: Final = 20


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_what_was_found_before_breaks_nothing(target: Target) -> None:
    for data in target.corpus()[: SERVER_INPUTS if target.is_server else None]:
        judged(target, data)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_changed_inputs_break_nothing(target: Target) -> None:
    rng, corpus = random.Random(target.name), target.corpus()
    for _ in range(SERVER_INPUTS if target.is_server else INPUTS):
        data = rng.choice(corpus)
        data = mutated(data, target.words, corpus, rng, is_framed=target.is_framed)
        judged(target, data)
