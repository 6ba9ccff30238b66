"""The file in which a server keeps users and their rights itself: `config/rocketrioUsers.json`.

    {"acls":[{"policies":[...],"subject":"User:u"}],
     "dataVersion":{"counter":1,"timestamp":1700000000000},
     "globalWhiteRemoteAddresses":[],
     "users":[{"secretKeys":["new","old"],"userStatus":"enable","userType":"Normal","username":"u"}]}

A slave copies the same text from its master. A user that 4.x's requests gave an address has `whiteRemoteAddress`.

Invariant: an error names the file and what is wrong in it, and shows no secret.
"""

from collections.abc import Sequence
from typing import Final

import attrs
import msgspec

from rocketrio_protocol.access.model import (
    SECRETS_LIMIT,
    USERS_LIMIT,
    AccessTable,
    User,
    secret_problem,
    user_name_problem,
)
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.access.wire_forms import (
    SUBJECT_PREFIX,
    acl_info,
    changed_user,
    merged_acl,
    user_info,
)
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.access import AclInfo, UserInfo
from rocketrio_protocol.bodies.topics import DataVersion
from rocketrio_protocol.errors import ConfigError, RemoteProtocolError
from rocketrio_protocol.frame import BODY_SIZE_LIMIT, Body

FILE_NAME: Final = "rocketrioUsers.json"
FILE_SIZE_LIMIT: Final = BODY_SIZE_LIMIT
"""The most bytes of the file: a slave copies it in one answer."""


class _StoredUser(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    username: str
    secret_keys: list[str]
    user_type: str | None = None
    user_status: str | None = None
    white_remote_address: str | None = None

    def __repr__(self) -> str:
        return f"<_StoredUser {self.username}>"


class _UsersFile(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    users: list[_StoredUser]
    acls: list[AclInfo] = []
    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    global_white_remote_addresses: list[str] = []


@attrs.frozen
class VersionedUsers:
    """A table of users with the version of its last change."""

    table: AccessTable = attrs.field(factory=AccessTable)
    version: DataVersion = attrs.field(factory=DataVersion)


def decode_users(content: Body, where: str) -> VersionedUsers:
    """Decode the content of the file `where`. Raises ConfigError that names the file and what is wrong."""
    try:
        file = fastjson.loads(content, _UsersFile, what=where, lenient=False)
    except RemoteProtocolError as error:
        raise ConfigError(f"{where} cannot be used: {error.what}") from error
    try:
        users: dict[str, User] = {}
        for stored in file.users:
            if stored.username in users:
                raise ConfigError(f"the user {stored.username} is there a second time")
            users[stored.username] = _user(stored)
        if len(users) > USERS_LIMIT:
            raise ConfigError(f"there are more than {USERS_LIMIT} users")
        for acl in file.acls:
            name = (acl.subject or "").removeprefix(SUBJECT_PREFIX)
            if name not in users:
                raise ConfigError(f"the policies of {acl.subject} belong to no user")
            users[name] = merged_acl(users[name], acl)
        white = _patterns(file.global_white_remote_addresses)
    except ConfigError as error:
        raise ConfigError(f"{where} cannot be used: {error.what}") from error
    return VersionedUsers(AccessTable(users, white), file.data_version)


def encode_users(users: VersionedUsers) -> bytes:
    """Encode the content of the file. Raises ConfigError if it is too large."""
    table = users.table
    stored = [
        _StoredUser(
            user.name,
            [secret.decode() for secret in user.secrets],
            user_info(user).user_type,
            user_info(user).user_status,
            ",".join(each.text for each in user.white) or None,
        )
        for user in table.users.values()
    ]
    acls = [acl for user in table.users.values() if (acl := acl_info(user)) is not None]
    white = [each.text for each in table.white]
    content = fastjson.dumps_pretty(_UsersFile(stored, acls, users.version, white))
    if len(content) > FILE_SIZE_LIMIT:
        raise ConfigError(f"The users and their policies need more than {FILE_SIZE_LIMIT} bytes")
    return content


def _user(stored: _StoredUser) -> User:
    name = stored.username
    problem = user_name_problem(name)
    if problem is None and not 1 <= len(stored.secret_keys) <= SECRETS_LIMIT:
        problem = f"it has {len(stored.secret_keys)} secretKeys, not 1 to {SECRETS_LIMIT}"
    for secret in stored.secret_keys:
        problem = problem or secret_problem(secret)
    if problem is not None:
        raise ConfigError(f"the user {name[:100]!r}: {problem}")
    white = stored.white_remote_address or ""
    user = User(
        name,
        tuple(secret.encode() for secret in stored.secret_keys),
        white=AddressPattern.parse_all(white) if white else (),
    )
    return changed_user(user, UserInfo(user_type=stored.user_type, user_status=stored.user_status))


def _patterns(texts: Sequence[str]) -> tuple[AddressPattern, ...]:
    return tuple(pattern for text in texts for pattern in AddressPattern.parse_all(text))
