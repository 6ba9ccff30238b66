"""The requests of operators that a broker audits, with what they name and what they change."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from rocketrio_broker.audit import Change, fields_of_header
from rocketrio_broker.java_settings import java_properties
from rocketrio_broker.state import BrokerState
from rocketrio_protocol.access.wire_forms import acl_info, user_info
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.access import UserInfo
from rocketrio_protocol.bodies.java_properties import parse_properties
from rocketrio_protocol.bodies.topics import (
    SubscriptionGroupConfig,
    SubscriptionGroupConfigList,
    TopicConfigList,
)
from rocketrio_protocol.codes import RequestCode as Code
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import access, admin, offset, transaction

_SUBJECT_PREFIX: Final = "User:"
_Asking = Callable[[RemotingCommand], Any]


def broker_changes(broker: BrokerState) -> dict[int, Change]:
    """Return how a broker's requests are audited, by code."""
    return {
        **_topics_and_groups(broker),
        **_offsets(broker),
        **_broker_itself(broker),
        **_access(broker),
    }


def _topics_and_groups(broker: BrokerState) -> dict[int, Change]:
    topic, groups = broker.topics.topic_config, broker.groups.subscription_group_table

    def topic_of(header_class: Any) -> _Asking:
        return lambda request: topic(request.header(header_class).topic)

    def table(names: _Asking, entry: Callable[[str], Any]) -> _Asking:
        return lambda request: {name: entry(name) for name in names(request)}

    def listed_topics(request: RemotingCommand) -> list[str]:
        body = fastjson.loads_bounded(request.body, TopicConfigList, what="list of topics")
        return [each.topic_name for each in body.topic_config_list]

    def one_group(request: RemotingCommand) -> list[str]:
        body = fastjson.loads_bounded(request.body, SubscriptionGroupConfig, what="group settings")
        return [body.group_name]

    def listed_groups(request: RemotingCommand) -> list[str]:
        body = fastjson.loads_bounded(
            request.body, SubscriptionGroupConfigList, what="list of group settings"
        )
        return [each.group_name for each in body.group_config_list]

    return {
        Code.UPDATE_AND_CREATE_TOPIC: Change(
            names=fields_of_header(admin.CreateTopicRequestHeader),
            state=topic_of(admin.CreateTopicRequestHeader),
        ),
        Code.UPDATE_AND_CREATE_TOPIC_LIST: Change(
            names=listed_topics, state=table(listed_topics, topic)
        ),
        Code.DELETE_TOPIC_IN_BROKER: Change(
            names=fields_of_header(admin.DeleteTopicInBrokerRequestHeader),
            state=topic_of(admin.DeleteTopicInBrokerRequestHeader),
        ),
        Code.CLEAN_UNUSED_TOPIC: Change(
            names=_no_names,
            state=lambda request: {"topics_with_queues": len(broker.store.queues())},
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: Change(
            names=one_group, state=table(one_group, groups.get)
        ),
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: Change(
            names=listed_groups, state=table(listed_groups, groups.get)
        ),
        Code.DELETE_SUBSCRIPTIONGROUP: Change(
            names=fields_of_header(admin.DeleteSubscriptionGroupRequestHeader),
            state=lambda request: groups.get(
                request.header(admin.DeleteSubscriptionGroupRequestHeader).group_name
            ),
        ),
    }


def _offsets(broker: BrokerState) -> dict[int, Change]:
    offsets = broker.consumer_offsets

    def reset(request: RemotingCommand) -> dict[int, int]:
        header = request.header(admin.ResetOffsetRequestHeader)
        return offsets.query_offsets(header.group, header.topic)

    def committed(request: RemotingCommand) -> dict[int, int]:
        header = request.header(offset.UpdateConsumerOffsetRequestHeader)
        return offsets.query_offsets(header.consumer_group, header.topic)

    def cloned(request: RemotingCommand) -> dict[str, dict[int, int]]:
        header = request.header(admin.CloneGroupOffsetRequestHeader)
        topics = [header.topic] if header.topic else offsets.topics_of_group(header.src_group)
        return {topic: offsets.query_offsets(header.dest_group, topic) for topic in topics}

    return {
        Code.INVOKE_BROKER_TO_RESET_OFFSET: Change(
            names=fields_of_header(admin.ResetOffsetRequestHeader), state=reset
        ),
        Code.UPDATE_CONSUMER_OFFSET: Change(
            names=fields_of_header(offset.UpdateConsumerOffsetRequestHeader),
            state=committed,
            applies=lambda request: bool(
                request.header(offset.UpdateConsumerOffsetRequestHeader).reset
            ),
        ),
        Code.CLONE_GROUP_OFFSET: Change(
            names=fields_of_header(admin.CloneGroupOffsetRequestHeader), state=cloned
        ),
        Code.RESUME_CHECK_HALF_MESSAGE: Change(
            names=fields_of_header(transaction.ResumeCheckHalfMessageRequestHeader)
        ),
    }


def _broker_itself(broker: BrokerState) -> dict[int, Change]:
    def role(request: RemotingCommand) -> dict[str, Any]:
        config = broker.config.broker
        return {"role": config.role, "broker_id": config.broker_id}

    def changed_settings(request: RemotingCommand) -> list[str]:
        return sorted(parse_properties(request.body))

    def settings(request: RemotingCommand) -> dict[str, str | None]:
        shown = java_properties(
            broker.config.broker,
            broker_addr=broker.address,
            ha_addr=broker.ha_address,
            configured=broker.config.configured,
        )
        return {name: shown.get(name) for name in changed_settings(request)}

    def log_begin(request: RemotingCommand) -> dict[str, int]:
        return {"min_physical_offset": broker.store.min_physical_offset}

    return {
        Code.UPDATE_BROKER_CONFIG: Change(names=changed_settings, state=settings),
        Code.CHANGE_BROKER_ROLE: Change(
            names=fields_of_header(admin.ChangeBrokerRoleRequestHeader), state=role
        ),
        Code.HAND_OVER: Change(
            names=fields_of_header(admin.HandOverRequestHeader),
            state=role,
            applies=lambda request: not request.header(admin.HandOverRequestHeader).dry_run,
        ),
        Code.CHECK_LOG: Change(
            names=fields_of_header(admin.CheckLogRequestHeader),
            applies=lambda request: request.header(admin.CheckLogRequestHeader).start,
        ),
        Code.DELETE_EXPIRED_COMMITLOG: Change(names=_no_names, state=log_begin),
        Code.CLEAN_EXPIRED_CONSUMEQUEUE: Change(names=_no_names, state=log_begin),
    }


def _access(broker: BrokerState) -> dict[int, Change]:
    def user_state(name: str) -> Any:
        known = None if broker.access is None else broker.access.table.users.get(name)
        if known is None:
            return None
        return {
            "user": user_info(known),
            "rights": acl_info(known),
            "white_addresses": [str(each) for each in known.white],
        }

    def user_of(header_class: Any) -> _Asking:
        return lambda request: user_state(request.header(header_class).username)

    def subject_of(header_class: Any) -> _Asking:
        return lambda request: user_state(
            request.header(header_class).subject.removeprefix(_SUBJECT_PREFIX)
        )

    def account_of(header_class: Any) -> _Asking:
        return lambda request: user_state(request.header(header_class).access_key)

    def white_addresses(request: RemotingCommand) -> list[str] | None:
        return None if broker.access is None else [str(each) for each in broker.access.table.white]

    def named(header_class: Any) -> _Asking:
        """Return the fields of the header, and which parts of a user the body gives; never the password."""
        fields = fields_of_header(header_class)

        def names(request: RemotingCommand) -> dict[str, Any]:
            info = fastjson.loads_bounded(request.body, UserInfo, what="user")
            given = ("password", "user_type", "user_status")
            return {
                **fields(request),
                "gives": [name for name in given if getattr(info, name) is not None],
            }

        return names

    def by(
        header_class: Any, state: Callable[[Any], _Asking], names: _Asking | None = None
    ) -> Change:
        return Change(names=names or fields_of_header(header_class), state=state(header_class))

    create, update = access.CreateUserRequestHeader, access.UpdateUserRequestHeader
    return {
        Code.AUTH_CREATE_USER: by(create, user_of, named(create)),
        Code.AUTH_UPDATE_USER: by(update, user_of, named(update)),
        Code.AUTH_DELETE_USER: by(access.DeleteUserRequestHeader, user_of),
        Code.AUTH_CREATE_ACL: by(access.CreateAclRequestHeader, subject_of),
        Code.AUTH_UPDATE_ACL: by(access.CreateAclRequestHeader, subject_of),
        Code.AUTH_DELETE_ACL: by(access.DeleteAclRequestHeader, subject_of),
        Code.UPDATE_AND_CREATE_ACL_CONFIG: by(access.UpdateAccessConfigRequestHeader, account_of),
        Code.DELETE_ACL_CONFIG: by(access.DeleteAccessConfigRequestHeader, account_of),
        Code.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: Change(
            names=fields_of_header(access.UpdateGlobalWhiteAddressesRequestHeader),
            state=white_addresses,
        ),
    }


def _no_names(request: RemotingCommand) -> Iterable[str]:
    return []
