"""One name server: its tables, its requests, and the scan for silent brokers.

Name servers do not know each other: every broker registers with each of them.

Invariant: a broker is removed when its connection ends, or after 120 s of silence.
Answers to: NamesrvController, BrokerHousekeepingService.
"""

from collections.abc import Sequence

import trio

from rocketrio_broker.namesrv.kv import KVConfigManager
from rocketrio_broker.namesrv.processor import NameServerProcessor, NameServerSettings
from rocketrio_broker.namesrv.routes import SCAN_INTERVAL, RouteInfoManager
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.ports import Listener
from rocketrio_protocol.remoting.server import serve_remoting
from rocketrio_protocol.remoting.server_limits import ServerLimits
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
    ) -> None:
        self._listeners = listeners
        self._limits = limits
        self.routes = RouteInfoManager() if routes is None else routes
        self.processor = NameServerProcessor(
            routes=self.routes,
            kv_config=KVConfigManager() if kv_config is None else kv_config,
            settings=NameServerSettings() if settings is None else settings,
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
            await nursery.start(_serve, self._listeners, self.processor, self, self._limits)
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


async def _serve(
    listeners: Sequence[Listener],
    processor: NameServerProcessor,
    observer: NameServer,
    limits: ServerLimits | None,
    *,
    task_status: trio.TaskStatus[None],
) -> None:
    await serve_remoting(
        listeners,
        processor.processors(),
        observer=observer,
        limits=limits,
        task_status=task_status,
    )
