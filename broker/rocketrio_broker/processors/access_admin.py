"""Requests about users and their rights: 50 to 53 of 4.x, 3001 to 3010 of 5.x, and 71032, by which slaves copy them.

    users in acl_file                      every change is refused: the file is the truth
    a slave that copies its master         answers a change, and does nothing: the copy brings it. Tools ask slaves too
    otherwise                              the change is written to the disk, and counts from the next request on

Only a Super user makes, changes or deletes a Super user, and the last one that can sign in stays.

Invariant: no answer, log line or error has a password in it, except for the answer to 71032, which only the slave of
one replication link can read.
Invariant: each change is logged: by which user, from where, and what.
Answers to: AdminBrokerProcessor's createUser to listAcl, updateAndCreateAccessConfig and its neighbours.
Unlike Java: answers have no passwords, GET_BROKER_CLUSTER_ACL_CONFIG (54), which shows all of them, is not supported,
and a new password is valid beside the previous one until it is set a second time.
"""

import logging
from collections.abc import Callable, Mapping
from secrets import token_bytes
from typing import Any, Final

import attrs

from rocketrio_broker.access.control import AccessControl
from rocketrio_broker.access.needs import ADDRESS, GET, ONLY_SUPER, UPDATE, VALID_USER, C
from rocketrio_broker.access.users_file import encode_users
from rocketrio_broker.ha.connection import HAConnection
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.state import BrokerState
from rocketrio_broker.tables.config_file import ConfigFileError
from rocketrio_protocol.access import plain_acl
from rocketrio_protocol.access.model import (
    USERS_LIMIT,
    AccessTable,
    ResourceKind,
    User,
    user_name_problem,
)
from rocketrio_protocol.access.white_addresses import AddressPattern
from rocketrio_protocol.access.wire_forms import (
    SUBJECT_PREFIX,
    acl_info,
    changed_user,
    merged_acl,
    subject_of,
    user_info,
    with_secret,
    without_entries,
)
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.access import AclInfo, UserInfo
from rocketrio_protocol.codes import RequestCode, ResponseCode
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access as commands
from rocketrio_protocol.errors import ConfigError
from rocketrio_protocol.ha.link import ANSWER_NONCE_SIZE
from rocketrio_protocol.remoting.channel import Channel
from rocketrio_protocol.remoting.dispatch import not_supported
from rocketrio_protocol.remoting.server_limits import host_of

logger = logging.getLogger("rocketrio_broker.access")

_FORBIDDEN: Final = ResponseCode.NO_PERMISSION
_NO_USER: Final = "The user is not exist"
_FIRST_SECRET: Final = "the previous password stays valid until this one is set a second time"

Change = Callable[[AccessTable], AccessTable]


def _given(request: RemotingCommand) -> dict[str, Any]:
    """Return the fields of the header, and which parts of a user the body gives; never the password."""
    info = fastjson.loads_bounded(request.body, UserInfo, what="user")
    given = ("password", "user_type", "user_status")
    return {
        "username": request.header(commands.GetUserRequestHeader).username,
        "gives": [name for name in given if getattr(info, name) is not None],
    }


