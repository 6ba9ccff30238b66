from collections import Counter
from collections.abc import Collection

import pytest

from rocketrio_broker.processors.pull_suggestion import suggest_which_broker_id
from rocketrio_protocol.bodies.topics import SubscriptionGroupConfig

GROUP = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=1)
MOVED = SubscriptionGroupConfig("g", broker_id=2, which_broker_when_consume_slowly=3)
AT_HOME = SubscriptionGroupConfig("g", broker_id=0, which_broker_when_consume_slowly=0)


def suggested(
    group: SubscriptionGroupConfig,
    *,
    slave_read_enable: bool = True,
    is_behind_memory: bool = True,
    own_id: int = 0,
    live: Collection[int] = (1, 2, 3),
) -> int:
    return suggest_which_broker_id(
        group,
        slave_read_enable=slave_read_enable,
        is_behind_memory=is_behind_memory,
        own_id=own_id,
        live_slaves=lambda named: live,
    )


@pytest.mark.parametrize(
    ("group", "slave_read_enable", "is_behind_memory", "expected"),
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
        # A group that its operator keeps at the master.
        (AT_HOME, True, True, 0),
    ],
)
def test_table_of_suggestions(
    group: SubscriptionGroupConfig,
    slave_read_enable: bool,
    is_behind_memory: bool,
    expected: int,
) -> None:
    live = (1,) if group is GROUP else (1, 2, 3)
    found = suggested(
        group, slave_read_enable=slave_read_enable, is_behind_memory=is_behind_memory, live=live
    )
    assert found == expected


@pytest.mark.parametrize(
    ("live", "expected"),
    [
        ((3,), 3),
        ((1, 2, 3), 3),  # The named one, though others live too.
        ((2,), 2),  # Any other live one for the named one.
        ((), 0),  # None: the master.
    ],
)
def test_named_slave_then_any_live_slave_then_the_master(
    live: tuple[int, ...], expected: int
) -> None:
    assert suggested(MOVED, live=live) == expected


def test_home_may_be_the_first_slave_too() -> None:
    at_first = SubscriptionGroupConfig("g", broker_id=1)
    assert {
        suggested(at_first, is_behind_memory=False, own_id=own_id, live=(1, 2, 3))
        for own_id in (0, 1, 2)
    } == {1}


@pytest.mark.parametrize(
    ("group", "own_id", "is_behind_memory", "expected"),
    [
        (GROUP, 1, True, 1),
        (GROUP, 1, False, 0),  # Caught up: home.
        (GROUP, 2, True, 2),  # Any slave will do, and it is one.
        (GROUP, 2, False, 0),
        (MOVED, 3, True, 3),
        (MOVED, 1, True, 3),  # An operator has named another one.
        (MOVED, 1, False, 2),
    ],
)
def test_slave_keeps_its_readers_or_sends_them_where_the_group_says(
    group: SubscriptionGroupConfig, own_id: int, is_behind_memory: bool, expected: int
) -> None:
    assert suggested(group, own_id=own_id, is_behind_memory=is_behind_memory, live=()) == expected


def test_slave_that_may_not_be_read_sends_everybody_to_the_master() -> None:
    assert suggested(GROUP, own_id=1, slave_read_enable=False) == 0


def groups_by_slave(live: Collection[int]) -> dict[str, int]:
    return {
        name: suggested(SubscriptionGroupConfig(name), live=live)
        for name in (f"group-{number}" for number in range(600))
    }


def test_groups_that_name_no_slave_spread_over_all_of_them() -> None:
    counts = Counter(groups_by_slave((1, 2, 3)).values())
    assert sorted(counts) == [1, 2, 3]
    assert all(150 < count < 250 for count in counts.values())


def test_slave_that_goes_moves_its_own_groups_only() -> None:
    before, after = groups_by_slave((1, 2, 3)), groups_by_slave((2, 3))
    assert all(after[name] == id_ for name, id_ in before.items() if id_ != 1)
