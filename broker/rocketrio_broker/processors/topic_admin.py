"""Requests about topics: create (17, 18), delete (215), look up (21, 351, 305), clean up (316).

Answers to: AdminBrokerProcessor; RocketMQ reference, section 2.11.
Unlike Java: `order` is stored as requested, as in 5.x (4.9 stores false); deleting a topic also deletes its offsets, as
otherwise a topic created again under the name would be consumed from the middle. A deletion is recorded in the log
(store/deletion.py), and is answered once the record is on this disk, and on the slaves that a message would wait for.
"""

import logging
from collections.abc import Mapping, Sequence, Sized
from typing import Final

import msgspec

from rocketrio_broker.access.needs import (
    ADDRESS,
    CREATE,
    DELETE,
    GET,
    UPDATE,
    C,
    Facts,
    Need,
    T,
    refuse_many,
    topic_need,
)
from rocketrio_broker.requests.audit import nothing_named
from rocketrio_broker.requests.declaration import Audited, answers
from rocketrio_broker.role.answering import SERVING
from rocketrio_broker.settings.config import LiveConfig
from rocketrio_broker.state import BrokerState
from rocketrio_broker.store.deletion import deletion_record
from rocketrio_broker.store.put_message import PutStatus
from rocketrio_broker.tables.attributes import read_changes, topic_attributes
from rocketrio_protocol.bodies import fastjson
from rocketrio_protocol.bodies.route import TopicList
from rocketrio_protocol.bodies.topics import (
    QUEUE_NUMS_LIMIT,
    TopicConfig,
    TopicConfigList,
    TopicConfigSerializeWrapper,
    with_mappings,
)
from rocketrio_protocol.codes import VERSION_5, VERSION_5_3_3, RequestCode, ResponseCode, code_name
from rocketrio_protocol.command import RemotingCommand
from rocketrio_protocol.commands import admin
from rocketrio_protocol.errors import BrokerSystemError
from rocketrio_protocol.names import topic_name_problem
from rocketrio_protocol.remoting.channel import Channel

logger = logging.getLogger("rocketrio_broker.topics")

MAX_PERM: Final = 15  # All permission bits.
LIST_LIMIT: Final = 1000
"""The most topics, or groups, that one request changes: some 15 ms."""
TOPIC_FILTER_TYPES: Final = ("SINGLE_TAG", "MULTI_TAG")
"""The names of Java's enum: Java peers cannot read a topic table with another name in it."""


def is_left_to_master(config: LiveConfig, request: RemotingCommand) -> bool:
    """Return whether this is a slave that answers a change with success, and makes it when its master has made it.

    Programs for 5.x change topics and groups at every broker, a slave first if its address comes first, and stop at a
    refusal. A change that a slave made itself would be undone by its next copy of the master's tables, as it is on
    Apache's slaves. Raises BrokerSystemError on a slave for other programs, which get what slaves of 4.9 answer.
    """
    if not config.broker.is_slave:
        return False
    if request.version < VERSION_5:
        raise BrokerSystemError(
            "This broker is a slave",
            remark="Can't modify it on a slave, please modify it on the master",
        )
    logger.info("change left to the master request=%s", code_name(request.code, RequestCode))
    return True


def refuse_long_list(entries: Sized) -> None:
    """Raise BrokerSystemError for more topics or groups than one request may change."""
    if len(entries) > LIST_LIMIT:
        raise BrokerSystemError(f"A request changes {LIST_LIMIT} at most, not {len(entries)}")


