"""What an admin is told: brokers, topics, offsets, as values in which None means unknown."""

from collections.abc import Mapping
from typing import Self

import attrs

from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.message import MessageQueue
from rocketrio_protocol.remoting.ports import join_addr, split_addr


@attrs.frozen
class QueueOffsets:
    """Bounds of a queue and progress of a group there."""

    queue: MessageQueue
    min_offset: int | None
    max_offset: int | None
    committed_offset: int | None

    @property
    def lag(self) -> int | None:
        """Messages that are stored and not committed; None unless both ends are known."""
        if self.max_offset is None or self.committed_offset is None:
            return None
        return max(0, self.max_offset - self.committed_offset)


@attrs.frozen
class OffsetReset:
    """Where a group was on a queue, and where it was put, or would be."""

    queue: MessageQueue
    committed_offset: int | None
    """None where nothing was committed, or no broker could tell."""
    target_offset: int


@attrs.frozen
class TopicDescription:
    """One topic."""

    topic: str
    route: TopicRouteData
    queues: list[QueueOffsets]
    attributes: dict[str, dict[str, str] | None]
    """By broker name; None where a broker did not answer, or is of RocketMQ 4 and has none."""


@attrs.frozen
class BrokerDescription:
    """One registered broker."""

    cluster: str
    broker_name: str
    broker_id: int
    role: str
    """`master` or `slave`."""
    broker_role: str | None
    """As its own settings say: `ASYNC_MASTER`, `SYNC_MASTER`, `SLAVE`."""
    address: str
    ha_address: str | None
    """Where slaves fetch its log."""
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
        """From the tables a broker gives about itself; both may lack anything."""
        ha_port = config.get("haListenPort")
        ha_host = config.get("brokerIP2") or split_addr(address)[0]
        return cls(
            cluster=cluster,
            broker_name=broker_name,
            broker_id=broker_id,
            role="master" if broker_id == MASTER_ID else "slave",
            broker_role=config.get("brokerRole"),
            address=address,
            ha_address=join_addr(ha_host, int(ha_port)) if ha_port else None,
            min_physical_offset=_number(runtime.get("commitLogMinOffset")),
            max_physical_offset=_number(runtime.get("commitLogMaxOffset")),
            version=runtime.get("brokerVersionDesc"),
        )


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.lstrip("-").isdecimal() else None


@attrs.frozen
class HandOver:
    """A master and a slave that changed places, or would."""

    broker_name: str
    old_address: str
    new_address: str
    slave_id: int
    """The slave's id, which the old master has now."""
    bytes_behind: int
    """What the slave lacks now, of a dry run; 0 afterwards."""
    seconds: float | None
    """How long no broker of the name took writes; None of a dry run."""
