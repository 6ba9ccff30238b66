"""One line a comparison: ours, theirs, their ratio, the CPU of both, and how busy the machine was meanwhile."""

import json
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from statistics import median

import attrs

CPUCLOCK_SCHED = 2
"""linux/posix-timers.h: the clock of a whole process."""


@attrs.frozen
class Run:
    """One round of one side."""

    count: int
    """Messages or rows."""
    seconds: float
    cpu_by_role: dict[str, float]
    """Seconds, user and system, of each process of that side."""

    def only(self, role: str) -> "Run":
        """The same without the CPU of the other roles."""
        return attrs.evolve(self, cpu_by_role={role: self.cpu_by_role[role]})

    def without(self, role: str) -> "Run":
        """The same without the CPU of one role."""
        others = {name: used for name, used in self.cpu_by_role.items() if name != role}
        return attrs.evolve(self, cpu_by_role=others)

    @property
    def rate(self) -> float:
        return self.count / self.seconds

    @property
    def cpu_us(self) -> float:
        return sum(self.cpu_by_role.values()) / self.count * 1e6


class CpuMeter:
    """What the processes of one side have used since it was made."""

    def __init__(self, pids: Mapping[str, Iterable[int]]) -> None:
        self._pids = {role: tuple(of_role) for role, of_role in pids.items()}
        self._before = self._now()

    def used(self) -> dict[str, float]:
        """Seconds by role."""
        return {role: now - self._before[role] for role, now in self._now().items()}

    def _now(self) -> dict[str, float]:
        return {role: cpu_seconds(*pids) for role, pids in self._pids.items()}


@attrs.frozen
class Goal:
    """The ratio to hold and the one to aim at."""

    hold: float
    aim: float


def cpu_seconds(*pids: int) -> float:
    """Return the seconds of CPU that these processes have used; a process that has ended adds nothing.

    The process's own clock (clock_getcpuclockid(3)) counts nanoseconds; /proc counts only what a tick of 10 ms met.
    """
    used = 0.0
    for pid in pids:
        with suppress(OSError):
            used += time.clock_gettime((~pid << 3) | CPUCLOCK_SCHED)
    return used


def resident_mib(pid: int) -> float:
    """VmRSS: what of the process lies in memory, mapped files too."""
    return _memory_mib(pid, "VmRSS:")


def anonymous_mib(pid: int) -> float:
    """What of it belongs to the process alone and to no file: its heap, without libraries and log."""
    return _memory_mib(pid, "RssAnon:")


def _memory_mib(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise ProcessLookupError(f"process {pid} has no memory")


def alternate(
    rounds: int, sides: dict[str, Callable[[], Run]], *, warm_up: int = 1
) -> dict[str, list[Run]]:
    """Run the sides in turn; the warm-up rounds are not among what comes back."""
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for number in range(warm_up + rounds):
        # Turned round each time, so that neither is always the one after a pause.
        for name in list(sides)[:: 1 if number % 2 else -1]:
            run = sides[name]()
            if number >= warm_up:
                runs[name].append(run)
    return runs


def tell_rates(
    name: str,
    ours: Sequence[Run],
    theirs: Sequence[Run],
    *,
    of: str = "messages/s",
    goal: Goal | None = None,
    **details: object,
) -> None:
    """Messages or rows a second, medians of the rounds."""
    tell(
        name,
        median(run.rate for run in ours),
        median(run.rate for run in theirs),
        of=of,
        goal=goal,
        cpu_value=_cpu_ratio(ours, theirs),
        cpu_us_ours=_cpu_us(ours),
        cpu_us_theirs=_cpu_us(theirs),
        spread_ours=_spread(ours),
        spread_theirs=_spread(theirs),
        **details,
    )


def _cpu_ratio(ours: Sequence[Run], theirs: Sequence[Run]) -> float | None:
    """Theirs to ours; None where a short run is below what the kernel counts in."""
    mine = median(run.cpu_us for run in ours)
    return round(median(run.cpu_us for run in theirs) / mine, 3) if mine else None


def _cpu_us(runs: Sequence[Run]) -> dict[str, float]:
    """All together, and each role's."""
    by_role = {
        role: round(median(run.cpu_by_role[role] / run.count for run in runs) * 1e6, 2)
        for role in runs[0].cpu_by_role
    }
    return {"all": round(median(run.cpu_us for run in runs), 2), **by_role}


def _spread(runs: Sequence[Run]) -> list[int]:
    rates = sorted(round(run.rate) for run in runs)
    return [rates[0], rates[-1]]


def tell(
    name: str,
    ours: float,
    theirs: float,
    *,
    of: str = "messages/s",
    goal: Goal | None = None,
    **details: object,
) -> None:
    """The line itself; `value` is ours divided by theirs."""
    line: dict[str, object] = {
        "name": f"peers.{name}",
        "value": round(ours / theirs, 3),
        "unit": "ours/theirs",
        "ours": _short(ours),
        "theirs": _short(theirs),
        "of": of,
    }
    if goal is not None:
        line |= {"hold": goal.hold, "aim": goal.aim}
    print(json.dumps(line | details | {"load_average": _load()}), flush=True)


def tell_left_out(name: str, why: object) -> None:
    """A peer that cannot be had here."""
    print(json.dumps({"name": f"peers.{name}", "left_out": str(why)}), flush=True)


def _short(value: float) -> float:
    return round(value) if value >= 100 else round(value, 3)


def _load() -> float:
    """Of the last minute; two busy cores are 2."""
    return round(os.getloadavg()[0], 1)
