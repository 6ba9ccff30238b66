import pytest

from rocketrio_broker.processor.pull_suggestion import suggest_which_broker_id
from rocketrio_protocol.topic_config import SubscriptionGroupConfig

GROUP = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=1)
MOVED = SubscriptionGroupConfig("g", broker_id=2, which_broker_when_consume_slowly=3)


@pytest.mark.parametrize(
    ("group", "slave_read_enable", "is_behind_memory", "suggested"),
    [
        (GROUP, False, False, 0),
        (GROUP, False, True, 0),
        (GROUP, True, True, 1),
        (GROUP, True, False, 0),
        # Where slaves may not be read the group's own ids do not count either.
        (MOVED, False, False, 0),
        (MOVED, False, True, 0),
        (MOVED, True, True, 3),
        (MOVED, True, False, 2),
    ],
)
def test_table_of_suggestions(
    group: SubscriptionGroupConfig,
    slave_read_enable: bool,
    is_behind_memory: bool,
    suggested: int,
) -> None:
    assert (
        suggest_which_broker_id(
            group, slave_read_enable=slave_read_enable, is_behind_memory=is_behind_memory
        )
        == suggested
    )
