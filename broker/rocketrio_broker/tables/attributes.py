"""The attributes of topics and groups (RocketMQ 5): their names, their values, and how a request changes them.

    +message.type=FIFO,-reserve.time        set the first attribute, remove the second

The broker keeps and reports attributes and does not apply them to messages; proxies do (docs/decisions/0047).

Invariant: a request can set only what this broker does. What Apache's brokers and files contain is kept unchanged.
Invariant: a topic has an entry for each message. One that is requested with an entry for each batch (BatchCQ) is
created and reported as SimpleCQ: otherwise Apache's broker would not start on a directory with its queues.
Answers to: TopicAttributes, SubscriptionGroupAttributes, AttributeParser, AttributeUtil.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.errors import BrokerSystemError

_LONG: Final = re.compile(r"[+-]?\d{1,19}")


@attrs.frozen
class Attribute:
    """One attribute: its values, and whether it may change after its topic was created."""

    values: tuple[str, ...] | range
    changeable: bool
    stored_as: Mapping[str, str] = attrs.Factory(dict)
    """The value that is stored for a requested one, if it is another."""

    def takes(self, value: str) -> bool:
        """Return whether the attribute may have this value."""
        if isinstance(self.values, range):
            return _LONG.fullmatch(value) is not None and int(value) in self.values
        return value in self.values

    def __str__(self) -> str:
        if isinstance(self.values, range):
            return f"a number from {self.values[0]} to {self.values[-1]}"
        return " or ".join(self.values)


TOPIC_ATTRIBUTES: Final = {
    "message.type": Attribute(("UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION"), True),
    "queue.type": Attribute(("SimpleCQ", "BatchCQ"), False, {"BatchCQ": "SimpleCQ"}),
    "cleanup.policy": Attribute(("DELETE",), False),
    "reserve.time": Attribute(range(-1, 2**63), True),
}
GROUP_ATTRIBUTES: Final[Mapping[str, Attribute]] = {}
"""Empty, because RocketMQ 5.3 knows no attributes of groups."""


def read_changes(text: str) -> dict[str, str]:
    """Read `+name=value,-name` as a map whose names have signs. Raises BrokerSystemError for a repeated name."""
    pairs = [change.strip().partition("=")[::2] for change in text.split(",") if change.strip()]
    if len(changes := dict(pairs)) < len(pairs):
        raise BrokerSystemError(f"An attribute cannot change twice at once: {text}")
    return changes


def topic_attributes(
    topic: str, known: TopicConfig | None, changes: Mapping[str, str]
) -> dict[str, str]:
    """Return the attributes of a topic after a request. Raises BrokerSystemError for changes that are not possible."""
    attributes = None if known is None else known.attributes
    return _changed(f"The topic {topic}", TOPIC_ATTRIBUTES, attributes, changes.items())


def group_attributes(
    asked: SubscriptionGroupConfig, known: SubscriptionGroupConfig | None
) -> dict[str, str]:
    """Return the attributes of a group after a request, whose names have signs. Raises BrokerSystemError."""
    attributes = None if known is None else known.attributes
    pairs = asked.attributes.items()
    return _changed(f"The group {asked.group_name}", GROUP_ATTRIBUTES, attributes, pairs)


def _changed(
    whose: str,
    known: Mapping[str, Attribute],
    attributes: Mapping[str, str] | None,
    changes: Iterable[tuple[str, str]],
) -> dict[str, str]:
    """Return the attributes with the changes made; `attributes` is None for a new topic or group."""
    result = dict(attributes or {})
    changed: set[str] = set()
    for signed_name, value in changes:
        sign, name = signed_name[:1], signed_name[1:]
        if sign not in ("+", "-") or (sign == "-" and value):
            raise BrokerSystemError(
                f"{whose} cannot change its attributes by {signed_name}={value}; "
                "write +name=value to set one and -name to take it away"
            )
        if name in changed:
            raise BrokerSystemError(f"{whose} cannot change its attribute {name} twice at once")
        changed.add(name)
        attribute = known.get(name)
        # Refused only in a request: what Apache's files contain stays in `attributes`, whatever it is.
        if attribute is None:
            names = ", ".join(known) or "there are none"
            raise BrokerSystemError(f"{whose} cannot have the attribute {name}; known: {names}")
        if attributes is not None and not attribute.changeable:
            raise BrokerSystemError(
                f"{whose} cannot change its attribute {name}; it is set at creation"
            )
        if sign == "-":
            if result.pop(name, None) is None:
                raise BrokerSystemError(
                    f"{whose} cannot lose the attribute {name}, which it has not"
                )
        elif attribute.takes(value):
            # BatchCQ is stored as SimpleCQ: with it an Apache broker would not start on the queues of this one.
            result[name] = attribute.stored_as.get(value, value)
        else:
            raise BrokerSystemError(
                f"{whose} cannot have the attribute {name}={value}; this broker takes {attribute}"
            )
    return result
