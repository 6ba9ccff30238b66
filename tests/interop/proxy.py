"""Apache's proxy in cluster mode, in front of brokers of either product: one address for remoting clients."""

import json
from pathlib import Path

import attrs

from tests.interop.apache import JVM_OPTIONS
from tests.interop.jars import cache_folder, fetch_jars, require_java
from tests.support import wire
from tests.support.processes import Process, free_port
from tests.support.server import Server

VERSION = "5.3.3"
_MEMORY = ("-Xms64m", "-Xmx256m", "-XX:MaxDirectMemorySize=256m")


def proxy_jars() -> Path:
    """The folder with its jars, downloaded at first use. Raises `UnavailableError` as `apache_jars` does."""
    require_java()
    folder = cache_folder() / f"{VERSION}-proxy"
    if not folder.exists():
        fetch_jars([f"org.apache.rocketmq:rocketmq-proxy:{VERSION}"], folder)
    return folder


@attrs.define
class ApacheProxy(Server):
    """One proxy."""

    home: Path
    name_server: str
    cluster: str = "lab"
    port: int = attrs.field(factory=free_port)
    grpc_port: int = attrs.field(factory=free_port)
    checks_types: bool = False
    """Whether topics have to declare which messages they are for."""

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> None:
        (self.home / "conf").mkdir(parents=True, exist_ok=True)
        config = self.home / "conf" / "rmq-proxy.json"
        config.write_text(
            json.dumps(
                {
                    "rocketMQClusterName": self.cluster,
                    "proxyClusterName": self.cluster,
                    "proxyMode": "CLUSTER",
                    "namesrvAddr": self.name_server,
                    "remotingListenPort": self.port,
                    "grpcServerPort": self.grpc_port,
                    "localServeAddr": "127.0.0.1",
                    "enableTopicMessageTypeCheck": self.checks_types,
                }
            )
        )
        self.process = Process.start(
            f"proxy {VERSION}",
            [
                "java",
                *JVM_OPTIONS,
                *_MEMORY,
                f"-Duser.home={self.home}",
                "-cp",
                f"{proxy_jars()}/*",
                "org.apache.rocketmq.proxy.ProxyStartup",
                "-pc",
                config,
            ],
            log=self.home / "out.log",
            cwd=self.home,
            env={"ROCKETMQ_HOME": str(self.home), "RMQ_PROXY_CONFIG_PATH": str(config)},
        )

    def wait_ready(self) -> None:
        self.running.wait_until(self._answers, "answering")

    def _answers(self) -> bool:
        """Whether it says anything of a route; of a name server's other requests it knows none."""
        try:
            wire.ask(self.address, wire.GET_ROUTEINFO_BY_TOPIC, {"topic": "TBW102"})
        except OSError:
            return False
        return True
