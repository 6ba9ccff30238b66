"""The command `rocketrio-broker`: a name server, a broker, or a whole small cluster in one process.

Each member prints one line on standard output once it serves; everything else goes to standard error.
Exit codes: 0 after a clean stop (SIGTERM or Ctrl-C), 2 for wrong usage, 1 for any other error.
"""

import gc
import json
import logging
import operator
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final

import attrs
import click
import trio

from rocketrio_broker.addresses import is_wildcard
from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.config import (
    FIRST_SLAVE_ID,
    MASTER_ROLES,
    ROLES,
    BrokerConfig,
    MasterRole,
)
from rocketrio_broker.config_file import ConfigFile
from rocketrio_broker.config_loading import load_config, setting_paths
from rocketrio_broker.member_ports import MemberPorts
from rocketrio_broker.namesrv.kv import KVConfigManager
from rocketrio_broker.namesrv.routes import BROKERS_LIMIT, TOPICS_LIMIT, RouteInfoManager
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.store.disk import RealDisk
from rocketrio_broker.watermark import Watermark
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import log_to
from rocketrio_protocol.remoting.ports import Listener, join_addr, split_addr
from rocketrio_protocol.remoting.server_limits import HOST_CONNECTION_LIMIT, ServerLimits
from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped
from rocketrio_protocol.remoting.tcp import listen_tcp

MAX_SLAVES: Final = 8
"""The most slaves that `cluster` starts in one process; for more, run one process for each."""

LOOPBACK: Final = "127.0.0.1"
_LOG_LEVELS: Final = ("debug", "info", "warning", "error")

logger = logging.getLogger("rocketrio_broker")


class _Address(click.ParamType[str]):
    name = "HOST:PORT"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        for addr in value.split(";"):
            try:
                split_addr(addr.strip())
            except ConfigError as error:
                self.fail(str(error), param, ctx)
        return value


class _Setting(click.ParamType[tuple[str, str]]):
    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, text = str(value).partition("=")
        if not equals or not key:
            self.fail(
                f"{value!r} is not KEY=VALUE, for example store.flush_disk_type=sync", param, ctx
            )
        return key.strip(), text


_log_level = click.option(
    "--log-level",
    type=click.Choice(_LOG_LEVELS),
    default="info",
    show_default=True,
    help="The least severe messages to write to standard error.",
)
_settings = click.option(
    "--set",
    "settings",
    type=_Setting(),
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, for example store.flush_disk_type=sync; `rocketrio-broker settings` lists them.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="rocketrio")
def main() -> None:
    """Run RocketMQ name servers and brokers.

    \b
    A name server, a master and a slave of it, each in a terminal of its own:
      rocketrio-broker namesrv --listen 127.0.0.1:9876
      rocketrio-broker run --namesrv 127.0.0.1:9876 --listen 127.0.0.1:10911 --data data/master
      rocketrio-broker run --namesrv 127.0.0.1:9876 --listen 127.0.0.1:10921 --data data/slave \\
          --role slave --id 1

    \b
    The same in one process, for a laptop or a test:
      rocketrio-broker cluster --listen 127.0.0.1:9876 --data data --slaves 1
    """


@main.command()
@click.option(
    "--listen",
    type=_Address(),
    default="127.0.0.1:9876",
    show_default=True,
    help="Address to serve on; port 0 picks a free port.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory that keeps the key-value configuration; without it nothing is kept.",
)
@click.option(
    "--host-connection-limit",
    type=click.IntRange(1),
    default=HOST_CONNECTION_LIMIT,
    show_default=True,
    help="The most connections of one host; raise it if all clients come through one gateway.",
)
@click.option(
    "--broker-limit",
    type=click.IntRange(2),
    default=BROKERS_LIMIT,
    show_default=True,
    help="The most brokers that may register, half of them from one host.",
)
@click.option(
    "--topic-limit",
    type=click.IntRange(2),
    default=TOPICS_LIMIT,
    show_default=True,
    help="The most topics that brokers may register, half of them from one host.",
)
@_log_level
def namesrv(
    listen: str,
    data: Path | None,
    host_connection_limit: int,
    broker_limit: int,
    topic_limit: int,
    log_level: str,
) -> None:
    """Run a name server.

    \b
    Examples:
      rocketrio-broker namesrv --listen 0.0.0.0:9876
      rocketrio-broker namesrv --listen 127.0.0.1:0
    prints `ready role=namesrv address=127.0.0.1:9876` once it serves.
    """

    async def serve(stop: "_Stop") -> None:
        async with AsyncExitStack() as stack:
            limits = ServerLimits(host_connections=host_connection_limit)
            routes = RouteInfoManager(broker_limit=broker_limit, topic_limit=topic_limit)
            await _start_name_server(stack, listen, data, limits, routes)
            await stop.wait()

    _run(serve, log_level)


