from pathlib import Path

import pytest
from tests.broker.builders import config_file, live_config
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS, unpack_store
from tests.support.clocks import SettableClock

from rocketrio_broker.requests.refusal import RefusedError
from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.tables.groups import SubscriptionGroupManager
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
)
from rocketrio_protocol.codes import RequestCode, ResponseCode


def manager(disk: MemoryDisk | None = None, **settings: object) -> SubscriptionGroupManager:
    return SubscriptionGroupManager(
        config=live_config(**settings),
        file=config_file("subscriptionGroup.json", disk),
        wall_clock=SettableClock(),
    )


def test_a_fresh_broker_has_the_groups_that_4_9_7_has() -> None:
    first = exchanges_of("4.9.7", "broker", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)[0]
    assert first.answer is not None
    expected = fastjson.loads(first.answer.body, SubscriptionGroupWrapper)
    assert manager().subscription_group_table == expected.subscription_group_table


def test_an_unknown_group_is_made_with_the_defaults_and_kept() -> None:
    disk = MemoryDisk()
    groups = manager(disk)
    before = groups.data_version.counter
    assert groups.find("G") == SubscriptionGroupConfig("G")
    assert groups.data_version.counter == before + 1
    assert groups.find("G") is groups.find("G")
    again = manager(disk)
    again.load()
    assert again.subscription_group_table == groups.subscription_group_table
    assert again.data_version == groups.data_version


def test_without_auto_creation_only_tools_get_a_group() -> None:
    groups = manager(auto_create_subscription_group=False)
    assert groups.find("G") is None
    assert groups.find("CID_RMQ_SYS_TRANS") is not None
    assert groups.find("TOOLS_CONSUMER") is not None


@pytest.mark.parametrize("name", ["", "a b", "x" * 121, "x" * 256, "g@t"])
def test_group_of_a_name_that_no_group_can_have_is_refused_with_the_reason(name: str) -> None:
    groups = manager()
    with pytest.raises(
        RefusedError, match=r"blank|illegal|120 are allowed|longer than 255"
    ) as raised:
        groups.find(name)
    assert raised.value.code == ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST
    assert name not in groups.subscription_group_table


def test_long_group_that_another_broker_has_accepted_is_found() -> None:
    groups = manager()
    groups.update(SubscriptionGroupConfig("x" * 200))
    assert groups.find("x" * 200) == SubscriptionGroupConfig("x" * 200)


def test_where_a_group_reads_is_kept() -> None:
    groups = manager()
    groups.update(SubscriptionGroupConfig("G", broker_id=2, which_broker_when_consume_slowly=3))
    found = groups.find("G")
    assert found is not None
    assert (found.broker_id, found.which_broker_when_consume_slowly) == (2, 3)


def test_deleting_an_unknown_group_changes_nothing() -> None:
    groups = manager()
    version = groups.data_version
    assert not groups.delete("G")
    assert groups.data_version == version


def test_a_slave_takes_the_masters_table_over_once() -> None:
    groups = manager()
    wrapper = SubscriptionGroupWrapper(DataVersion(9, 1), {"G": SubscriptionGroupConfig("G")})
    assert groups.replace(wrapper)
    assert list(groups.subscription_group_table) == ["G"]
    assert not groups.replace(wrapper)


@pytest.mark.parametrize("run", VERSIONS)
@pytest.mark.parametrize("name", ["subscriptionGroup.json", "subscriptionGroup.json.bak"])
def test_apache_files_are_taken_over(run: str, name: str, tmp_path: Path) -> None:
    path = unpack_store(run, "master", tmp_path) / "config" / name
    groups = SubscriptionGroupManager(
        config=live_config(auto_create_subscription_group=False),
        file=ConfigFile(path, disk=InlineDisk()),
        wall_clock=SettableClock(),
    )
    groups.load()
    assert groups.find("pushers") is not None
    assert groups.data_version.counter > 0


def test_a_change_that_the_file_cannot_hold_is_not_made() -> None:
    disk = MemoryDisk()
    groups = manager(disk)
    groups.update(SubscriptionGroupConfig("G", broker_id=2))
    before = groups.wrapper()

    disk.is_full = True
    for change in (
        lambda: groups.update(SubscriptionGroupConfig("G", broker_id=3)),
        lambda: groups.update(SubscriptionGroupConfig("H")),
        lambda: groups.delete("G"),
    ):
        with pytest.raises(ConfigFileError, match=r"subscriptionGroup\.json cannot be written"):
            change()
        assert groups.wrapper() == before
    # A reader does not have to wait for room.
    assert groups.find("new") == SubscriptionGroupConfig("new")
    assert groups.wrapper() == before
    disk.is_full = False
    groups.find("new")
    again = manager(disk)
    again.load()
    assert again.wrapper() == groups.wrapper() != before


def test_a_slave_s_newer_table_is_joined() -> None:
    ours, slave = manager(), manager()
    slave.update(SubscriptionGroupConfig("late", retry_max_times=3))
    assert ours.join(slave.wrapper())
    assert ours.subscription_group_table["late"].retry_max_times == 3
    assert not ours.join(slave.wrapper())
