"""What the replication tests share: a master's store, and ends of a connection that speak raw bytes."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from struct import Struct
from typing import Any

import attrs
import trio
import trustme
from tests.support.clocks import SettableClock
from tests.support.private_files import private_file
from tests.support.stores import SMALL, opened, put_of, read_all, stored
from tests.support.waiting import eventually

from rocketrio_broker.ha.client import HAClient
from rocketrio_broker.ha.config import HAConfig
from rocketrio_broker.ha.master_address import MasterAddress
from rocketrio_broker.ha.resync import HistoryRules
from rocketrio_broker.ha.service import HAService
from rocketrio_broker.store.message_store import MessageStore
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryListener, MemoryNetwork
from rocketrio_protocol.errors import NotReachableError
from rocketrio_protocol.remoting.ports import Transport
from rocketrio_protocol.remoting.tasks import background_nursery

MASTER, SLAVE, OTHER_SLAVE = "10.0.0.1", "10.0.0.2", "10.0.0.3"
MASTER_HA = f"{MASTER}:10912"
FILE_SIZE = SMALL.mapped_file_size_commit_log
REPORT = Struct(">q")
HEADER = Struct(">qi")


def secret_file(path: Path, secret: str = "a secret of more than sixteen bytes\n") -> Path:
    """A file for `ha_secret_file` that no other user can read."""
    return private_file(path, secret)


def write_private(certificate: trustme.LeafCert, path: Path) -> None:
    """A certificate and its key, in a file that no other user can read."""
    path.touch(0o600)
    certificate.private_key_and_cert_chain_pem.write_to_path(path)


def fill(store: MessageStore, count: int, *, size: int = 100) -> int:
    """Append some messages; the log's end."""
    for number in range(count):
        stored(store.append(put_of(number.to_bytes(4) * (size // 4))))
    return store.max_physical_offset


async def some_log(messages: int = 200) -> bytes:
    """Return the bytes of a log with this number of messages."""
    async with opened(MemoryDisk()) as store:
        fill(store, messages)
        return log_bytes(store)


def starts_of(store: MessageStore) -> list[int]:
    """Return the addresses of the messages in the one queue that `fill` makes."""
    queue = store.queue_table.by_key["orders", 0]
    return [entry[0] for number in range(queue.max_offset) if (entry := queue.entry(number))]


def log_bytes(store: MessageStore, start: int | None = None) -> bytes:
    """Everything in the log from `start` (by default its first byte) on."""
    position = store.min_physical_offset if start is None else start
    parts = []
    while (view := store.read_log(position, 1 << 20)) is not None:
        parts.append(bytes(view))
        position += len(view)
    assert position == store.max_physical_offset
    return b"".join(parts)


async def wait_same_ends(*stores: MessageStore, limit: float = 60.0) -> None:
    """Wait until these logs end at one address, and every store shows all of its log."""
    await eventually(lambda: len({store.max_physical_offset for store in stores}) == 1, limit)
    with trio.fail_after(limit):
        for store in stores:
            await store.dispatched.wait_reached(store.max_physical_offset)
            await store.read_gate.end.wait_reached(store.max_physical_offset)


def assert_same_logs(*stores: MessageStore) -> None:
    """Compare every byte, and every message of every queue."""
    first, *others = stores
    for other in others:
        assert log_bytes(other) == log_bytes(first)
        assert other.queues().keys() == first.queues().keys()
        for topic, queues in first.queues().items():
            for queue_id in queues:
                assert read_all(other, topic, queue_id) == read_all(first, topic, queue_id)


@attrs.define
class Transfer:
    """One transfer with the time it was whole."""

    time: float
    offset: int
    body: bytes


class RawPeer:
    """The other end of a replication connection, byte by byte."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport
        self._received = bytearray()

    async def report(self, offset: int) -> None:
        await self.transport.send_all(REPORT.pack(offset))

    async def send_transfer(self, offset: int, body: bytes = b"") -> None:
        await self.transport.send_all(HEADER.pack(offset, len(body)) + body)

    async def read(self, size: int) -> bytes:
        """Return exactly `size` bytes; fewer only at the end of the stream."""
        buffer = memoryview(bytearray(4096))
        while len(self._received) < size:
            count = await self.transport.receive_into(buffer)
            if not count:
                break
            self._received += buffer[:count]
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    async def read_report(self) -> int | None:
        """The next report; None at the end of the stream."""
        data = await self.read(REPORT.size)
        return int(REPORT.unpack(data)[0]) if data else None

    async def read_transfer(self) -> Transfer | None:
        """The next transfer; None at the end of the stream."""
        header = await self.read(HEADER.size)
        if not header:
            return None
        offset, size = HEADER.unpack(header)
        return Transfer(trio.current_time(), offset, await self.read(size))

    async def read_log(self, end: int) -> list[Transfer]:
        """Transfers up to this address, heartbeats left out."""
        transfers: list[Transfer] = []
        while not transfers or transfers[-1].offset + len(transfers[-1].body) < end:
            transfer = await self.read_transfer()
            assert transfer is not None
            if transfer.body:
                transfers.append(transfer)
        return transfers

    async def wait_ended(self) -> float:
        """Read to the end of the stream; when that was. The other end has finished when this returns."""
        with suppress(NotReachableError):
            while await self.read(1):
                pass
        ended = trio.current_time()
        await trio.testing.wait_all_tasks_blocked()
        return ended


@attrs.define
class Master:
    """A served store on a memory network."""

    store: MessageStore
    service: HAService
    network: MemoryNetwork

    async def raw_slave(self, host: str = SLAVE) -> RawPeer:
        return RawPeer(await self.network.host(host).dial(MASTER_HA))


@asynccontextmanager
async def master(
    *,
    network: MemoryNetwork | None = None,
    disk: MemoryDisk | None = None,
    config: HAConfig | None = None,
    messages: int = 0,
    file_size: int = FILE_SIZE,
    refusal: Callable[[], str] = lambda: "",
) -> AsyncGenerator[Master]:
    """A master that serves slaves, with some messages in files of this size."""
    network = network or MemoryNetwork()
    files = attrs.evolve(SMALL, mapped_file_size_commit_log=file_size)
    async with opened(disk or MemoryDisk(), files) as store, background_nursery() as nursery:
        fill(store, messages)
        listener = await network.host(MASTER).listen(MASTER_HA)
        service = HAService(
            store, listener, wall_clock=SettableClock(), config=config, refusal=refusal
        )
        await nursery.start(service.run)
        yield Master(store, service, network)


@attrs.define
class Slave:
    """A store that follows."""

    store: MessageStore
    client: HAClient
    address: MasterAddress

    async def wait_end(self, offset: int) -> None:
        """Return once the slave's log has got so far."""
        await self.store.appended.wait_reached(offset)


@asynccontextmanager
async def slave(
    network: MemoryNetwork,
    *,
    disk: MemoryDisk | None = None,
    config: HAConfig | None = None,
    host: str = SLAVE,
    master_addr: str | None = MASTER_HA,
    rules: Callable[[], HistoryRules] = HistoryRules,
) -> AsyncGenerator[Slave]:
    """A slave that follows the master at `master_addr`."""
    async with opened(disk or MemoryDisk()) as store, background_nursery() as nursery:
        store.begin_replication()
        address = MasterAddress(master_addr)
        client = HAClient(
            store,
            address=address,
            dial=network.host(host).dial,
            wall_clock=SettableClock(),
            config=config,
            rules=rules,
        )
        await nursery.start(client.run)
        yield Slave(store, client, address)


TEST_LIMIT = 7200.0
"""Virtual seconds: a client tries for ever."""


@attrs.define
class RawMaster:
    """A listener that slaves find, and their connections."""

    network: MemoryNetwork
    listener: MemoryListener

    async def accept(self) -> RawPeer:
        return RawPeer(await self.listener.accept())


@asynccontextmanager
async def followed(**options: Any) -> AsyncGenerator[tuple[RawMaster, Slave]]:
    """A raw master, and a slave that follows it."""
    network = MemoryNetwork()
    listener = await network.host(MASTER).listen(MASTER_HA)
    with trio.fail_after(TEST_LIMIT):
        async with slave(network, **options) as ours:
            yield RawMaster(network, listener), ours


RECORD = 197
"""Bytes of one of the records that `fill` makes."""


async def disk_with(messages: int, *tail_sizes: int, begin: int = 0) -> MemoryDisk:
    """A closed store: a history that all share, then messages of other sizes; perhaps without its first files."""
    disk = MemoryDisk()
    async with opened(disk) as store:
        fill(store, messages)
        for size in tail_sizes:
            fill(store, 10, size=size)
        while store.min_physical_offset < begin:
            store.commit_log.files.remove_first()
    return disk
