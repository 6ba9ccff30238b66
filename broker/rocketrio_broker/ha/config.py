"""The settings of replication, with RocketMQ's names and defaults; times in seconds, sizes in bytes.

Answers to: the ha* members of MessageStoreConfig; RocketMQ reference, section 6.2.
"""

from typing import Literal

import attrs
from attrs import validators

from rocketrio_protocol.ha.stream import TRANSFER_SIZE_LIMIT


@attrs.frozen(kw_only=True)
class HAConfig:
    """How logs are copied from master to slave."""

    send_heartbeat_interval: float = attrs.field(default=5.0, validator=validators.gt(0))
    """Silence of its own after which an end speaks (haSendHeartbeatInterval)."""
    housekeeping_interval: float = attrs.field(default=20.0, validator=validators.gt(0))
    """Silence of the other end after which the connection is dropped (haHousekeepingInterval)."""
    transfer_batch_size: int = attrs.field(
        default=1024 * 1024,
        validator=[validators.ge(1), validators.le(TRANSFER_SIZE_LIMIT)],
    )
    """Most bytes of one transfer (haTransferBatchSize, 32 KiB in Java). A slave that is behind is fed in such blocks;
    Apache's slaves take up to 4 MiB."""
    transfer_pause: float = attrs.field(default=0.03, validator=validators.ge(0))
    """How long a master that has sent everything waits for more to send: it travels together. Java's asynchronous
    master looks every 100 ms; without a pause single sends would cost a wake-up of the slave each, and with 10 ms a
    slave spends half as much again on each message of a batch. There is none while puts wait for slaves, or readers
    for what slaves confirm."""
    full_history_start: bool = True
    """Whether an empty slave gets everything from the master's first byte; otherwise the last file, as Apache does."""
    acknowledge: Literal["memory", "disk"] = attrs.field(
        default="memory", validator=validators.in_(("memory", "disk"))
    )
    """What a slave reports: what it holds, as Apache's do, or what its disk has."""
    reconnect_pause: float = attrs.field(default=0.5, validator=validators.gt(0))
    """Pause after a slave lost its master; doubles up to `longest_reconnect_pause`."""
    longest_reconnect_pause: float = attrs.field(default=5.0, validator=validators.gt(0))
    """What Java's slaves always wait."""
