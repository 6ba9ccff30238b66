"""Tells systemd when this process serves and when it stops, where a unit has `Type=notify` (sd_notify(3))."""

import os
import socket
from contextlib import suppress
from typing import Final

READY: Final = "READY=1"
STOPPING: Final = "STOPPING=1"


def tell_service_manager(state: str) -> None:
    """Send a state to the manager that started this process; do nothing without one.

    A manager that is gone or does not read is no reason to fail or to wait.
    """
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.setblocking(False)
        manager.connect("\0" + address[1:] if address.startswith("@") else address)
        manager.send(state.encode())
