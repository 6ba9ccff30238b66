"""The states and statistics of a slave's replication, for operators.

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
"""The state of the client while it pauses after each of these problems."""


@attrs.frozen
class HAClientStatistics:
    """A slave's view of its replication."""

    state: HAClientState
    master_ha_addr: str | None
    max_physical_offset: int
    master_offset: int
    """The greatest address that the master is known to have reached, from its transfers; never below this slave's own
    end."""
    bytes_received: int
    connection_count: int
    """How often the slave has connected since it started."""
    connected_since_ms: int | None
    local_addr: str | None
    """The address of this end of the connection, by which the master knows this slave; None without a connection."""
    last_transfer_age: float | None
    """Seconds since the master last sent something, at least a heartbeat; None before its first transfer."""
    last_report_age: float | None
    """Seconds since the last report to the master."""
    last_problem: str | None
    """Why the last connection ended or could not be made; None once transfers continue."""
    verified_offset: int | None
    """The address up to which the log is equal to the connected master's; None without a connection."""
    beyond: Beyond | None
    """What this log has, the master lacks, and only an operator's setting may cut off; None if there is nothing."""
