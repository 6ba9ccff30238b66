"""Rules taken away one at a time, and after how many seeds the checker misses each: `python -m tests.cluster.mutants`.

    --seeds N       give a rule up after N seeds (default 300)
    --only NAME     this one alone

`claim_in_a_hand_over` is for a schedule of its own (`test_fault_schedules.py`): no seed is known that misses it.

A mutant replaces one function of a broker or client by one that does without the rule. The exit status is 1 when one
of them was not caught.
"""

import argparse
import logging
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import attrs
import pytest
from tests.cluster.histories.checker import check
from tests.cluster.soak import HASH_SEED, run_guarded

from rocketrio.consuming import fetch
from rocketrio_broker.clients.queue_locks import QueueLocks
from rocketrio_broker.delay.schedule import _Arrivals
from rocketrio_broker.ha import judgement, resync
from rocketrio_broker.ha.missing_tail import FetchedTail, MissingTail
from rocketrio_broker.ha.torn_end import Damage, TornEnd
from rocketrio_broker.offsets.reader_epochs import ReaderEpochs
from rocketrio_broker.role import standing
from rocketrio_broker.role.standing import (
    ASIDE,
    HANDING_OVER,
    NEXT,
    STEPPING_DOWN,
    CurrentStanding,
    Event,
    Standing,
)
from rocketrio_broker.store import recovery
from rocketrio_broker.store.acknowledged import Acknowledgement
from rocketrio_broker.store.read_gate import ReadGate
from rocketrio_broker.store.refusals import Refusals, Refuser
from rocketrio_protocol.ha.exchange import Epoch

Patch = Callable[[pytest.MonkeyPatch], None]


def _answering(value: Any) -> Callable[..., Any]:
    async def answer(*_: object, **__: object) -> Any:
        return value

    return answer


def show_everything(patch: pytest.MonkeyPatch) -> None:
    """Readers of a synchronous master see what no slave has."""
    patch.setattr(ReadGate, "begin", lambda gate, _: gate.open())


def lead_beside_a_master(patch: pytest.MonkeyPatch) -> None:
    """A former master that comes back moves its readers and takes their commits, and they believe it."""
    beside = attrs.evolve(ASIDE, name="beside", label="leads", locks=True, serves=True)

    def other(one: Standing) -> Standing:
        return beside if one is ASIDE else one

    changed = {
        event: {other(before): other(after) for before, after in row.items()}
        for event, row in NEXT.items()
    }
    changed[Event.STEPS_DOWN][beside] = STEPPING_DOWN
    patch.setattr(standing, "NEXT", changed)
    patch.setattr(fetch, "is_still_master", _answering(True))


def look_for_no_master(patch: pytest.MonkeyPatch) -> None:
    """A broker becomes master without asking whether another one of its name is."""
    patch.setattr(judgement, "other_masters", lambda _: [])


def keep_torn_ends(patch: pytest.MonkeyPatch) -> None:
    """A last record whose properties are torn is taken for whole."""
    patch.setattr(recovery, "_end_before_torn", lambda _, walk: walk.position)
    patch.setattr(TornEnd, "compare", _answering(Damage.NONE))


def expect_no_slaves(patch: pytest.MonkeyPatch) -> None:
    """An empty synchronous master begins a log at once, where a name server lists no broker yet."""
    fetch_tail = MissingTail.fetch

    async def at_once(self: MissingTail, *arguments: Any) -> FetchedTail:
        rule = self._rule
        patch.setattr(self, "_rule", lambda: attrs.evolve(rule(), expects_slaves=False))
        return await fetch_tail(self, *arguments)

    patch.setattr(MissingTail, "fetch", at_once)


def claim_in_a_hand_over(patch: pytest.MonkeyPatch) -> None:
    """A master says that it leads while its follower may have taken over."""
    patch.setattr(
        CurrentStanding,
        "claims",
        property(lambda self: self.now.claims or self.now is HANDING_OVER),
    )


def leave_readers_ahead(patch: pytest.MonkeyPatch) -> None:
    """Members in a part of a log that is gone are not sent back, and go on where their position is valid again."""
    patch.setattr(ReaderEpochs, "divergence_offset", lambda *_: None)


def ask_no_slave(patch: pytest.MonkeyPatch) -> None:
    """A master takes writes without what its slaves have of its log."""
    patch.setattr(MissingTail, "fetch", _answering(FetchedTail()))


def forget_locks(patch: pytest.MonkeyPatch) -> None:
    """A broker grants locks in its first seconds that members may hold of its former run."""
    patch.setattr(QueueLocks, "is_unknown", lambda *_: False)
    patch.setattr(QueueLocks, "load", lambda _: None)


