"""Replication: `HAService` on the master accepts slaves, `HAClient` on a slave follows the master.

    __init__            HAService: accepts slaves, one HAConnection each
    connection          the master's end of one slave
    exchange            who a rocketrio peer is, and which epochs its log has: the first words of a connection
    epochs              where two logs part by their epochs, and what may be cut
    open_epoch          a broker that becomes master opens an epoch, and asks the others before
    group_transfer      what enough slaves have: the address that synchronous puts wait for
    live_slaves         which broker ids are connected, and so can be read
    known_slaves        which slaves there were, for a master that comes back with its name servers
    watch               lines of the log for people: who stays behind, what was not acknowledged
    level_clock         since when a slave was level with its master
    client              HAClient: the slave's end; client_state has its states and numbers
    history             whether a slave's log is its master's: bytes compared on each connect
    resync              what a slave does about a master that is shorter, other, or begins later
    transfer_checks     what is checked of bytes before they are appended
    peers               what name servers list of this name, and what its brokers say of themselves
    other_master        whether another master of this name lives: asked before writes are taken
    missing_tail        who becomes master gets from its slaves what it lacks
    torn_end            damaged records at the end of a log are replaced by a peer's copies of them
    second_history      whether a slave has a log that is older than this new master's
    copy_progress       how far a slave is with a long copy
    places              how many may be connected, and who gives way
    link_security       who may replicate, and who may listen in
    link_files          the secret and the certificates for that, and which are not good enough
    sealed              a connection on which every byte is proved
    slave_synchronize   a slave's copies of topics, groups and offsets, over ordinary requests
    offset_copy         which consumer offsets follow, both ways
    gather_offsets      a restarted master learns from its slaves what was committed there
    master_address      where the master is, as a slave knows it

Invariant: one slow or dead slave slows nobody else; each has its tasks and its position.
Answers to: DefaultHAService (with AcceptSocketService); RocketMQ reference, section 6.
Unlike Java: no number shared by all slaves; what counts is what each live slave has.
"""

import logging
from collections.abc import Callable
from functools import partial
from types import NoneType
from typing import Final

import attrs
import trio

from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.connection import HAConnection, HAConnectionStatistics
from rocketrio_broker.ha.errors import (
    AskedOnlyError,
    EpochEndedError,
    LinkRefusedError,
    ReplicationError,
)
from rocketrio_broker.ha.group_transfer import GroupTransferService, GroupTransferStatistics
from rocketrio_broker.ha.link_security import LinkSecurity
from rocketrio_broker.ha.places import SLAVES_LIMIT, Place, Places
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.errors import ClosedError, Error, NotReachable, ProtocolError
from rocketrio_protocol.remoting.ports import Listener, Transport, WallClock, split_addr
from rocketrio_protocol.remoting.tasks import background_nursery

logger = logging.getLogger("rocketrio_broker.ha")

_ORDINARY_ENDS: Final = (NotReachable, EpochEndedError, AskedOnlyError, NoneType)


@attrs.frozen
class HAStatistics:
    """A master's slaves."""

    ha_address: str
    max_physical_offset: int
    connections: tuple[HAConnectionStatistics, ...]
    group_transfer: GroupTransferStatistics
    last_refusal: str | None
    """Why the last slave that was refused cannot follow; None if there was none, or its host follows now."""


class HAService:
    """Accepts slaves on one listener and feeds each of them the log."""

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
        introduce: Callable[[int, str], None] = lambda _id, _addr: None,
    ) -> None:
        """`group_transfer` is told what the slaves have, for those who wait; `security` says who may be a slave.

        `introduce` is told the broker id and the address of each slave that says who it is; `broker_id` is our own.
        """
        self.ha_address = listener.addr
        """`host:port` that slaves dial."""
        self.connections: list[HAConnection] = []
        """The slaves that are connected now, the longest first."""
        self.accepted = Watermark()
        """Counts the connections since the start."""
        self.departed = Watermark()
        """Counts those that are over."""
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
        self._places = Places()
        self._last_refusal: str | None = None
        self._last_refused_host = ""
        self._refused: dict[str, type[Error]] = {}

    def __repr__(self) -> str:
        return f"<HAService {self.ha_address} with {len(self.connections)} slaves>"

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
        """Serve slaves until cancelled or until the listener is closed; closes the listener."""
        try:
            async with background_nursery() as watching, trio.open_nursery() as nursery:
                watching.start_soon(self._end_with_epochs)
                watching.start_soon(self._tell_gate)
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
        """Have rocketrio slaves come back when this log has other epochs than they were told."""
        changes = self._store.epochs.changes
        while True:
            await changes.wait_past(changes.value)
            for connection in tuple(self.connections):
                if connection.greeting is not None:
                    connection.end(EpochEndedError("Another epoch begins"))

    async def _tell_gate(self) -> None:
        """Have rocketrio slaves hear how far readers see here."""
        end = self._store.read_gate.end
        while True:
            await end.wait_past(end.value)
            for connection in self.connections:
                connection.tell_gate()

    def _introduced(self, connection: HAConnection) -> None:
        """A slave is back, perhaps before its old connection was given up: it is one slave; or it is none at all."""
        greeting = connection.greeting
        assert greeting is not None
        if greeting.is_reader:
            self.connections.remove(connection)
            return
        for older in tuple(self.connections):
            if older is not connection and older.member and older.member == greeting.member:
                older.end(EpochEndedError("The slave is back on another connection"))
                self.group_transfer.slave_left(older.addr)
        if greeting.broker_id >= 0:
            self._introduce(greeting.broker_id, connection.addr)

    async def _serve(self, transport: Transport) -> None:
        addr = transport.remote_addr
        with self._places.take(addr) as place:
            await self._serve_at(place, transport)
        if place.scope.cancelled_caught:
            problem = "It gave its place to a newcomer: it had not shown who it is"
            self._log_end(addr, LinkRefusedError(problem))

    async def _serve_at(self, place: Place, transport: Transport) -> None:
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
            asks_for_log=partial(self._places.keep, place),
        )
        self.connections.append(connection)
        self.accepted.advance(self.accepted.value + 1)
        logger.info("slave connected slave=%s", connection.addr)
        try:
            await connection.run()
        finally:
            if connection in self.connections:
                self.connections.remove(connection)
            self.group_transfer.slave_left(connection.addr)
            self.departed.advance(self.departed.value + 1)
        self._log_end(addr, connection.ended_by, connection.slave_ack_offset)

    def _log_end(self, addr: str, reason: Error | None, ack_offset: int = 0) -> None:
        host, _ = split_addr(addr)
        level = logging.INFO if type(reason) in _ORDINARY_ENDS else logging.WARNING
        if type(reason) in _ORDINARY_ENDS:
            self._refused.pop(host, None)
        elif isinstance(reason, ReplicationError | ProtocolError):
            self._last_refusal, self._last_refused_host = str(reason), host
            # A slave that cannot follow comes back every few seconds: one line for people is enough.
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
