"""Serves the page of metrics, and says over HTTP whether the broker lives and is ready.

/metrics   /            the page for Prometheus
/-/healthy  /healthz    200 if the process answers
/readyz                 200 if clients may use the broker; how far a slave is behind does not count
"""

import logging
from collections.abc import Callable

import trio

from rocketrio_broker.ha.client import HAClientState
from rocketrio_broker.metrics.certificates import Certificates
from rocketrio_broker.metrics.event_counts import EventCounts
from rocketrio_broker.metrics.loop_delay import LoopDelay
from rocketrio_broker.metrics.page import MetricsPage
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.exposition import CONTENT_TYPE
from rocketrio_protocol.remoting.http_server import Page, serve_http, text_page
from rocketrio_protocol.remoting.ports import Listener

logger = logging.getLogger("rocketrio_broker")

_FOLLOWS = (HAClientState.FOLLOWING, HAClientState.VERIFYING)


class MetricsService:
    """Runs while the broker runs, if `metrics_listen` is set."""

    def __init__(
        self, broker: BrokerState, listener: Listener, *, connections: Callable[[], int]
    ) -> None:
        """Create it; `connections` returns how many connections clients have."""
        self._broker = broker
        self._listener = listener
        self._events = EventCounts()
        self._loop = LoopDelay()
        self._certificates = Certificates(broker)
        self._page = MetricsPage(
            broker,
            connections=connections,
            loop=self._loop,
            events=self._events,
            certificates=self._certificates,
        )

    def __repr__(self) -> str:
        return f"<MetricsService {self._listener.addr}>"

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled."""
        pages = {
            "/metrics": self._metrics,
            "/": self._metrics,
            "/-/healthy": _healthy,
            "/healthz": _healthy,
            "/readyz": self._ready,
        }
        logger.info("serves metrics address=%s", self._listener.addr)
        with self._events.attached():
            async with trio.open_nursery() as nursery:
                await nursery.start(self._loop.run)
                await nursery.start(self._certificates.run)
                await serve_http(
                    self._listener, pages, faults=self._broker.faults, task_status=task_status
                )

    def _metrics(self) -> Page:
        return Page(self._page.parts(), content_type=CONTENT_TYPE)

    def _ready(self) -> Page:
        problem = unready(self._broker)
        return text_page(problem, status=503) if problem else text_page("ready")


def _healthy() -> Page:
    return text_page("the broker answers")


def unready(broker: BrokerState) -> str:
    """Return why clients cannot use the broker yet; empty if they can."""
    if not broker.standing.served.value:
        return "the role has not begun"
    if broker.config.broker.name_servers and not broker.registration.listings.value:
        return "not registered at a name server"
    slave = broker.slave_statistics()
    if slave is not None and slave.log.state not in _FOLLOWS:
        return f"the slave is {slave.log.state.text}"
    return ""
