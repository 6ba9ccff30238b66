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
