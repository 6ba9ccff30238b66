"""Why replication with a peer cannot continue: a different history, deleted bytes, a peer that sends wrong data."""

from rocketrio_protocol.errors import Error, NotReachableError


class ReplicationError(Error):
    """Two logs do not fit together; the connection is closed."""


class SlaveAheadError(ReplicationError):
    """A slave reported bytes that this master does not have."""

    remedy = (
        "The slave follows another history, or this master lost its tail in a power cut. A rocketrio slave logs which "
        "of the two it is, and what to set. For any other slave, if the master is right, "
        "empty the slave's data directory: it copies everything again"
    )


class SlaveTooFarBehindError(ReplicationError):
    """A slave asks for bytes that this master has deleted."""

    remedy = (
        "Empty the slave's data directory: it then copies everything from the master's first byte; "
        "raise file_reserved_time on the master to bridge longer absences of a slave"
    )


class HistoryMismatchError(ReplicationError):
    """A master sends from an address that is not the end of the slave's log."""

    remedy = (
        "The logs have different histories. If the master is right, "
        "empty this slave's data directory: it copies everything again"
    )


class FileSizeMismatchError(ReplicationError):
    """A master's transfer does not fit into the slave's files."""

    remedy = "Set mapped_file_size_commit_log on the slave to the master's value, and empty its data directory"


class NoRecordError(ReplicationError):
    """A master sends something that is not a record, where a record must begin."""

    remedy = (
        "Nothing of it was stored. Check that the address is that of the master's replication port, "
        "and that master's log: this slave serves what it has meanwhile"
    )


class DamagedSourceError(ReplicationError):
    """A slave asks for bytes that lie behind damage in this broker's log."""

    remedy = "This broker's log says why when it was found; put a whole copy of the data directory in place"


class LinkRefusedError(ReplicationError):
    """The other end of a replication connection did not prove that it may have this connection."""


class NotFollowedError(ReplicationError):
    """A slave asks to follow a broker that is not the master of its name, or does not know yet whether it is."""

    remedy = "The slave follows the master as soon as a name server, or another broker, names it"


class EpochEndedError(ReplicationError):
    """A connection has ended because its slave must receive other epochs, or has another connection."""

    remedy = ""


class AskedOnlyError(ReplicationError):
    """A broker that becomes master has asked for the state of this log, and needs nothing more."""

    remedy = ""


class SilentPeerError(NotReachableError):
    """The other end sent or took nothing for too long."""

    remedy = "Check the other process and the network between"


class AskAgainError(ReplicationError):
    """Nothing is known yet: the slave must ask the same master from another address."""

    remedy = ""


class EqualHistoryError(AskAgainError):
    """The bytes of two logs without a common epoch are equal: the next connection knows the epochs."""


class DivergedHistoryError(ReplicationError):
    """Two masters wrote this log and the master's from some address on."""

    remedy = (
        "What lies here from there on no longer has a master. Set ha_divergent_tail to cut (also while the broker "
        "runs) to put it aside in the data directory's folder `cut` and to follow this master; if this log is the "
        "right one, make this broker the master instead"
    )

    def __init__(self, message: str, *, broker_addr: str, cut_at: int) -> None:
        super().__init__(message, broker_addr=broker_addr)
        self.cut_at = cut_at
        """The last beginning of a record before which both logs are equal."""


class BeyondBoundaryError(DivergedHistoryError):
    """The own log continues beyond the address up to which it and the master's are the same by their epochs."""

    remedy = (
        "If this log is the right one, make that master a slave and this broker master (rocketrio broker role). "
        "If not, set ha_divergent_tail to cut: the rest goes into the folder `cut`, and rocketrio broker cut sends it "
        "again"
    )

    def __init__(
        self, message: str, *, broker_addr: str, cut_at: int, epoch_count: int, why_kept: str | None
    ) -> None:
        super().__init__(message, broker_addr=broker_addr, cut_at=cut_at)
        self.epoch_count = epoch_count
        """The number of this log's epochs that remain after a cut."""
        self.why_kept = why_kept
        """Why the rest is not cut off automatically; None if no producer got PUT_OK for any of it."""


class UnfinishedMasterError(ReplicationError):
    """A master's log ends inside an epoch of which this log has more: the master has not begun another epoch yet."""

    remedy = (
        "It is followed once it takes writes; until then it may still get what it lacks from here"
    )


class NotLeadingError(Error):
    """A master that has not taken over, or that stands aside for another one, has tables that may lack something."""

    remedy = "Its tables are copied once it leads"


class AheadOfMasterError(ReplicationError):
    """A master's log ends before this one, and both are the same up to there."""

    remedy = (
        "The master lost its end, in a power cut perhaps, and did not get it back from here; restart it to let it ask "
        "again. With its next message the two differ"
    )


class MissingHistoryError(ReplicationError):
    """A master's log begins after the end of this one."""

    remedy = (
        "What lies between is deleted there. Set ha_missing_history to restart (also while the broker runs): this "
        "slave then drops its log and copies the master's from the first byte"
    )

    def __init__(self, message: str, *, broker_addr: str, is_reported: bool) -> None:
        super().__init__(message, broker_addr=broker_addr)
        self.is_reported = is_reported
        """Whether the master sent where its log begins; otherwise it only sends nothing, and may be empty."""


class NoRoomError(Error):
    """A slave's disk has no room for what its master sends."""

    remedy = "Make room on this broker's disk: replication then continues automatically"
