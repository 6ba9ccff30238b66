"""Schedules that are chosen, not drawn: for what is broken on purpose, and must be seen."""

from typing import Literal

import attrs
from tests.cluster.histories.checker import check
from tests.cluster.histories.schedule import Failover, Fault, Mode, Schedule, Switch, Visit
from tests.cluster.histories.story import run_story


def schedule_of(*faults: Fault, mode: Literal["sync", "async"] = "sync") -> Schedule:
    """Chosen faults, one slave, and a consumer that is away for a while."""
    return Schedule(
        seed=1,
        mode=Mode(
            flush=mode,
            role="async-master",
            slaves=1,
            flush_interval=60.0,
            reads_at_slaves=False,
        ),
        faults=faults,
        consumers=(
            (
                Visit(0.0, 13.0, crashes=False, auto_commit=True),
                Visit(24.0, 100.0, crashes=False, auto_commit=True),
            ),
        ),
        producers=2,
        sending_ends=25.0,
        resets=(),
        faults_end=25.0,
    )


def switching(*switches: Switch | Failover) -> Schedule:
    """The same with changes of the master, and no fault."""
    return attrs.evolve(schedule_of(), switches=switches)


def broken_promises(schedule: Schedule) -> set[str]:
    """The names of the promises that a schedule's run breaks."""
    return {violation.invariant for violation in check(run_story(schedule))}
