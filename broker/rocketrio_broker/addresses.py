"""The addresses of one broker: its listeners, and the addresses that it advertises.

    listen         clients
    listen - 2     clients and slaves, but not for pulls
    ha_listen      slaves that replicate
    metrics_listen monitoring, if it is set

Answers to: BrokerController's remotingServer and fastRemotingServer, BrokerConfig.brokerIP1 and brokerIP2.
"""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from rocketrio_broker.settings.config import BrokerConfig
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.record.layout import pack_host
from rocketrio_protocol.remoting.ports import Listen, Listener, join_addr, split_addr

FAST_PORT_DISTANCE: Final = 2
"""The second listener is this far below the first: Apache slaves fetch topics there (fastListenPort)."""

FREE_PORT_ATTEMPTS: Final = 20
"""The number of free ports that are tried, until the port two below is free as well."""


@attrs.frozen
class BrokerAddresses:
    """The listeners of a broker and its advertised addresses."""

    main: Listener
    fast: Listener
    """For all requests except pulls."""
    ha: Listener
    address: str
    """The address that clients use."""
    ha_address: str
    """The address that slaves use."""
    metrics: Listener | None
    """For Prometheus; None unless `metrics_listen` is set."""
    store_host: bytes
    """`address` in the form that stored messages and their ids contain."""


@asynccontextmanager
async def listening(config: BrokerConfig, listen: Listen) -> AsyncGenerator[BrokerAddresses]:
    """Listen for as long as the body runs. Raises ConfigError for an address that cannot be used."""
    listeners = await _listen(config.listen, listen)
    try:
        main, fast = listeners
        ha = await listen(config.ha_listen_for(main.addr))
        listeners.append(ha)
        metrics = None
        if config.metrics_address is not None:
            metrics = await listen(config.metrics_address)
            listeners.append(metrics)
        address = _advertised_address(config.address, main.addr)
        ha_address = config.ha_address or _default_ha_address(address, ha.addr)
        host = await _packed_addr(address)
        yield BrokerAddresses(main, fast, ha, address, ha_address, metrics, host)
    finally:
        for listener in listeners:
            listener.close()


async def _listen(addr: str, listen: Listen) -> list[Listener]:
    """Open the listener for clients and the one two ports below it."""
    host, port = split_addr(addr)
    for _ in range(1 if port else FREE_PORT_ATTEMPTS):
        main = await listen(addr)
        try:
            fast_port = split_addr(main.addr)[1] - FAST_PORT_DISTANCE
            return [main, await listen(join_addr(host, fast_port))]
        except ConfigError:
            main.close()
            if port:
                raise
        except BaseException:
            main.close()
            raise
    raise ConfigError(f"No free port on {host} that has another free one two below it")


def is_wildcard(host: str) -> bool:
    """Return True if the host stands for every address of the machine, which other hosts cannot dial."""
    return host in ("0.0.0.0", "::")


def _advertised_address(address: str | None, bound: str) -> str:
    """Return the address for clients: the configured one, with the bound port for port 0, or else the bound address."""
    if address is not None:
        host, port = split_addr(address)
        return address if port else join_addr(host, split_addr(bound)[1])
    if is_wildcard(split_addr(bound)[0]):
        raise ConfigError(
            f"listen is {bound}, which others cannot dial",
            remedy="Set address to the host:port that they can dial",
        )
    return bound


def _default_ha_address(address: str, bound: str) -> str:
    """Return the address for slaves: the bound one; for a wildcard host the host of the clients' address."""
    host, port = split_addr(bound)
    return join_addr(split_addr(address)[0], port) if is_wildcard(host) else bound


async def _packed_addr(address: str) -> bytes:
    """Return the address in the form that stored messages contain; a host name is resolved once."""
    host, port = split_addr(address)
    try:
        found = await trio.socket.getaddrinfo(host, port, type=trio.socket.SOCK_STREAM)
    except OSError as error:
        raise ConfigError(f"The host of {address} is not known ({error.strerror})") from error
    return pack_host(str(found[0][4][0]), port)
