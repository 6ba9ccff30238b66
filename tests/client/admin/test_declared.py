"""Files that say what a cluster should have: reading, writing, differences."""

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.client.admin.declared_states import through_files

from rocketrio.admin.declared import (
    ATTRIBUTE,
    BROKER,
    EVERYWHERE,
    EXISTS,
    ApplyPlan,
    Change,
    DeclaredPlace,
    applied,
    differences,
    from_toml,
    group_fields,
    refuse_system_things,
    settings_fields,
    spread,
    still_holds,
    to_toml,
    topic_fields,
)
from rocketrio_protocol.bodies.topics import TopicConfig
from rocketrio_protocol.errors import ConfigError

NAMES = st.sampled_from(["orders", "bills", "a_b-c"])
BROKERS = st.sampled_from(["broker-a", "broker-b"])
TEXTS = st.text(max_size=9)
ATTRIBUTES = st.dictionaries(
    st.text(min_size=1, max_size=5).map(lambda name: f"{ATTRIBUTE}{name}"), TEXTS, max_size=2
)
TOPIC = st.builds(
    lambda queues, perm, order, attributes: {
        "readQueueNums": queues,
        "writeQueueNums": queues,
        "perm": perm,
        "order": order,
        **attributes,
    },
    st.integers(1, 99),
    st.sampled_from(["rw", "r", "w", "none"]),
    st.booleans(),
    ATTRIBUTES,
)
GROUP = st.fixed_dictionaries(
    {}, optional={"retryMaxTimes": st.integers(-1, 99), "consumeEnable": st.booleans()}
)
SETTINGS = st.dictionaries(st.sampled_from(["fileReservedTime", "a.b", "x y"]), TEXTS, min_size=1)
STATES = st.builds(
    lambda topics, groups, settings, kv: {
        **{DeclaredPlace("topics", *key): one for key, one in topics.items()},
        **{DeclaredPlace("groups", *key): one for key, one in groups.items()},
        **{DeclaredPlace("settings", BROKER, f"{key}/0"): one for key, one in settings.items()},
        **{DeclaredPlace("kv", f"N/{key}", EVERYWHERE): {"value": one} for key, one in kv.items()},
    },
    st.dictionaries(st.tuples(NAMES, BROKERS), TOPIC, max_size=4),
    st.dictionaries(st.tuples(NAMES, BROKERS), GROUP, max_size=4),
    st.dictionaries(BROKERS, SETTINGS, max_size=2),
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(min_size=1, max_size=5), max_size=2),
)


@pytest.mark.slow
@given(STATES)
def test_what_is_written_is_read_back(state: Any) -> None:
    assert through_files(state) == state


@pytest.mark.slow
@given(STATES)
def test_what_was_exported_differs_in_nothing_also_if_the_rest_is_removed(state: Any) -> None:
    assert differences(state, through_files(state), prune=True) == []


def test_group_of_an_older_broker_has_what_newer_ones_have_by_default() -> None:
    """4.9.7 does not name the fields of 5.x. What says otherwise than their defaults cannot be done there."""
    group = DeclaredPlace("groups", "bills", "apache-a")
    old = {group: {"retryMaxTimes": 7}}
    wanted = {"retryMaxTimes": 7, "consumeMessageOrderly": False, "consumeTimeoutMinute": 15}
    assert differences(old, {group: {**wanted, "groupSysFlag": 0}}) == []
    (left,) = differences(old, {group: {**wanted, "consumeTimeoutMinute": 16}})
    assert (left.field, left.before, left.after) == ("consumeTimeoutMinute", None, 16)


@pytest.mark.slow
@given(STATES, STATES, st.booleans())
def test_applied_differences_leave_none(now: Any, wanted: Any, prune: bool) -> None:
    changes = differences(now, wanted, prune=prune)
    assert still_holds(changes, now) is None
    after = applied(now, changes)
    assert differences(after, wanted, prune=prune) == []
    kinds = {place.kind for place in wanted}
    for place, fields in now.items():
        is_pruned = prune and place.kind in kinds and place.kind != "settings"
        if place not in wanted:
            assert (after.get(place) == fields) is not is_pruned


@pytest.mark.slow
@given(STATES, STATES)
def test_plan_that_was_carried_out_does_not_hold_any_more(now: Any, wanted: Any) -> None:
    changes = differences(now, wanted)
    if changes:
        assert still_holds(changes, applied(now, changes)) is not None


def test_field_that_a_file_omits_stays() -> None:
    place = DeclaredPlace("topics", "orders", "broker-a")
    now = {place: {"readQueueNums": 4, "perm": "r", "attributes.a": "1"}}
    wanted = from_toml('[[topics]]\nname = "orders"\nreadQueueNums = 8', "f")
    places, unknown = spread(wanted, ["broker-a"], [])
    assert (differences(now, places), unknown) == (
        [Change(place, "readQueueNums", 4, 8)],
        [],
    )


def test_attributes_that_a_file_gives_are_all_there_are() -> None:
    place = DeclaredPlace("topics", "orders", "broker-a")
    now = {place: {"attributes.a": "1", "attributes.b": "2"}}
    assert differences(now, {place: {"attributes.a": "3"}}) == [
        Change(place, "attributes.a", "1", "3"),
        Change(place, "attributes.b", "2", None),
    ]


