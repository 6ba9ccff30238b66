"""Errors of a data directory, with the action that an operator should take."""

from rocketrio_protocol.errors import Error


class StoreError(Error):
    """The data directory cannot be used."""


class StoreLockedError(StoreError):
    """Another broker uses the data directory."""

    remedy = "Stop the other broker, or give this one a data directory of its own"


class StoreLinkedError(StoreError):
    """The data directory contains symbolic links, so what is written could end up anywhere."""

    remedy = "Put there what the link leads to, or mount it there; the data directory itself may be a link"


class StoreDamagedError(StoreError):
    """The files are in a state that no crash causes: something else changed the directory."""

    remedy = "Restore the directory from a copy, or start with an empty one and let it replicate"


class SyncFailedError(StoreError):
    """The disk did not take what was written; only the next recovery can find out what the disk has."""

    remedy = (
        "Check the disk, then start the broker again: recovery finds what is there. Nothing that was"
        " acknowledged as flushed is affected"
    )


class NotOpenedError(StoreError):
    """The disk failed while the broker recovered the data directory."""

    remedy = "Make room on the disk, or check whether it fails; nothing was lost"


class NotClosedError(StoreError):
    """The store could not be closed cleanly; its directory stays marked as crashed."""

    remedy = "Nothing is lost by that: the next start recovers, once the disk takes writes again"


class LogDamagedError(StoreDamagedError):
    """The commit log holds something that is not a record, where a record was stored."""

    remedy = (
        "On a slave, start the broker again: recovery cuts the log there and the master sends the rest again; "
        "on a master, put a slave's copy of the data directory in its place"
    )

    def __init__(self, physical_offset: int, problem: str) -> None:
        super().__init__(f"the commit log is damaged at {physical_offset}: {problem}")
        self.physical_offset = physical_offset
        """Everything before this address is whole."""
        self.problem = problem
