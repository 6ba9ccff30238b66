"""Faults of this program that show while it serves one connection: counted, and logged once in a while.

Whatever a peer sends may meet a bug, or the end of memory or of the stack. The owner of the connection then calls
`note` and closes it, and nothing else ends.

Unlike Java: there Netty's exceptionCaught closes the channel and logs each time.
"""

from rocketrio_protocol.remoting.rare_log import RareLog


class ConnectionFaults:
    """Counts the connections of a server or a pool that a fault here has ended."""

    def __init__(self) -> None:
        self.count = 0
        self._rare_log = RareLog()

    def __repr__(self) -> str:
        return f"<ConnectionFaults {self.count}>"

    def note(self, peer: str, fault: Exception) -> None:
        """Count a fault, and log it with its traceback if none was logged in the last minute."""
        self.count += 1
        self._rare_log.error(
            "a fault of this program ended a connection peer=%s error=%s",
            peer,
            type(fault).__name__,
            exc_info=fault,
        )
