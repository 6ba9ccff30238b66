"""Knows which broker ids can be read from: which slaves are connected, and their ids.

Rocketrio slaves identify themselves on their connection, and when they copy tables (43): with their id, and the address
of their end of the stream. The latter counts for connections that do not identify themselves. Apache's slaves are
identified by the name servers' list (106): the ids at that host.

    connection   10.0.0.11:49160   broker 1 reported: "my stream is 10.0.0.11:49160"       id 1 is live
    connection   10.0.0.12:49171   not reported; the list has 2 = 10.0.0.12:10911          id 2 is live
    connection   10.0.0.13:49182   unknown                                                any id may be live

Invariant: an id is live only while its connection is open, has reported, and is not far behind.
Unlike Java: a master there suggests ids without knowing whether such a slave exists.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

import attrs
import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.group_transfer import SLAVE_FALLBEHIND_MAX
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import Error
from rocketrio_protocol.remoting.ports import split_addr

logger = logging.getLogger("rocketrio_broker.ha")

INTRODUCTION_TIME: Final = 1.0
"""The most seconds that a rocketrio slave needs after connecting to identify itself."""
LIST_PERIOD: Final = 10.0
"""Seconds until the name servers are asked again while a connected slave is not identified."""


class SlaveConnection(Protocol):
    """The part of an HAConnection that is used here."""

    addr: str

    @property
    def member(self) -> str: ...

    @property
    def slave_request_offset(self) -> int | None: ...

    @property
    def slave_ack_offset(self) -> int: ...


@attrs.define
class LiveSlaves:
    """The slaves of one broker; empty on a slave, to which no slave connects."""

    slave_fallbehind_max: int = SLAVE_FALLBEHIND_MAX
    """The bytes by which a slave may be behind and still be read from."""
    _connections: Sequence[SlaveConnection] = ()
    _addr_of_id: dict[int, str] = attrs.Factory(dict)
    """The slaves that identified themselves."""
    _listed: Mapping[int, str] = attrs.Factory(dict)

    def watch(self, connections: Sequence[SlaveConnection]) -> None:
        """Set the connections to check: a list that its owner updates."""
        self._connections = connections

    def introduce(self, broker_id: int, ha_addr: str) -> None:
        """Record the id that a slave sent, and the address of its end of the stream."""
        self._addr_of_id.pop(broker_id, None)  # The newest comes last.
        self._addr_of_id[broker_id] = ha_addr
        if len(self._addr_of_id) > SLAVES_LIMIT:  # The oldest is dropped first.
            del self._addr_of_id[next(iter(self._addr_of_id))]

    def note_reported(self, broker_id: int, ha_addr: str) -> None:
        """Record what a client reports at the ordinary port, if there is such a slave that does not identify itself.

        The id of another connected slave cannot be taken over this way.
        """
        addrs = {one.addr for one in self._connections if not one.member}
        holder = self._addr_of_id.get(broker_id)
        is_taken = holder != ha_addr and any(one.addr == holder for one in self._connections)
        if ha_addr in addrs and not is_taken:
            self.introduce(broker_id, ha_addr)

    def list_slaves(self, broker_addrs: Mapping[int, str]) -> None:
        """Record what the name servers list: id to address."""
        self._listed = {id_: addr for id_, addr in broker_addrs.items() if id_ != MASTER_ID}

    def introduced(self) -> Collection[int]:
        """Return the ids of the slaves that identified themselves."""
        return self._addr_of_id.keys()

    def id_of(self, ha_addr: str) -> int | None:
        """Return the id of the slave that reported this address of its end of the stream."""
        return next((id_ for id_, addr in self._addr_of_id.items() if addr == ha_addr), None)

    def unnamed(self) -> list[SlaveConnection]:
        """Return the connected slaves that neither identified themselves nor are in the list."""
        introduced = set(self._addr_of_id.values())
        hosts = {split_addr(addr)[0] for addr in self._listed.values()}
        return [
            connection
            for connection in self._connections
            if connection.addr not in introduced and split_addr(connection.addr)[0] not in hosts
        ]

    def common_offset(self, *, max_physical_offset: int) -> int:
        """Return the address up to which every slave that is near enough to the log's end to take over has the log."""
        offsets = (connection.slave_ack_offset for connection in self._connections)
        near = max_physical_offset - self.slave_fallbehind_max
        return min((offset for offset in offsets if offset > near), default=max_physical_offset)

    def ids(self, named: int, *, max_physical_offset: int) -> Collection[int]:
        """Return the ids that can be read from, and `named` too while an unidentified slave may have that id."""
        ready = {
            connection.addr
            for connection in self._connections
            # Connected is not enough: a slave that is far behind would answer readers from an old log.
            if connection.slave_request_offset is not None
            and max_physical_offset - connection.slave_ack_offset < self.slave_fallbehind_max
        }
        found = {id_ for id_, addr in self._addr_of_id.items() if addr in ready}
        strangers = ready.difference(self._addr_of_id.values())
        if not strangers:
            return found
        hosts = {split_addr(addr)[0] for addr in strangers}
        at_hosts = {
            id_: split_addr(addr)[0]
            for id_, addr in self._listed.items()
            # A slave that identified itself and is not connected now is not one of the unidentified ones.
            if id_ not in self._addr_of_id
        }
        found |= {id_ for id_, host in at_hosts.items() if host in hosts}
        if hosts.difference(at_hosts.values()):
            found.add(named)
        return found


class SlaveListing:
    """Asks the name servers for the ids of slaves that do not identify themselves: Apache's."""

    def __init__(self, slaves: LiveSlaves, *, accepted: Watermark, peers: Peers) -> None:
        """Take `accepted`, which grows with every slave that connects."""
        self._slaves = slaves
        self._accepted = accepted
        self._peers = peers

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask when a slave has connected and is not identified, and again while it is not."""
        task_status.started()
        seen = self._accepted.value
        while True:
            await self._accepted.wait_past(seen)
            seen = self._accepted.value
            await trio.sleep(INTRODUCTION_TIME)
            while self._slaves.unnamed():
                await self._ask()
                if not self._slaves.unnamed():
                    break
                with trio.move_on_after(LIST_PERIOD):
                    await self._accepted.wait_past(seen)
                seen = self._accepted.value

    async def _ask(self) -> None:
        for name_server in self._peers.name_servers:
            try:
                self._slaves.list_slaves(await self._peers.listed(name_server))
            except Error as error:
                logger.debug("slaves not listed name_server=%s error=%s", name_server, error)
            else:
                return
