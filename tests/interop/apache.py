"""Real Apache name servers and brokers; try `python -m tests.interop.apache start --help`.

Every program has a folder of its own as ROCKETMQ_HOME, with its configuration, its log (`out.log`)
and, for a broker, its data under `store/` (the layout of `rocketrio-broker run --data`).
A broker takes listenPort, listenPort - 2 (where slaves fetch topics) and haListenPort.
"""

import argparse
import signal
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

import attrs

from tests.interop.jars import VERSIONS, UnavailableError, apache_jars
from tests.support import wire
from tests.support.processes import Process, free_port
from tests.support.server import Server

SerializeType = Literal["JSON", "ROCKETMQ"]
Role = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]

JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # Starts in half the CPU time; these stories are short.
    *(
        f"--add-{what}=java.base/{package}=ALL-UNNAMED"
        for what in ("exports", "opens")
        for package in ("jdk.internal.ref", "jdk.internal.misc", "sun.nio.ch", "java.nio")
    ),
)
_BROKER_MEMORY = ("-Xms192m", "-Xmx384m", "-XX:MaxDirectMemorySize=2g")
_NAME_SERVER_MEMORY = ("-Xms32m", "-Xmx128m")
_LOGBACK = '<configuration><root level="WARN"/></configuration>\n'

SMALL_STORE = {
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "6000",
    "maxHashSlotNum": "997",
    "maxIndexNum": "4000",
    "maxMessageSize": "262144",
    "timerWheelEnable": "false",  # 38 MB for nothing here.
}
"""File sizes that let a short story cross several files; replication needs them equal."""
METADATA_TIMEOUT = 130.0
"""Seconds; a 5.3.3 slave copies metadata once a minute."""


def _java(version: str, home: Path, serialize_type: SerializeType) -> list[str]:
    return [
        "java",
        *JVM_OPTIONS,
        f"-Duser.home={home}",
        f"-Drocketmq.serialize.type={serialize_type}",
        "-Drocketmq.client.logUseSlf4j=true",
        # A disk that is filled by other things must not make the broker refuse.
        "-Drocketmq.broker.diskSpaceWarningLevelRatio=0.99",
        "-Drocketmq.broker.diskSpaceCleanForciblyRatio=0.98",
        "-cp",
        f"{apache_jars(version)}/*",
    ]


def _prepare_home(home: Path) -> None:
    (home / "conf").mkdir(parents=True, exist_ok=True)
    for name in ("logback_namesrv.xml", "logback_broker.xml"):  # 4.9 insists on them.
        (home / "conf" / name).write_text(_LOGBACK)


def _write_properties(path: Path, values: dict[str, str]) -> None:
    path.write_text("".join(f"{key}={value}\n" for key, value in values.items()))


@attrs.define
class ApacheNameServer(Server):
    """One name server."""

    version: str
    home: Path
    serialize_type: SerializeType = "JSON"
    settings: dict[str, str] = attrs.field(factory=dict)
    port: int = attrs.field(factory=free_port)
    jvm_options: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        _prepare_home(self.home)
        config = self.home / "namesrv.conf"
        _write_properties(
            config,
            {
                "listenPort": str(self.port),
                "kvConfigPath": str(self.home / "kvConfig.json"),
                **self.settings,
            },
        )
        self.process = Process.start(
            f"name server {self.version}",
            [
                *_java(self.version, self.home, self.serialize_type),
                *_NAME_SERVER_MEMORY,
                *self.jvm_options,
                "org.apache.rocketmq.namesrv.NamesrvStartup",
                "-c",
                config,
            ],
            log=self.home / "out.log",
            cwd=self.home,
            env={"ROCKETMQ_HOME": str(self.home)},
        )

    def wait_ready(self) -> None:
        self.running.wait_until(lambda: wire.answers(self.address, self.context), "answering")


