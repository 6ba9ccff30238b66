"""The command `rocketrio-broker`: a name server, a broker, or a whole small cluster in one process.

Each member prints one line on standard output once it serves; everything else goes to standard error.
Exit codes: 0 after a clean stop (SIGTERM or Ctrl-C), 2 for wrong usage, 1 for any other error.
"""

import gc
import importlib
import json
import logging
import operator
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import attrs
import click
import trio

from rocketrio_broker.access.control import AccessControl, name_server_access
from rocketrio_broker.access.files import acl_paths
from rocketrio_broker.addresses import is_wildcard
from rocketrio_broker.broker import Broker, open_broker
from rocketrio_broker.events import LOGGER
from rocketrio_broker.member_ports import MemberPorts
from rocketrio_broker.namesrv.kv import KVConfigManager
from rocketrio_broker.namesrv.routes import BROKERS_LIMIT, TOPICS_LIMIT, RouteInfoManager
from rocketrio_broker.namesrv.server import NameServer
from rocketrio_broker.service_manager import READY, STOPPING, tell_service_manager
from rocketrio_broker.settings.check import HOW_TO_ALLOW_MORE, findings
from rocketrio_broker.settings.config import (
    FIRST_SLAVE_ID,
    LOOPBACK,
    MASTER_ROLES,
    SETTINGS,
    TLS_MODES,
    BrokerConfig,
    MasterRole,
    ServerTlsSettings,
)
from rocketrio_broker.settings.loading import load_config, setting_paths
from rocketrio_broker.settings.setting import Flag, words
from rocketrio_broker.store.disk import RealDisk
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.tls import load_tls, warn_if_exposed
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.command_line import DocumentedGroup
from rocketrio_protocol.errors import ConfigError, Error
from rocketrio_protocol.log_lines import MEMBER, LogFormat, log_to
from rocketrio_protocol.remoting.descriptors import ENOUGH, raise_descriptor_limit
from rocketrio_protocol.remoting.ports import (
    Listener,
    SystemWallClock,
    join_addr,
    split_addr,
)
from rocketrio_protocol.remoting.server_limits import HOST_CONNECTION_LIMIT, ServerLimits
from rocketrio_protocol.remoting.tasks import background_nursery, ungrouped
from rocketrio_protocol.remoting.tcp import listen_tcp

MAX_SLAVES: Final = 8
"""The most slaves that `cluster` starts in one process; for more, run one process for each."""

_LOG_LEVELS: Final = ("debug", "info", "warning", "error")

logger = logging.getLogger("rocketrio_broker")


FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class _Address(click.ParamType[str]):
    """A text that `check` accepts: an address to serve on, or those of the name servers."""

    name = "HOST:PORT"

    def __init__(self, check: Callable[[str], object] = split_addr) -> None:
        self._check = check

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            self._check(value)
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
_log_format = click.option(
    "--log-format",
    type=click.Choice(get_args(LogFormat)),
    default="text",
    show_default=True,
    help="How to write them: as text, or as one JSON object a line.",
)
_settings = click.option(
    "--set",
    "settings",
    type=_Setting(),
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting, for example store.flush_disk_type=sync; `rocketrio-broker settings` lists them.",
)


def _setting_flags(function: FunctionT) -> FunctionT:
    """Add the flags that settings declare; the function gets those that were given by the names of their settings."""
    for path, field in reversed(list(SETTINGS.items())):
        flag: Flag | None = field.metadata["flag"]
        if flag is not None:
            function = click.option(flag.name, path, type=_flag_type(field), help=flag.help)(
                function
            )
    return function


def _flag_type(field: "attrs.Attribute[Any]") -> Any:
    check = field.metadata["flag"].check
    if check is not None:
        return _Address(check)
    if choices := words(field.type):
        return click.Choice(choices)
    if field.type is Path:
        return click.Path(file_okay=False, path_type=Path)
    return click.IntRange(0) if field.type is int else str


