from pathlib import Path

import pytest
from tests.broker.builders import config_file, live_config
from tests.golden.exchanges import exchanges_of
from tests.golden.golden import VERSIONS, as_4_9_wrote, unpack_store
from tests.support.clocks import SettableClock

from rocketrio_broker.store.disk import InlineDisk
from rocketrio_broker.tables.config_file import ConfigFile, ConfigFileError
from rocketrio_broker.tables.topics import TopicConfigManager
from rocketrio_broker.testing.memory_disk import MemoryDisk
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.registration import decode_register_body
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    DataVersion,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode


def manager(disk: MemoryDisk | None = None, **settings: object) -> TopicConfigManager:
    return TopicConfigManager(
        config=live_config(**settings),
        file=config_file("topics.json", disk),
        wall_clock=SettableClock(),
    )


def test_a_fresh_broker_has_the_topics_that_4_9_7_registers() -> None:
    first = exchanges_of("4.9.7", "namesrv", RequestCode.REGISTER_BROKER)[0].request
    registered = decode_register_body(first.body, version=first.version)
    expected = registered.topic_config_serialize_wrapper.topic_config_table
    topics = manager(default_topic_queue_nums=4)  # as that broker was started
    assert topics.topic_config_table == expected


def test_an_unknown_topic_is_made_from_its_template() -> None:
    topics = manager()
    created = topics.create_in_send("T", default_topic="TBW102", queue_nums=4)
    assert created == TopicConfig("T", 4, 4, 6)
    assert topics.topic_config("T") is created


def test_a_template_has_as_many_queues_as_it_has() -> None:
    created = manager().create_in_send("T", default_topic="TBW102", queue_nums=100)
    assert created is not None
    assert created.write_queue_nums == 8


@pytest.mark.parametrize("template", ["unknown", "BenchmarkTest"])
def test_a_topic_without_a_template_that_inherits_is_not_made(template: str) -> None:
    topics = manager()
    assert topics.create_in_send("T", default_topic=template, queue_nums=4) is None
    assert topics.topic_config("T") is None


def test_template_does_not_exist_without_auto_creation() -> None:
    topics = manager(auto_create_topic_enable=False)
    assert topics.create_in_send("T", default_topic="TBW102", queue_nums=4) is None


def test_a_known_topic_is_left_as_it_is() -> None:
    topics = manager()
    first = topics.create_in_send_back("%RETRY%G")
    version = topics.data_version
    assert topics.create_in_send_back("%RETRY%G", queue_nums=9) is first
    assert topics.create_in_send("%RETRY%G", default_topic="TBW102", queue_nums=9) is first
    assert topics.data_version == version


def test_every_change_bumps_the_version_wakes_registration_and_is_kept() -> None:
    disk = MemoryDisk()
    topics = manager(disk)
    version, changes = topics.data_version, topics.changes.value
    topics.create_in_send_back("%RETRY%G")
    topics.update(TopicConfig("T", 1, 1))
    assert topics.delete("T")
    assert topics.data_version.counter == version.counter + 3
    assert topics.changes.value == changes + 3
    again = manager(disk)
    again.load()
    assert again.topic_config_table == topics.topic_config_table
    assert again.data_version == topics.data_version


def test_deleting_an_unknown_topic_changes_nothing() -> None:
    topics = manager()
    version = topics.data_version
    assert not topics.delete("T")
    assert topics.data_version == version


def test_cluster_and_broker_names_are_system_topics() -> None:
    topics = manager()
    for name in ("lab", "broker-a", "TBW102", "rmq_sys_anything", "RMQ_SYS_TRANS_HALF_TOPIC"):
        assert topics.is_system_topic(name)
    assert not topics.is_system_topic("T")


def test_a_slave_takes_the_masters_table_over_once() -> None:
    topics = manager()
    wrapper = TopicConfigSerializeWrapper(DataVersion(9, 1), {"T": TopicConfig("T")})
    assert topics.replace(wrapper)
    assert list(topics.topic_config_table) == ["T"]
    assert not topics.replace(wrapper)


