"""Administration of access control: users and their rights on all brokers of a cluster, or on one.

    access = admin.access()
    await access.create_user("producer1", password)
    await access.grant("producer1", ["Topic:orders"], ["Pub"])

Apache's brokers do not share users: each one is changed, masters first. Slaves of rocketrio copy their master's.

Invariant: no value and no text has a password in it.
Invariant: no password is sent over a connection without TLS to another machine, unless `plain_passwords` permits it.
Invariant: a change is complete when every broker concerned has confirmed it; an error names the first that did not.
Answers to: DefaultMQAdminExt (createUser, createAcl, createAndUpdatePlainAccessConfig and their neighbours).
"""

import logging
from collections.abc import Sequence
from typing import Final, TypeVar

import attrs

from rocketrio.admin.cluster_questions import registered_brokers
from rocketrio.admin.subject import AdminSubject
from rocketrio_protocol.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from rocketrio_protocol.codes import MASTER_ID
from rocketrio_protocol.commands.access import (
    CreateAclRequestHeader,
    CreateUserRequestHeader,
    DeleteAccessConfigRequestHeader,
    DeleteAclRequestHeader,
    DeleteUserRequestHeader,
    GetAccessConfigVersionRequestHeader,
    GetAclRequestHeader,
    GetUserRequestHeader,
    ListAclsRequestHeader,
    ListUsersRequestHeader,
    UpdateAccessConfigRequestHeader,
    UpdateGlobalWhiteAddressesRequestHeader,
    UpdateUserRequestHeader,
)
from rocketrio_protocol.errors import (
    ConfigError,
    RequestCodeNotSupportedError,
    RouteNotFoundError,
    ServiceNotAvailableError,
)
from rocketrio_protocol.headers import RequestHeader
from rocketrio_protocol.remoting.ports import is_loopback

