"""Checks a broker's log in the background, slowly, or at once on request; a slave compares its log with its master's.

    pass   begins `FIRST_AFTER` a start and then every `PASS_EVERY`, at `log_check_rate` bytes a second; a request
           begins one now, at its own rate
    slave  while it follows a rocketrio master: a digest of every piece is compared with the master's (71022), and a
           difference is narrowed down

Invariant: only one pass runs at a time; its findings are reported once in the log, up to `FINDINGS_KEPT`.
Invariant: nothing is repaired here: an operator must decide which of two logs is right.
Answers to: nothing; Java has no such check.
"""

import logging
from collections.abc import Callable
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.peers import CALL_TIMEOUT, PeerCaller
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.store.log_check import LogCheck, LogFault, digest
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_protocol.bodies.log_check import LogCheckStatus, LogProblem
from rocketrio_protocol.commands.admin import (
    GetLogDigestRequestHeader,
    GetLogDigestResponseHeader,
)
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import check

logger = logging.getLogger("rocketrio_broker")

FIRST_AFTER: Final = 60.0
"""Seconds from a start to the first pass."""

PASS_EVERY: Final = 86_400.0
"""Seconds from the beginning of a pass to that of the next."""

FINDINGS_KEPT: Final = 100
"""The most findings of one pass that are kept for status and log; all are counted."""

IDLE_CHECK_INTERVAL: Final = 60.0
"""Seconds between two checks of the setting, while the setting turns log checks off."""

NARROWEST: Final = 4096
"""The size in bytes to which a difference from the master is narrowed down."""

DIGEST_LIMIT: Final = 4 << 20
"""The most bytes of the log for whose digest one request may ask."""


@attrs.define
class _Pass:
    """The state of one pass."""

    check: LogCheck
    number: int
    findings: list[LogFault] = attrs.Factory(list)
    count: int = 0
    master_addr: str | None = None
    compared: int = 0
    compares: bool = True


