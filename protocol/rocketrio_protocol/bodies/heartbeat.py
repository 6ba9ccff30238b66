"""Bodies of the heartbeat (34) and of the requests about clients of a group: members (38), subscription check (46).

Answers to: HeartbeatData, ConsumerData, ProducerData, SubscriptionData; RocketMQ reference, section 2.6.
"""

from collections.abc import Sequence
from typing import Final

import msgspec


class SubscriptionData(msgspec.Struct, rename="camel", omit_defaults=False):
    """The subscription of a consumer to one topic; `sub_version` is the time of its last change in epoch ms."""

    topic: str
    sub_string: str = "*"
    tags_set: list[str] = []
    code_set: list[int] = []
    sub_version: int = 0
    expression_type: str | None = "TAG"
    class_filter_mode: bool = False


class CheckClientRequestBody(msgspec.Struct, rename="camel"):
    """Body of 46: a subscription that the broker checks before a consumer relies on it."""

    client_id: str = ""
    group: str = ""
    subscription_data: SubscriptionData | None = None


CONSUME_TYPES: Final = ("CONSUME_ACTIVELY", "CONSUME_PASSIVELY", "CONSUME_POP")
MESSAGE_MODELS: Final = ("BROADCASTING", "CLUSTERING")
CONSUME_FROM_WHERE: Final = (
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
)


class ConsumerData(msgspec.Struct, rename="camel"):
    """One consumer group of a client; C++ clients write the three enums as numbers, which become names here."""

    group_name: str
    consume_type: str | int = "CONSUME_PASSIVELY"
    message_model: str | int = "CLUSTERING"
    consume_from_where: str | int = "CONSUME_FROM_LAST_OFFSET"
    subscription_data_set: list[SubscriptionData] = []
    unit_mode: bool = False

    def __post_init__(self) -> None:
        self.consume_type = _enum_name(self.consume_type, CONSUME_TYPES)
        self.message_model = _enum_name(self.message_model, MESSAGE_MODELS)
        self.consume_from_where = _enum_name(self.consume_from_where, CONSUME_FROM_WHERE)


class ProducerData(msgspec.Struct, rename="camel"):
    """One producer group of a client."""

    group_name: str


class HeartbeatData(msgspec.Struct, rename="camel"):
    """Body of 34: what a client sends every 30 s to every broker that it knows."""

    client_id: str = msgspec.field(name="clientID")
    consumer_data_set: list[ConsumerData] = []
    producer_data_set: list[ProducerData] = []


class ConsumerIdList(msgspec.Struct, rename="camel"):
    """Body of the answer to 38."""

    consumer_id_list: list[str] = []


def _enum_name(value: str | int, names: Sequence[str]) -> str:
    if isinstance(value, str):
        if not value.isdecimal() or len(value) > 1:
            return value
        value = int(value)
    if not 0 <= value < len(names):
        # msgspec converts it to its own error.
        raise ValueError(f"{value} is not one of {', '.join(names)}")
    return names[value]
