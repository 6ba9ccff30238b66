"""Remembers in a file which peers this name had recently, for a broker that restarts together with its name servers.

    config/slaves.json      {"slaves": ["10.0.0.11:10911"], "followed": ["10.0.0.10:10911"],
                             "ids": ["1 10.0.0.11:10911", "2 10.0.0.12:10911"]}

`slaves` is the list of the name servers when it was last requested. `followed` is the master that they listed beside
this broker, or the last one that this broker had; it is removed when there is none and name servers list slaves beside
it. `ids` has the last id of each slave that was ever listed, so that no other broker is given it meanwhile
(slave_ids.py); the newest comes last.

A name server that has restarted lists no broker until brokers register again. A master that lost the end of its log in
the same power cut would then find no slave to ask for it, and no other master that was promoted meanwhile. A promoted
slave that loses the end of its log before another broker follows it asks the master that it followed.

Invariant: while slaves are connected, no slave is forgotten because name servers list fewer; nor ever, and no master
that was followed, because one does not list this broker.
Invariant: an id in `ids` has one address: the one that was listed with it last.
Answers to: nothing of Java's.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, Protocol

import trio

from rocketrio_broker.ha.config import SLAVES_LIMIT
from rocketrio_broker.ha.peers import Peers
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.waiting.watermark import Watermark, wait_any_past
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.remoting.ports import is_peer_addr, split_addr

REFRESH_PERIOD: Final = 30.0
"""Seconds between requests to the name servers, as between registrations (registerNameServerPeriod)."""
SETTLE_TIME: Final = 1.0
"""Seconds to wait after a change: the name servers know of it then."""
CONNECTED_WITHIN: Final = 10.0
"""Seconds for which a slave that has connected is asked: twice as long as slaves pause between two attempts."""

_FILE: Final = "slaves.json"
_SLAVES: Final = "slaves"
_FOLLOWED: Final = "followed"
_IDS: Final = "ids"


class KnownConnection(Protocol):
    """The part of an HAConnection that is used here."""

    addr: str


class KnownSlaves:
    """The addresses of one broker's slaves, and of the master that it followed."""

    def __init__(
        self,
        directory: Path,
        *,
        disk: Disk,
        peers: Peers,
        connections: Sequence[KnownConnection],
        changes: Sequence[Watermark],
        master: Callable[[], str | None],
    ) -> None:
        """Load the file.

        `connections` are the slaves that are connected; `changes` grow when a slave connects or leaves, or when another
        broker becomes master. `master` returns the master that is known now.
        """
        self._file = ConfigFile(directory / _FILE, disk=disk)
        self._disk = disk
        self._peers = peers
        self._connections = connections
        self._changes = changes
        self._master = master
        self._met: dict[str, None] = {}
        self._connecting: dict[str, float] = {}
        self._addrs: list[str] = []
        self._ids: dict[str, int] = {}
        content = self._file.load_table(dict[str, list[str]]) or {}
        self._take(content.get(_SLAVES, []))
        self._ids = dict(_ids_in(content.get(_IDS, [])))
        self.followed = next(iter(content.get(_FOLLOWED, [])), None)
        """Where the master answered requests that this broker followed last; None when it is forgotten."""

    def __repr__(self) -> str:
        return f"<KnownSlaves {', '.join(self._addrs) or 'none'}>"

    def addrs(self) -> list[str]:
        """Return where the slaves answer requests, or did."""
        return self._addrs

    def ids(self) -> Mapping[str, int]:
        """Return the last known id of each slave that was ever listed, by its address."""
        return self._ids

    def connecting(self) -> list[str]:
        """Return where the slaves answer requests that have connected within `CONNECTED_WITHIN` seconds."""
        since = trio.current_time() - CONNECTED_WITHIN
        return [addr for addr, at in self._connecting.items() if at >= since]

    def note_connection(self, addr: str, stream_addr: str) -> None:
        """Note where a slave that has connected answers requests, if that is on the host of its stream.

        The name servers may be new and not list it, and a full disk may have kept it out of the file.
        """
        if is_peer_addr(addr) and split_addr(addr)[0] == split_addr(stream_addr)[0]:
            self._connecting.pop(addr, None)
            self._connecting[addr] = trio.current_time()
            if len(self._connecting) > SLAVES_LIMIT:
                del self._connecting[next(iter(self._connecting))]

    def met(self) -> list[str]:
        """Return the addresses of all slaves that were known at any time since the start, up to `SLAVES_LIMIT`."""
        return [*self._met]

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Ask the name servers after each change, and periodically; at once if a slave has come that is not known."""
        task_status.started()
        seen = self._seen()
        while True:
            with trio.move_on_after(REFRESH_PERIOD) as waiting:
                await wait_any_past(*seen)
            if not waiting.cancelled_caught:
                if self._has_unknown():
                    # It may be promoted within the settling time, while this broker stands still. Then no name server
                    # lists it as a slave any more, and what it shows of its epochs would be a stranger's.
                    await self._refresh()
                await trio.sleep(SETTLE_TIME)
            # Before they are asked: a slave that comes while they answer is asked for too.
            seen = self._seen()
            await self._refresh()

    def _seen(self) -> list[tuple[Watermark, int]]:
        return [(change, change.value) for change in self._changes]

    def _has_unknown(self) -> bool:
        """Return whether a slave is connected from a host of which none is known: it is new, or had been forgotten."""
        return not self._connected_hosts() <= {split_addr(addr)[0] for addr in self._addrs}

    def _connected_hosts(self) -> set[str]:
        return {split_addr(connection.addr)[0] for connection in self._connections}

    async def _refresh(self) -> None:
        peers = self._peers
        answers = await peers.listed_by_all()
        listed = {addr for answer in answers for addr in peers.slaves_among(answer)}
        # A name server that does not list this broker has restarted: the others have not registered there either.
        is_whole = len(answers) == len(peers.name_servers) and all(
            peers.own_addr in answer.values() for answer in answers
        )
        masters = (answer[MASTER_ID] for answer in answers if MASTER_ID in answer)
        # After a hand-over name servers list the successor before a registration here is answered with it.
        listed_master = next((addr for addr in masters if addr != peers.own_addr), None)
        last = None if is_whole and listed else self.followed
        followed = listed_master or self._master() or last
        if not is_whole or len(listed) < len(self._connections):
            # A slave that left for a moment may be back, while no name server can be asked.
            hosts = self._connected_hosts()
            back = (addr for addr in self._met if split_addr(addr)[0] in hosts)
            listed.update(self._addrs, back)
            # One that leads now is no slave, and is found by the list.
            listed.difference_update(answer.get(MASTER_ID) for answer in answers)
        addrs = sorted(listed)[:SLAVES_LIMIT]
        ids = self._ids_with(answers)
        if (addrs, followed, ids) == (self._addrs, self.followed, self._ids):
            return
        content = {_SLAVES: addrs, _IDS: [f"{id_} {addr}" for addr, id_ in ids.items()]}
        if followed is not None:
            content[_FOLLOWED] = [followed]
        try:
            self._file.write(content)
            await self._disk.run(self._file.sync)
        except ConfigFileError:
            return  # The file has logged the error; the next round tries again.
        # Not after a write that failed: it is tried again only while memory and file differ.
        self._take(addrs)
        self.followed, self._ids = followed, ids

    def _ids_with(self, answers: Sequence[Mapping[int, str]]) -> dict[str, int]:
        """Return the known ids with those that name servers list now."""
        now = {
            addr: id_
            for answer in answers
            for id_, addr in answer.items()
            if id_ != MASTER_ID and addr != self._peers.own_addr
        }
        # An id that is listed at another address now belongs to the broker there.
        before = {addr: id_ for addr, id_ in self._ids.items() if id_ not in now.values()}
        newest_last = [*(before | now).items()]
        return dict(newest_last[-SLAVES_LIMIT:])

    def _take(self, addrs: list[str]) -> None:
        self._addrs = addrs
        self._met = {
            **{addr: None for addr in self._met if addr not in addrs},
            **dict.fromkeys(addrs),
        }
        for addr in [*self._met][:-SLAVES_LIMIT]:
            del self._met[addr]


def _ids_in(entries: Iterable[str]) -> Iterable[tuple[str, int]]:
    """Return the addresses and ids in a file's list, without what cannot be one."""
    for entry in entries:
        id_, _, addr = entry.partition(" ")
        if id_.isdecimal() and id_.isascii() and is_peer_addr(addr):
            yield addr, int(id_)
