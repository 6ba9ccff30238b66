"""Asks the cluster every few seconds, and serves what the newest round found at once.

Invariant: while rounds fail no number is served that an earlier round found.
"""

import logging
from collections.abc import Collection

import trio

from rocketrio.exporter.names import page_of
from rocketrio.exporter.rounds import Rounds
from rocketrio_protocol.errors import Error
from rocketrio_protocol.exposition import CONTENT_TYPE, Family
from rocketrio_protocol.remoting.http_server import Page, serve_http, text_page
from rocketrio_protocol.remoting.ports import Listener
from rocketrio_protocol.remoting.tasks import every

AGE = Family("rocketrio_exporter_age_seconds", "gauge", "Age of what this page shows.")
FAILED = Family("rocketrio_exporter_failed_rounds_total", "counter", "Rounds that found no broker.")

logger = logging.getLogger("rocketrio.exporter")


class Exporter:
    """Serves one cluster."""

    def __init__(self, rounds: Rounds, *, names: Collection[str], period: float) -> None:
        self._rounds = rounds
        self._names = names
        self._period = period
        self._body: bytes | None = None
        self._at = 0.0
        self._failed = 0

    async def run(
        self,
        listener: Listener,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled."""
        pages = {
            "/metrics": self._page,
            "/": self._page,
            "/healthz": lambda: text_page("the exporter answers"),
            "/readyz": self._ready,
        }
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ask, nursery)
            await serve_http(listener, pages, task_status=task_status)

    async def _ask(self, nursery: trio.Nursery) -> None:
        has_details, in_a_row = False, 0
        async for _ in every(self._period):
            begin = trio.current_time()
            try:
                found = await self._rounds.next()
            except Error as error:
                self._failed += 1
                in_a_row += 1
                if in_a_row & (in_a_row - 1) == 0:  # The first, and again after double the time.
                    logger.warning("rounds fail in_a_row=%d error=%s", in_a_row, error)
                self._body = None
                continue
            if in_a_row:
                logger.warning("rounds succeed again after=%d", in_a_row)
                in_a_row = 0
            if not has_details:
                nursery.start_soon(self._rounds.run_details)
                has_details = True
            parts = []
            for number, piece in enumerate(page_of(found, self._names)):
                parts.append(piece)
                if number % _PIECES == 0:
                    await trio.lowlevel.checkpoint()
            self._body, self._at = "".join(parts).encode(), begin

    def _page(self) -> Page:
        own = FAILED.alone("", self._failed)
        if self._body is None:
            return Page([own.encode()], content_type=CONTENT_TYPE)
        own += AGE.alone("", round(trio.current_time() - self._at, 3))
        return Page([own.encode(), self._body], content_type=CONTENT_TYPE)

    def _ready(self) -> Page:
        if self._body is None:
            return text_page("no round has found a broker", status=503)
        return text_page("ready")


_PIECES = 500
"""Samples between two checkpoints: less than a millisecond."""
