"""The master's side of replication: accepts slaves, and gives each of them a connection of its own.

Invariant: a slow or dead slave slows no other slave; each has its own tasks and its own position.
Invariant: an exception of this program while it serves one slave ends that connection and nothing else.
Answers to: DefaultHAService (with AcceptSocketService); RocketMQ reference, section 6.
Unlike Java: no number is shared by all slaves; what counts is what each live slave has.
"""

import logging
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT, HAConfig
from rocketrio_broker.ha.connection import HAConnection, HAConnectionStatistics
from rocketrio_broker.ha.connection_limits import HAPlace, HAPlaces
from rocketrio_broker.ha.errors import (
    AskedOnlyError,
    EpochEndedError,
    LinkRefusedError,
    NotFollowedError,
    ReplicationError,
)
from rocketrio_broker.ha.group_transfer import GroupTransferService, GroupTransferStatistics
from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.errors import ClosedError, Error, NotReachableError, ProtocolError
from rocketrio_protocol.ha.exchange import Greeting
from rocketrio_protocol.remoting.faults import ConnectionFaults
from rocketrio_protocol.remoting.ports import Listener, Transport, WallClock, split_addr
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio_broker.ha")

_ORDINARY_ENDS: Final = (NotReachableError, EpochEndedError, AskedOnlyError, NoneType)


@attrs.frozen
class HAStatistics:
    """The slaves of a master."""

    ha_address: str
    max_physical_offset: int
    connections: tuple[HAConnectionStatistics, ...]
    group_transfer: GroupTransferStatistics
    last_refusal: str | None
    """Why the slave that was refused last cannot follow; None if no slave was refused, or if a slave of its host
    follows now."""