SUBJECT_PREFIX: Final = "User:"
ACTIONS: Final = ("All", "Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
"""What may be granted on a resource."""
CUSTOM, DEFAULT = "Custom", "Default"
"""The types of policies: entries of the first that match decide before all of the second."""

T = TypeVar("T")

logger = logging.getLogger("rocketrio.admin")


@attrs.frozen
class AccessUser:
    """A user as brokers show it."""

    name: str
    is_super: bool
    """Whether it may do everything."""
    is_enabled: bool
    brokers: tuple[str, ...] = ()
    """The addresses of the masters that have it so."""


@attrs.frozen
class AccessRight:
    """The decision about some actions of a user on one resource."""

    user: str
    resource: str
    """As `Topic:orders`, `Group:pay*`, `Cluster:*` or `*`."""
    actions: tuple[str, ...]
    is_allowed: bool = True
    source_ips: tuple[str, ...] = ()
    """Addresses and networks that requests must come from; empty for any."""
    policy: str = CUSTOM
    """`Custom`, or `Default` for what counts where no custom entry matches."""
    brokers: tuple[str, ...] = ()
    """The addresses of the masters that have it so."""


@attrs.define(eq=False)
class AccessAdmin(AdminSubject):
    """Users and rights of a cluster; `Admin.access` creates it.

    Brokers without access control of 5.x raise RequestCodeNotSupportedError; the methods for accounts are for those of
    4.x.
    """

    cluster: str | None = None
    """The cluster whose brokers are asked; None means all."""
    broker_addr: str | None = None
    """The only broker that is asked; None means all of the cluster."""
    plain_passwords: bool = False
    """Whether passwords are also sent over connections without TLS to other machines."""

    # ---------------------------------------------------------------------------------------- users

    async def users(self, name_part: str = "") -> list[AccessUser]:
        """Return the users whose names contain a text, by name."""
        found: dict[AccessUser, list[str]] = {}
        for addr in await self._masters():
            header = ListUsersRequestHeader(name_part or None)
            for info in await self.calls.read(addr, header, "users not read") or []:
                found.setdefault(_user(info), []).append(addr)
        users = [attrs.evolve(user, brokers=tuple(addrs)) for user, addrs in found.items()]
        return sorted(users, key=lambda user: user.name)

    async def user(self, name: str) -> list[AccessUser]:
        """Return how the masters have a user: nothing if none knows it, several if they differ."""
        found: dict[AccessUser, list[str]] = {}
        for addr in await self._masters():
            info = await self.calls.read(addr, GetUserRequestHeader(name), f"user {name} not read")
            if info is not None:
                found.setdefault(_user(info), []).append(addr)
        return [attrs.evolve(user, brokers=tuple(addrs)) for user, addrs in found.items()]

    async def create_user(self, name: str, password: str, *, is_super: bool = False) -> list[str]:
        """Create a user without rights; return the addresses of the brokers that have it.

        A broker that has it already refuses. Raises ConfigError if the password would go out in plain (`Admin.access`).
        """
        _check_name(name)
        user = UserInfo(name, password, _type(is_super), "enable")
        header, what = CreateUserRequestHeader(name), f"user {name} not created"
        return await self._each(header, what, user.to_json(), password_of=name)

    async def update_user(
        self,
        name: str,
        *,
        password: str | None = None,
        is_super: bool | None = None,
        is_enabled: bool | None = None,
    ) -> list[str]:
        """Change what is given of a user; return the addresses of the brokers that changed it.

        At a rocketrio broker a former password remains valid until the new one is given a second time. Raises
        ConfigError if the password would be sent in plain (`Admin.access`).
        """
        _check_name(name)
        if password is None and is_super is None and is_enabled is None:
            raise ConfigError("give one of password, is_super and is_enabled")
        changes = UserInfo(
            name,
            password,
            None if is_super is None else _type(is_super),
            None if is_enabled is None else "enable" if is_enabled else "disable",
        )
        return await self._each(
            UpdateUserRequestHeader(name),
            f"user {name} not changed",
            changes.to_json(),
            password_of=None if password is None else name,
        )

    async def delete_user(self, name: str) -> list[str]:
        """Remove a user and its rights; return the addresses of the brokers that did."""
        _check_name(name)
        return await self._each(DeleteUserRequestHeader(name), f"user {name} not deleted")

    # --------------------------------------------------------------------------------------- rights

    async def rights(self, user_part: str = "", resource_part: str = "") -> list[AccessRight]:
        """Return the rights of users and on resources whose names contain these texts."""
        found: dict[AccessRight, list[str]] = {}
        for addr in await self._masters():
            header = ListAclsRequestHeader(user_part or None, resource_part or None)
            for acl in await self.calls.read(addr, header, "rights not read") or []:
                for right in rights_in(acl):
                    found.setdefault(right, []).append(addr)
        return _sorted(found)

    async def rights_of(self, user: str) -> list[AccessRight]:
        """Return the rights of one user."""
        _check_name(user)
        found: dict[AccessRight, list[str]] = {}
        for addr in await self._masters():
            subject = SUBJECT_PREFIX + user
            header = GetAclRequestHeader(subject)
            acl = await self.calls.read(addr, header, f"rights of {subject} unread")
            for right in [] if acl is None else rights_in(acl):
                found.setdefault(right, []).append(addr)
        return _sorted(found)

    async def grant(
        self,
        user: str,
        resources: Sequence[str],
        actions: Sequence[str],
        *,
        source_ips: Sequence[str] = (),
        is_allowed: bool = True,
        policy: str = CUSTOM,
    ) -> list[str]:
        """Decide about actions of a user on resources, such as `Topic:orders`; return the brokers that took it.

        A right for the same resource and policy is replaced. With `is_allowed=False` the actions are forbidden.
        """
        rights = [
            AccessRight(user, each, tuple(actions), is_allowed, tuple(source_ips), policy)
            for each in resources
        ]
        return await self.grant_all(rights)

    async def grant_all(self, rights: Sequence[AccessRight]) -> list[str]:
        """Grant several rights of one user with one request to each broker."""
        for right in rights:
            _check_name(right.user)
            wrong = set(right.actions) - set(ACTIONS)
            if wrong or not right.actions:
                raise ConfigError(
                    f"actions {', '.join(sorted(wrong)) or 'none'} cannot be granted: use {', '.join(ACTIONS)}"
                )
        acl = acl_info(rights)
        header = CreateAclRequestHeader(acl.subject or "")
        return await self._each(header, f"rights of {acl.subject} not changed", acl.to_json())

    async def revoke(
        self, user: str, resource: str | None = None, *, policy: str | None = None
    ) -> list[str]:
        """Remove a user's rights on one resource, or all; return the brokers that did."""
        _check_name(user)
        subject = SUBJECT_PREFIX + user
        header = DeleteAclRequestHeader(subject, policy, resource)
        return await self._each(header, f"rights of {subject} not removed")

    # ----------------------------------------------------------------------------- accounts of 4.x

    async def update_account(self, account: UpdateAccessConfigRequestHeader) -> list[str]:
        """Create or change an account of 4.x; Apache's brokers want both keys for any change."""
        return await self._each(
            account,
            f"account {account.access_key} not changed",
            password_of=account.access_key if account.secret_key else None,
        )

    async def delete_account(self, access_key: str) -> list[str]:
        """Remove an account of 4.x."""
        header = DeleteAccessConfigRequestHeader(access_key)
        return await self._each(header, f"account {access_key} not deleted")

    async def account_versions(self) -> dict[str, str]:
        """Return the version of each broker's accounts by its address, in JSON: one for each file that holds some."""
        found = {}
        for addr in await self.broker_addrs():
            header = GetAccessConfigVersionRequestHeader()
            answer = await self.calls.ask(addr, header, "version not read")
            found[addr] = answer.all_acl_file_version or answer.version
        return found

    async def set_white_addresses(
        self, addresses: Sequence[str], *, file: str | None = None
    ) -> list[str]:
        """Replace the addresses from which requests to 4.x brokers need no signature and no rights at all."""
        header = UpdateGlobalWhiteAddressesRequestHeader(",".join(addresses), file)
        return await self._each(header, "addresses not changed")

    # ------------------------------------------------------------------------------------- brokers

    async def broker_addrs(self) -> list[str]:
        """Return the addresses that a change goes to, masters first. Raises RouteNotFoundError if there are none."""
        masters, slaves = await self._addrs()
        return masters + slaves

    async def _masters(self) -> list[str]:
        return (await self._addrs())[0]

    async def _addrs(self) -> tuple[list[str], list[str]]:
        if self.broker_addr is not None:
            return [self.broker_addr], []
        info = await registered_brokers(self.client)
        masters: list[str] = []
        slaves: list[str] = []
        for _, broker in sorted(info.broker_addr_table.items()):
            if self.cluster in (None, broker.cluster):
                for broker_id, addr in sorted(broker.broker_addrs.items()):
                    (masters if broker_id == MASTER_ID else slaves).append(addr)
        if not masters:
            where = "" if self.cluster is None else f" in cluster {self.cluster!r}"
            raise RouteNotFoundError(f"no master is registered{where}")
        return masters, slaves

    async def _each(
        self,
        change: RequestHeader,
        what: str,
        body: bytes = b"",
        *,
        password_of: str | None = None,
    ) -> list[str]:
        """Make a change at each broker; `password_of` is the user whose password the change has."""
        masters, slaves = await self._addrs()
        if password_of is not None and not self.plain_passwords:
            await self._refuse_plain(password_of, [*masters, *slaves])
        for addr in masters:
            await self.calls.ask(addr, change, what, body)
        changed = list(masters)
        for addr in slaves:
            try:
                await self.calls.ask(addr, change, what, body)
            except (ServiceNotAvailableError, RequestCodeNotSupportedError) as error:
                logger.info("slave copies users from its master addr=%s error=%s", addr, error)
            else:
                changed.append(addr)
        return changed

    async def _refuse_plain(self, user: str, addrs: Sequence[str]) -> None:
        """Raise ConfigError if a connection to one of these brokers is plain, and leaves this machine."""
        plain = []
        for addr in dict.fromkeys(addrs):
            channel = await self.client.pool.channel(addr, timeout=self.calls.timeout)
            if not channel.is_encrypted and not is_loopback(channel.remote_addr):
                plain.append(addr)
        if plain:
            raise ConfigError(
                f"the password of {user} would be sent in plain to {', '.join(plain)}",
                remedy="Use TLS (tls=, --tls-ca). Where you trust the network and know these addresses, "
                "plain_passwords=True or --plain sends it",
            )


def acl_info(rights: Sequence[AccessRight]) -> AclInfo:
    """Return rights of one user as requests have them."""
    [user] = {right.user for right in rights}
    policies: dict[str, PolicyInfo] = {}
    for right in rights:
        entry = PolicyEntryInfo(
            right.resource,
            list(right.actions),
            list(right.source_ips),
            "Allow" if right.is_allowed else "Deny",
        )
        policies.setdefault(right.policy, PolicyInfo(right.policy, [])).entries.append(entry)
    return AclInfo(SUBJECT_PREFIX + user, list(policies.values()))


def rights_in(acl: AclInfo) -> list[AccessRight]:
    """Return the rights that an answer has."""
    return [
        AccessRight(
            (acl.subject or "").removeprefix(SUBJECT_PREFIX),
            entry.resource or "",
            tuple(entry.actions),
            (entry.decision or "").lower() == "allow",
            tuple(entry.source_ips),
            policy.policy_type or CUSTOM,
        )
        for policy in acl.policies
        for entry in policy.entries
    ]


def _user(info: UserInfo) -> AccessUser:
    return AccessUser(
        info.username or "",
        is_super=(info.user_type or "").lower() == "super",
        is_enabled=(info.user_status or "enable").lower() != "disable",
    )


def _type(is_super: bool) -> str:
    return "Super" if is_super else "Normal"


def _sorted(found: dict[AccessRight, list[str]]) -> list[AccessRight]:
    rights = [attrs.evolve(right, brokers=tuple(addrs)) for right, addrs in found.items()]
    return sorted(rights, key=lambda right: (right.user, right.policy, right.resource))


def _check_name(name: str) -> None:
    if not name.strip() or ":" in name:
        raise ConfigError(f"{name!r} cannot be a user's name: it is empty, or has a colon")
