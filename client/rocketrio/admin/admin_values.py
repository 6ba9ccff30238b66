"""The values that administration returns about brokers, topics and offsets; None means unknown."""

from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.record.properties import decimal_value
from rocketrio_protocol.remoting.ports import join_addr, split_addr


def whole_sum(parts: Iterable[int | None]) -> int | None:
    """Return the sum, or None if a part is unknown."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


@attrs.frozen
class BrokerDescription:
    """One registered broker."""

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    """`master` or `slave`."""
    broker_role: str | None
    """The role in its own settings: `ASYNC_MASTER`, `SYNC_MASTER`, `SLAVE`."""
    address: str
    ha_address: str | None
    """The address from which slaves fetch its log."""
    min_physical_offset: int | None
    max_physical_offset: int | None
    version: str | None

    @classmethod
    def of(
        cls,
        cluster: str,
        broker_name: str,
        broker_id: int,
        address: str,
        runtime: Mapping[str, str],
        config: Mapping[str, str],
    ) -> Self:
        """Combine the tables in which a broker describes itself; any field may be missing."""
        ha_port = decimal_value(config.get("haListenPort"))
        ha_host = config.get("brokerIP2") or split_addr(address)[0]
        return cls(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            role="master" if broker_id == MASTER_ID else "slave",
            broker_role=config.get("brokerRole"),
            address=address,
            ha_address=None if ha_port is None else join_addr(ha_host, ha_port),
            min_physical_offset=decimal_value(runtime.get("commitLogMinOffset")),
            max_physical_offset=decimal_value(runtime.get("commitLogMaxOffset")),
            version=runtime.get("brokerVersionDesc"),
        )


@attrs.frozen
class HandOver:
    """A master and a slave that changed places, or would change them in a dry run."""

    broker_name: str
    old_address: str
    new_address: str
    slave_id: int
    """The slave's id, which the old master has now."""
    bytes_behind: int
    """What the slave lacks at the moment of a dry run; otherwise 0."""
    seconds: float | None
    """How long no broker of the name took writes; None for a dry run."""
