"""Settings of topics and groups as the recorded runs carried them."""

import pytest
from tests.golden.exchanges import answer_bodies
from tests.golden.golden import VERSIONS, as_4_9_wrote

from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.offsets import DelayOffsetWrapper
from rocketrio_protocol.bodies.topics import (
    DataVersion,
    Permission,
    SubscriptionGroupConfig,
    SubscriptionGroupWrapper,
    TopicConfig,
    TopicConfigAndMappingSerializeWrapper,
    TopicConfigSerializeWrapper,
)
from rocketrio_protocol.codes import RequestCode


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (RequestCode.GET_ALL_TOPIC_CONFIG, TopicConfigSerializeWrapper),
        (RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, SubscriptionGroupWrapper),
        (RequestCode.GET_ALL_DELAY_OFFSET, DelayOffsetWrapper),
    ],
)
def test_what_slaves_of_4_9_7_copy_is_written_again_to_the_byte(
    code: RequestCode, kind: type[TopicConfigSerializeWrapper]
) -> None:
    recorded = answer_bodies("4.9.7", "broker", code)
    assert recorded
    for body in recorded:
        assert as_4_9_wrote(fastjson.dumps(fastjson.loads(body, kind))) == body


def test_what_slaves_of_5_3_3_copy_is_written_again_to_the_byte() -> None:
    for body in answer_bodies("5.3.3", "broker", RequestCode.GET_ALL_TOPIC_CONFIG):
        written = fastjson.dumps(fastjson.loads(body, TopicConfigAndMappingSerializeWrapper))
        assert written == body
    for body in answer_bodies("5.3.3", "broker", RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG):
        written = fastjson.dumps(fastjson.loads(body, SubscriptionGroupWrapper))
        assert written == body.replace(b'"forbiddenTable":{},', b"")


def test_settings_that_differ_in_an_attribute_are_written_each_as_it_is() -> None:
    plain, fifo = TopicConfig("T"), TopicConfig("T", attributes={"message.type": "FIFO"})
    assert b'"attributes":{}' in fastjson.dumps(plain)
    assert b'"attributes":{"message.type":"FIFO"}' in fastjson.dumps(fifo)


@pytest.mark.parametrize("run", VERSIONS)
def test_topics_are_read(run: str) -> None:
    for body in answer_bodies(run, "broker", RequestCode.GET_ALL_TOPIC_CONFIG):
        wrapper = fastjson.loads(body, TopicConfigSerializeWrapper)
        assert wrapper.topic_config_table["SCHEDULE_TOPIC_XXXX"].read_queue_nums == 18


def test_the_next_version_counts_and_takes_the_time() -> None:
    assert DataVersion(3, 10).next_version(20) == DataVersion(4, 20)
    assert DataVersion(3, 10) != DataVersion(3, 11)


def test_new_topic_and_group_have_rocketmqs_defaults() -> None:
    topic = TopicConfig("T")
    assert (topic.read_queue_nums, topic.perm, topic.topic_filter_type) == (16, 6, "SINGLE_TAG")
    group = SubscriptionGroupConfig("G")
    assert (group.broker_id, group.which_broker_when_consume_slowly) == (0, 1)
    assert (group.retry_queue_nums, group.retry_max_times) == (1, 16)


def test_all_permissions_are_7() -> None:
    assert Permission.READ | Permission.WRITE | Permission.INHERIT == 7
