"""How a command asks the cluster: a line in a terminal shows that it still asks, and a broker is named or addressed."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rocketrio.admin.admin import Admin, open_admin
from rocketrio.cli.progress import showing_progress
from rocketrio.connect import ClientOptions
from rocketrio_protocol.errors import ConfigError


@asynccontextmanager
async def asking(what: str, client: ClientOptions, *, when: bool = True) -> AsyncGenerator[Admin]:
    """Open an admin, and show `what` for as long as the body asks; with `when` false show nothing.

    The line covers the search for a cluster that does not answer as well. The body prints nothing: the command does
    that afterwards, when the line is gone.
    """
    async with showing_progress(what, when=when), open_admin(**client) as admin:
        yield admin


async def addresses_of(admin: Admin, broker: str) -> list[str]:
    """Return the addresses that ADDR|NAME means: the one, or those of all brokers of the name, the master first.

    Raises RouteNotFoundError for a name that is not registered.
    """
    return [broker] if ":" in broker else await admin.broker_addresses(broker)


async def address_of(admin: Admin, broker: str) -> str:
    """Return the one address that ADDR|NAME means. Raises ConfigError for the name of several brokers."""
    addresses = await addresses_of(admin, broker)
    if len(addresses) > 1:
        raise ConfigError(
            f"{broker} is the name of {len(addresses)} brokers: give one of {', '.join(addresses)}"
        )
    return addresses[0]
