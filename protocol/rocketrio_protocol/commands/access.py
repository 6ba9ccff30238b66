"""Headers of the requests that administer access control: 50 to 53 of 4.x, 3001 to 3010 of 5.x, and a copy for slaves.

Bodies are in `bodies/access.py`.

Answers to: CreateAccessConfigRequestHeader and its neighbours (4.x), CreateUserRequestHeader and its neighbours (5.x).
"""

from typing import ClassVar

import msgspec

from rocketrio_protocol.bodies.access import AclInfo, UserInfo
from rocketrio_protocol.codes import RequestCode
from rocketrio_protocol.headers import AnswerBody, Header, RequestHeader, json_body, optional


class UpdateAccessConfigRequestHeader(RequestHeader):
    """Create or change an account of 4.x; permissions are `topicA=PUB,topicB=SUB`."""

    code: ClassVar = RequestCode.UPDATE_AND_CREATE_ACL_CONFIG
    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        """Return the fields without the secret, wherever a header is printed."""
        shown = msgspec.structs.asdict(self) | {"secret_key": "..."}
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({fields})"


class DeleteAccessConfigRequestHeader(RequestHeader):
    """Remove an account of 4.x."""

    code: ClassVar = RequestCode.DELETE_ACL_CONFIG
    access_key: str


class GetAccessConfigVersionResponseHeader(Header):
    """`version` is a DataVersion as JSON; `all_acl_file_version` has one for each file, by its path."""

    version: str
    all_acl_file_version: str | None = None
    broker_name: str | None = None
    broker_addr: str | None = None
    cluster_name: str | None = None


class GetAccessConfigVersionRequestHeader(RequestHeader):
    """Get the version of the accounts."""

    code: ClassVar = RequestCode.GET_BROKER_CLUSTER_ACL_INFO
    answers: ClassVar = GetAccessConfigVersionResponseHeader


class UpdateGlobalWhiteAddressesRequestHeader(RequestHeader):
    """Replace the addresses from which requests need no signature, separated by commas."""

    code: ClassVar = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    addresses: str = msgspec.field(name="globalWhiteAddrs")
    file: str | None = msgspec.field(name="aclFileFullPath", default=None)


class CreateUserRequestHeader(RequestHeader):
    """Create a user; the body is UserInfo."""

    code: ClassVar = RequestCode.AUTH_CREATE_USER
    username: str


class UpdateUserRequestHeader(RequestHeader):
    """Change a user's password, type or status; the body is UserInfo."""

    code: ClassVar = RequestCode.AUTH_UPDATE_USER
    username: str


class DeleteUserRequestHeader(RequestHeader):
    """Remove a user and its policies."""

    code: ClassVar = RequestCode.AUTH_DELETE_USER
    username: str


class GetUserRequestHeader(RequestHeader):
    """Get one user; the answer's body is UserInfo, or empty."""

    code: ClassVar = RequestCode.AUTH_GET_USER
    body: ClassVar = optional(AnswerBody(UserInfo.from_json))
    username: str


class ListUsersRequestHeader(RequestHeader):
    """Get the users whose names contain `filter`; the answer's body is a list of UserInfo."""

    code: ClassVar = RequestCode.AUTH_LIST_USER
    body: ClassVar = optional(json_body(list[UserInfo], what="users"))
    filter: str | None = None


class CreateAclRequestHeader(RequestHeader):
    """Add policies to a subject, `User:name`; the body is AclInfo."""

    code: ClassVar = RequestCode.AUTH_CREATE_ACL
    subject: str


class UpdateAclRequestHeader(RequestHeader):
    """Change policies of a subject; the body is AclInfo."""

    code: ClassVar = RequestCode.AUTH_UPDATE_ACL
    subject: str


class DeleteAclRequestHeader(RequestHeader):
    """Remove the policies of a subject: for one resource, or all."""

    code: ClassVar = RequestCode.AUTH_DELETE_ACL
    subject: str
    policy_type: str | None = None
    resource: str | None = None


class GetAclRequestHeader(RequestHeader):
    """Get the policies of a subject; the answer's body is AclInfo, or empty."""

    code: ClassVar = RequestCode.AUTH_GET_ACL
    body: ClassVar = optional(AnswerBody(AclInfo.from_json))
    subject: str


class ListAclsRequestHeader(RequestHeader):
    """Get the policies whose subject and resource contain these texts; the answer's body is a list of AclInfo."""

    code: ClassVar = RequestCode.AUTH_LIST_ACL
    body: ClassVar = optional(json_body(list[AclInfo], what="rights"))
    subject_filter: str | None = None
    resource_filter: str | None = None


class GetSealedUsersResponseHeader(Header):
    """The version of the users in the body, which is empty if the slave has this version, and if a file has them."""

    version: str | None = None


class GetSealedUsersRequestHeader(RequestHeader):
    """Ask a rocketrio master for its users with their secrets, if they are not those of `version` (sent by slaves)."""

    code: ClassVar = RequestCode.GET_SEALED_USERS
    answers: ClassVar = GetSealedUsersResponseHeader
    version: str | None = None
    link: str | None = None
    """The name of the replication link whose key seals the answer; None for a link without a secret."""
    nonce: str = ""
    """Random text, which the seal covers, so that no other answer passes for this one."""
