"""Reads files that hold secrets, and refuses those that other users of the machine may read.

Invariant: the text of an error names the file and never what is in it.
"""

import os
import stat
from pathlib import Path
from typing import Final

from rocketrio_protocol.errors import ConfigError

_OTHERS: Final = 0o077


def read_private(
    path: Path, what: str, *, size_max: int, remedy: str = "Name another file"
) -> bytes:
    """Return the content of a file that is at most `size_max` bytes long; blocks.

    `what` describes the file in errors: "ha_secret_file /etc/secret". Raises ConfigError for a file that cannot be
    read, is open to others, or is longer, which means that another file was named by mistake; `remedy` is the advice
    then.
    """
    try:
        with path.open("rb") as file:
            check_private(file.fileno(), what, path)
            content = file.read(size_max + 1)
    except OSError as error:
        raise ConfigError(f"{what} cannot be read: {error.strerror}") from error
    if len(content) > size_max:
        raise ConfigError(f"{what} holds more than {size_max} bytes", remedy=remedy)
    return content


def check_private(file: int | Path, what: str, path: Path) -> None:
    """Raise ConfigError if others than the owner may read or write the file, an open one or a path."""
    mode = os.stat(file).st_mode
    if mode & _OTHERS:
        raise ConfigError(
            f"{what} is open to others (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}; if others may have read it, make a new one",
        )
