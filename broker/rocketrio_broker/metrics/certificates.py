"""Reads regularly when the certificates of a broker end: files may be replaced while it runs."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import trio

from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.remoting.tls_files import expires_ms

if TYPE_CHECKING:
    from rocketrio_broker.state import BrokerState

PERIOD: Final = 300.0


class Certificates:
    """The ends of the certificates, by the path of their file."""

    def __init__(self, broker: "BrokerState") -> None:
        self._broker = broker
        self._ends_ms: dict[str, int] = {}

    def ends(self) -> Iterator[tuple[str, float]]:
        """Yield each file with the end of its first certificate that ends, in seconds since 1970."""
        for path, end_ms in self._ends_ms.items():
            yield path, end_ms / 1000

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the files until cancelled; a file that cannot be read has no end."""
        config = self._broker.config.broker
        files = dict.fromkeys(
            (
                config.tls_certificate_file,
                config.peer_tls_certificate_file,
                config.ha_tls_certificate_file,
            )
        )
        task_status.started()
        async for _ in every(PERIOD):
            ends = {}
            for path in files:
                if path is not None:
                    end_ms = await self._broker.disk.run(expires_ms, path)
                    if end_ms is not None:
                        ends[str(path)] = end_ms
            self._ends_ms = ends
