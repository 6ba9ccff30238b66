"""The single requests about users and their rights, each to a given address.

Answers to: the part of MQClientAPIImpl for ACL 2.0 (5.x), and for plain_acl.yml (4.x).
"""

import attrs

from rocketrio.cluster.api import ClientAPI
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.access import AclInfo, UserInfo
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands.access import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAccessConfigVersionRequestHeader,
    GetAccessConfigVersionResponseHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAccessConfigRequestHeader,
    UpdateGlobalWhiteAddressesRequestHeader,
    UpdateUserRequestHeader,
)
from rocketrio_protocol.headers import RequestHeader


@attrs.define
class AccessCalls:
    """One method for each request. All raise NotReachableError, RequestTimeoutError, BrokerError, RemoteProtocolError.

    Brokers without the request raise RequestCodeNotSupportedError: those of 4.x know accounts, those of 5.x users.
    """

    api: ClientAPI
    timeout: float

    # ------------------------------------------------------------------------------ users of 5.x

    async def create_user(self, addr: str, user: UserInfo) -> None:
        """Create a user; its body has name, password and type."""
        header = CreateUserRequestHeader(username=user.username or "")
        await self._change(addr, header, f"user {user.username} not created", user.to_json())

    async def update_user(self, addr: str, user: UserInfo) -> None:
        """Change what the body gives of a user."""
        header = UpdateUserRequestHeader(username=user.username or "")
        await self._change(addr, header, f"user {user.username} not changed", user.to_json())

    async def delete_user(self, addr: str, name: str) -> None:
        """Remove a user and its policies."""
        await self._change(addr, DeleteUserRequestHeader(username=name), f"user {name} not deleted")

    async def user(self, addr: str, name: str) -> UserInfo | None:
        """Return a user without the password, which Apache's brokers send along; None for an unknown one."""
        answer = await self._ask(addr, GetUserRequestHeader(username=name), f"user {name} not read")
        return _without_password(UserInfo.from_json(answer.body)) if answer.body else None

    async def users(self, addr: str, name_part: str) -> list[UserInfo]:
        """Return the users whose names contain a text, without their passwords."""
        answer = await self._ask(addr, ListUsersRequestHeader(name_part or None), "users not read")
        if not answer.body:
            return []
        found = fastjson.loads(answer.body, list[UserInfo], what="users")
        return [_without_password(user) for user in found]

    # --------------------------------------------------------------------------- policies of 5.x

    async def create_acl(self, addr: str, acl: AclInfo) -> None:
        """Add policies to those of a subject; an entry replaces the one for the same resource."""
        header = CreateAclRequestHeader(subject=acl.subject or "")
        await self._change(addr, header, f"rights of {acl.subject} not changed", acl.to_json())

    async def delete_acl(
        self, addr: str, subject: str, policy_type: str | None, resource: str | None
    ) -> None:
        """Remove the policies of a subject for one resource, or all."""
        header = DeleteAclRequestHeader(subject, policy_type, resource)
        await self._change(addr, header, f"rights of {subject} not removed")

    async def acl(self, addr: str, subject: str) -> AclInfo | None:
        """Return the policies of a subject; None if there are none."""
        answer = await self._ask(addr, GetAclRequestHeader(subject), f"rights of {subject} unread")
        return AclInfo.from_json(answer.body) if answer.body else None

    async def acls(self, addr: str, subject_part: str, resource_part: str) -> list[AclInfo]:
        """Return the policies whose subject and resource contain these texts."""
        header = ListAclsRequestHeader(subject_part or None, resource_part or None)
        answer = await self._ask(addr, header, "rights not read")
        if not answer.body:
            return []
        return fastjson.loads(answer.body, list[AclInfo], what="rights")

    # --------------------------------------------------------------------------- accounts of 4.x

    async def update_account(self, addr: str, account: UpdateAccessConfigRequestHeader) -> None:
        """Create or change an account; Apache's brokers want both keys for any change."""
        await self._change(addr, account, f"account {account.access_key} not changed")

    async def delete_account(self, addr: str, access_key: str) -> None:
        """Remove an account."""
        header = DeleteAccessConfigRequestHeader(access_key)
        await self._change(addr, header, f"account {access_key} not deleted")

    async def account_version(self, addr: str) -> GetAccessConfigVersionResponseHeader:
        """Return the version of the accounts, as text in JSON."""
        answer = await self._ask(addr, GetAccessConfigVersionRequestHeader(), "version not read")
        return answer.header(GetAccessConfigVersionResponseHeader)

    async def set_white_addresses(self, addr: str, addresses: str, file: str | None) -> None:
        """Replace the addresses from which requests need no signature, separated by commas."""
        header = UpdateGlobalWhiteAddressesRequestHeader(addresses, file)
        await self._change(addr, header, "addresses not changed")

    async def _change(
        self, addr: str, header: RequestHeader, what: str, body: bytes = b""
    ) -> RemotingCommand:
        return await self.api.call(addr, header, body, what=what, timeout=self.timeout)

    async def _ask(self, addr: str, header: RequestHeader, what: str) -> RemotingCommand:
        return await self.api.call(addr, header, what=what, timeout=self.timeout)


def _without_password(user: UserInfo) -> UserInfo:
    return UserInfo(user.username, None, user.user_type, user.user_status)