@attrs.define
class ApacheBroker(Server):
    """One broker; it serves when the name server lists it too.

    A story that needs a clean end calls `stop`, which takes up to ten seconds.
    """

    version: str
    home: Path
    name_server: str
    role: Role = "ASYNC_MASTER"
    broker_id: int = 0
    name: str = "broker-a"
    cluster: str = "lab"
    serialize_type: SerializeType = "JSON"
    settings: dict[str, str] = attrs.field(factory=dict)
    jvm_options: tuple[str, ...] = ()
    store: Path = attrs.field(default=attrs.Factory(lambda self: self.home / "store", True))
    port: int = attrs.field(factory=lambda: free_port(-2, 1))
    # With proxies before both: where the name server really is, and where it shows this broker.
    listed_at: str | None = None
    listed_as: str | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ha_address(self) -> str:
        return f"127.0.0.1:{self.port + 1}"

    def start(self) -> None:
        _prepare_home(self.home)
        config = self.home / "broker.conf"
        _write_properties(config, self._properties())
        self.process = Process.start(
            f"{self.role} {self.version}",
            [
                *_java(self.version, self.home, self.serialize_type),
                *_BROKER_MEMORY,
                *self.jvm_options,
                "org.apache.rocketmq.broker.BrokerStartup",
                "-c",
                config,
            ],
            log=self.home / "out.log",
            cwd=self.home,
            env={"ROCKETMQ_HOME": str(self.home)},
        )

    def _properties(self) -> dict[str, str]:
        return {
            "brokerClusterName": self.cluster,
            "brokerName": self.name,
            "brokerId": str(self.broker_id),
            "namesrvAddr": self.name_server,
            "brokerIP1": "127.0.0.1",
            "brokerIP2": "127.0.0.1",
            "listenPort": str(self.port),
            "haListenPort": str(self.port + 1),
            "brokerRole": self.role,
            "flushDiskType": "ASYNC_FLUSH",
            "storePathRootDir": str(self.store),
            "storePathCommitLog": str(self.store / "commitlog"),
            "slaveReadEnable": "true",
            "enablePropertyFilter": "true",
            "diskMaxUsedSpaceRatio": "95",
            **SMALL_STORE,
            **self.settings,
        }

    def wait_ready(self) -> None:
        name_server = self.listed_at or self.name_server
        self.running.wait_until(
            lambda: (
                wire.serves(self.address, self.context)
                and wire.is_registered(name_server, self.listed_as or self.address, self.context)
            ),
            f"serving and listed by {name_server}",
        )


@attrs.frozen
class ApacheCluster:
    """A name server, a master and perhaps a slave of one version."""

    name_server: ApacheNameServer
    master: ApacheBroker
    slave: ApacheBroker | None


@contextmanager
def apache_cluster(
    version: str,
    folder: Path,
    *,
    slave: bool = False,
    serialize_type: SerializeType = "JSON",
    settings: dict[str, str] | None = None,
) -> Iterator[ApacheCluster]:
    """Start a cluster under `folder` and kill it at the end; a slave starts after its master.

    Raises `UnavailableError` without the jars, `NotStartedError` with the log's end otherwise.
    """
    with ExitStack() as stack:
        name_server = ApacheNameServer(version, folder / "namesrv", serialize_type)
        stack.enter_context(name_server)
        master = ApacheBroker(
            version,
            folder / "master",
            name_server.address,
            serialize_type=serialize_type,
            settings=settings or {},
        )
        stack.enter_context(master)
        replica = None
        if slave:
            replica = attrs.evolve(
                master,
                home=folder / "slave",
                store=folder / "slave" / "store",
                role="SLAVE",
                broker_id=1,
                port=free_port(-2, 1),
            )
            stack.enter_context(replica)
        yield ApacheCluster(name_server, master, replica)


def _describe(cluster: ApacheCluster, folder: Path) -> str:
    lines = [f"namesrv address={cluster.name_server.address}"]
    for broker in filter(None, (cluster.master, cluster.slave)):
        lines.append(
            f"broker role={broker.role} name={broker.name} id={broker.broker_id} "
            f"address={broker.address} ha_address={broker.ha_address}"
        )
    return "\n".join([*lines, f"ready version={cluster.master.version} folder={folder}"])


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.interop.apache",
        description="Run a real Apache RocketMQ cluster on loopback ports until Ctrl-C or SIGTERM.",
        epilog="example: python -m tests.interop.apache start --version 4.9.7 --slave",
    )
    parser.add_argument("command", choices=["start"])
    parser.add_argument("--version", choices=VERSIONS, default=VERSIONS[-1])
    parser.add_argument("--slave", action="store_true", help="also a slave (brokerId 1)")
    parser.add_argument(
        "--dir", type=Path, help="folder for homes and data (default: a temporary one)"
    )
    parser.add_argument("--serialize", choices=["JSON", "ROCKETMQ"], default="JSON")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="a broker property"
    )
    chosen = parser.parse_args()
    signals = {signal.SIGINT, signal.SIGTERM}
    with ExitStack() as stack:
        folder = chosen.dir or Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix="apache-"))
        )
        try:
            cluster = stack.enter_context(
                apache_cluster(
                    chosen.version,
                    folder.resolve(),
                    slave=chosen.slave,
                    serialize_type=chosen.serialize,
                    settings=dict(pair.split("=", 1) for pair in chosen.set),
                )
            )
        except UnavailableError as error:
            print(f"unavailable: {error}")
            return 1
        # Only now: the children would inherit the mask, and not hear a SIGTERM.
        signal.pthread_sigmask(signal.SIG_BLOCK, signals)
        print(_describe(cluster, folder), flush=True)
        signal.sigwait(signals)
        if chosen.dir:  # The data is to be kept: let the brokers write it down.
            print("stopping", flush=True)
            for broker in filter(None, (cluster.slave, cluster.master)):
                broker.stop()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
