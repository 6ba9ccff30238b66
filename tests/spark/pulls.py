"""Who was pulled from: for tests of where a read reads."""

from collections import Counter

import attrs
import pytest
import trio

from rocketrio.cluster.api import ClientAPI
from rocketrio.consuming.pull_result import PullResult
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.message import decode_messages


@attrs.define
class Pulls:
    """What all clients of the process pulled since the last `clear`."""

    asked: list[tuple[str, int, int]] = attrs.Factory(list)
    """Address, queue, offset of each pull, when it is sent."""
    messages: Counter[str] = attrs.Factory(Counter)
    """By address that gave them."""

    _more: trio.Event = attrs.Factory(trio.Event)

    def add(self, addr: str, queue_id: int, offset: int) -> None:
        """A pull is sent."""
        self.asked.append((addr, queue_id, offset))
        self._more.set()
        self._more = trio.Event()

    async def wait_asked(self, count: int) -> None:
        """Wait until `count` pulls have been sent."""
        while len(self.asked) < count:
            await self._more.wait()

    def clear(self) -> None:
        self.asked.clear()
        self.messages.clear()


@pytest.fixture
def pulls(monkeypatch: pytest.MonkeyPatch) -> Pulls:
    """Record what all clients of the process pull from now on."""
    found, pull_message = Pulls(), ClientAPI.pull_message

    async def recorded(
        self: ClientAPI, addr: str, header: PullMessageRequestHeader, *, timeout: float
    ) -> PullResult:
        found.add(addr, header.queue_id, header.queue_offset)
        result = await pull_message(self, addr, header, timeout=timeout)
        found.messages[addr] += len(decode_messages(result.body))
        return result

    monkeypatch.setattr(ClientAPI, "pull_message", recorded)
    return found