def _access_options(function: FunctionT) -> FunctionT:
    """Add the options of access control; the function gets `acl_files` and `inner_credentials_file`."""
    for option in (
        click.option(
            "--inner-credentials",
            "inner_credentials_file",
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="File with accessKey and secretKey that sign what this process asks others; a Super user.",
        ),
        click.option(
            "--acl-file",
            "acl_files",
            multiple=True,
            type=click.Path(exists=True, path_type=Path),
            help="File of users and their rights (plain_acl.yml of RocketMQ 4, or .json), or a folder of them: every "
            "request must then be signed by a user that has the right. Can be given several times.",
        ),
    ):
        function = option(function)
    return function


def _tls_options(function: FunctionT) -> FunctionT:
    """Add the options for TLS; the function gets those that were given by the names of their settings."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in (
        click.option(
            "--tls-mode",
            type=click.Choice(TLS_MODES),
            help="enforcing (default with --tls-cert): no plain connections; permissive: both.",
        ),
        click.option(
            "--tls-client-ca",
            "tls_client_authority_file",
            type=file,
            help="The authority of clients' certificates, which clients then must have.",
        ),
        click.option(
            "--tls-key",
            "tls_key_file",
            type=file,
            help="The key of --tls-cert, if in another file.",
        ),
        click.option(
            "--tls-cert",
            "tls_certificate_file",
            type=file,
            help="The certificate for clients (PEM).",
        ),
    ):
        function = option(function)
    return function


def _access_settings(
    acl_files: Sequence[Path], inner_credentials_file: Path | None
) -> dict[str, Any]:
    """Return the settings that the options of access control give."""
    given: dict[str, Any] = {}
    if acl_files:
        given["acl_file"] = ";".join(map(str, acl_files))
    if inner_credentials_file is not None:
        given["inner_credentials_file"] = inner_credentials_file
    return given


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


@click.group(cls=DocumentedGroup, context_settings={"help_option_names": ["-h", "--help"]})
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
@click.option(
    "--audit-log",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File that gets a line of JSON for each change that an operator makes.",
)
@_access_options
@click.option(
    "--tls-key-password-file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The password of --tls-key, if it has one.",
)
@_tls_options
@_log_level
@_log_format
def namesrv(
    listen: str,
    data: Path | None,
    host_connection_limit: int,
    broker_limit: int,
    topic_limit: int,
    audit_log: Path | None,
    acl_files: tuple[Path, ...],
    inner_credentials_file: Path | None,
    log_level: str,
    log_format: LogFormat,
    **tls_options: Any,
) -> None:
    """Run a name server.

    \b
    Examples:
      rocketrio-broker namesrv --listen 0.0.0.0:9876
      rocketrio-broker namesrv --listen 127.0.0.1:0
      rocketrio-broker namesrv --listen 0.0.0.0:9876 --tls-cert server.pem --tls-key server.key
    prints `ready role=namesrv address=127.0.0.1:9876` once it serves.
    """
    if inner_credentials_file is not None and not acl_files:
        raise click.UsageError("--inner-credentials needs --acl-file, which names the other users")

    tls = ServerTlsSettings(
        **{name.removeprefix("tls_"): value for name, value in _given(tls_options).items()}
    )

    async def serve(stop: "_Stop") -> None:
        async with AsyncExitStack() as stack:
            limits = ServerLimits(host_connections=host_connection_limit)
            routes = RouteInfoManager(broker_limit=broker_limit, topic_limit=topic_limit)
            access = name_server_access(
                acl_paths=acl_files, inner_credentials_file=inner_credentials_file, disk=RealDisk()
            )
            await _start_name_server(
                stack, stop, listen, data, limits, tls, routes, access, audit_log
            )
            await stop.wait()

    _run(serve, data, log_level, log_format)


@main.command()
@_setting_flags
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with any of the settings.",
)
@_access_options
@_tls_options
@_settings
@_log_level
@_log_format
def run(
    config_file: Path | None,
    acl_files: tuple[Path, ...],
    inner_credentials_file: Path | None,
    settings: tuple[tuple[str, str], ...],
    log_level: str,
    log_format: LogFormat,
    **options: Any,
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
    given = {**_given(options), **_access_settings(acl_files, inner_credentials_file)}
    config = _loaded(config_file, {**given, **dict(settings)})

    async def serve(stop: "_Stop") -> None:
        async with open_broker(config) as broker:
            stop.on_hangup.append(broker.reload_files)
            _say_ready(broker)
            await stop.wait()
            await broker.hand_over_before_stop()

    _run(serve, config.data, log_level, log_format)


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
@_access_options
@_tls_options
@_settings
@_log_level
@_log_format
def cluster(
    listen: str,
    data: Path,
    slaves: int,
    host: str | None,
    role: MasterRole,
    cluster_name: str,
    broker_name: str,
    acl_files: tuple[Path, ...],
    inner_credentials_file: Path | None,
    settings: tuple[tuple[str, str], ...],
    log_level: str,
    log_format: LogFormat,
    **tls_options: Any,
) -> None:
    """Run a name server, a master and its slaves in one process.

    \b
    Examples:
      rocketrio-broker cluster --listen 127.0.0.1:9876 --data data --slaves 1
      rocketrio-broker cluster --listen 0.0.0.0:9876 --host 192.168.1.20 --data data
      rocketrio-broker cluster --data data --slaves 2 --role sync-master --set in_sync_slaves=1
    prints a `ready` line per member; clients only need the name server's address. Lines of the log name their member:
    `member=namesrv`, or the name and id of a broker, as in `member=broker-a-0`. The brokers have the same ports
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
        {
            **_access_settings(acl_files, inner_credentials_file),
            **_given(tls_options),
            **dict(settings),
            "cluster_name": cluster_name,
            "broker_name": broker_name,
        },
    )
    if base.acl_file and base.inner_credentials_file is None:
        raise click.UsageError(
            "--acl-file closes the name server too, and the brokers need an account there: add --inner-credentials"
        )

    # Without old data no slave can have the master's log, so it need not wait for one.
    is_new = not any(data.glob(f"{broker_name}-*"))

    async def serve(stop: "_Stop") -> None:
        async with AsyncExitStack() as stack:
            MEMBER.set("namesrv")
            access = name_server_access(
                acl_paths=acl_paths(base.acl_file),
                inner_credentials_file=base.inner_credentials_file,
                white_addresses=base.acl_white_addresses,
                disk=RealDisk(),
            )
            name_server = await _start_name_server(
                stack,
                stop,
                listen,
                data / "namesrv",
                base.server_limits,
                base.server_tls,
                access=access,
            )
            _, port = split_addr(name_server.addr)
            ports = MemberPorts(data, disk=RealDisk(), listen=listen_tcp)
            nursery = await stack.enter_async_context(trio.open_nursery())
            serving: list[Broker] = []
            stopping, stopped = trio.Event(), Watermark()

            async def run_member(config: BrokerConfig) -> None:
                MEMBER.set(config.data.name)
                async with open_broker(await ports.applied(config), is_first=is_new) as broker:
                    ports.note(broker)
                    stop.on_hangup.append(broker.reload_files)
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

    _run(serve, data, log_level, log_format)


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


