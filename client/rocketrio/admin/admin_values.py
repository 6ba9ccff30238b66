"""The values that administration returns about brokers, topics and offsets; None means unknown."""

from collections.abc import Iterable, Mapping
from typing import Self

import attrs

from rocketrio_protocol.bodies.route import TopicRouteData
from rocketrio_protocol.bodies.topics import Permission
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.lag import ahead_of, lag_of
from rocketrio_protocol.message import MessageQueue
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
class QueueOffsets:
    """The bounds of a queue, and a group's progress in it."""

    queue: MessageQueue
    min_offset: int | None
    max_offset: int | None
    committed_offset: int | None
    stored_offset: int | None = None
    """Where the queue ends in the log, which a rocketrio broker may show later; None if the broker does not say."""

    @property
    def lag(self) -> int | None:
        """The number of messages that are stored and not committed; None unless both ends are known and in order."""
        return None if self.ahead else lag_of(self.committed_offset, self.reachable_end)

    @property
    def ahead(self) -> int:
        """The number of messages that the committed offset lies beyond the end; 0 if it does not, or is unknown.

        The topic was made again, or the log became shorter: until it is reset, the group skips messages or reads them
        again. After a change of masters a group may be beyond `max_offset` for a moment, but not beyond the log.
        """
        end = self.max_offset if self.stored_offset is None else self.stored_offset
        return ahead_of(self.committed_offset, end)

    @property
    def reachable_end(self) -> int | None:
        """The last offset at which the group may stand: the end, or beyond what readers see where it is in the log."""
        if self.max_offset is None or self.committed_offset is None or self.ahead:
            return self.max_offset
        return max(self.max_offset, self.committed_offset)


@attrs.frozen
class OffsetReset:
    """A group's former and new offset in a queue, also of a dry run."""

    queue: MessageQueue
    committed_offset: int | None
    """None if nothing was committed, or no broker could report it."""
    target_offset: int


@attrs.frozen
class TopicDescription:
    """One topic."""

    topic: str
    route: TopicRouteData
    queues: list[QueueOffsets]
    attributes: dict[str, dict[str, str] | None]
    """Attributes by broker name; None if a broker did not answer, or is of RocketMQ 4, which has none."""


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


def permission_text(permission: int) -> str:
    """Return a permission as commands and files write it: `rw`, `r`, `w` or `none`."""
    text = "r" if permission & Permission.READ else ""
    return text + ("w" if permission & Permission.WRITE else "") or "none"
