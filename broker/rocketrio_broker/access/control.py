"""The users of a running server: loaded at its start, loaded again when their files change, and changed by requests.

    acl_file                       users belong to files, which operators change; requests that change them are refused
    config/rocketrioUsers.json     users belong to this server; requests change them, a slave copies its master's
    inner_credentials_file         the account that signs what this server asks others; a Super user here

Invariant: the table is replaced as a whole, between two requests; a file that cannot be used leaves the old table.
Invariant: a change that was answered is on the disk.
Answers to: PlainPermissionManager.watch; LocalAuthenticationMetadataProvider, LocalAuthorizationMetadataProvider.
"""

import logging
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final

import attrs
import trio

from rocketrio_broker.access.files import (
    UsersCount,
    fingerprint,
    parse_acl_files,
    read_acl_files,
)
from rocketrio_broker.access.users_file import (
    FILE_NAME,
    VersionedUsers,
    decode_users,
    encode_users,
)
from rocketrio_broker.store.disk import Disk
from rocketrio_broker.tables.config_file import ConfigFile
from rocketrio_broker.waiting.watermark import Watermark
from rocketrio_protocol.access.model import AccessTable, User
from rocketrio_protocol.credentials import Credentials
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.remoting.ports import SystemWallClock, WallClock
from rocketrio_protocol.remoting.tasks import every
from rocketrio_protocol.signature import Signer

logger = logging.getLogger("rocketrio_broker.access")

RELOAD_INTERVAL: Final = 5.0
"""Seconds between two checks of the files, as in 4.x."""

NO_USERS: Final = (
    "every request is refused. Create the first user: start with "
    "inner_credentials_file, which names a Super user, and use it to create others (`rocketrio acl user create`)"
)