def trust_the_clock(patch: pytest.MonkeyPatch) -> None:
    """Delayed messages wait for as long as the clock was ahead."""
    patch.setattr(_Arrivals, "note", lambda *_: None)


def believe_slaves_alone(patch: pytest.MonkeyPatch) -> None:
    """A former master gives up what its slaves do not say they had, whatever they acknowledged to it."""
    why_kept = resync.why_kept

    def by_their_word(
        own: Sequence[Epoch],
        member: str,
        boundary: int,
        end: int,
        theirs: Sequence[Epoch],
        acknowledged: Mapping[str, Acknowledgement],
        shown: int,
    ) -> str | None:
        nothing = dict.fromkeys((name for line in own for name in line.joined), Acknowledgement(0))
        return why_kept(own, member, boundary, end, theirs, nothing, 0)

    patch.setattr(resync, "why_kept", by_their_word)


def cut_without_proof(patch: pytest.MonkeyPatch) -> None:
    """A former master gives up its end, whichever slave had acknowledged it."""
    patch.setattr(resync, "why_kept", lambda *_: None)


def lift_every_refusal(patch: pytest.MonkeyPatch) -> None:
    """A part of the broker that lifts its refusal of appends lifts those of all others too."""

    def lift(refusals: Refusals, _: Refuser) -> None:
        refusals._reasons.clear()
        refusals._choose()

    patch.setattr(Refusals, "lift", lift)


def miss_no_queue(patch: pytest.MonkeyPatch) -> None:
    """A broker whose files of a queue are gone takes what is left for all that there was."""
    patch.setattr(recovery, "_lost_entries", lambda *_, **__: [])


def wait_without_reason(patch: pytest.MonkeyPatch) -> None:
    """A former master keeps its end for an operator, though nothing was answered for it and no slave had it."""
    why_kept = resync.why_kept

    def always(*arguments: Any) -> str:
        return why_kept(*arguments) or "slaves that counted in epoch 1 may have had it: one"

    patch.setattr(resync, "why_kept", always)


MUTANTS: Final[dict[str, Patch]] = {
    "readers see what is confirmed": show_everything,
    "a master that stands aside does not lead": lead_beside_a_master,
    "a new master looks for another one": look_for_no_master,
    "a torn end ends the log": keep_torn_ends,
    "a shorter log sends its readers back": leave_readers_ahead,
    "a new master asks its slaves": ask_no_slave,
    "what slaves acknowledged is noted": believe_slaves_alone,
    "nothing is cut without proof": cut_without_proof,
    "no broker waits without a reason": wait_without_reason,
    "an empty synchronous master waits for a slave": expect_no_slaves,
    "a broker's first seconds grant no lock": forget_locks,
    "delays outlive a clock that was ahead": trust_the_clock,
    "a refusal is lifted by its owner alone": lift_every_refusal,
    "lost files of a queue are made again": miss_no_queue,
}


@attrs.frozen
class Caught:
    """How a mutant was seen."""

    seeds: int
    promises: tuple[str, ...]


def seeds_until_caught(mutant: Patch, limit: int, first: int = 0) -> Caught | None:
    """Run seeds until one breaks a promise; None when none of them does.

    Raises RuntimeError if a broker or client crashes: such a mutant breaks the program, and takes no rule away.
    """
    with pytest.MonkeyPatch.context() as patch:
        mutant(patch)
        for seed in range(first, first + limit):
            story = run_guarded(seed)
            if story.crash is not None:
                raise RuntimeError(f"seed {seed} with {mutant.__name__}: {story.crash}")
            broken = {violation.invariant for violation in check(story)}
            if broken:
                return Caught(seed - first + 1, tuple(sorted(broken)))
    return None


def main(arguments: list[str]) -> int:
    if os.environ.get("PYTHONHASHSEED") != HASH_SEED:
        os.environ["PYTHONHASHSEED"] = HASH_SEED
        os.execv(sys.executable, [sys.executable, "-m", "tests.cluster.mutants", *arguments])
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.mutants")
    parser.add_argument("--seeds", type=int, default=300, help="give a rule up after N seeds")
    parser.add_argument("--only", choices=list(MUTANTS), help="this one alone")
    options = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)
    escaped = 0
    for name, mutant in MUTANTS.items():
        if options.only not in (None, name):
            continue
        begin = time.monotonic()
        caught = seeds_until_caught(mutant, options.seeds)
        seconds = time.monotonic() - begin
        if caught is None:
            escaped += 1
            print(f"without {name!r}: not caught by {options.seeds} seeds ({seconds:.0f} s)")
        else:
            told = ", ".join(caught.promises)
            print(f"without {name!r}: seed {caught.seeds} breaks {told} ({seconds:.0f} s)")
        sys.stdout.flush()
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
