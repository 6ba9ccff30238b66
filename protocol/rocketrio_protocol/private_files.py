"""Reads files that hold secrets, and refuses those that other users of the machine may read.

A file of root may be read by its group too, as PostgreSQL has it: root chose that group, and Kubernetes mounts secrets
so (root:fsGroup, 0440) for a process of another user, which could not read a file of root's alone.

Invariant: the text of an error names the file and never what is in it.
"""

import os
import stat
from pathlib import Path
from typing import Final

from rocketrio_protocol.errors import ConfigError

_OTHERS: Final = 0o077
_ROOT: Final = 0


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
    """Raise ConfigError if others than the owner may read or write the file, an open one or a path.

    If root owns it, and this process is of another user, its group may read it.
    """
    found = os.stat(file)
    mode = found.st_mode
    if mode & _open_bits(found.st_uid, os.geteuid()):
        raise ConfigError(
            f"{what} is open to others (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 600 {path}; if others may have read it, make a new one",
        )


def _open_bits(owner: int, user: int) -> int:
    """Return the bits of a mode that open a file to others."""
    return _OTHERS & ~stat.S_IRGRP if owner == _ROOT != user else _OTHERS
