"""A whole cluster in one process: a name server, one master and its slaves.

    EmbeddedCluster(slaves=1)                          network and disks in memory; time may be virtual
    EmbeddedCluster(slaves=1, root=Path("data"))       on loopback ports, so that other processes can connect

In memory each member is a host of its own: the name server 10.0.0.9, the master 10.0.0.10, slaves from 10.0.0.11.
A killed member leaves the files that kill -9 leaves, and comes back with them at the same addresses.

Invariant: leaving the block stops every member; on loopback ports no file is left outside `root`.
Unlike Java: Java has no such cluster; Apache's tests start real processes.
"""

import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self

import attrs
import trio

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.addresses import FAST_PORT_DISTANCE
from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.member_ports import MemberPorts
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.settings.config import FIRST_SLAVE_ID, BrokerConfig, MasterRole
from rocketrio_broker.store.config import StoreConfig
from rocketrio_broker.store.disk import Disk, InlineDisk, RealDisk
from rocketrio_broker.testing.kill_switch import KillSwitch
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_broker.testing.memory_network import MemoryNetwork
from rocketrio_broker.tls import load_tls
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ClosedError, ConfigError
from rocketrio_protocol.remoting.ports import (
    Dial,
    Listen,
    SystemWallClock,
    VirtualWallClock,
    WallClock,
    join_addr,
    split_addr,
)
from rocketrio_protocol.remoting.tasks import background_nursery
from rocketrio_protocol.remoting.tcp import dial_tcp, listen_tcp

NAME_SERVER_HOST: Final = "10.0.0.9"
MASTER_HOST: Final = "10.0.0.10"
CLIENT_HOST: Final = "10.0.0.100"
"""The host from which `dial` of a cluster in memory connects."""
_FIRST_SLAVE_HOST: Final = 11
_SEED: Final = 20260101
LOOPBACK: Final = "127.0.0.1"
_BROKER_PORT: Final = 10_911
_NAME_SERVER_PORT: Final = 9876

SMALL_STORE: Final = StoreConfig(
    mapped_file_size_commit_log=16 << 20,
    mapped_file_size_consume_queue=600_000,
    max_hash_slot_num=10_000,
    max_index_num=40_000,
)
"""Files that are small enough for a test or a laptop."""


class Member:
    """One broker of the cluster: its settings and files, and the broker while it runs."""

    def __init__(self, cluster: "EmbeddedCluster", config: BrokerConfig, host: str) -> None:
        self.config = config
        self.host = host
        self.disk: Disk = cluster.make_disk()
        self._cluster = cluster
        self._broker: Broker | None = None
        self._scope = trio.CancelScope()
        self._switch = KillSwitch()
        self._ended = trio.Event()
        self._is_first = cluster.is_new

    def __repr__(self) -> str:
        return f"<Member {self.config.broker_name}/{self.config.broker_id} of {self._cluster!r}>"

    @property
    def broker(self) -> Broker:
        """The running broker. Raises ClosedError if it is down."""
        if self._broker is None:
            raise ClosedError(f"{self.config.broker_name}/{self.config.broker_id} is down")
        return self._broker

    @property
    def is_running(self) -> bool:
        return self._broker is not None

    async def start(self) -> Broker:
        """Start the broker, at the same addresses as before. Returns once it serves and is registered."""
        assert self._broker is None, f"{self!r} runs already"
        ports = self._cluster.ports
        if ports is not None:
            self.config = await ports.applied(self.config)
        await self._cluster.nursery.start(self._run)
        broker = self.broker
        if ports is not None:
            ports.note(broker)
        self.config = attrs.evolve(self.config, listen=broker.address, ha_listen=broker.ha_address)
        return broker

    async def stop(self) -> None:
        """Stop the broker cleanly: its data is flushed, and it leaves the name server."""
        self._scope.cancel()
        await self._ended.wait()

    async def kill(self) -> None:
        """End the broker as kill -9 does: nothing is flushed or sent; its connections break."""
        # The switch first: the clean stop below would flush, and tell the others that it leaves.
        self._switch.kill()
        self._cluster.cut(self.host)
        await self.stop()

    def fill_disk(self) -> None:
        """Fill the disk: no file of the member can be created, written or grown until `free_disk`."""
        self._memory_disk().is_full = True

    def free_disk(self) -> None:
        """End `fill_disk`."""
        self._memory_disk().is_full = False

    def _memory_disk(self) -> MemoryDisk:
        if not isinstance(self.disk, MemoryDisk):
            raise ConfigError(
                f"{self!r} keeps its data in files, and only a disk in memory can be filled",
                remedy="Omit root=",
            )
        return self.disk

    async def _run(self, *, task_status: trio.TaskStatus[None]) -> None:
        cluster = self._cluster
        self._scope, self._switch, self._ended = trio.CancelScope(), KillSwitch(), trio.Event()
        try:
            with self._scope:
                async with open_broker(
                    self.config,
                    disk=self._switch.disk(self.disk),
                    dial=self._switch.dial(cluster.dial_from(self.host)),
                    listen=self._switch.listen(cluster.listen_on(self.host)),
                    wall_clock=cluster.wall_clock,
                    rng=random.Random(cluster.rng.random()),
                    is_first=self._is_first,
                ) as self._broker:
                    self._is_first = False
                    task_status.started()
                    await trio.sleep_forever()
        finally:
            self._broker = None
            self._ended.set()