class LogCheckService:
    """The log checks of one broker."""

    def __init__(
        self,
        store: MessageStore,
        *,
        config: LiveConfig,
        disk: Disk,
        call: PeerCaller,
        followed: Callable[[], str | None],
        topic_exists: Callable[[str], bool] = lambda _: True,
    ) -> None:
        """Create it; `followed` returns the address of the master that this broker follows now, or None.

        Messages of a topic of which `topic_exists` returns False need no queue.
        """
        self._store = store
        self._config = config
        self._disk = disk
        self._call = call
        self._followed = followed
        self._topic_exists = topic_exists
        self._pass: _Pass | None = None
        self._before: _Pass | None = None
        self._is_running = False
        self._passes = 0
        self._finished_at: float | None = None
        self._wanted_rate = 0
        self._wanted = trio.Event()

    def __repr__(self) -> str:
        return f"<LogCheckService {self._pass!r}>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run checks until cancelled."""
        task_status.started()
        next_pass = trio.current_time() + FIRST_AFTER
        while True:
            with trio.move_on_at(next_pass):
                await self._wanted.wait()
            rate, self._wanted_rate = self._wanted_rate, 0
            self._wanted = trio.Event()
            next_pass = trio.current_time() + PASS_EVERY
            if not rate and not self._config.broker.log_check_rate:
                next_pass = trio.current_time() + IDLE_CHECK_INTERVAL
                continue
            await self._check_all(rate)

    def start(self, rate: int) -> None:
        """Begin a pass now, at `rate` bytes a second; a running pass begins again at that rate."""
        self._wanted_rate = rate
        self._wanted.set()
        self._is_running = True

    async def _check_all(self, rate: int) -> None:
        self._passes += 1
        check = LogCheck(self._store, disk=self._disk, topic_exists=self._topic_exists)
        self._before = self._pass
        current = self._pass = _Pass(check, self._passes)
        self._is_running = True
        await check.start()
        while check.position < check.end and not check.is_cut:
            begun, start = trio.current_time(), check.position
            try:
                for finding in await check.step():
                    self._found(finding)
                await self._compare(start, check.position)
            except OSError as error:
                self._found(LogFault(check.position, f"it cannot be read: {error}"))
                break
            # One pass at a time: `run` begins the new one, at its own rate.
            if self._wanted.is_set():
                return
            per_second = rate or self._config.broker.log_check_rate
            if not per_second:
                break
            pause = (check.position - start) / per_second
            with trio.move_on_at(begun + pause):
                await self._wanted.wait()
            await trio.lowlevel.checkpoint()
        self._is_running = False
        if check.position >= check.end:
            for finding in check.finish():
                self._found(finding)
            self._finished_at = trio.current_time()
            logger.log(
                logging.WARNING if current.count else logging.INFO,
                "log checked from=%d to=%d problems=%d compared=%d with=%s",
                check.begin, check.end, current.count, current.compared, current.master_addr,
            )  # fmt: skip

    def _found(self, finding: LogFault) -> None:
        current = self._pass
        assert current is not None
        current.count += 1
        if len(current.findings) < FINDINGS_KEPT:
            current.findings.append(finding)
            logger.error(
                "log check found physical_offset=%d problem=%s",
                finding.physical_offset, finding.problem,
            )  # fmt: skip

    # ----------------------------------------------------------------------------------- the master

    async def _compare(self, start: int, end: int) -> None:
        """Compare a piece with the master's; after a failure the master is not asked again in this pass."""
        current = self._pass
        assert current is not None
        addr = self._followed()
        if addr is None or not current.compares or end <= start:
            return
        try:
            found = await self._difference(addr, start, end)
        except Error as error:
            current.compares = False
            logger.info("log not compared with the master addr=%s reason=%s", addr, error)
            return
        current.master_addr = addr
        current.compared += end - start
        if found is not None:
            self._found(LogFault(*found))

    async def _difference(self, addr: str, start: int, end: int) -> tuple[int, str] | None:
        if not await self._differs(addr, start, end):
            return None
        while end - start > NARROWEST:
            middle = (start + end) // 2
            start, end = (
                (start, middle) if await self._differs(addr, start, middle) else (middle, end)
            )
        return start, f"the log differs from that of the master at {addr} between {start} and {end}"

    async def _differs(self, addr: str, start: int, end: int) -> bool:
        """Compare a range with the master; False also if one of the two no longer has all of it."""
        request = GetLogDigestRequestHeader(start, end)
        answer = check(
            await self._call(addr, request, timeout=CALL_TIMEOUT),
            "Comparing the log",
            broker_addr=addr,
        )
        theirs = answer.header(GetLogDigestResponseHeader).digest
        ours = await self.digest(start, end)
        return theirs is not None and ours is not None and theirs != ours

    async def digest(self, start: int, end: int) -> str | None:
        """Return the digest of a part of this broker's log, or None if the broker does not have all of it."""
        log = self._store.commit_log
        if not 0 <= end - start <= DIGEST_LIMIT or end > self._store.dispatched.value:
            return None
        return await self._disk.run(digest, log, start, end)

    # -------------------------------------------------------------------------------------- status

    def status(self) -> LogCheckStatus:
        """Return the state of the current pass, or of the last one."""
        finished = self._finished_at
        status = LogCheckStatus(
            is_running=self._is_running,
            is_slave=self._store.is_slave,
            finished_age=None if finished is None else trio.current_time() - finished,
        )
        if (current := self._pass) is not None:
            status.number = current.number
            status.begin, status.end = current.check.begin, current.check.end
            status.position = min(current.check.position, current.check.end)
            status.master_addr, status.compared_bytes = current.master_addr, current.compared
            status.problem_count = current.count
            status.problems = [
                LogProblem(finding.physical_offset, finding.problem) for finding in current.findings
            ]
        return status

    def problems(self) -> list[str]:
        """Return the problems for the status of the cluster."""
        current = self._pass
        if self._is_running and current is not None and not current.count:
            current = self._before  # These stand until the new pass has come as far.
        if current is None or not current.count:
            return []
        first = current.findings[0]
        return [
            f"the check of the log found {current.count} problems, the first at {first.physical_offset}:"
            f" {first.problem} (`rocketrio broker verify`)"
        ]
