"""Opens a client: checks its settings, opens its connections, and leaves its groups when the block ends.

Answers to: ClientConfig, MQClientInstance.start and shutdown.
"""

import logging
import os
import ssl
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypedDict

import trio

from rocketrio.arguments import flag, instance, no_such_argument, seconds, text, whole_number
from rocketrio.client import CLOSE_GRACE, ClientInstance
from rocketrio.cluster.account import GivenCredentials, open_account
from rocketrio.cluster.heartbeat import HEARTBEAT_INTERVAL
from rocketrio.cluster.name_servers import name_server_addresses
from rocketrio.cluster.namespace import Namespace
from rocketrio.cluster.tls import GivenTls, given_tls, secured_dial
from rocketrio.ports import current_ports
from rocketrio.producing.outgoing import check_topic
from rocketrio.producing.producer import Producer
from rocketrio.producing.publish_route import PublishRoutes
from rocketrio.producing.sender import MessageSender
from rocketrio.routing import Router
from rocketrio.tracing.trace import SEND_TIMEOUT, TRACE_GROUP, Traces
from rocketrio_protocol.codes import MASTER_ID, SerializeType
from rocketrio_protocol.errors import ConfigError, NotReachableError
from rocketrio_protocol.names import TRACE_TOPIC
from rocketrio_protocol.remoting.dispatch import Processor
from rocketrio_protocol.remoting.pool import ChannelPool, open_channel_pool
from rocketrio_protocol.remoting.ports import split_addr
from rocketrio_protocol.remoting.tasks import background_nursery

POLL_NAME_SERVER_INTERVAL: Final = 30.0  # pollNameServerInterval

logger = logging.getLogger("rocketrio.client")


class ClientOptions(TypedDict, total=False):
    """The arguments of `open_client`, for functions that pass them on."""

    name_servers: str | Sequence[str] | None
    client_id: str | None
    static_grace: int | None
    connect_broker_by_user: bool
    default_broker_id: int
    poll_name_server_interval: float
    heartbeat_broker_interval: float
    serialize_type: SerializeType | str
    request_timeout: float | None
    namespace: str
    trace: bool | str
    metrics: bool
    credentials: GivenCredentials
    tls: GivenTls
    ssl_context: ssl.SSLContext | None