class HAService:
    """Accepts slaves on one listener and sends each of them the log."""

    def __init__(
        self,
        store: MessageStore,
        listener: Listener,
        *,
        wall_clock: WallClock,
        config: HAConfig | None = None,
        group_transfer: GroupTransferService | None = None,
        security: LinkSecurity | None = None,
        broker_id: Callable[[], int] = lambda: -1,
        introduce: Callable[[Greeting, str], None] = lambda _greeting, _addr: None,
        refusal: Callable[[], str] = lambda: "",
        faults: ConnectionFaults | None = None,
    ) -> None:
        """`group_transfer` receives what the slaves acknowledge; `security` authenticates slaves.

        `refusal` returns why no rocketrio slave may follow this log now, or an empty string.

        `introduce` is called with the greeting of each slave and the address of its end of the stream; `broker_id`
        returns the id of this broker.
        """
        self.ha_address = listener.addr
        """The `host:port` that slaves dial."""
        self.connections: list[HAConnection] = []
        """The slaves that are connected now, the oldest connection first."""
        self.accepted = Watermark()
        """Counts the connections since the start."""
        self.departed = Watermark()
        """Counts the connections that have ended."""
        self._store = store
        self._listener = listener
        self._config = config or HAConfig()
        self._wall_clock = wall_clock
        self.group_transfer = group_transfer or GroupTransferService(
            is_required=False, max_physical_offset=store.max_physical_offset
        )
        self._security = security or LinkSecurity()
        self._broker_id = broker_id
        self._introduce = introduce
        self._refusal = refusal
        self._places = HAPlaces()
        self._faults = ConnectionFaults() if faults is None else faults
        self._last_refusal: str | None = None
        self._last_refused_host = ""
        self._refused: dict[str, type[Error]] = {}

    def __repr__(self) -> str:
        return f"<HAService {self.ha_address} with {len(self.connections)} slaves>"

    @property
    def is_proof_asked(self) -> bool:
        """Whether slaves prove who they are, by a secret or a certificate."""
        return self._security.is_proof_asked

    def statistics(self) -> HAStatistics:
        return HAStatistics(
            ha_address=self.ha_address,
            max_physical_offset=self._store.max_physical_offset,
            connections=tuple(connection.statistics() for connection in self.connections),
            group_transfer=self.group_transfer.statistics(),
            last_refusal=None if self._refused_follows() else self._last_refusal,
        )

    def _refused_follows(self) -> bool:
        return any(
            connection.slave_request_offset is not None
            and split_addr(connection.addr)[0] == self._last_refused_host
            for connection in self.connections
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve slaves until cancelled or until the listener is closed, and close the listener."""
        try:
            async with background_nursery() as watching, trio.open_nursery() as nursery:
                watching.start_soon(self._end_with_epochs)
                watching.start_soon(self._send_gate)
                task_status.started()
                while True:
                    try:
                        transport = await self._listener.accept()
                    except ClosedError:
                        return
                    nursery.start_soon(self._serve, transport)
        finally:
            self._listener.close()

    async def _end_with_epochs(self) -> None:
        """Make rocketrio slaves reconnect when this log has other epochs than the ones they received."""
        changes = self._store.epochs.changes
        while True:
            await changes.wait_past(changes.value)
            for connection in tuple(self.connections):
                if connection.greeting is not None:
                    connection.end(EpochEndedError("Another epoch begins"))

    def end_followers(self) -> None:
        """End the connections of rocketrio slaves, because they may not follow any more.

        Brokers that only compare logs or fetch messages remain connected.
        """
        for connection in tuple(self.connections):
            if connection.is_follower:
                connection.end(NotFollowedError(self._refusal(), broker_addr=connection.addr))

    async def _send_gate(self) -> None:
        """Send rocketrio slaves the position of the read gate whenever it moves."""
        end = self._store.read_gate.end
        while True:
            await end.wait_past(end.value)
            for connection in self.connections:
                connection.send_gate()

    def _introduced(self, connection: HAConnection) -> None:
        """Register a slave that identified itself, and end its older connection, which may not have been given up yet.

        The connection of a reader, which only compares logs, does not count as a slave's.
        """
        greeting = connection.greeting
        assert greeting is not None
        if greeting.is_reader:
            self.connections.remove(connection)
            return
        for older in tuple(self.connections):
            if older is not connection and older.member and older.member == greeting.member:
                # At once, and not when its tasks have ended: until then one slave
                # would be two of those that puts wait for.
                older.end(EpochEndedError("The slave is back on another connection"))
                self.group_transfer.slave_left(older.addr)
        if connection.is_follower:
            self._introduce(greeting, connection.addr)

    async def _serve(self, transport: Transport) -> None:
        addr = transport.remote_addr
        with self._places.take(addr) as place:
            try:
                await self._serve_at(place, transport)
            except Exception as fault:
                # Raised, it would end the nursery, and with it the connections of all slaves.
                self._faults.note(addr, fault)
                await transport.aclose()
        if place.scope.cancelled_caught:
            problem = (
                "It was closed to make room for another connection: it had not identified itself"
            )
            self._log_end(addr, LinkRefusedError(problem))

    async def _serve_at(self, place: HAPlace, transport: Transport) -> None:
        addr = transport.remote_addr
        try:
            transport = await self._security.accept(transport)
            if self._security.is_proof_asked:
                self._places.keep(place)
        except Error as error:
            await transport.aclose()
            self._log_end(addr, error)
            return
        connection = HAConnection(
            transport,
            self._store,
            config=self._config,
            wall_clock=self._wall_clock,
            group_transfer=self.group_transfer,
            broker_id=self._broker_id(),
            introduced=self._introduced,
            refusal=self._refusal,
            asks_for_log=partial(self._places.keep, place),
        )
        self.connections.append(connection)
        self.accepted.advance(self.accepted.value + 1)
        try:
            await connection.run()
        finally:
            if connection in self.connections:
                self.connections.remove(connection)
            # However it ended: what this slave had must release no put any more.
            self.group_transfer.slave_left(connection.addr)
            self.departed.advance(self.departed.value + 1)
        self._log_end(addr, connection.ended_by, connection.slave_ack_offset, connection.log_level)

    def _log_end(
        self, addr: str, reason: Error | None, ack_offset: int = 0, usual_level: int = logging.INFO
    ) -> None:
        host, _ = split_addr(addr)
        level = usual_level if type(reason) in _ORDINARY_ENDS else logging.WARNING
        if type(reason) in _ORDINARY_ENDS:
            self._refused.pop(host, None)
        elif isinstance(reason, ReplicationError | ProtocolError):
            self._last_refusal, self._last_refused_host = str(reason), host
            # A slave that cannot follow reconnects every few seconds: log it above debug level only once.
            if self._refused.get(host) is type(reason):
                level = logging.DEBUG
            self._refused[host] = type(reason)
            if len(self._refused) > SLAVES_LIMIT:
                self._refused.clear()
        else:
            self._refused.pop(host, None)
        logger.log(
            level,
            "slave disconnected slave=%s ack_offset=%d reason=%s",
            addr, ack_offset, reason,
        )  # fmt: skip