class InnerCredentials:
    """The account that signs what this server asks others."""

    def __init__(self, path: Path, *, disk: Disk, wall_clock: WallClock | None = None) -> None:
        """Read the file; blocks. Raises ConfigError. `wall_clock` gives the time of proofs."""
        self._path = path
        self._disk = disk
        self._problem = ""
        self.signer = Signer(self._read(), now_ms=(wall_clock or SystemWallClock()).now_ms)

    def __repr__(self) -> str:
        return f"<InnerCredentials {self.signer.credentials.access_key}>"

    @property
    def credentials(self) -> Credentials:
        return self.signer.credentials

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read the file again when it changes, until cancelled; `AccessControl` does so where there is one."""
        task_status.started()
        async for _ in every(RELOAD_INTERVAL, first_after=RELOAD_INTERVAL):
            await self.reload()

    async def reload(self) -> bool:
        """Read the file again; return whether the account is another. A file that cannot be used is logged."""
        try:
            credentials = await self._disk.run(self._read)
        except ConfigError as error:
            if str(error) != self._problem:
                logger.error("inner credentials not loaded, the former stay reason=%s", error)
            self._problem = str(error)
            return False
        self._problem = ""
        if credentials == self.credentials:
            return False
        self.signer.credentials = credentials
        logger.info("inner credentials loaded again user=%s", credentials.access_key)
        return True

    def _read(self) -> Credentials:
        return Credentials.from_file(self._path)


@attrs.frozen
class OperatorFiles:
    """Users that `acl_file` names."""

    paths: Sequence[Path]

    def read(self) -> tuple[bytes, Callable[[], VersionedUsers]]:
        """Return what identifies the content, and a function that parses it. Both block and raise ConfigError."""
        contents = read_acl_files(self.paths)
        return fingerprint(contents), lambda: VersionedUsers(parse_acl_files(contents))


@attrs.frozen
class OwnFile:
    """Users that the server itself keeps."""

    file: ConfigFile

    def read(self) -> tuple[bytes, Callable[[], VersionedUsers]]:
        """Return what identifies the content, and a function that parses it. Both block and raise ConfigError."""
        path, disk = self.file.path, self.file.disk
        if disk.exists(path) and disk.is_open_to_others(path):
            raise ConfigError(
                f"{path} is open to others", remedy=f"chmod 600 {path}, and change the passwords"
            )
        content = self.file.content()
        if content is None:
            return _digest(b""), VersionedUsers
        return _digest(content), lambda: decode_users(content, str(path))

    def write(self, users: VersionedUsers) -> bytes:
        """Write the users to the disk, and return what identifies this content.

        Raises ConfigError if they are too large, and ConfigFileError.
        """
        content = encode_users(users)
        self.file.write_bytes(content, safely=True)
        return _digest(content)


class AccessControl:
    """The current users of one server."""

    def __init__(
        self,
        source: OperatorFiles | OwnFile,
        *,
        disk: Disk,
        inner: InnerCredentials | None = None,
        white_addresses: bool = False,
    ) -> None:
        """Load the users; blocks. Raises ConfigError that names what is wrong, with its file."""
        self._source = source
        self._disk = disk
        self._inner = inner
        self._white_addresses = white_addresses
        self._problem = ""
        self.changes = Watermark()
        """Counts the replacements of the table."""
        self.is_copied = False
        """Whether these are the users of a master that this slave copies."""
        self._digest: str | None = None
        self._seen, parse = source.read()
        self._own = self._checked(parse())
        self.table = self._with_inner()
        if not self.table.users:
            logger.warning("access control is on and there is no user remedy=%s", NO_USERS)
        logger.info("users loaded count=%s", self.count)

    def __repr__(self) -> str:
        return f"<AccessControl {len(self.table.users)} users>"

    @property
    def count(self) -> UsersCount:
        return UsersCount.of(self.table)

    @property
    def is_managed_by_files(self) -> bool:
        """Whether only `acl_file` changes the users."""
        return isinstance(self._source, OperatorFiles)

    @property
    def own(self) -> VersionedUsers:
        """The users without the inner account, as files and slaves have them."""
        return self._own

    @property
    def file_names(self) -> Sequence[str]:
        """The files that hold the users."""
        if isinstance(self._source, OperatorFiles):
            return [str(path) for path in self._source.paths]
        return [str(self._source.file.path)]

    @property
    def inner_user(self) -> str | None:
        """The name of the inner account, which no request changes."""
        return None if self._inner is None else self._inner.credentials.access_key

    @property
    def allows_white_addresses(self) -> bool:
        """Whether addresses may replace signatures."""
        return self._white_addresses

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Load the files again when they change, until cancelled."""
        task_status.started()
        async for _ in every(RELOAD_INTERVAL, first_after=RELOAD_INTERVAL):
            await self.reload()

    async def reload(self) -> None:
        """Load the files again if they have changed. One that cannot be used is logged, and changes nothing."""
        if self._inner is not None and await self._inner.reload():
            self._replace(self._own)
        version = self._own.version
        try:
            seen, parse = await self._disk.run(self._source.read)
            if seen == self._seen:
                self._note_problem("")
                return
            users = self._checked(await self._disk.run(parse))
        except (ConfigError, OSError) as error:
            self._note_problem(str(error))
            return
        # The files were read in a thread: what a request has changed since then must not be undone.
        if self._own.version != version:
            return  # A request changed the users meanwhile; the next check decides.
        self._note_problem("")
        self._seen = seen
        self._replace(users)
        logger.info("users loaded again count=%s", self.count)

    def change(self, table: AccessTable, *, now_ms: int) -> None:
        """Replace the users as a request wants, and write them to the disk. Raises ConfigError, ConfigFileError."""
        self.keep(VersionedUsers(table, self._own.version.next_version(now_ms)))

    def keep(self, users: VersionedUsers) -> None:
        """Replace the users, and write them to the disk, in that version. Raises ConfigError, ConfigFileError."""
        assert isinstance(self._source, OwnFile), "operators change acl_file"
        # On the disk before it counts: a user that was removed must not be back after a power cut.
        self._seen = self._source.write(self._checked(users))
        self._replace(users)

    @property
    def digest(self) -> str:
        """What identifies the users to a slave, which asks for them only if they are others."""
        if self._digest is None:
            self._digest = _digest(encode_users(self._own)).hex()
        return self._digest

    def _replace(self, users: VersionedUsers) -> None:
        self._own, self._digest = users, None
        # Replaced as a whole: a request that is being checked sees the old table or the new one, and no mixture.
        self.table = self._with_inner()
        self.changes.advance(self.changes.value + 1)

    def _with_inner(self) -> AccessTable:
        """Return the users with the inner account, which is a Super user, as in Apache's 5.x."""
        table = self._own.table
        if self._inner is None:
            return table
        credentials = self._inner.credentials
        name, secret = credentials.access_key, credentials.secret_key.encode()
        known = table.users.get(name)
        others = () if known is None else tuple(each for each in known.secrets if each != secret)
        return table.with_user(User(name, (secret, *others[:1]), is_super=True))

    def _checked(self, users: VersionedUsers) -> VersionedUsers:
        if users.table.has_white_addresses and not self._white_addresses:
            raise ConfigError(
                f"{', '.join(self.file_names)} has addresses whose requests need no signature",
                remedy="Remove globalWhiteRemoteAddresses and whiteRemoteAddress, or set acl_white_addresses = true",
            )
        return users

    def _note_problem(self, problem: str) -> None:
        """Log a problem once, and its end."""
        if problem == self._problem:
            return
        if problem:
            logger.error("users not loaded, the former ones stay reason=%s", problem)
        else:
            logger.info("the files of users can be used again")
        self._problem = problem


def access_control(
    *,
    acl_paths: Sequence[Path],
    inner: InnerCredentials | None,
    white_addresses: bool,
    config_directory: Path | None,
    disk: Disk,
) -> AccessControl:
    """Return the users of a server: of `acl_paths`, or of its own file if there are none; blocks.

    Raises ConfigError.
    """
    source: OperatorFiles | OwnFile = OperatorFiles(acl_paths)
    if not acl_paths and config_directory is not None:
        source = OwnFile(ConfigFile(config_directory / FILE_NAME, disk=disk))
    return AccessControl(source, disk=disk, inner=inner, white_addresses=white_addresses)


def name_server_access(
    *,
    acl_paths: Sequence[Path],
    inner_credentials_file: Path | None,
    white_addresses: bool = False,
    disk: Disk,
) -> AccessControl | None:
    """Return the users of a name server, which never changes them; None without files. Blocks. Raises ConfigError."""
    if not acl_paths:
        return None
    inner = None
    if inner_credentials_file is not None:
        inner = InnerCredentials(inner_credentials_file, disk=disk)
    return access_control(
        acl_paths=acl_paths,
        inner=inner,
        white_addresses=white_addresses,
        config_directory=None,
        disk=disk,
    )


def _digest(content: bytes) -> bytes:
    return blake2b(content).digest()