class EmbeddedCluster:
    """`async with EmbeddedCluster(slaves=1) as cluster:` runs the members for the length of the block."""

    def __init__(
        self,
        *,
        slaves: int = 0,
        role: MasterRole = "async-master",
        root: Path | None = None,
        network: Literal["memory", "loopback"] | None = None,
        name_server_listen: str | None = None,
        cluster_name: str = "DefaultCluster",
        broker_name: str = "broker-a",
        store: StoreConfig = SMALL_STORE,
        wall_clock: WallClock | None = None,
        make_disk: Callable[[], Disk] | None = None,
        seed: int = _SEED,
        name_server_access: AccessControl | None = None,
        **settings: Any,
    ) -> None:
        """Create a cluster; `root` holds the data and puts the members on loopback ports; without it all is in memory.

        `role` is the master's: it decides whether sends wait for slaves.
        `network="loopback"` without `root` keeps the data in memory but lets other processes connect.
        `make_disk` makes each member's disk; a killed member's `disk` may be replaced before it is started again.
        `name_server_access` has the users of the name server; without it, it answers every request.
        `settings` are further fields of BrokerConfig, for every member.
        """
        self.network = network or ("memory" if root is None else "loopback")
        self.memory_network = MemoryNetwork()
        in_memory = self.network == "memory"
        self.wall_clock: WallClock = wall_clock or (
            VirtualWallClock() if in_memory else SystemWallClock()
        )
        self.rng = random.Random(seed)
        self.root = root
        self.make_disk: Callable[[], Disk] = make_disk or (MemoryDisk if root is None else RealDisk)
        """Makes a separate disk for each member."""
        self.nursery: trio.Nursery
        self._stack = AsyncExitStack()
        self._name_server_listen = name_server_listen or (
            join_addr(NAME_SERVER_HOST, _NAME_SERVER_PORT) if in_memory else f"{LOOPBACK}:0"
        )
        self._name_server_access = name_server_access
        self.name_server: NameServer
        self._name_server_scope = trio.CancelScope()
        self._base = BrokerConfig(
            cluster_name=cluster_name, broker_name=broker_name, store=store, **settings
        )
        self.is_new = root is None or not any((*root.glob("master"), *root.glob("slave-*")))
        """True if no member has run before, so that an empty master has lost nothing."""
        self.ports = None if root is None else MemberPorts(root, disk=RealDisk(), listen=listen_tcp)
        """Gives members their former ports in another process; None if they exist in memory only."""
        self._slave_count = slaves
        self._role = role
        self.master: Member
        self.slaves: list[Member] = []

    def __repr__(self) -> str:
        return f"<EmbeddedCluster {self._base.cluster_name} in {self.network}>"

    @trio.lowlevel.enable_ki_protection
    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            self.nursery = await stack.enter_async_context(background_nursery())
            await self.nursery.start(self._run_name_server)
            self.master = self._member(MASTER_ID)
            self.slaves = [
                self._member(FIRST_SLAVE_ID + number) for number in range(self._slave_count)
            ]
            if self.is_new:
                for member in self.members:
                    await member.start()
            else:
                await self._return()
            self._stack = stack.pop_all()
        return self

    async def _return(self) -> None:
        """Start members that have run before, concurrently: a master asks its slaves before it serves."""
        serving = Watermark()

        async def start(member: Member) -> None:
            await member.start()
            serving.advance(serving.value + 1)

        for member in self.members:
            self.nursery.start_soon(start, member)
        await serving.wait_reached(len(self.members))
        for member in self.members:  # Slaves now learn their master, whatever the roles.
            member.broker.registration.register_now()

    @trio.lowlevel.enable_ki_protection
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        return await self._stack.__aexit__(kind, error, traceback)

    @property
    def name_servers(self) -> list[str]:
        """The name server addresses for clients of this cluster."""
        return [self.name_server.addr]

    @property
    def members(self) -> list[Member]:
        """The master and the slaves, running or not."""
        return [self.master, *self.slaves]

    @property
    def dial(self) -> Dial:
        """The function by which a client connects to the members."""
        return self.dial_from(CLIENT_HOST)

    async def kill_master(self) -> None:
        """End the master as kill -9 does."""
        await self.master.kill()

    async def restart_master(self) -> Broker:
        """Start the master again with the files that it left."""
        return await self.master.start()

    async def kill_name_server(self) -> None:
        """End the name server as kill -9 does: it loses everything."""
        self._name_server_scope.cancel()
        self.cut(NAME_SERVER_HOST)
        await trio.lowlevel.checkpoint()

    async def restart_name_server(self) -> None:
        """Start the name server again at the same address; brokers register again within their period."""
        self._name_server_listen = self.name_server.addr
        await self.nursery.start(self._run_name_server)

    def partition(self, member: Member, other: Member | None = None) -> None:
        """Let nothing pass between two members, or between a member and clients; only in memory."""
        self._network().partition(member.host, CLIENT_HOST if other is None else other.host)

    def silence(self, member: Member) -> None:
        """Let nothing pass between a member and all others, as when its cable is pulled; only in memory."""
        self._network().silence(member.host)

    def heal(self) -> None:
        """End all partitions and silences; what was sent meanwhile arrives."""
        self._network().heal()

    def _network(self) -> MemoryNetwork:
        if self.network != "memory":
            raise ConfigError(
                f"{self!r} is on real ports, and only a network in memory can be partitioned",
                remedy="Omit network= and root=",
            )
        return self.memory_network

    # --------------------------------------------------------------------------- what members are given

    def dial_from(self, host: str) -> Dial:
        """Return the function by which one host connects to others."""
        return self.memory_network.host(host).dial if self.network == "memory" else dial_tcp

    def listen_on(self, host: str) -> Listen:
        """Return the function by which one host listens."""
        return self.memory_network.host(host).listen if self.network == "memory" else listen_tcp

    def cut(self, host: str) -> None:
        """Break the connections of a host at once; on loopback the sockets close with their broker."""
        if self.network == "memory":
            self.memory_network.cut(host)

    async def _run_name_server(self, *, task_status: trio.TaskStatus[None]) -> None:
        listener = await self.listen_on(NAME_SERVER_HOST)(self._name_server_listen)
        try:
            with trio.CancelScope() as self._name_server_scope:
                tls = await load_tls(
                    self._base.server_tls, wall_clock=self.wall_clock, run_blocking=InlineDisk().run
                )
                self.name_server = NameServer(
                    [listener],
                    access=self._name_server_access,
                    tls=tls.server,
                    wall_clock=self.wall_clock,
                )
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(tls.run)
                    await self.name_server.run(task_status=task_status)
        finally:
            listener.close()

    def _member(self, broker_id: int) -> Member:
        is_master = broker_id == MASTER_ID
        host = LOOPBACK
        if self.network == "memory":
            number = _FIRST_SLAVE_HOST + broker_id - FIRST_SLAVE_ID
            host = MASTER_HOST if is_master else f"10.0.0.{number}"
        name = "master" if is_master else f"slave-{broker_id}"
        config = attrs.evolve(
            self._base,
            broker_id=broker_id,
            role=self._role if is_master else "slave",
            listen=join_addr(host, _BROKER_PORT if self.network == "memory" else 0),
            namesrv=self.name_server.addr,
            data=(self.root or Path("/")) / name,
        )
        return Member(self, config, host)


def fast_address(address: str) -> str:
    """Return the address of the second listener of a broker at `address`."""
    host, port = split_addr(address)
    return join_addr(host, port - FAST_PORT_DISTANCE)
