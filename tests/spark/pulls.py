"""Who was pulled from: for tests of where a read reads."""

from collections import Counter

import attrs
import pytest

from rocketrio.api import ClientAPI
from rocketrio.consuming.pull_result import PullResult
from rocketrio_protocol.commands.pull import PullMessageRequestHeader
from rocketrio_protocol.message_codec import decode_messages


@attrs.define
class Pulls:
    """What all clients of the process pulled since the last `clear`."""

    asked: list[tuple[str, int, int]] = attrs.Factory(list)
    """Address, queue, offset of each pull, when it is sent."""
    messages: Counter[str] = attrs.Factory(Counter)
    """By address that gave them."""

    def clear(self) -> None:
        self.asked.clear()
        self.messages.clear()


def recorded_pulls(monkeypatch: pytest.MonkeyPatch) -> Pulls:
    pulls, pull_message = Pulls(), ClientAPI.pull_message

    async def recorded(
        self: ClientAPI, addr: str, header: PullMessageRequestHeader, *, timeout: float
    ) -> PullResult:
        pulls.asked.append((addr, header.queue_id, header.queue_offset))
        result = await pull_message(self, addr, header, timeout=timeout)
        pulls.messages[addr] += len(decode_messages(result.body))
        return result

    monkeypatch.setattr(ClientAPI, "pull_message", recorded)
    return pulls
