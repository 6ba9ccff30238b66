"""A fixed handful of what `make fuzz` tries for ten minutes, without a fuzzer: the same inputs in each run."""

import random
from pathlib import Path
from typing import Final

import attrs
import pytest

from rocketrio_protocol.errors import Error
from tests.fuzz.mutations import long_form, mutated
from tests.fuzz.target import CORPORA, Target, judged
from tests.fuzz.targets import BY_NAME, TARGETS

INPUTS: Final = 60
PROGRAM_INPUTS: Final = 8
CORPORA_SIZE_LIMIT: Final = 2 << 20
"""Bytes of all inputs that are kept."""
FOLDERS_OF_SOMEBODY: Final = (b"/home/", b"/root/", b"/Users/", b"/tmp/")

each_target = pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)


@each_target
def test_good_inputs_and_what_was_found_before_break_nothing(target: Target) -> None:
    inputs = [*reversed(target.kept()), *target.seeds()]
    for data in inputs[:PROGRAM_INPUTS] if target.is_program else inputs:
        judged(target, data)


@each_target
def test_some_good_input_is_taken_to_its_end(target: Target) -> None:
    def is_taken(data: bytes) -> bool:
        try:
            target.take(data)
        except Error:
            return False
        return True

    assert any(map(is_taken, target.seeds()))


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize(
    "target", [each for each in TARGETS if each.is_program], ids=lambda target: target.name
)
def test_all_that_was_found_before_breaks_no_program(target: Target) -> None:
    for data in target.corpus():
        judged(target, data)


@each_target
def test_changed_inputs_break_nothing(target: Target) -> None:
    rng, corpus = random.Random(target.name), target.corpus()
    for _ in range(PROGRAM_INPUTS if target.is_program else INPUTS):
        data = mutated(target, rng.choice(corpus), corpus, rng)
        judged(target, data)
        longer = long_form(target, data)
        if longer is not None:
            judged(target, longer)


def test_kept_inputs_are_small_and_contain_no_names() -> None:
    files = list(CORPORA.glob("*"))
    assert {file.stem for file in files} <= BY_NAME.keys()
    assert sum(file.stat().st_size for file in files) < CORPORA_SIZE_LIMIT
    for target in TARGETS:
        for data in target.kept():
            assert not [folder for folder in FOLDERS_OF_SOMEBODY if folder in data], data


def test_kept_inputs_are_read_as_they_were_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fuzz.target.CORPORA", tmp_path / "corpora")
    target = attrs.evolve(TARGETS[0], name="any")
    inputs = [b"", b"\n", b"\r\n\x85\x1c", b"\\n", b"'\"", bytes(range(256))]
    target.keep(inputs)
    assert sorted(target.kept()) == sorted(inputs)
