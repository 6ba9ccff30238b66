"""What can be wrong with a data directory, told so that somebody can act on it."""

from rocketrio_protocol.errors import Error


class StoreError(Error):
    """A data directory that cannot be used."""


class StoreLockedError(StoreError):
    """Another broker uses the data directory."""

    remedy = "Stop the other broker, or give this one a data directory of its own"


class StoreDamagedError(StoreError):
    """Files that no crash leaves behind: something else changed the directory."""

    remedy = "Restore the directory from a copy, or start with an empty one and let it replicate"


class LogDamagedError(StoreDamagedError):
    """The commit log holds something that is not a record, where a record was stored."""

    remedy = (
        "On a slave, start the broker again: recovery cuts the log there and the master sends the rest anew; "
        "on a master, put a slave's copy of the data directory in its place"
    )

    def __init__(self, physical_offset: int, problem: str) -> None:
        super().__init__(f"the commit log is damaged at {physical_offset}: {problem}")
        self.physical_offset = physical_offset
        """Everything before it is whole."""
        self.problem = problem