@main.command()
@click.option("--namesrv", type=_Address(), help="Addresses of the name servers, separated by `;`.")
@click.option("--listen", type=_Address(), help="Address to serve clients on.")
@click.option("--ha-listen", type=_Address(), help="Address to serve slaves on.")
@click.option("--cluster", "cluster_name", help="Name of the cluster.")
@click.option("--name", "broker_name", help="Name that a master and its slaves share.")
@click.option("--id", "broker_id", type=click.IntRange(0), help="0 for the master.")
@click.option("--role", type=click.Choice(ROLES), help="Role of the broker within its broker name.")
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory for all data of the broker.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with any of the settings.",
)
@_settings
@_log_level
def run(
    config_file: Path | None, settings: tuple[tuple[str, str], ...], log_level: str, **options: Any
) -> None:
    """Run one broker.

    Options override the environment (ROCKETRIO_BROKER_NAME, ...), that overrides the file, and that the defaults.

    \b
    Examples:
      rocketrio-broker run --namesrv 127.0.0.1:9876 --listen 127.0.0.1:10911 \\
          --ha-listen 127.0.0.1:10912 --cluster C --name broker-a --id 0 --role async-master --data d0
      rocketrio-broker run --config broker.toml --set store.flush_disk_type=sync
    prints `ready role=master name=broker-a address=127.0.0.1:10911 ha_address=127.0.0.1:10912`
    once it serves. A name server that cannot be reached is tried again until it answers.
    """
    given = {name: value for name, value in options.items() if value is not None}
    config = _loaded(config_file, {**given, **dict(settings)})

    async def serve(stop: "_Stop") -> None:
        async with open_broker(config) as broker:
            _say_ready(broker)
            await stop.wait()
            await broker.hand_over_before_stop()

    _run(serve, log_level)


@main.command()
@click.option(
    "--listen",
    type=_Address(),
    default="127.0.0.1:9876",
    show_default=True,
    help="Address of the name server; brokers pick free ports of the same host.",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    required=True,
    help="Directory with one directory per broker in it.",
)
@click.option(
    "--slaves",
    type=click.IntRange(0, MAX_SLAVES),
    default=1,
    show_default=True,
    help="How many slaves follow the master.",
)
@click.option(
    "--host",
    help="Host to register for clients; required if --listen is 0.0.0.0, which clients cannot dial.",
)
@click.option(
    "--role",
    type=click.Choice(MASTER_ROLES),
    default="async-master",
    show_default=True,
    help="Role of the master: a sync-master answers a send once a slave has the message too.",
)
@click.option("--cluster", "cluster_name", default="DefaultCluster", show_default=True)
@click.option("--name", "broker_name", default="broker-a", show_default=True)
@_settings
@_log_level
def cluster(
    listen: str,
    data: Path,
    slaves: int,
    host: str | None,
    role: MasterRole,
    cluster_name: str,
    broker_name: str,
    settings: tuple[tuple[str, str], ...],
    log_level: str,
) -> None:
    """Run a name server, a master and its slaves in one process.

    \b
    Examples:
      rocketrio-broker cluster --listen 127.0.0.1:9876 --data data --slaves 1
      rocketrio-broker cluster --listen 0.0.0.0:9876 --host 192.168.1.20 --data data
      rocketrio-broker cluster --data data --slaves 2 --role sync-master --set in_sync_slaves=1
    prints a `ready` line per member; clients only need the name server's address. The brokers have the same ports
    at the next start.
    """
    listen_host, _ = split_addr(listen)
    if host is None and is_wildcard(listen_host):
        raise click.UsageError(
            f"--listen {listen} serves every address of this machine, but clients need one address to dial:"
            " name it with --host, for example --host 192.168.1.20"
        )
    base = _loaded(
        None,
        {**dict(settings), "cluster_name": cluster_name, "broker_name": broker_name},
    )

    # Without old data no slave can have the master's log, so it need not wait for one.
    is_new = not any(data.glob(f"{broker_name}-*"))

    async def serve(stop: "_Stop") -> None:
        async with AsyncExitStack() as stack:
            name_server = await _start_name_server(
                stack, listen, data / "namesrv", base.server_limits
            )
            _, port = split_addr(name_server.addr)
            ports = MemberPorts(data, disk=RealDisk(), listen=listen_tcp)
            nursery = await stack.enter_async_context(trio.open_nursery())
            serving: list[Broker] = []
            stopping, stopped = trio.Event(), Watermark()

            async def run_member(config: BrokerConfig) -> None:
                async with open_broker(await ports.applied(config), is_first=is_new) as broker:
                    ports.note(broker)
                    _say_ready(broker)
                    serving.append(broker)
                    if len(serving) > slaves:  # Slaves now learn their master.
                        for member in serving:
                            member.registration.register_now()
                    await stopping.wait()
                    if config.broker_id == MASTER_ID:  # It stops after its slaves.
                        await stopped.wait_reached(slaves)
                stopped.advance(stopped.value + 1)

            # Concurrently: a master that comes back asks its slaves for what it may lack before it serves.
            for broker_id in range(MASTER_ID, FIRST_SLAVE_ID + slaves):
                config = attrs.evolve(
                    base,
                    namesrv=join_addr(LOOPBACK, port)
                    if is_wildcard(listen_host)
                    else name_server.addr,
                    listen=join_addr(listen_host, 0),
                    address=None if host is None else join_addr(host, 0),
                    ha_listen=None,
                    broker_id=broker_id,
                    role=role if broker_id == MASTER_ID else "slave",
                    data=data / f"{broker_name}-{broker_id}",
                )
                nursery.start_soon(run_member, config)
            await stop.wait()
            stopping.set()

    _run(serve, log_level)