@main.command()
@click.option(
    "--config",
    "config_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="TOML file with any of the settings.",
)
@_access_options
@_settings
def check(
    config_file: Path | None,
    acl_files: tuple[Path, ...],
    inner_credentials_file: Path | None,
    settings: tuple[tuple[str, str], ...],
) -> None:
    """Load the files that secure a broker, as it does at its start, and print what they hold.

    Prints counts and never a secret; files and folders that other users of the machine may read; and each error with
    its file and line. The exit code is 1 if there is an error.

    \b
    Examples:
      rocketrio-broker check --config broker.toml
      rocketrio-broker check --acl-file conf/plain_acl.yml
    """
    given = _access_settings(acl_files, inner_credentials_file)
    config = _loaded(config_file, {**given, **dict(settings)})
    problems = 0
    for finding in findings(config):
        click.echo(f"{finding.what}: {finding.text}", err=finding.is_error)
        problems += finding.is_error
    if problems:
        sys.exit(1)


async def _start_name_server(
    stack: AsyncExitStack,
    stop: "_Stop",
    listen: str,
    data: Path | None,
    limits: ServerLimits,
    tls_settings: ServerTlsSettings,
    routes: RouteInfoManager | None = None,
    access: AccessControl | None = None,
    audit_log: Path | None = None,
) -> NameServer:
    tls = await load_tls(tls_settings, wall_clock=SystemWallClock())
    listener: Listener = await listen_tcp(listen)
    stack.callback(listener.close)
    file = None if data is None else ConfigFile(data / "kvConfig.json", disk=RealDisk())
    kv_config = KVConfigManager(file=file)
    kv_config.load()
    name_server = NameServer(
        [listener],
        kv_config=kv_config,
        limits=limits,
        routes=routes,
        access=access,
        tls=tls.server,
        audit_log=audit_log,
    )
    warn_if_exposed(
        [listener.addr],
        {
            "TLS (--tls-cert)": tls.server is not None,
            "access control (--acl-file)": access is not None,
        },
    )
    nursery = await stack.enter_async_context(background_nursery())
    await nursery.start(tls.run)
    stop.on_hangup.append(tls.reload)
    if access is not None:
        stop.on_hangup.append(access.reload)
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
        config = load_config(file=file, given=given, environment=os.environ)
    except ConfigError as error:
        raise click.UsageError(str(error)) from None
    if config.metrics_listen:
        with suppress(ModuleNotFoundError):  # The broker reports it with a remedy.
            importlib.import_module("rocketrio_broker.metrics.service")  # Before `gc.freeze`.
    return config


