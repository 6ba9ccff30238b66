"""The settings of replication, with RocketMQ's names and defaults; times in seconds, sizes in bytes.

Answers to: the ha* members of MessageStoreConfig; RocketMQ reference, section 6.2.
"""

from typing import Final, Literal

import attrs
from attrs import validators

from rocketrio_protocol.ha.stream import TRANSFER_SIZE_LIMIT

SLAVES_LIMIT: Final = 64
"""The most slaves served at once, and remembered; a master has a handful, and each costs a stream of the whole log."""


@attrs.frozen(kw_only=True)
class HAConfig:
    """How logs are copied from master to slave."""

    send_heartbeat_interval: float = attrs.field(default=5.0, validator=validators.gt(0))
    """Seconds without sending after which either end sends a heartbeat (haSendHeartbeatInterval)."""
    housekeeping_interval: float = attrs.field(default=20.0, validator=validators.gt(0))
    """Seconds of silence of the other end after which the connection is dropped (haHousekeepingInterval)."""
    transfer_batch_size: int = attrs.field(
        default=1024 * 1024,
        validator=[validators.ge(1), validators.le(TRANSFER_SIZE_LIMIT)],
    )
    """The most bytes of one transfer (haTransferBatchSize, 32 KiB in Java). A slave that is behind receives blocks of
    this size; Apache's slaves take up to 4 MiB."""
    transfer_pause: float = attrs.field(default=0.03, validator=validators.ge(0))
    """Seconds that a master that has sent everything waits before it sends more, so that small messages travel
    together. Java's asynchronous master checks every 100 ms; without a pause each single send would wake up the slave,
    and with 10 ms a slave needs half as much time again for each message of a batch. The master does not pause while
    puts wait for slaves, or readers wait for what slaves confirm."""
    full_history_start: bool = True
    """Whether an empty slave gets everything from the master's first byte; otherwise it gets the last file, as from
    Apache."""
    acknowledge: Literal["memory", "disk"] = attrs.field(
        default="memory", validator=validators.in_(("memory", "disk"))
    )
    """What a slave reports: what it has in memory, as Apache's slaves do, or what its disk has."""
    reconnect_pause: float = attrs.field(default=0.5, validator=validators.gt(0))
    """Seconds to pause after a slave lost its master; doubles up to `longest_reconnect_pause`."""
    longest_reconnect_pause: float = attrs.field(default=5.0, validator=validators.gt(0))
    """The longest pause in seconds; Java's slaves always wait this long."""