@main.command()
@click.argument("word", default="")
def settings(word: str) -> None:
    """List every setting of a broker with its default, or those with WORD in them.

    \b
    Example:
      rocketrio-broker settings flush
    """
    defaults = BrokerConfig()
    try:
        for path, meaning in setting_paths().items():
            if word in path or word in meaning:
                default = operator.attrgetter(path)(defaults)
                shown = "" if default is None else f" = {json.dumps(default, default=str)}"
                click.echo(f"{path}{shown}\n    {meaning}")
    except OSError as error:
        # Python flushes once more at exit, and would report the error again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # Its reader needs no more.
            _fail(f"standard output cannot be written: {error.strerror}")


async def _start_name_server(
    stack: AsyncExitStack,
    listen: str,
    data: Path | None,
    limits: ServerLimits,
    routes: RouteInfoManager | None = None,
) -> NameServer:
    listener: Listener = await listen_tcp(listen)
    stack.callback(listener.close)
    file = None if data is None else ConfigFile(data / "kvConfig.json", disk=RealDisk())
    kv_config = KVConfigManager(file=file)
    kv_config.load()
    name_server = NameServer([listener], kv_config=kv_config, limits=limits, routes=routes)
    nursery = await stack.enter_async_context(background_nursery())
    await nursery.start(name_server.run)
    print(f"ready role=namesrv address={name_server.addr}", flush=True)
    return name_server


def _say_ready(broker: Broker) -> None:
    role = "slave" if broker.config.is_slave else "master"
    print(
        f"ready role={role} name={broker.config.broker_name} address={broker.address} "
        f"ha_address={broker.ha_address}",
        flush=True,
    )


def _loaded(file: Path | None, given: dict[str, Any]) -> BrokerConfig:
    try:
        return load_config(file=file, given=given, environment=os.environ)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None


class _Stop:
    """Turns signals into an orderly stop: what was started last is stopped first.

    A signal while the members are still starting, or a second one, cancels everything at once instead.
    """

    def __init__(self) -> None:
        self._asked = trio.Event()
        self._serving = False

    async def wait(self) -> None:
        """Wait for the first signal; from this call on it means an orderly stop."""
        self._serving = True
        await self._asked.wait()

    async def listen(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        """Handle signals until cancelled."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for number in signals:
                logger.info("stopping signal=%s", signal.Signals(number).name)
                if not self._serving or self._asked.is_set():
                    scope.cancel()
                self._asked.set()


def _run(serve: Callable[[_Stop], Awaitable[None]], log_level: str) -> None:
    """Run until a signal; on an error print one line to standard error and exit with code 1."""
    log_to(
        sys.stderr,
        level=log_level.upper(),
        form="%(asctime)s %(levelname)s %(name)s %(message)s",
    )
    # Imported objects stay alive: scanning them in each full collection would block the loop for 20 ms.
    gc.freeze()
    try:
        trio.run(_until_signal, serve)
    except Error as error:
        _fail(str(error))
    except OSError as error:
        where = "" if error.filename is None else f" {error.filename}"
        _fail(f"cannot use{where}: {error.strerror or error}")


async def _until_signal(serve: Callable[[_Stop], Awaitable[None]]) -> None:
    stop = _Stop()
    async with background_nursery() as nursery:
        await nursery.start(stop.listen, nursery.cancel_scope)
        with ungrouped():
            await serve(stop)


def _fail(what: str) -> None:
    click.echo(f"rocketrio-broker: {what}", err=True)
    sys.exit(1)


if __name__ == "__main__":
    main()
