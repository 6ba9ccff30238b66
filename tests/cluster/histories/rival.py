"""A second broker of the same name that is started as master by mistake, while the first is there for all to see.

It is ended, as an operator would, before a fault or a switch hides the first from it or from the name server: two
masters that cannot know of each other are beyond what is promised (docs/decisions/0018).
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import attrs
import trio
from tests.cluster.histories.events import RivalAnswered, RivalEnded, now
from tests.cluster.histories.schedule import Fault
from tests.cluster.histories.world import BROKER_NAME, TOPIC, World
from tests.support.caller import Caller

from rocketrio_broker.embedded import Member
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.pool import open_channel_pool
from rocketrio_protocol.remoting.ports import join_addr

HOST: Final = "10.0.0.66"
PORT: Final = 10911
CLIENT_HOST: Final = "10.0.3.66"
TRY_PERIOD: Final = 0.7
ANSWER_LIMIT: Final = 3.0


@attrs.define
class RivalMaster:
    """The second master of a run, if there is one now."""

    world: World
    _member: Member | None = None
    _scope: trio.CancelScope = attrs.Factory(trio.CancelScope)
    _turn: trio.Lock = attrs.Factory(trio.Lock)
    _hidden: int = 0

    async def start(self) -> bool:
        """Start it with an empty disk, if the first master is plain to see."""
        world = self.world
        async with self._turn:
            if self._member is not None or not self._is_first_plain():
                return False
            config = attrs.evolve(
                world.master.config,
                role=world.schedule.mode.role,
                broker_id=MASTER_ID,
                listen=join_addr(HOST, PORT),
                ha_listen=None,
                data=Path("/rival"),
                ha_return_role="stand-aside",
            )
            self._member = Member(world.cluster, config, HOST)
            await self._member.start()
            return True

    async def send_to(self) -> None:
        """Producers that were given its address by hand; until it ends."""
        with trio.CancelScope() as self._scope:
            async with open_channel_pool(self.world.cluster.dial_from(CLIENT_HOST)) as pool:
                caller, addr = Caller(pool), join_addr(HOST, PORT)
                while True:
                    try:
                        answer = await caller.send(
                            addr, b"to a rival", topic=TOPIC, timeout=ANSWER_LIMIT
                        )
                        self.world.history.add(RivalAnswered(at=now(), code=answer.code))
                    except Error:
                        return  # It has ended.
                    await trio.sleep(TRY_PERIOD)

    async def end(self) -> None:
        """Look at what it did, and end it; nothing where there is none."""
        async with self._turn:
            member, self._member = self._member, None
            if member is None:
                return
            self._scope.cancel()
            routes = self.world.cluster.name_server.routes
            listed = routes.broker_addr_table[BROKER_NAME].broker_addrs.get(MASTER_ID)
            self.world.history.add(
                RivalEnded(
                    at=now(),
                    log_end=member.broker.store.max_physical_offset,
                    is_listed=listed == join_addr(HOST, PORT),
                )
            )
            await member.kill()

    @asynccontextmanager
    async def out_of_the_way(self) -> AsyncGenerator[None]:
        """In this block the first master may be out of sight: no rival is there, nor comes."""
        self._hidden += 1
        try:
            await self.end()
            yield
        finally:
            self._hidden -= 1

    def _is_first_plain(self) -> bool:
        world = self.world
        if self._hidden or not world.has_master or not world.name_server_is_running:
            return False
        broker = world.cluster.name_server.routes.broker_addr_table.get(BROKER_NAME)
        return (
            broker is not None and broker.broker_addrs.get(MASTER_ID) == world.master.broker.address
        )


def hides_a_master(fault: Fault) -> bool:
    """The master of the moment: it may be another one before the fault is over."""
    if fault.kind in (
        "kill",
        "stop",
        "power cut",
        "torn end",
        "wiped",
        "older copy",
        "queue gone",
        "role gone",
        "epochs gone",
        "silence",
        "pause",
        "name server down",
    ):
        return not fault.who.startswith(("consumer", "producer"))
    return bool(fault.other) and "name server" in (fault.who, fault.other)
