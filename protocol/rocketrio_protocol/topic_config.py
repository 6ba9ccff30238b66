"""Topic and group settings with their version: bodies of registration, of what slaves copy, and of config files.

Answers to: TopicConfig, DataVersion, TopicConfigSerializeWrapper, SubscriptionGroupConfig, RegisterBrokerBody;
RocketMQ reference, sections 2.11, 2.12 and 5.7. Members that only 5.x has are read past.
"""

from enum import IntFlag
from typing import Annotated, Final

import msgspec

Int32 = Annotated[int, msgspec.Meta(ge=-(2**31), le=2**31 - 1)]
Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""Java's int and long: what lies beyond fits into no peer's fields, and into none of ours."""


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

    def next_version(self, now_ms: int) -> "DataVersion":
        """The version after one more change."""
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)


class TopicConfig(msgspec.Struct, rename="camel", frozen=True):
    """One topic on one broker."""

    topic_name: str
    read_queue_nums: int = 16  # Beyond an int they are lowered to the limit, not refused.
    write_queue_nums: int = 16
    perm: Int32 = READ_WRITE
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: Int32 = 0
    order: bool = False


class TopicConfigSerializeWrapper(msgspec.Struct, rename="camel"):
    """All topics of a broker: the answer to 21, and `topics.json`."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    topic_config_table: dict[str, TopicConfig] = {}


class RegisterBrokerBody(msgspec.Struct, rename="camel"):
    """What a broker registers."""

    topic_config_serialize_wrapper: TopicConfigSerializeWrapper
    filter_server_list: list[str] = []


class SubscriptionGroupConfig(msgspec.Struct, rename="camel", frozen=True):
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


class SubscriptionGroupWrapper(msgspec.Struct, rename="camel"):
    """All groups of a broker: the answer to 201, and `subscriptionGroup.json`."""

    data_version: DataVersion = msgspec.field(default_factory=DataVersion)
    subscription_group_table: dict[str, SubscriptionGroupConfig] = {}


class ConsumerOffsetWrapper(msgspec.Struct, rename="camel"):
    """All committed offsets: the answer to 43, and `consumerOffset.json`; key `topic@group`."""

    offset_table: dict[str, dict[Int32, Int64]] = {}


class DelayOffsetWrapper(msgspec.Struct, rename="camel"):
    """Progress of the delay levels: the answer to 45, and `delayOffset.json`."""

    offset_table: dict[Int32, Int64] = {}