def test_only_kinds_that_files_have_are_pruned_and_settings_never() -> None:
    topic, other = DeclaredPlace("topics", "orders", "a"), DeclaredPlace("topics", "old", "a")
    now = {
        topic: {"perm": "rw"},
        other: {"perm": "rw"},
        DeclaredPlace("groups", "g", "a"): {},
        DeclaredPlace("settings", BROKER, "a/0"): {"x": "1"},
    }
    wanted = {topic: {"perm": "rw"}, DeclaredPlace("settings", BROKER, "b/0"): {"x": "1"}}
    found = [one for one in differences(now, wanted, prune=True) if one.place.kind != "settings"]
    assert found == [Change(other, EXISTS, "exists", None)]


def test_thing_without_brokers_is_on_every_master_and_more_exact_tables_add_to_it() -> None:
    text = """
        [[topics]]
        name = "orders"
        brokers = ["broker-b", "broker-x"]
        perm = "r"
        [[topics]]
        name = "orders"
        readQueueNums = 8
        [[settings]]
        fileReservedTime = 48
    """
    places, unknown = spread(
        from_toml(text, "f"), ["broker-a", "broker-b"], ["broker-a/0", "broker-a/1"]
    )
    assert unknown == ["broker-x"]
    assert places == {
        DeclaredPlace("topics", "orders", "broker-a"): {"readQueueNums": 8},
        DeclaredPlace("topics", "orders", "broker-b"): {"readQueueNums": 8, "perm": "r"},
        DeclaredPlace("settings", BROKER, "broker-a/0"): {"fileReservedTime": "48"},
        DeclaredPlace("settings", BROKER, "broker-a/1"): {"fileReservedTime": "48"},
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[[topics]]\nperm = 'rw'", "needs a name"),
        ("[[topics]]\nname = 'a b'", "illegal characters"),
        ("[[topics]]\nname = 't'\nqueues = 8", "no field 'queues'"),
        ("[[topics]]\nname = 't'\nreadQueueNums = '8'", "is a number, not '8'"),
        ("[[topics]]\nname = 't'\nreadQueueNums = true", "is a number, not True"),
        ("[[topics]]\nname = 't'\nperm = 6", "one of rw, r, w, none"),
        ("[[topics]]\nname = 't'\norder = 1", "true or false"),
        ("[[topics]]\nname = 't'\nattributes = 1", "a table of texts"),
        ("[[topics]]\nname = 't'\nbrokers = []", "a list of names"),
        ("[[topics]]\nname = 't'\n[[topics]]\nname = 't'\norder = true", "twice"),
        ("[[groups]]\nname = 'g'\nperm = 'rw'", "no field 'perm'"),
        ("[topics]\nname = 't'", r"write \[\[topics\]\]"),
        ("[[topic]]\nname = 't'", "no kind 'topic'"),
        ("[[settings]]\nbrokerId = 1", "cannot be changed while a broker runs"),
        ("[[settings]]\nx = [1]", "is a text"),
        ("[[kv]]\nnamespace = 'n'\nkey = 'k'", "namespace, key and value"),
        ("[[kv]]\nnamespace = 'a/b'\nkey = 'k'\nvalue = 'v'", "no / in it"),
        ("[[topics", "f: "),
    ],
)
def test_file_that_cannot_be_meant_is_named_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        from_toml(text, "f")
    assert str(caught.value).startswith("f: ")


@pytest.mark.parametrize(
    "place",
    [
        DeclaredPlace("topics", "%RETRY%g", ""),
        DeclaredPlace("topics", "%DLQ%g", ""),
        DeclaredPlace("topics", "TBW102", ""),
        DeclaredPlace("topics", "broker-a", ""),
        DeclaredPlace("topics", "rmq_sys_x", ""),
        DeclaredPlace("groups", "CID_RMQ_SYS_TRANS", ""),
        DeclaredPlace("groups", "TOOLS_CONSUMER", ""),
    ],
)
def test_things_of_rocketmq_itself_are_refused(place: DeclaredPlace) -> None:
    with pytest.raises(ConfigError, match="belongs to RocketMQ itself"):
        refuse_system_things([place], {"broker-a"})


def test_secrets_and_what_belongs_to_one_broker_alone_are_not_exported() -> None:
    settings = {
        "fileReservedTime": "72",
        "brokerIP1": "10.0.0.1",
        "brokerRole": "SLAVE",
        "storePathRootDir": "/data",
        "haSecretFile": "/s",
        "aclFile": "/a",
        "initAuthenticationUser": '{"username":"root","password":"marker"}',
    }
    assert settings_fields(settings) == {"fileReservedTime": "72"}


def test_fields_of_brokers_have_the_names_of_files() -> None:
    topic = TopicConfig("t", 8, 4, 4, order=True, attributes={"message.type": "FIFO"})
    state = {
        DeclaredPlace("topics", "t", "a"): topic_fields(topic),
        DeclaredPlace("groups", "g", "a"): group_fields(
            {"groupName": "g", "retryMaxTimes": 3, "groupRetryPolicy": {"type": "CUSTOMIZED"}}
        ),
    }
    assert through_files(state) == state
    assert tomllib.loads(to_toml(state, "topics")) == {
        "topics": [
            {
                "name": "t", "brokers": ["a"], "readQueueNums": 8, "writeQueueNums": 4, "perm": "r",
                "order": True, "attributes": {"message.type": "FIFO"},
            }
        ]
    }  # fmt: skip


def test_digest_is_that_of_the_changes() -> None:
    place = DeclaredPlace("topics", "orders", "a")
    one = ApplyPlan([Change(place, "perm", "rw", "r")])
    assert one.digest == ApplyPlan([Change(place, "perm", "rw", "r")], ["x"]).digest
    assert one.digest != ApplyPlan([Change(place, "perm", "w", "r")]).digest
