"""A name server, a master and a slave of each kind, with the file sizes and the settings their users get.

Both kinds: asynchronous flush, 1 GiB log files, everything on loopback, every process a child that dies with us.
"""

import ssl
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import attrs
from tests.interop.jars import apache_jars
from tests.support import wire
from tests.support.ours import COMMAND
from tests.support.processes import Process, free_port

from peers.java import SERVER_OPTIONS

APACHE_VERSION = "5.3.3"
NAME_SERVER_MEMORY = ("-Xms64m", "-Xmx128m")
BROKER_MEMORY = ("-Xms384m", "-Xmx384m", "-XX:MaxDirectMemorySize=2g")
START_LIMIT = 300
"""Seconds; Apache's broker takes 10 alone, and 90 where twenty other processes want the same two cores."""
_NO_PERMISSION = 16
_LOGBACK = '<configuration><root level="WARN"/></configuration>\n'


@attrs.define
class Member:
    """One server of a cluster."""

    role: str
    command: list[str | Path]
    home: Path
    address: str
    environment: dict[str, str]
    context: ssl.SSLContext | None = None
    """How it is asked whether it serves; None without TLS."""
    process: Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def start(self) -> None:
        self.process = Process.start(
            self.role,
            self.command,
            log=self.home / "out.log",
            cwd=self.home,
            env=self.environment,
        )

    def wait_serving(self) -> None:
        """Looks a hundred times a second, so that the time is exact enough."""
        process = self.process
        assert process is not None
        deadline = time.monotonic() + START_LIMIT
        while not self._serves():
            if not process.is_running or time.monotonic() > deadline:
                raise RuntimeError(f"{self.role} does not serve:\n{process.tail()}")
            time.sleep(0.01)

    def _serves(self) -> bool:
        is_broker = self.role != "namesrv"
        code = wire.GET_BROKER_RUNTIME_INFO if is_broker else wire.GET_BROKER_CLUSTER_INFO
        try:
            answer = wire.ask(self.address, code, timeout=2.0, context=self.context)
        except OSError:
            return False
        return answer.code in (0, _NO_PERMISSION)

    def restart(self) -> float:
        """A clean stop and a start; seconds from the start to the first answer."""
        assert self.process is not None
        self.process.stop()
        started = time.monotonic()
        self.start()
        self.wait_serving()
        return time.monotonic() - started

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()


@attrs.frozen
class Cluster:
    """All servers of one kind."""

    name_server: Member
    master: Member
    slave: Member

    @property
    def pids(self) -> dict[str, list[int]]:
        """By role."""
        return {"master": [self.master.pid], "slave": [self.slave.pid]}


@contextmanager
def apache_cluster(folder: Path, *, synchronous: bool = False) -> Iterator[Cluster]:
    """Apache's, started. Raises UnavailableError without Java or jars."""
    names = _apache_name_server(folder / "namesrv")
    role = "SYNC_MASTER" if synchronous else "ASYNC_MASTER"
    master = _apache_broker(folder / "master", names.address, role)
    slave = _apache_broker(folder / "slave", names.address, "SLAVE")
    with _serving(names, master, slave):
        yield Cluster(names, master, slave)


@contextmanager
def our_cluster(folder: Path, *, synchronous: bool = False) -> Iterator[Cluster]:
    """Ours, started."""
    names = _our_name_server(folder / "namesrv")
    role = "sync-master" if synchronous else "async-master"
    master = _our_broker(folder / "master", names.address, role)
    slave = _our_broker(folder / "slave", names.address, "slave")
    with _serving(names, master, slave):
        yield Cluster(names, master, slave)


@attrs.frozen
class Extra:
    """What a name server and a master get beyond the settings that all have."""

    name_server: tuple[str | Path, ...] = ()
    master: tuple[str | Path, ...] = ()
    """Words of the command; of Apache's, options of the JVM."""
    settings: dict[str, object] = attrs.Factory(dict)
    """Of Apache's broker."""
    context: ssl.SSLContext | None = None


@contextmanager
def our_master(folder: Path, extra: Extra | None = None) -> Iterator[tuple[Member, Member]]:
    """Our name server and a master without a slave, started."""
    extra = extra or Extra()
    name_server = _our_name_server(folder / "namesrv")
    master = _our_broker(folder / "master", name_server.address, "async-master")
    name_server.command += extra.name_server
    master.command += extra.master
    with _serving(name_server, master, context=extra.context):
        yield name_server, master


