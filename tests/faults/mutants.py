"""Brokers that lack a rule, which the campaign must find; `mutants.py NAME run ...` is `rocketrio-broker run ...`.

It imports nothing of the tests, because a broker runs in a folder of its own.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

import trio

from rocketrio_broker.cli import main
from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.history import last_boundary
from rocketrio_broker.role.service import RoleService


def _half_log() -> None:
    """A slave that becomes master drops half of its log."""
    lead = RoleService._lead

    async def lead_with_half(self: RoleService) -> None:
        if self._store.is_slave:
            log = self._store.commit_log
            self._store.truncate_to(last_boundary(log, log.min_offset, log.max_offset // 2))
        await lead(self)

    RoleService._lead = lead_with_half  # type: ignore[method-assign]


def _follows_once() -> None:
    """A slave that has a log and no connection never follows again."""
    connect = HAClient._connect_and_adopt

    async def connect_once(self: HAClient, addr: str) -> None:
        if self._store.max_physical_offset:
            await trio.sleep_forever()
        await connect(self, addr)

    HAClient._connect_and_adopt = connect_once  # type: ignore[method-assign]


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "half log": _half_log,
    "follows once": _follows_once,
}


def mutant(name: str) -> tuple[str | Path, ...]:
    """Return the command that starts brokers of this kind."""
    return sys.executable, Path(__file__).resolve(), name


if __name__ == "__main__":
    MUTANTS[sys.argv.pop(1)]()
    main()
