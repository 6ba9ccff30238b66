"""Logs the state of replication for operators: slaves that stay behind, and sends that slaves did not acknowledge.

Every `CHECK_INTERVAL` it reads numbers that the parts count anyway; it adds nothing to the path of a message. A slave
stays behind if it has not even acknowledged where the log ended at the previous check. A lasting problem is logged with
exponential back-off (each time its duration has doubled).

Answers to: nothing of Java's; there an operator compares offsets.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.ha.connection import HAConnectionStatistics
from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.log_lines import rounded
from rocketrio_protocol.remoting.tasks import every

logger = logging.getLogger("rocketrio_broker.ha")

CHECK_INTERVAL: Final = 10.0
"""Seconds between checks: a slave further behind than that is logged."""

_UNSAFE: Final = {
    ResponseCode.FLUSH_DISK_TIMEOUT: "flush_disk_timeout",
    ResponseCode.FLUSH_SLAVE_TIMEOUT: "flush_slave_timeout",
    ResponseCode.SLAVE_NOT_AVAILABLE: "slave_not_available",
}


class Watched(Protocol):
    """The statistics that are checked: `HAStatistics`."""

    @property
    def max_physical_offset(self) -> int: ...

    @property
    def connections(self) -> tuple[HAConnectionStatistics, ...]: ...


@attrs.define
class _Lagging:
    """A slave that stays behind."""

    since: float
    log_again_at: float
    bytes_behind: int
    checked_at: float


class ReplicationWatch:
    """Checks slaves and sends periodically."""

    def __init__(
        self,
        watched: Callable[[], Watched],
        answered: Callable[[], Mapping[ResponseCode, int]],
    ) -> None:
        """`watched` returns the log's end and the slaves, `answered` how often sends got each status so far."""
        self._watched = watched
        self._answered = answered
        self._end_before = 0
        self._before: Mapping[ResponseCode, int] = {}
        self._lagging: dict[str, _Lagging] = {}
        self._is_unsafe = False

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch until cancelled."""
        self._before = self._answered()
        self._end_before = self._watched().max_physical_offset
        task_status.started()
        async for _ in every(CHECK_INTERVAL, first_after=CHECK_INTERVAL):
            self._check_slaves()
            self._check_sends()

    def _check_slaves(self) -> None:
        watched = self._watched()
        end, connections = watched.max_physical_offset, watched.connections
        now = trio.current_time()
        there = set()
        for slave in connections:
            there.add(slave.addr)
            if slave.slave_request_offset is not None:
                self._check_slave(slave, now)
        for addr in self._lagging.keys() - there:
            del self._lagging[addr]  # Its departure is logged elsewhere.
        self._end_before = end

    def _check_slave(self, slave: HAConnectionStatistics, now: float) -> None:
        lagging = self._lagging.get(slave.addr)
        if slave.slave_ack_offset >= self._end_before:
            if lagging is not None:
                del self._lagging[slave.addr]
                logger.info(
                    "slave has caught up slave=%s offset=%d seconds=%.0f",
                    slave.addr, slave.slave_ack_offset, now - lagging.since,
                )  # fmt: skip
            return
        if lagging is None:
            since = now - CHECK_INTERVAL
            lagging = _Lagging(since, now, slave.bytes_behind, now)
            self._lagging[slave.addr] = lagging
        if now < lagging.log_again_at:
            return
        # The rate at which the distance shrinks decides, not the rate at which the slave receives.
        gained = (lagging.bytes_behind - slave.bytes_behind) / max(now - lagging.checked_at, 1.0)
        left = slave.bytes_behind / gained if gained > 0 else None
        logger.warning(
            "slave stays behind slave=%s bytes=%d seconds=%.0f last_report=%.1f level_in=%s",
            slave.addr, slave.bytes_behind, now - lagging.since, slave.last_report_age, rounded(left),
        )  # fmt: skip
        lagging.log_again_at = now + (now - lagging.since)
        lagging.bytes_behind, lagging.checked_at = slave.bytes_behind, now

    def _check_sends(self) -> None:
        answered = self._answered()
        grown = {code: answered[code] - self._before.get(code, 0) for code in answered}
        self._before = answered
        unsafe = {name: grown.get(code, 0) for code, name in _UNSAFE.items()}
        if any(unsafe.values()):
            self._is_unsafe = True
            statuses = ",".join(f"{name}:{count}" for name, count in unsafe.items() if count)
            logger.warning(
                "sends stored without the required replication seconds=%g unsafe=%s safe=%d",
                CHECK_INTERVAL, statuses, grown.get(ResponseCode.SUCCESS, 0),
            )  # fmt: skip
        elif self._is_unsafe and grown.get(ResponseCode.SUCCESS, 0):
            self._is_unsafe = False
            logger.info("sends are replicated as required again")