HUGE = TopicConfig("T", read_queue_nums=10**12, write_queue_nums=10**12)
AT_LIMIT = TopicConfig("T", read_queue_nums=QUEUE_NUMS_LIMIT, write_queue_nums=QUEUE_NUMS_LIMIT)


def test_queue_counts_of_a_file_and_of_peers_are_lowered_to_the_limit() -> None:
    disk = MemoryDisk()
    wrapper = TopicConfigSerializeWrapper(DataVersion(9, 1), {"T": HUGE})
    config_file("topics.json", disk).write(wrapper)
    loaded, replaced, joined = manager(disk), manager(), manager()
    loaded.load()
    assert replaced.replace(wrapper)
    assert not replaced.replace(wrapper)
    assert joined.join(TopicConfigSerializeWrapper(DataVersion(99, 2**60), {"T": HUGE}))
    for topics in (loaded, replaced, joined):
        assert topics.topic_config("T") == AT_LIMIT


def test_a_retry_topic_with_too_many_queues_is_made_with_the_limit() -> None:
    assert manager().create_in_send_back("T", queue_nums=10**12) == AT_LIMIT


def test_a_read_only_broker_registers_its_topics_as_such() -> None:
    topics = manager(broker_permission=4)
    registered = topics.registered_wrapper().topic_config_table
    assert {topic.perm for topic in registered.values()} == {4}
    assert topics.topic_config_table["SELF_TEST_TOPIC"].perm == 6


@pytest.mark.parametrize("run", VERSIONS)
@pytest.mark.parametrize("file", ["topics.json", "topics.json.bak"])
def test_apache_files_are_taken_over(run: str, file: str, tmp_path: Path) -> None:
    path = unpack_store(run, "master", tmp_path) / "config" / file
    topics = TopicConfigManager(
        config=live_config(),
        file=ConfigFile(path, disk=InlineDisk()),
        wall_clock=SettableClock(),
    )
    topics.load()
    assert topics.topic_config_table["orders"].read_queue_nums == 2
    assert topics.data_version.counter > 0


def test_the_4_9_7_file_is_written_again_to_the_same_content(tmp_path: Path) -> None:
    path = unpack_store("4.9.7", "master", tmp_path) / "config" / "topics.json"
    before = path.read_bytes()
    stored = fastjson.loads(before, TopicConfigSerializeWrapper)
    assert as_4_9_wrote(fastjson.dumps_pretty(stored)) == before


def test_a_change_that_the_file_cannot_hold_is_not_made() -> None:
    disk = MemoryDisk()
    topics = manager(disk)
    topics.update(TopicConfig("T", 4, 4, 6))
    before = topics.wrapper()
    changes = topics.changes.value
    disk.is_full = True
    for change in (
        lambda: topics.update(TopicConfig("T", 8, 8, 6)),
        lambda: topics.delete("T"),
        lambda: topics.create_in_send("U", default_topic="TBW102", queue_nums=4),
        lambda: topics.create_in_send_back("%RETRY%G"),
        topics.register_again,
    ):
        with pytest.raises(ConfigFileError, match=r"topics\.json cannot be written: \[Errno 28\]"):
            change()
        assert topics.wrapper() == before
    assert topics.changes.value == changes
    disk.is_full = False
    again = manager(disk)
    again.load()
    assert again.wrapper() == before
    topics.update(TopicConfig("T", 8, 8, 6))
    again.load()
    assert again.topic_config("T") == TopicConfig("T", 8, 8, 6)


def test_slaves_newer_table_is_joined_and_registered_under_a_new_version() -> None:
    ours, slave = manager(), manager()
    slave.update(TopicConfig("late"))
    assert ours.join(slave.wrapper())
    assert ours.topic_config("late") is not None
    assert ours.data_version.counter == slave.data_version.counter + 1
    assert ours.changes.value == 1
    assert not ours.join(slave.wrapper())


def test_a_topic_that_was_deleted_does_not_come_back_from_a_slave() -> None:
    ours, slave = manager(), manager()
    ours.update(TopicConfig("late"))
    slave.replace(ours.wrapper())
    ours.delete("late")
    assert not ours.join(slave.wrapper())
    assert ours.topic_config("late") is None