@contextmanager
def apache_master(folder: Path, extra: Extra | None = None) -> Iterator[tuple[Member, Member]]:
    """Apache's name server and a master without a slave, started."""
    extra = extra or Extra()
    name_server = _apache_name_server(folder / "namesrv")
    master = _apache_broker(folder / "master", name_server.address, "ASYNC_MASTER", extra.settings)
    name_server.command[1:1] = extra.name_server
    master.command[1:1] = extra.master
    with _serving(name_server, master, context=extra.context):
        yield name_server, master


@contextmanager
def _serving(
    name_server: Member, *brokers: Member, context: ssl.SSLContext | None = None
) -> Iterator[None]:
    with ExitStack() as stack:
        for member in (name_server, *brokers):
            member.context = context
            stack.callback(member.kill)
            member.start()
            member.wait_serving()
        deadline = time.monotonic() + START_LIMIT
        for broker in brokers:
            while not wire.is_registered(name_server.address, broker.address, context):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"{broker.role} is not listed by the name server")
                time.sleep(0.1)
        yield


def _our_name_server(home: Path) -> Member:
    home.mkdir(parents=True)
    address = f"127.0.0.1:{free_port()}"
    command: list[str | Path] = [*COMMAND, "namesrv", "--listen", address]
    return Member("namesrv", command, home, address, _with_bytecode(home))


def _our_broker(home: Path, name_server: str, role: str) -> Member:
    home.mkdir(parents=True)
    port = free_port(-2, 1)
    command: list[str | Path] = [
        *(*COMMAND, "run", "--log-level", "error", "--namesrv", name_server),
        *("--listen", f"127.0.0.1:{port}", "--ha-listen", f"127.0.0.1:{port + 1}"),
        *("--cluster", "bench", "--name", "broker-a", "--role", role),
        *("--id", "1" if role == "slave" else "0", "--data", home / "store"),
    ]
    return Member(role, command, home, f"127.0.0.1:{port}", _with_bytecode(home))


def _with_bytecode(home: Path) -> dict[str, str]:
    """As an installed package has it: in a checkout with PYTHONDONTWRITEBYTECODE each start would compile all again."""
    cache = home.parent / "bytecode"
    return {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(cache)}


def _apache_name_server(home: Path) -> Member:
    port = free_port()
    settings = {"listenPort": port, "kvConfigPath": home / "kvConfig.json"}
    start_class = "org.apache.rocketmq.namesrv.NamesrvStartup"
    return _apache_member("namesrv", home, port, NAME_SERVER_MEMORY, start_class, settings)


def _apache_broker(
    home: Path, name_server: str, role: str, extra: Mapping[str, object] | None = None
) -> Member:
    port = free_port(-2, 1)
    settings: dict[str, object] = {
        "brokerClusterName": "bench",
        "brokerName": "broker-a",
        "brokerId": int(role == "SLAVE"),
        "namesrvAddr": name_server,
        "brokerIP1": "127.0.0.1",
        "brokerIP2": "127.0.0.1",
        "listenPort": port,
        "haListenPort": port + 1,
        "brokerRole": role,
        "flushDiskType": "ASYNC_FLUSH",
        "storePathRootDir": home / "store",
        "storePathCommitLog": home / "store" / "commitlog",
        "slaveReadEnable": "true",
        "diskMaxUsedSpaceRatio": 95,
        # By default a send that waited 200 ms is refused, which happens where other work shares the cores.
        "waitTimeMillsInSendQueue": 10_000,
        **(extra or {}),
    }
    start_class = "org.apache.rocketmq.broker.BrokerStartup"
    return _apache_member(role, home, port, BROKER_MEMORY, start_class, settings)


def _apache_member(
    role: str,
    home: Path,
    port: int,
    memory: tuple[str, ...],
    start_class: str,
    settings: dict[str, object],
) -> Member:
    (home / "conf").mkdir(parents=True)
    for name in ("logback_namesrv.xml", "logback_broker.xml"):
        (home / "conf" / name).write_text(_LOGBACK)
    config = home / "server.conf"
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command: list[str | Path] = [
        *("java", *SERVER_OPTIONS, *memory, f"-Duser.home={home}"),
        "-Drocketmq.client.logUseSlf4j=true",
        # A disk that other things fill must not make the broker refuse.
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
        *("-cp", f"{apache_jars(APACHE_VERSION)}/*", start_class, "-c", config),
    ]
    return Member(role, command, home, f"127.0.0.1:{port}", {"ROCKETMQ_HOME": str(home)})