class _Stop:
    """Turns signals into an orderly stop: what was started last is stopped first.

    A signal while the members are still starting, or a second one, cancels everything at once instead. SIGHUP lets
    members read their certificates and keys again.
    """

    def __init__(self) -> None:
        self.on_hangup: list[Callable[[], Awaitable[None]]] = []
        self._asked = trio.Event()
        self._serving = False

    async def wait(self) -> None:
        """Wait for the first signal; from this call on it means an orderly stop."""
        self._serving = True
        tell_service_manager(READY)
        await self._asked.wait()
        tell_service_manager(STOPPING)

    async def listen(self, scope: trio.CancelScope, *, task_status: trio.TaskStatus[None]) -> None:
        """Handle signals until cancelled."""
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            task_status.started()
            async for number in signals:
                if number == signal.SIGHUP:
                    for reload in self.on_hangup:
                        await reload()
                    continue
                logger.info("stopping signal=%s", signal.Signals(number).name)
                if not self._serving or self._asked.is_set():
                    scope.cancel()
                self._asked.set()


def _run(
    serve: Callable[[_Stop], Awaitable[None]],
    data: Path | None,
    log_level: str,
    log_format: LogFormat,
) -> None:
    """Run until a signal; on an error print one line to standard error and exit with code 1."""
    log_to(
        sys.stderr,
        level=log_level.upper(),
        form="%(asctime)s %(levelname)s %(name)s %(message)s",
        log_format=log_format,
    )
    limit = raise_descriptor_limit()
    if limit.soft < ENOUGH:
        logger.warning(
            "this process may have few file descriptors limit=%d for_connections=%d remedy=%s",
            limit.soft, limit.for_connections, f"allow {ENOUGH} or more: {HOW_TO_ALLOW_MORE}",
        )  # fmt: skip
    # The ring of events needs these lines, whatever is written.
    logging.getLogger(LOGGER).setLevel(min(logging.INFO, logging.getLevelName(log_level.upper())))
    # Imported objects stay alive: scanning them in each full collection would block the loop for 20 ms.
    gc.freeze()
    try:
        trio.run(_until_signal, serve)
    except (Error, OSError) as error:
        _fail(_in_words(error, data))
    except ExceptionGroup as group:
        # Several members of a cluster fail for one reason: the first says it.
        wrong, faults = group.split((Error, OSError))
        if wrong is None or faults is not None:
            raise
        _fail(_in_words(_first(wrong), data))


def _in_words(error: Exception, data: Path | None) -> str:
    """Return what is wrong; the calls that write to an open file do not name it, and it lies in `data`."""
    if not isinstance(error, OSError):
        return str(error)
    where = error.filename or (f"the files in {data}" if data else "a file")
    return f"cannot use {where}: {error.strerror or error}"


def _first(group: ExceptionGroup[Exception]) -> Exception:
    first = group.exceptions[0]
    return _first(first) if isinstance(first, ExceptionGroup) else first


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
