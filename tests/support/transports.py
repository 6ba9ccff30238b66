"""A transport that hands everything on to another one: tests change what they are about."""

import attrs

from rocketrio_protocol.frame import Body
from rocketrio_protocol.remoting.ports import Transport


@attrs.define(eq=False)
class Forwarding:
    """One end of a connection, which forwards all calls."""

    inner: Transport

    @property
    def local_addr(self) -> str:
        return self.inner.local_addr

    @property
    def remote_addr(self) -> str:
        return self.inner.remote_addr

    async def receive_into(self, buffer: memoryview) -> int:
        return await self.inner.receive_into(buffer)

    def send_nowait(self, data: Body) -> int:
        return self.inner.send_nowait(data)

    async def send_all(self, data: Body) -> None:
        await self.inner.send_all(data)

    async def aclose(self) -> None:
        await self.inner.aclose()
