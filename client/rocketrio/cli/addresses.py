"""The brokers that a user names or addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rocketrio_protocol.errors import ConfigError

if TYPE_CHECKING:
    from rocketrio.admin.admin import Admin


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