def _needs_of_create(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    return (_need(request.header(admin.CreateTopicRequestHeader).topic, facts),)


def _needs_of_list(request: RemotingCommand, facts: Facts) -> Sequence[Need]:
    body = request.json_body(TopicConfigList, what="list of topics")
    refuse_many(body.topic_config_list)
    return [_need(topic.topic_name, facts) for topic in body.topic_config_list]


def _need(name: str, facts: Facts) -> Need:
    return topic_need(name, UPDATE if facts.has_topic(name) else CREATE)


def _listed(request: RemotingCommand) -> list[str]:
    body = fastjson.loads_bounded(request.body, TopicConfigList, what="list of topics")
    return [each.topic_name for each in body.topic_config_list]


class TopicAdminProcessor:
    """Answers administrators' requests about topics."""

    def __init__(self, broker: BrokerState) -> None:
        self._broker = broker

    def _topic(self, names: Mapping[str, str]) -> TopicConfig | None:
        return self._broker.topics.topic_config(names["topic"])

    def _topics(self, names: Sequence[str]) -> dict[str, TopicConfig | None]:
        return {name: self._broker.topics.topic_config(name) for name in names}

    def _count(self, names: object) -> dict[str, int]:
        return {"topics_with_queues": len(self._broker.store.queues())}

    @answers(
        admin.CreateTopicRequestHeader,
        needs=_needs_of_create,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(state=_topic),
    )
    async def update_and_create_topic(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        header = request.header(admin.CreateTopicRequestHeader)
        topic = TopicConfig(
            topic_name=header.topic,
            read_queue_nums=header.read_queue_nums,
            write_queue_nums=header.write_queue_nums,
            perm=header.perm,
            topic_filter_type=header.topic_filter_type,
            topic_sys_flag=header.topic_sys_flag or 0,
            order=header.order,
            attributes=read_changes(header.attributes or ""),
        )
        return await self._update(request, [topic])

    @answers(
        RequestCode.UPDATE_AND_CREATE_TOPIC_LIST,
        needs=_needs_of_list,
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(names=_listed, state=_topics),
    )
    async def update_and_create_topics(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand:
        body = fastjson.loads_bounded(request.body, TopicConfigList, what="list of topics")
        refuse_long_list(body.topic_config_list)
        return await self._update(request, body.topic_config_list)

    async def _update(
        self, request: RemotingCommand, topics: Sequence[TopicConfig]
    ) -> RemotingCommand:
        """Create or change all of these topics, or none; the names of their attributes have signs."""
        if is_left_to_master(self._broker.config, request):
            return request.response()
        self._broker.topics.update_all([self._checked(topic) for topic in topics])
        # Messages that survive a power cut cannot be read without their topic. This blocks for some milliseconds.
        self._broker.topics.table.sync()
        # The client that created the topic asks for its route next.
        await self._broker.registration.wait_registered()
        return request.response()

    def _checked(self, topic: TopicConfig) -> TopicConfig:
        """Return the topic with the attributes that it will have. Raises BrokerSystemError for invalid settings."""
        name = topic.topic_name
        self._refuse_name(name)
        for queue_nums in (topic.read_queue_nums, topic.write_queue_nums):
            if not 0 <= queue_nums <= QUEUE_NUMS_LIMIT:
                raise BrokerSystemError(
                    f"The topic {name} cannot have {queue_nums} queues; 0 to {QUEUE_NUMS_LIMIT} are allowed"
                )
        if topic.topic_filter_type not in TOPIC_FILTER_TYPES:
            raise BrokerSystemError(
                f"The topic {name} cannot have the topicFilterType {topic.topic_filter_type!r}; "
                f"{' and '.join(TOPIC_FILTER_TYPES)} are allowed"
            )
        if not 0 <= topic.perm <= MAX_PERM:
            raise BrokerSystemError(
                f"The topic {name} cannot have perm {topic.perm}; 0 to {MAX_PERM} are allowed"
            )
        known = self._broker.topics.topic_config(name)
        attributes = topic_attributes(name, known, topic.attributes)
        return msgspec.structs.replace(topic, attributes=attributes)

    @answers(
        admin.DeleteTopicInBrokerRequestHeader,
        needs=T(DELETE),
        known_by=ADDRESS,
        standing=SERVING,
        held=True,
        audit=Audited(state=_topic),
    )
    async def delete_topic(
        self, channel: Channel, request: RemotingCommand
    ) -> RemotingCommand | None:
        if is_left_to_master(self._broker.config, request):
            return request.response()  # The master's deletion arrives here with its log.
        header = request.header(admin.DeleteTopicInBrokerRequestHeader)
        self._refuse_name(header.topic)
        if not self._broker.store.writable:
            raise BrokerSystemError(
                "A topic cannot be deleted while this broker takes no writes",
                remark=self._broker.store.refusal,
            )
        # Offsets are deleted first: after a crash in between the topic is consumed again from its beginning, and its
        # old offsets are not taken for those of a new topic.
        await self._broker.consumer_offsets.remove_topic(header.topic)
        self._broker.topics.delete(header.topic)
        self._delete_queues(header.topic)
        # Write the deletion to the disk with the new state of offsets and queues, so that a recovery begins after the
        # record and does not process it again.
        await self._broker.consumer_offsets.sync()
        await self._broker.store.checkpoint()
        if request.is_oneway or not self._broker.waiting_answers.is_needed:
            return request.response()
        # The topic is deleted here in any case: a client that repeats the request would delete it a second time.
        self._broker.waiting_answers.add(
            self._broker.store.max_physical_offset,
            channel,
            request.response().encode(),
            late_is_success=True,
        )
        return None

    @answers(admin.GetAllTopicConfigRequestHeader, needs=C(GET), known_by=ADDRESS)
    def all_topic_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        wrapper = self._broker.topics.wrapper()
        if VERSION_5 <= request.version <= VERSION_5_3_3:
            wrapper = _without_attributes(wrapper)
        # A slave copies no tables from a master that has not joined them with that slave's yet.
        header = admin.GetAllTopicConfigResponseHeader(self._broker.standing.stands_aside or None)
        return request.response(header, body=fastjson.dumps(with_mappings(wrapper)))

    @answers(admin.GetTopicConfigRequestHeader, needs=T(GET), known_by=ADDRESS)
    def topic_config(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        header = request.header(admin.GetTopicConfigRequestHeader)
        topic = self._broker.topics.topic_config(header.topic)
        if topic is None:
            return request.response(
                code=ResponseCode.TOPIC_NOT_EXIST,
                remark=f"No topic in this broker. topic: {header.topic}",
            )
        return request.response(body=fastjson.dumps(topic))

    @answers(admin.GetSystemTopicListFromBrokerRequestHeader, needs=C(GET), known_by=ADDRESS)
    def system_topic_list(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        return request.response(body=TopicList(sorted(self._broker.topics.system_topics)).to_json())

    @answers(
        admin.CleanUnusedTopicsRequestHeader,
        needs=C(UPDATE),
        known_by=ADDRESS,
        standing=SERVING,
        audit=Audited(names=nothing_named, state=_count),
    )
    def clean_unused_topic(self, channel: Channel, request: RemotingCommand) -> RemotingCommand:
        topics = self._broker.topics
        for topic in list(self._broker.store.queues()):
            if topics.topic_config(topic) is None and not topics.is_system_topic(topic):
                if self._broker.config.broker.is_slave:
                    self._broker.store.delete_topic(topic)
                else:
                    self._delete_queues(topic)
        return request.response()

    def _delete_queues(self, topic: str) -> None:
        """Delete the topic's queues, here and on every broker that reads this log. Raises BrokerSystemError."""
        record = deletion_record(
            topic,
            str(self._broker.consumer_offsets.topic_floor(topic)),
            host=self._broker.store_host,
            now_ms=self._broker.wall_clock.now_ms(),
        )
        result = self._broker.store.append(record)
        if result.status is not PutStatus.PUT_OK:
            raise BrokerSystemError(
                f"The queues of topic {topic} were not deleted", remark=result.remark
            )
        self._broker.store.delete_topic(topic)
        logger.info("topic deleted topic=%s offset=%d", topic, result.physical_offset)

    def _refuse_name(self, topic: str) -> None:
        problem = topic_name_problem(topic)
        if problem is None and self._broker.topics.is_system_topic(topic):
            problem = f"The topic[{topic}] is conflict with system topic."
        if problem is not None:
            raise BrokerSystemError(problem)


def _without_attributes(wrapper: TopicConfigSerializeWrapper) -> TopicConfigSerializeWrapper:
    """Return the table as Apache's slaves up to 5.3.3 can copy it.

    They empty their own table first and stop at the first topic with an attribute, so that the other topics are lost.
    """
    table = {
        name: msgspec.structs.replace(topic, attributes={}) if topic.attributes else topic
        for name, topic in wrapper.topic_config_table.items()
    }
    return TopicConfigSerializeWrapper(wrapper.data_version, table)
