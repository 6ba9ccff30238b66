"""What a slave's end of replication is doing, for people: its states by name, and its numbers.

Answers to: HAConnectionState, HARuntimeInfo.HAClientRuntimeInfo.
"""

from enum import Enum
from typing import Final

import attrs

from rocketrio_broker.ha.beyond import Beyond
from rocketrio_broker.ha.errors import (
    AheadOfMasterError,
    BeyondBoundaryError,
    DivergedHistoryError,
    MissingHistoryError,
    UnfinishedMasterError,
)


class HAClientState(Enum):
    """What the client is doing."""

    WAITING_FOR_ADDRESS = "waiting for the master's address"
    CONNECTING = "connecting"
    VERIFYING = "comparing its log with the master's"
    FOLLOWING = "following"
    AHEAD = "ahead of the master, waiting"
    DIVERGED = "diverged from the master, refusing"
    BEYOND = "has what the master lacks, waiting for an operator"
    UNFINISHED = "waiting for the master to begin an epoch"
    MISSING_HISTORY = "behind the master's first byte, refusing"
    PAUSING = "pausing before the next attempt"


PROBLEM_STATES: Final[dict[type[object], HAClientState]] = {
    AheadOfMasterError: HAClientState.AHEAD,
    DivergedHistoryError: HAClientState.DIVERGED,
    BeyondBoundaryError: HAClientState.BEYOND,
    UnfinishedMasterError: HAClientState.UNFINISHED,
    MissingHistoryError: HAClientState.MISSING_HISTORY,
}
"""While it pauses after these problems."""


@attrs.frozen
class HAClientStatistics:
    """A slave's view of its replication."""

    state: HAClientState
    master_ha_addr: str | None
    max_physical_offset: int
    master_offset: int
    """The greatest address the master is known to have reached, from its transfers; never below our own."""
    bytes_received: int
    connection_count: int
    """How often the slave has connected since it started."""
    connected_since_ms: int | None
    local_addr: str | None
    """This end of the connection, by which the master knows this slave; None without one."""
    last_transfer_age: float | None
    """Seconds since the master last sent something, at least a heartbeat; None before it did."""
    last_report_age: float | None
    """Seconds since the last report to the master."""
    last_problem: str | None
    """Why the last connection ended or could not be made; None once transfers go on."""
    verified_offset: int | None
    """Up to here the log is equal to the connected master's; None without a connection."""
    beyond: Beyond | None
    """What lies here that the master lacks, and is not cut off without being asked for."""