class AccessAdminProcessor:
    """Answers administrators' requests about users and rights; none of them while access control is off."""

    def __init__(self, broker: BrokerState, control: AccessControl) -> None:
        self._broker = broker
        self._control = control

    # ------------------------------------------------------------------------------------ for the audit

    def _user(self, name: str) -> dict[str, Any] | None:
        known = self._control.table.users.get(name)
        if known is None:
            return None
        return {
            "user": user_info(known),
            "rights": acl_info(known),
            "white_addresses": [str(each) for each in known.white],
        }

    def _named_user(self, names: Mapping[str, str]) -> dict[str, Any] | None:
        return self._user(names["username"])

    def _named_subject(self, names: Mapping[str, str]) -> dict[str, Any] | None:
        return self._user(names["subject"].removeprefix(SUBJECT_PREFIX))

    def _named_account(self, names: Mapping[str, str]) -> dict[str, Any] | None:
        return self._user(names["access_key"])

    def _white_addresses(self, names: object) -> list[str]:
        return [str(each) for each in self._control.table.white]

    @answers(
        RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
        RequestCode.GET_ALL_USERS,
        needs=VALID_USER,
        known_by=ADDRESS,
    )
    def secrets(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        """Answer that these are not supported, because they would show all secrets."""
        return not_supported(channel, request)

    # ---------------------------------------------------------------------------------- users of 5.x

    @answers(
        commands.CreateUserRequestHeader,
        needs=C(UPDATE),
        audit=Audited(names=_given, state=_named_user),
    )
    def create_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = request.header(commands.CreateUserRequestHeader).username
        self._refuse_blank(name)
        info = _user_body(request)

        def change(table: AccessTable) -> AccessTable:
            problem = user_name_problem(name)
            if problem is not None:
                raise ConfigError(problem)
            if name in self._control.table.users:
                raise ConfigError("The user is existed")
            if len(table.users) >= USERS_LIMIT:
                raise ConfigError(f"There are {USERS_LIMIT} users already")
            if info.password is None:
                raise ConfigError("The password is blank")
            user = changed_user(User(name, ()), info)
            if user.is_super:
                self._refuse_normal(request, "create")
            return table.with_user(user)

        return self._changed(channel, request, change, f"user {name} created")

    @answers(
        commands.UpdateUserRequestHeader,
        needs=C(UPDATE),
        audit=Audited(names=_given, state=_named_user),
    )
    def update_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = request.header(commands.UpdateUserRequestHeader).username
        self._refuse_blank(name)
        info = _user_body(request)

        def change(table: AccessTable) -> AccessTable:
            user = self._known(table, name, _NO_USER)
            changed = changed_user(user, info)
            if user.is_super or changed.is_super:
                self._refuse_normal(request, "update")
            return table.with_user(changed)

        shown = [
            what
            for what, value in (
                (f"password ({_FIRST_SECRET})", info.password),
                (f"type {info.user_type}", info.user_type),
                (f"status {info.user_status}", info.user_status),
            )
            if value is not None
        ]
        return self._changed(channel, request, change, f"user {name} updated: {', '.join(shown)}")

    @answers(commands.DeleteUserRequestHeader, needs=C(UPDATE), audit=Audited(state=_named_user))
    def delete_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = request.header(commands.DeleteUserRequestHeader).username
        self._refuse_blank(name)

        def change(table: AccessTable) -> AccessTable:
            if self._known(table, name, _NO_USER).is_super:
                self._refuse_normal(request, "update")
            return table.without_user(name)

        return self._changed(channel, request, change, f"user {name} deleted")

    @answers(commands.GetUserRequestHeader, needs=C(GET))
    def get_user(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = request.header(commands.GetUserRequestHeader).username
        self._refuse_blank(name)
        user = self._control.table.users.get(name)
        return request.response(body=b"" if user is None else user_info(user).to_json())

    @answers(commands.ListUsersRequestHeader, needs=C(GET))
    def list_users(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        text = request.header(commands.ListUsersRequestHeader).filter or ""
        users = [
            user_info(user) for name, user in self._control.table.users.items() if text in name
        ]
        return request.response(body=fastjson.dumps_standard(users) if users else b"")

    # ------------------------------------------------------------------------------- policies of 5.x

    @answers(
        commands.CreateAclRequestHeader,
        commands.UpdateAclRequestHeader,
        needs=C(UPDATE),
        audit=Audited(state=_named_subject),
    )
    def merge_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        subject = request.header(commands.CreateAclRequestHeader).subject
        info = fastjson.loads_bounded(request.body, AclInfo, what="policies")

        def change(table: AccessTable) -> AccessTable:
            return table.with_user(merged_acl(self._subject(table, subject), info))

        resources = [str(each.resource) for policy in info.policies for each in policy.entries]
        return self._changed(
            channel, request, change, f"policies of {subject} set: {' '.join(resources)}"
        )

    @answers(commands.DeleteAclRequestHeader, needs=C(UPDATE), audit=Audited(state=_named_subject))
    def delete_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(commands.DeleteAclRequestHeader)

        def change(table: AccessTable) -> AccessTable:
            user = self._subject(table, header.subject)
            return table.with_user(without_entries(user, header.policy_type, header.resource))

        what = f"policies of {header.subject} deleted: {header.resource or 'all'}"
        return self._changed(channel, request, change, what)

    @answers(commands.GetAclRequestHeader, needs=C(GET))
    def get_acl(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        subject = request.header(commands.GetAclRequestHeader).subject
        user = self._control.table.users.get(subject.removeprefix(SUBJECT_PREFIX))
        if user is None:
            raise RefusedError(_FORBIDDEN, f"The subject of {subject} is not exist.")
        info = acl_info(user)
        return request.response(body=b"" if info is None else info.to_json())

    @answers(commands.ListAclsRequestHeader, needs=C(GET))
    def list_acls(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(commands.ListAclsRequestHeader)
        acls = [
            info
            for user in self._control.table.users.values()
            if (header.subject_filter or "") in subject_of(user)
            and (info := acl_info(user, header.resource_filter or "")) is not None
        ]
        return request.response(body=fastjson.dumps_standard(acls) if acls else b"")

    # -------------------------------------------------------------------------------- accounts of 4.x

    @answers(
        commands.UpdateAccessConfigRequestHeader,
        needs=C(UPDATE),
        audit=Audited(state=_named_account),
    )
    def update_account(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(commands.UpdateAccessConfigRequestHeader)

        def change(table: AccessTable) -> AccessTable:
            given = _account(header)
            known = table.users.get(given.name)
            if known is None and given.name in self._control.table.users:
                self._known(table, given.name, _NO_USER)
            if given.is_super or (known is not None and known.is_super):
                self._refuse_normal(request, "update" if known else "create")
            if given.white and not self._control.allows_white_addresses:
                raise ConfigError("whiteRemoteAddress is refused: set acl_white_addresses = true")
            if known is None and len(table.users) >= USERS_LIMIT:
                raise ConfigError(f"There are {USERS_LIMIT} users already")
            return table.with_user(
                given if known is None else _merged_account(known, given, header)
            )

        return self._changed(
            channel,
            request,
            change,
            f"account {header.access_key} set",
            failure=ResponseCode.UPDATE_AND_CREATE_ACL_CONFIG_FAILED,
        )

    @answers(
        commands.DeleteAccessConfigRequestHeader,
        needs=C(UPDATE),
        audit=Audited(state=_named_account),
    )
    def delete_account(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        name = request.header(commands.DeleteAccessConfigRequestHeader).access_key

        def change(table: AccessTable) -> AccessTable:
            if self._known(table, name, f"There is no account {name}").is_super:
                self._refuse_normal(request, "update")
            return table.without_user(name)

        return self._changed(
            channel,
            request,
            change,
            f"account {name} deleted",
            failure=ResponseCode.DELETE_ACL_CONFIG_FAILED,
        )

    @answers(
        commands.UpdateGlobalWhiteAddressesRequestHeader,
        needs=C(UPDATE),
        audit=Audited(state=_white_addresses),
    )
    def update_white_addresses(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(commands.UpdateGlobalWhiteAddressesRequestHeader)

        def change(table: AccessTable) -> AccessTable:
            if header.file and header.file not in self._control.file_names:
                raise ConfigError(
                    f"{header.file[:200]!r} is no file of this broker: it has {', '.join(self._control.file_names)}"
                )
            text = header.addresses.strip()
            patterns = AddressPattern.parse_all(text) if text else ()
            if patterns and not self._control.allows_white_addresses:
                raise ConfigError("the addresses are refused: set acl_white_addresses = true")
            return attrs.evolve(table, white=patterns)

        return self._changed(
            channel,
            request,
            change,
            f"white addresses set: {header.addresses}",
            failure=ResponseCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG_FAILED,
        )

    @answers(commands.GetAccessConfigVersionRequestHeader, needs=C(GET))
    def version(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        version = self._control.own.version
        broker = self._broker.config.broker
        return request.response(
            commands.GetAccessConfigVersionResponseHeader(
                fastjson.dumps(version).decode(),
                fastjson.dumps(dict.fromkeys(self._control.file_names, version)).decode(),
                broker.broker_name,
                self._broker.address,
                broker.cluster_name,
            )
        )

    # ------------------------------------------------------------------------------------ for slaves

    @answers(commands.GetSealedUsersRequestHeader, needs=C(ONLY_SUPER))
    def sealed_users(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(commands.GetSealedUsersRequestHeader)
        slave = self._slave(channel, header.link)
        if self._control.is_managed_by_files:
            return request.response(commands.GetSealedUsersResponseHeader())
        answer = commands.GetSealedUsersResponseHeader(self._control.digest)
        users = b"" if header.version == self._control.digest else encode_users(self._control.own)
        if slave.answers is not None:
            nonce = token_bytes(ANSWER_NONCE_SIZE)
            users = slave.answers.seal(users, question=header.nonce.encode(), nonce=nonce)
        return request.response(answer, users)

    def _slave(self, channel: Channel, link: str | None) -> HAConnection:
        """Return the connected slave that may have the users. Raises RefusedError if it has not proved itself.

        Without a secret the link has no key to seal with: then both connections must use TLS.
        """
        ha_service = self._broker.ha_service
        if link is not None or (ha_service.is_proof_asked and channel.is_encrypted):
            for slave in ha_service.connections:
                name = None if slave.answers is None else slave.answers.link
                is_there = link is not None or host_of(slave.addr) == host_of(channel.remote_addr)
                if slave.is_follower and name == link and is_there:
                    return slave
        raise RefusedError(
            ResponseCode.SERVICE_NOT_AVAILABLE,
            "users are copied by a connected slave that has proved itself: set ha_secret_file on all brokers of this "
            "name, or ha_tls_* and peer_tls",
        )

    # --------------------------------------------------------------------------------------- changes

    def _changed(
        self,
        channel: Channel,
        request: RemotingCommand,
        change: Change,
        what: str,
        *,
        failure: ResponseCode = _FORBIDDEN,
    ) -> RemotingCommand:
        """Change the users, and log it; `failure` is the code if the change cannot be made."""
        if self._control.is_managed_by_files:
            raise RefusedError(
                _FORBIDDEN,
                f"The file is the truth: this broker has its users from {', '.join(self._control.file_names)}. "
                "Change them there, and the broker loads them within 5 s.",
            )
        if self._broker.config.broker.is_slave and self._control.is_copied:
            return request.response()
        try:
            table = change(self._control.own.table)
            _refuse_without_super(self._control, table)
            self._control.change(table, now_ms=self._broker.wall_clock.now_ms())
        except ConfigFileError:
            raise
        except ConfigError as error:
            raise RefusedError(failure, error.what) from error
        logger.info("users changed by=%s from=%s what=%s", request.user, channel.remote_addr, what)
        return request.response()

    def _known(self, table: AccessTable, name: str, problem: str) -> User:
        """Return a user that requests may change. Raises ConfigError."""
        if name == self._control.inner_user:
            raise ConfigError(
                f"{name} is the inner account: change it in the file that inner_credentials_file names"
            )
        user = table.users.get(name)
        if user is None:
            raise ConfigError(problem)
        return user

    def _subject(self, table: AccessTable, subject: str) -> User:
        name = subject.removeprefix(SUBJECT_PREFIX)
        if not subject.startswith(SUBJECT_PREFIX) or not name:
            raise ConfigError(f"The subject {subject[:100]!r} is not like {SUBJECT_PREFIX}name")
        return self._known(table, name, f"The subject of {subject} is not exist.")

    def _refuse_normal(self, request: RemotingCommand, verb: str) -> None:
        """Raise RefusedError if the sender is no Super user."""
        sender = self._control.table.users.get(request.user or "")
        if sender is None or not sender.is_super:
            raise RefusedError(
                ResponseCode.SYSTEM_ERROR, f"The super user can only be {verb} by super user"
            )

    def _refuse_blank(self, name: str) -> None:
        if not name.strip():
            raise RefusedError(ResponseCode.INVALID_PARAMETER, "The username is blank")


def _refuse_without_super(control: AccessControl, table: AccessTable) -> None:
    """Raise ConfigError if a change takes the last Super user that can sign in."""
    had = any(user.is_super and user.is_enabled for user in control.own.table.users.values())
    has = any(user.is_super and user.is_enabled for user in table.users.values())
    if had and not has and control.inner_user is None:
        raise ConfigError("This is the last Super user: create another one first")


def _user_body(request: RemotingCommand) -> UserInfo:
    if not request.body:
        return UserInfo()
    return fastjson.loads_bounded(request.body, UserInfo, what="user")


def _account(header: commands.UpdateAccessConfigRequestHeader) -> User:
    """Return the account that a request of 4.x gives. Raises ConfigError."""
    return plain_acl.account(
        {
            "accessKey": header.access_key,
            "secretKey": header.secret_key,
            "whiteRemoteAddress": header.white_remote_address,
            "admin": "true" if header.admin else "false",
            "defaultTopicPerm": header.default_topic_perm,
            "defaultGroupPerm": header.default_group_perm,
        },
        _permissions(header.topic_perms),
        _permissions(header.group_perms),
    )


def _permissions(text: str | None) -> dict[str, str]:
    return dict(plain_acl.permission(each) for each in (text or "").split(",") if each.strip())


def _merged_account(
    known: User, given: User, header: commands.UpdateAccessConfigRequestHeader
) -> User:
    """Return the account after a change: lists and defaults that are not given stay."""
    is_given = {
        ("custom", ResourceKind.TOPIC): bool(header.topic_perms),
        ("custom", ResourceKind.GROUP): bool(header.group_perms),
        ("default", ResourceKind.TOPIC): bool(header.default_topic_perm),
        ("default", ResourceKind.GROUP): bool(header.default_group_perm),
    }
    secret = given.secrets[0]
    return attrs.evolve(
        known,
        secrets=known.secrets
        if secret in known.secrets[:1]
        else with_secret(known.secrets, secret.decode()),
        is_super=given.is_super,
        white=known.white if header.white_remote_address is None else given.white,
        custom=[each for each in known.custom if not is_given.get(("custom", each.resource.kind))]
        + list(given.custom),
        default=[
            each for each in known.default if not is_given.get(("default", each.resource.kind))
        ]
        + list(given.default),
    )
