"""Keeps what was made from files, such as certificates, and makes it again when their content changes.

Only the content counts: Kubernetes replaces files by changing a link, which leaves names and times as they were.

Invariant: files that cannot be used, or that were replaced only partly, change nothing: the former result stays.
Answers to: FileWatchService.
Unlike Java: Java waits until certificate and key have both changed, and renews nothing if only one was replaced.
"""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

import trio

from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import WallClock
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.remoting.tls_files import days_left

RELOAD_PERIOD: Final = 5.0
"""Seconds between two checks of the files."""

EXPIRY_WARNING_DAYS: Final = 30
"""Days before the end of a certificate from which on each day has a warning."""

_DAY: Final = 86_400.0
_HASHED_SIZE_MAX: Final = 4 << 20

ResultT = TypeVar("ResultT")
RunBlocking = Callable[..., Awaitable[Any]]
"""Runs a blocking function with its arguments outside of the loop, like `trio.to_thread.run_sync`."""

log = logging.getLogger("rocketrio_protocol")


class ReloadedFiles(Generic[ResultT]):
    """The result of a function that reads files."""

    def __init__(
        self,
        load: Callable[[], ResultT],
        files: Sequence[Path],
        *,
        what: str,
        certificates: Sequence[Path] = (),
        wall_clock: WallClock,
        run_blocking: RunBlocking = trio.to_thread.run_sync,
    ) -> None:
        """Load the files for the first time; blocks. Raises what `load` raises.

        `what` says in the log what they are. `certificates` are those of them whose days are counted.
        """
        self._load = load
        self._files = tuple(files)
        self._what = what
        self._certificates = tuple(certificates)
        self._wall_clock = wall_clock
        self._run_blocking = run_blocking
        self._digest = self._hashed()
        self._refused: bytes | None = None  # The digest of files that cannot be used.
        self._looking = trio.Lock()
        self.current = load()
        """What the last files that can be used gave."""

    async def run(self) -> None:
        """Check the files on a period, and log each day how long certificates are valid; until cancelled."""
        next_day = trio.current_time() + _DAY
        await self._log_days(level=logging.INFO)
        async for _ in every(RELOAD_PERIOD, first_after=RELOAD_PERIOD):
            await self.look()
            if trio.current_time() >= next_day:
                next_day += _DAY
                await self._log_days(level=logging.DEBUG)

    async def look(self) -> None:
        """Load the files again if their content has changed."""
        async with self._looking:
            digest, loaded, error = await self._run_blocking(self._looked)
            if error is not None and digest != self._refused:
                self._refused = digest
                log.warning(
                    "changed files cannot be used and the former ones stay in use what=%s error=%s",
                    self._what, error,
                )  # fmt: skip
            if loaded is None:
                return
            self._digest, self._refused = digest, None
            self.current = loaded
            log.info("changed files are in use what=%s", self._what)
        await self._log_days(level=logging.INFO)

    def _looked(self) -> tuple[bytes, ResultT | None, ConfigError | None]:
        """Return the hash of the files, and what they give if it has changed; blocks."""
        digest = self._hashed()
        if digest == self._digest:
            return digest, None, None
        try:
            loaded = self._load()
        except ConfigError as error:
            return digest, None, error
        # Files that are being replaced may give a mixture: the next check decides.
        return (digest, loaded, None) if self._hashed() == digest else (digest, None, None)

    def _hashed(self) -> bytes:
        digest = hashlib.sha256()
        for path in self._files:
            try:
                with path.open("rb") as file:
                    content = file.read(_HASHED_SIZE_MAX)
            except OSError as error:
                content = f"{error.errno}".encode()
            digest.update(hashlib.sha256(content).digest())
        return digest.digest()

    async def _log_days(self, *, level: int) -> None:
        now_ms = self._wall_clock.now_ms()
        for path in self._certificates:
            days = await self._run_blocking(days_left, path, now_ms)
            if days is None:
                continue
            if days < EXPIRY_WARNING_DAYS:
                log.warning(
                    "a certificate ends soon file=%s days_left=%d remedy=%s", path, days, "renew it"
                )
            else:
                log.log(level, "certificate file=%s days_left=%d", path, days)
