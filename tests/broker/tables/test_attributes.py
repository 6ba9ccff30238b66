"""Attributes as 5.3.3 judges them (AttributeUtil), but for those that this broker cannot do."""

import pytest

from rocketrio_broker.tables.attributes import group_attributes, read_changes, topic_attributes
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig, TopicConfig
from rocketrio_protocol.errors import BrokerSystemError

FIFO = TopicConfig("T", attributes={"message.type": "FIFO"})
BATCHES = TopicConfig("T", attributes={"queue.type": "BatchCQ"})
"""Copied from an Apache broker."""
COPIED = TopicConfig("T", attributes={"cleanup.policy": "COMPACTION", "of.later": "x"})


@pytest.mark.parametrize(
    ("known", "changes", "expected"),
    [
        (None, "", {}),
        (None, "+message.type=FIFO", {"message.type": "FIFO"}),
        (None, "+queue.type=SimpleCQ,+cleanup.policy=DELETE",
         {"queue.type": "SimpleCQ", "cleanup.policy": "DELETE"}),
        # Its queues have an entry for each message, and Apache's brokers must know that if they get them.
        (None, "+queue.type=BatchCQ", {"queue.type": "SimpleCQ"}),
        (BATCHES, "+message.type=NORMAL", {**BATCHES.attributes, "message.type": "NORMAL"}),
        (None, "+reserve.time=-1", {"reserve.time": "-1"}),
        (None, "+reserve.time=9223372036854775807", {"reserve.time": "9223372036854775807"}),
        (FIFO, "", {"message.type": "FIFO"}),
        (FIFO, "+message.type=DELAY", {"message.type": "DELAY"}),
        (FIFO, "+reserve.time=7", {"message.type": "FIFO", "reserve.time": "7"}),
        (FIFO, " +reserve.time=7 , -message.type ", {"reserve.time": "7"}),
        (COPIED, "+message.type=NORMAL", {**COPIED.attributes, "message.type": "NORMAL"}),
    ],
)  # fmt: skip
def test_attributes_after_a_request_are_those_before_with_its_changes(
    known: TopicConfig | None, changes: str, expected: dict[str, str]
) -> None:
    assert topic_attributes("T", known, read_changes(changes)) == expected


@pytest.mark.parametrize(
    ("known", "changes", "problem"),
    [
        (None, "message.type=FIFO", r"\+name=value"),
        (None, "-message.type=FIFO", "-name"),
        (None, "+", "the attribute ;"),
        (None, "+odd=1", "the attribute odd; known: message.type, queue.type"),
        (None, "+message.type", "message.type="),
        (
            None,
            "+message.type=fifo",
            "message.type=fifo; this broker takes UNSPECIFIED or NORMAL or",
        ),
        (None, "+message.type=FIFO,+message.type=DELAY", "twice"),
        (FIFO, "+message.type=DELAY,-message.type", "twice"),
        (None, "-message.type", "has not"),
        (FIFO, "-reserve.time", "has not"),
        (FIFO, "+queue.type=SimpleCQ", "at creation"),
        (COPIED, "-cleanup.policy", "at creation"),
        (None, "+reserve.time=-2", "from -1 to 9223372036854775807"),
        (None, "+reserve.time=9223372036854775808", "from -1"),
        (None, f"+reserve.time={'9' * 5000}", "from -1"),
        (None, "+reserve.time=soon", "from -1"),
        (None, "+queue.type=RocksDBCQ", "RocksDBCQ; this broker takes SimpleCQ or BatchCQ"),
        (BATCHES, "+queue.type=BatchCQ", "at creation"),
        (None, "+cleanup.policy=COMPACTION", "takes DELETE"),
        (None, "+message.type=MIXED", "takes UNSPECIFIED"),
    ],
)
def test_attributes_that_cannot_be_are_refused_with_the_reason(
    known: TopicConfig | None, changes: str, problem: str
) -> None:
    with pytest.raises(BrokerSystemError, match=problem):
        topic_attributes("T", known, read_changes(changes))


def test_groups_keep_what_they_have_and_take_no_attribute() -> None:
    known = SubscriptionGroupConfig("G", attributes={"of.later": "x"})
    assert group_attributes(SubscriptionGroupConfig("G"), known) == {"of.later": "x"}
    asked = SubscriptionGroupConfig("G", attributes={"+odd": "1"})
    with pytest.raises(BrokerSystemError, match="the attribute odd; known: there are none"):
        group_attributes(asked, None)
