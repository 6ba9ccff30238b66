"""One name server: its tables, its requests, and the scan for silent brokers.

Name servers do not know each other: every broker registers with each of them.

Invariant: a broker is removed when its connection ends, or after 120 s of silence.
Answers to: NamesrvController, BrokerHousekeepingService.
"""

from collections.abc import Sequence
from pathlib import Path

import trio

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.access.fresh_proofs import FreshProofs
from rocketrio_broker.access.guard import Guard
from rocketrio_broker.namesrv.kv import KVConfigManager
from rocketrio_broker.namesrv.processor import (
    NameServerFacts,
    NameServerProcessor,
    NameServerSettings,
)
from rocketrio_broker.namesrv.routes import SCAN_INTERVAL, RouteInfoManager
from rocketrio_broker.requests.audit import Audit
from rocketrio_broker.requests.declaration import changes_of, handlers_of
from rocketrio_broker.store.disk import RealDisk
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import Listener, SystemWallClock, WallClock
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.server_limits import ServerLimits
from rocketrio_protocol.remoting.server_tls import ServerTls
from rocketrio_protocol.remoting.tasks import every


class NameServer:
    """Serves routes: `await nursery.start(name_server.run)`."""

    def __init__(
        self,
        listeners: Sequence[Listener],
        *,
        kv_config: KVConfigManager | None = None,
        settings: NameServerSettings | None = None,
        limits: ServerLimits | None = None,
        routes: RouteInfoManager | None = None,
        access: AccessControl | None = None,
        tls: ServerTls | None = None,
        wall_clock: WallClock | None = None,
        audit_log: Path | None = None,
    ) -> None:
        """Create it; `access` has the users, without whom every request is permitted.

        `audit_log` is the file for a line of each change that an operator makes.
        """
        self._access = access
        self._listeners = listeners
        self._limits = limits
        self._tls = tls
        self.faults = ConnectionFaults()
        """The connections that a fault of this program has ended."""
        self.routes = RouteInfoManager() if routes is None else routes
        kv_config = KVConfigManager() if kv_config is None else kv_config
        settings = NameServerSettings() if settings is None else settings
        self.processor = NameServerProcessor(
            routes=self.routes, kv_config=kv_config, settings=settings
        )
        self._wall_clock = SystemWallClock() if wall_clock is None else wall_clock
        self._audit = Audit(
            self.addr,
            wall_clock=self._wall_clock,
            disk=RealDisk(),
            path=audit_log,
        )

    def __repr__(self) -> str:
        return f"<NameServer {self.addr}, {len(self.routes.broker_live_table)} brokers>"

    @property
    def addr(self) -> str:
        """The address of its first listener."""
        return self._listeners[0].addr

    def channel_opened(self, channel: Channel) -> None:
        """Do nothing until the client or broker that connected sends a request."""

    def channel_closed(self, channel: Channel) -> None:
        """Remove the brokers that registered over the connection."""
        self.routes.channel_closed(channel)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._scan)
            nursery.start_soon(self._tidy)
            await nursery.start(self._audit.run)
            if self._access is not None:
                await nursery.start(self._access.run)
            await nursery.start(self._serve)
            task_status.started()

    async def _tidy(self) -> None:
        """Remove, in small steps, what brokers with very many topics leave behind."""
        departures = self.routes.departures
        while True:
            seen = departures.value
            while self.routes.tidy():
                await trio.lowlevel.checkpoint()
                seen = departures.value
            await departures.wait_past(seen)

    async def _scan(self) -> None:
        async for _ in every(SCAN_INTERVAL, first_after=SCAN_INTERVAL):
            self.routes.scan_not_active_broker(trio.current_time())

    async def _serve(self, *, task_status: trio.TaskStatus[None]) -> None:
        handlers = handlers_of(self.processor)
        table = {code: handler.process for code, handler in handlers.items()}
        processors = self._audit.over(table, changes_of(handlers))
        guarded = None
        if (access := self._access) is not None:
            proofs = FreshProofs(self._wall_clock)
            guard = Guard(lambda: access.table, NameServerFacts(), proofs)
            guarded = guard.over(processors, handlers)
        await serve_remoting(
            self._listeners,
            processors if guarded is None else {},
            default=guarded,
            observer=self,
            limits=self._limits,
            tls=self._tls,
            faults=self.faults,
            task_status=task_status,
        )
