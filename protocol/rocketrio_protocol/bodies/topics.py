"""Topic and group settings with their version: bodies of registration, of what slaves copy, and of config files.

Answers to: TopicConfig, DataVersion, TopicConfigSerializeWrapper, SubscriptionGroupConfig, RegisterBrokerBody;
RocketMQ reference, sections 2.11, 2.12 and 5.7. What 5.x alone has is kept and written like the rest: readers of 4.x
skip it.
Invariant: the maps inside frozen classes are never changed in place.
"""

from enum import IntFlag
from typing import Any, Final

import msgspec

from rocketrio_protocol.bodies.fastjson import Int32, Int64


class Permission(IntFlag):
    """Who may do what with a topic's queues (PermName)."""

    INHERIT = 1
    WRITE = 2
    READ = 4
    PRIORITY = 8


READ_WRITE: Final = Permission.READ | Permission.WRITE

QUEUE_NUMS_LIMIT: Final = 65_536
"""Queues of one topic at most: each costs files and a consumer's attention; RocketMQ's own largest topic has 1,024."""


class DataVersion(msgspec.Struct, rename="camel"):
    """Which state of a table this is: equal only if all members are equal."""

    counter: Int64 = 0
    timestamp: Int64 = 0
    state_version: Int64 = 0
    """The version of 5.x's controller; 0 where there is none."""

    def next_version(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)


class TopicConfig(msgspec.Struct, rename="camel", frozen=True, gc=False):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16  # Beyond an int they are lowered to the limit, not refused.
    write_queue_nums: int = 16
    perm: Int32 = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False
    attributes: dict[str, str] = {}
    """What 5.x knows of a topic besides, by name: `message.type`, for example."""

    def __hash__(self) -> int:
        return hash(self.topic_name)


class TopicConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """All topics of a broker: `topics.json`, and all that is read of an answer to 21."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}


class TopicConfigAndMappingSerializeWrapper(TopicConfigSerializeWrapper):
    """The same as 5.x sends it: with the mappings of static topics, of which a rocketrio broker has none."""

    mapping_data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = {}
    topic_queue_mapping_info_map: dict[str, Any] = {}


def with_mappings(wrapper: TopicConfigSerializeWrapper) -> TopicConfigAndMappingSerializeWrapper:
    """Return the table with the members that readers of 5.x expect, and the Rust name server demands."""
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
    """Where the group reads normally."""
    which_broker_when_consume_slowly: Int32 = 1
    """Where it is sent when it has fallen out of memory."""
    notify_consumer_ids_changed_enable: bool = True
    consume_message_orderly: bool = False
    """This and the rest are 5.x's: POP consumers and proxies follow them."""
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


class TopicConfigList(msgspec.Struct, rename="camel"):
    """Body of 18: topics to create or change; the names of their attributes have signs."""

    topic_config_list: list[TopicConfig]


class SubscriptionGroupConfigList(msgspec.Struct, rename="camel"):
    """Body of 225: groups to create or change; the names of their attributes have signs."""

    group_config_list: list[SubscriptionGroupConfig]
