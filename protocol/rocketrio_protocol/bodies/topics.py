"""Settings of topics and groups with their version: in registrations, in tables that slaves copy, in config files.

Answers to: TopicConfig, DataVersion, TopicConfigSerializeWrapper, SubscriptionGroupConfig, RegisterBrokerBody;
RocketMQ reference, sections 2.11, 2.12 and 5.7. Members that only 5.x has are kept and written too; readers of 4.x
ignore them.
Invariant: the maps inside frozen classes are never changed in place.
"""

from enum import IntFlag
from typing import Any, Final

import msgspec

from rocketrio_protocol.bodies.fastjson import Int32, Int64


class Permission(IntFlag):
    """What clients may do with a topic's queues (PermName)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE: Final = Permission.READ | Permission.WRITE

QUEUE_NUMS_LIMIT: Final = 65_536
"""Queues of one topic. Each costs files, and work of consumers; RocketMQ's own largest topic has 1,024."""


class DataVersion(msgspec.Struct, rename="camel"):
    """The version of a table; two versions are equal only if all members are equal."""

    counter: Int64 = 0
    timestamp: Int64 = 0
    state_version: Int64 = 0
    """The version of the 5.x controller; 0 without one."""

    def next_version(self, now_ms: int) -> "DataVersion":
        """Return the version after one more change."""
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)


class TopicConfig(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16  # A number too large for an int is lowered to the limit, not refused.
    write_queue_nums: int = 16
    perm: Int32 = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}
    """Further settings of 5.x by name, for example `message.type`."""

    def __hash__(self) -> int:
        return hash(self.topic_name)


class TopicConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """All topics of a broker: `topics.json`, and the part of the answer to 21 that rocketrio uses."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """All topics as 5.x sends them: with the mappings of static topics, which a rocketrio broker does not have."""

    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = {}
    topic_queue_mapping_info_map: dict[str, Any] = {}


def with_mappings(wrapper: TopicConfigSerializeWrapper) -> TopicConfigAndMappingSerializeWrapper:
    """Return the table with the members that readers of 5.x expect and the Rust name server requires."""
    return TopicConfigAndMappingSerializeWrapper(wrapper.data_version, wrapper.topic_config_table)


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One consumer group on one broker."""

    group_name: str
    consume_enable: bool = True
    consume_from_min_enable: bool = True
    consume_broadcast_enable: bool = True
    retry_queue_nums: int = 1
    retry_max_times: Int32 = 16
    broker_id: Int64 = 0
    """The broker id from which the group normally reads."""
    which_broker_when_consume_slowly: Int32 = 1
    """The broker id from which it reads when its messages are no longer in memory."""
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool = False
    """This and the following members are from 5.x; POP consumers and proxies use them."""
    group_retry_policy: dict[str, Any] = msgspec.field(
        default_factory=lambda: {"type": "CUSTOMIZED"}
    )
    group_sys_flag: Int32 = 0
    consume_timeout_minute: Int32 = 15
    subscription_data_set: list[dict[str, Any]] | None = None
    attributes: dict[str, str] = {}

    def __hash__(self) -> int:
        return hash(self.group_name)


class SubscriptionGroupWrapper(msgspec.Struct, rename="camel"):
    """All groups of a broker: the answer to 201, and `subscriptionGroup.json`."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class GroupSettingsTable(msgspec.Struct, rename="camel"):
    """Body of 201 as tools read it: the settings of each group with all fields that the version of its broker knows."""

    subscription_group_table: dict[str, dict[str, Any]] = {}


class TopicConfigList(msgspec.Struct, rename="camel"):
    """Body of 18: topics to create or change; the names of their attributes have signs."""

    topic_config_list: list[TopicConfig]


class SubscriptionGroupConfigList(msgspec.Struct, rename="camel"):
    """Body of 225: groups to create or change; the names of their attributes have signs."""

    group_config_list: list[SubscriptionGroupConfig]
