"""Reads the files of access control that an operator writes: `acl_file`, which may be several files and folders.

    *.yml, *.yaml    accounts of 4.x (plain_acl.py)
    *.json           users and policies, in the form of our own file (users_file.py)

Of a user that two files have, the first file counts; the files of a folder come in the order of their names.

Invariant: a file that others may read is refused, because it holds secrets.
Answers to: PlainPermissionManager.load.
"""

import logging
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs

from rocketrio_broker.access.users_file import decode_users
from rocketrio_protocol.access.model import USERS_LIMIT, AccessTable, User
from rocketrio_protocol.access.plain_acl import FILE_SIZE_LIMIT, parse_plain_acl
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.private_files import read_private

logger = logging.getLogger("rocketrio_broker.access")

FILES_LIMIT: Final = 100
"""The most files of a server."""
_SUFFIXES: Final = (".yml", ".yaml", ".json")

Contents = tuple[tuple[Path, bytes], ...]


def acl_paths(text: str) -> tuple[Path, ...]:
    """Return the paths in a setting that separates them by `;`."""
    return tuple(Path(part.strip()) for part in text.split(";") if part.strip())


def read_acl_files(paths: Sequence[Path]) -> Contents:
    """Return the contents of files, and of all files in folders; blocks.

    Raises ConfigError for a file that cannot be read, is too large, or is open to others.
    """
    files: list[Path] = []
    for path in paths:
        files += _files_in(path) if path.is_dir() else [path]
    if len(files) > FILES_LIMIT:
        raise ConfigError(f"acl_file means {len(files)} files, more than {FILES_LIMIT}")
    if not files:
        raise ConfigError(
            f"acl_file {'; '.join(map(str, paths))} has no file",
            remedy=f"Its files end in {', '.join(_SUFFIXES)}",
        )
    return tuple(
        (path, read_private(path, f"acl_file {path}", size_max=FILE_SIZE_LIMIT)) for path in files
    )


def fingerprint(contents: Contents) -> bytes:
    """Return what distinguishes these contents from others."""
    digest = blake2b()
    for path, content in contents:
        digest.update(f"{path}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()


def parse_acl_files(contents: Contents) -> AccessTable:
    """Return the users of all files. Raises ConfigError that names the file, and the line or the user."""
    users: dict[str, User] = {}
    white: list[AddressPattern] = []
    for path, content in contents:
        is_json = path.suffix == ".json"
        table = (
            decode_users(content, str(path)).table if is_json else parse_plain_acl(content, path)
        )
        twice = sorted(table.users.keys() & users.keys())
        if twice:
            logger.warning(
                "users are in two files, the first counts file=%s count=%d first=%s",
                path, len(twice), twice[0],
            )  # fmt: skip
        # The first file counts: users that are there already replace those of this one.
        users = {**table.users, **users}
        white += table.white
    if len(users) > USERS_LIMIT:
        raise ConfigError(f"acl_file has more than {USERS_LIMIT} users")
    return AccessTable(users, tuple(white))


@attrs.frozen
class UsersCount:
    """The number of users of a table, for logs and `rocketrio-broker check`; logs never show more."""

    users: int
    super_users: int
    disabled: int
    entries: int
    white_addresses: int

    @classmethod
    def of(cls, table: AccessTable) -> "UsersCount":
        users = table.users.values()
        return cls(
            users=len(users),
            super_users=sum(user.is_super for user in users),
            disabled=sum(not user.is_enabled for user in users),
            entries=sum(len(user.custom) + len(user.default) for user in users),
            white_addresses=len(table.white) + sum(len(user.white) for user in users),
        )

    def __str__(self) -> str:
        return (
            f"users={self.users} super={self.super_users} disabled={self.disabled} "
            f"entries={self.entries} white_addresses={self.white_addresses}"
        )


def _files_in(folder: Path) -> list[Path]:
    # Kubernetes keeps the former versions of a mounted secret beside it, in folders that begin with two dots.
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in _SUFFIXES
        and not any(part.startswith("..") for part in path.relative_to(folder).parts)
        and path.is_file()
    )
