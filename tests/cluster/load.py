"""A sender that goes to the other broker of a pair when one refuses."""

import attrs
import trio
from tests.support.pair import Pair

from rocketrio_protocol.codes import ResponseCode
from rocketrio_protocol.errors import Error


@attrs.define
class Load:
    """What became of each message, and how long none was acknowledged."""

    pair: Pair
    acknowledged: list[str] = attrs.Factory(list)
    longest_gap: float = 0.0
    codes: set[int] = attrs.Factory(set)
    """Those of refusals."""

    async def run(self) -> None:
        at, number, last = self.pair.first, 0, trio.current_time()
        while True:
            text = f"{number:06d}"
            try:
                answer = await self.pair.caller.send(at.broker.address, text.encode(), timeout=10)
            except Error:
                answer = None
            if answer is not None and answer.code == ResponseCode.SUCCESS:
                self.acknowledged.append(text)
                now = trio.current_time()
                self.longest_gap, last = max(self.longest_gap, now - last), now
                number += 1
            else:
                if answer is not None:
                    self.codes.add(answer.code)
                at = self.pair.second if at is self.pair.first else self.pair.first
            await trio.sleep(0.01)

    async def assert_kept(self) -> None:
        """Compare what both brokers have with what was acknowledged."""
        await self.pair.level()
        assert len(self.acknowledged) > 200
        for member in (self.pair.first, self.pair.second):
            read = await self.pair.read(member)
            assert read == sorted(read)
            assert set(read) >= set(self.acknowledged)