@asynccontextmanager
async def open_client(
    *,
    name_servers: str | Sequence[str] | None = None,
    client_id: str | None = None,
    static_grace: int | None = None,
    connect_broker_by_user: bool = False,
    default_broker_id: int = MASTER_ID,
    poll_name_server_interval: float = POLL_NAME_SERVER_INTERVAL,
    heartbeat_broker_interval: float = HEARTBEAT_INTERVAL,
    serialize_type: SerializeType | str = SerializeType.JSON,
    request_timeout: float | None = None,
    namespace: str = "",
    trace: bool | str = False,
    metrics: bool = False,
    credentials: GivenCredentials = None,
    tls: GivenTls = None,
    ssl_context: ssl.SSLContext | None = None,
) -> AsyncGenerator[ClientInstance]:
    """Open a client that consumers, producers and admins can share.

    `name_servers` is `["10.0.0.1:9876", ...]`, or text with semicolons; by default the environment variable
    `NAMESRV_ADDR`, else `127.0.0.1:9876`. `client_id` must be unique in the cluster; by default it consists of the
    address, the process id and a random number. With `connect_broker_by_user` pulls go to the broker id
    `default_broker_id` regardless of the brokers' suggestions. Intervals are seconds. `serialize_type` is the encoding
    of request headers: `"JSON"`, `"ROCKETMQ"`, or `"MSGPACK"`, which is used with rocketrio brokers that agree.
    `request_timeout` replaces the 3 seconds (5 for administration) that a server has to answer a question; requests
    that take longer on purpose, and sends, keep their own times. All
    topics and groups of the client belong to the `namespace`: `orders` is `namespace%orders` to the brokers, as with
    Java's clients.

    With `trace`, records of what producers send and decide, and of what consumers' handlers do, are sent to the
    cluster's trace topic, or to the given topic, where consoles find them. This happens in the background: it neither
    delays nor breaks anything, and excess records are dropped.

    With `metrics`, sends and handlers are timed for `rocketrio.metrics.collector`.

    With `static_grace`, consumers of this client are static members: rocketrio brokers keep their queues for that many
    seconds after they end, however they end, so that a restart with the same `client_id` moves no queues. Apache's
    brokers do not support this, and a warning is logged.

    `credentials` sign every request: `Credentials(access_key, secret_key)`, or a function, async or not, that returns
    them. A function is called again every five minutes and when a server refuses a request, which is then repeated once
    if the credentials are other ones; a plain function runs in a worker thread. By default the environment variables
    `ROCKETRIO_ACCESS_KEY` and `ROCKETRIO_SECRET_KEY`, or `ROCKETRIO_CREDENTIALS_FILE`. A refusal raises
    NotAuthenticatedError or NotAuthorizedError at once, and ends a consumer; see docs/security.md.

    With `tls` every connection uses TLS, to name servers and brokers: `True` trusts the authorities of this machine,
    `TlsOptions(authority_file=...)` the given one, and has the client's own certificate. An `ssl.SSLContext` is used as
    it is, also under the name `ssl_context`. The certificate of a server must name the host that is dialled, unless
    `TlsOptions(check_host_name=False)`. Changed files are used within seconds. By default the environment variables
    `ROCKETRIO_TLS` and `ROCKETRIO_TLS_CA_FILE`. What one end does not accept raises TlsError at once.

    No request is sent before it is needed, so an unreachable cluster is reported at the first call. Leaving the block
    unregisters from the brokers, for at most three seconds (three more for traces), even if cancelled. An exception of
    the block is raised unchanged.
    """
    if not trio.lowlevel.in_trio_run():
        raise ConfigError(
            "a client must be opened in a trio run",
            remedy="Start with `trio.run(main)`; in an asyncio program open it by `rocketrio.aio`, see docs/asyncio.md",
        )
    if client_id is not None:
        text("client_id", client_id)
    if static_grace is not None:
        whole_number("static_grace", static_grace, least=1)
        if not client_id:
            raise ConfigError(f"{static_grace=} needs a client_id= that a restart has again")
    flag("connect_broker_by_user", connect_broker_by_user)
    whole_number("default_broker_id", default_broker_id, least=0)
    seconds("poll_name_server_interval", poll_name_server_interval)
    seconds("heartbeat_broker_interval", heartbeat_broker_interval)
    if request_timeout is not None:
        seconds("request_timeout", request_timeout)
    text("namespace", namespace)
    if not isinstance(trace, str):
        flag("trace", trace)
    flag("metrics", metrics)
    addresses = name_server_addresses(name_servers)
    header_codec = _serialize_type(serialize_type)
    named = Namespace(namespace)
    if isinstance(trace, str) and trace:
        check_topic(trace)
    ports = current_ports.get()
    account = await open_account(credentials, wall_clock=ports.wall_clock)
    secured = await secured_dial(
        ports.dial, given_tls(tls, ssl_context), wall_clock=ports.wall_clock
    )
    processors: dict[int, Processor] = {}
    scope = trio.CancelScope(shield=True)
    is_open = trio.Event()
    pool: ChannelPool

    async def keep_connections() -> None:
        nonlocal pool
        # Shielded until the brokers are notified: a cancelled consumer still commits and leaves its group.
        with scope:
            async with open_channel_pool(
                secured.dial,
                processors=processors,
                serialize_type=header_codec,
                signer=None if account is None else account.signer,
            ) as pool:
                is_open.set()
                await trio.sleep_forever()

    async with background_nursery() as nursery:
        try:
            # Not `nursery.start`: a cancel or Ctrl-C in it would wait for a task that shields itself.
            nursery.start_soon(keep_connections)
            await is_open.wait()
            ip = await _local_ip(pool, addresses)
            client = ClientInstance(
                client_id or f"{ip}@{os.getpid()}#{ports.rng.getrandbits(64):016x}",
                addresses,
                pool,
                routing=Router(
                    connect_broker_by_user=connect_broker_by_user,
                    default_broker_id=default_broker_id,
                ),
                heartbeat_interval=heartbeat_broker_interval,
                static_grace=static_grace,
                poll_name_server_interval=poll_name_server_interval,
                wall_clock=ports.wall_clock,
                ip=ip,
                rng=ports.rng,
                processors=processors,
                namespace=named,
                account=account,
                request_timeout=request_timeout,
            )
            if metrics:
                from rocketrio.metrics.measured import Measured

                client.hooks = Measured(client.hooks)
            if trace:
                client.traces = _traces(client, trace)
                nursery.start_soon(client.traces.run)
            nursery.start_soon(client.run)
            if secured.files is not None:
                nursery.start_soon(secured.files.run)
            try:
                yield client
            finally:
                client.is_closed = True
                if client.traces is not None:
                    with trio.move_on_after(CLOSE_GRACE, shield=True):
                        await client.traces.flush()
                with trio.move_on_after(CLOSE_GRACE, shield=True):
                    await client.leave_all()
        finally:
            scope.cancel()


@asynccontextmanager
async def given_or_own(
    client: ClientInstance | None, options: ClientOptions, opener: Callable[..., object]
) -> AsyncGenerator[ClientInstance]:
    """Use the client that a user passed, or open one for the block with the `options` that `opener` got.

    Raises ConfigError if both are given, and for unknown options.
    """
    for name in options:
        if name not in ClientOptions.__annotations__:
            raise no_such_argument(opener, name, ClientOptions.__annotations__)
    if client is None:
        async with open_client(**options) as own:
            yield own
        return
    instance(ClientInstance, "client", client, hint="`async with open_client() as client`")
    if options:
        raise ConfigError(f"give either client= or {', '.join(options)}=, not both")
    yield client


def _traces(client: ClientInstance, wanted: bool | str) -> Traces:
    sender = MessageSender(client, TRACE_GROUP, PublishRoutes(client), timeout=SEND_TIMEOUT)
    return Traces(
        TRACE_TOPIC if wanted is True else str(wanted),
        Producer(sender).send,
        next_id=client.unique_ids.next,
        now_ms=client.wall_clock.now_ms,
    )


async def _local_ip(pool: ChannelPool, addresses: Sequence[str]) -> str:
    # This host's address as the cluster sees it; it is only used in ids.
    for address in addresses:
        try:
            channel = await pool.channel(address)
        except NotReachableError as error:
            logger.warning("name server not reachable addr=%s error=%s", address, error.what)
        else:
            return split_addr(channel.local_addr)[0]
    return "127.0.0.1"


def _serialize_type(wanted: SerializeType | str) -> SerializeType:
    try:
        return SerializeType[wanted] if isinstance(wanted, str) else SerializeType(wanted)
    except (KeyError, ValueError):
        names = ", ".join(kind.name for kind in SerializeType)
        raise ConfigError(f"serialize_type={wanted!r} must be one of {names}") from None
